"""Drafts and reviews with the real `gh`, against a scripted GitHub over TLS."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import wait_until
from tests.conftest import git
from tests.forge.conftest import ScriptedGitHub
from tests.forge.github_api import TOKEN
from tests.forge.projects import VERIFY, Project, make_project
from tests.forge.scenes import act, creates, killed_at, require_no_harm, require_shown, well
from tests.forge.scripted_server import CUT, Fault, Request

pytestmark = pytest.mark.forge

EIGHT = ("a", "b", "c", "d", "e", "f", "g", "h")


@pytest.fixture
def project(tmp_path: Path, repo: Path, real_github: ScriptedGitHub) -> Project:
    """Return a project on the scripted service, with the real `gh`."""
    return make_project(tmp_path, repo, real_github)


def eight(project: Project) -> None:
    """Write eight stories; `b` stands on `a`, and `c` on `b`."""
    for story_id in EIGHT:
        needs = {"b": ["a"], "c": ["b"]}.get(story_id, [])
        project.story(story_id, depends_on=needs)


def bases(project: Project) -> dict[str, str]:
    """Return what the draft of each story is meant for."""
    return {story_id: project.pull_of(story_id)["base"]["ref"] for story_id in EIGHT}


STACKED = dict.fromkeys(EIGHT, "main") | {"b": "autopilot/a", "c": "autopilot/b"}


def test_eight_stories_of_which_two_are_stacked(project: Project) -> None:
    """Each has one draft, on its parent's branch where it has a parent; a second call sends nothing."""
    eight(project)
    well(project.run("--draft-mr=on-green"))
    assert bases(project) == STACKED
    require_shown(project, *EIGHT)
    require_no_harm(project)
    before = project.outward()
    well(project.run("pr"))
    assert project.outward() == before


def test_kills_leave_no_second_draft(project: Project) -> None:
    """Killed at the third and the fifth draft and at a status, then an answer is lost: eight in the end."""
    eight(project)

    def at(number: int) -> Any:
        return lambda request: creates(request) and len(project.pulls) == number

    killed_at(project, at(2), "--draft-mr=on-green")
    killed_at(project, at(4), "resume")
    killed_at(project, lambda request: request.line.startswith("POST repos/acme/shop/statuses"), "resume")
    project.api.faults.append(Fault(kind=CUT, when=creates, done=True))
    well(project.run("resume"))
    assert bases(project) == STACKED
    require_shown(project, *EIGHT)
    require_no_harm(project)


def test_resume_completes_what_pr_had_planned(project: Project) -> None:
    """Also where the run itself opens no drafts; a story without an intent gets none by that."""
    project.story("a")
    project.story("b")
    well(project.run())
    killed_at(project, creates, "pr", "a")
    ran = well(project.run("resume"))
    assert "draft of a " in ran.err
    assert len(project.pulls) == 1
    require_shown(project, "a")
    before = project.outward()
    well(project.run("resume"))
    assert project.outward() == before


def test_a_draft_with_the_first_commit_is_updated_when_the_story_is_done(project: Project) -> None:
    """It says that the work is in progress, then that it is done; its title and words of people stay."""
    go = project.repo.parent / "go"
    wait = f"until test -f {go}; do sleep 0.05; done"
    project.actors.story("a", act("a", "made"), verify=[VERIFY, wait])
    with project.started("--draft-mr=on-loop-start", "--no-guard") as running:
        wait_until(lambda: project.pulls, what="the draft is open")
        pull = project.pull_of("a")
        early = pull["body"]
        pull["title"], pull["body"] = "My title", f"My words.\n\n{early}\n\nMore of them."
        go.touch()
        ended = running.finish()
    well(ended)
    assert "**In progress**" in early
    assert pull["title"] == "My title"
    assert pull["body"].startswith("My words.\n\n")
    assert pull["body"].endswith("\n\nMore of them.")
    require_shown(project, "a")


def test_dry_run_lists_every_act_and_does_none(project: Project) -> None:
    """Push, draft and status of each story are listed; the service is only read, and nothing is pushed."""
    eight(project)
    well(project.run())
    shown = well(project.run("pr", "--dry-run"))
    for story_id in EIGHT:
        assert f"would push autopilot/{story_id} at " in shown.out
        opens = f"would open a draft pull request autopilot/{story_id} -> {STACKED[story_id]}: {story_id}"
        assert opens in shown.out
    assert shown.out.count("would set the status of ") == len(EIGHT)
    assert project.outward() == []
    assert git(project.bare, "branch", "--list", "autopilot/*") == ""
    assert "autopilot-multi:begin" not in project.everything_written().decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fork": True}, "is acme/shop, a fork of upstream/shop"),
        ({"permissions": {"push": False}}, "you may not push to acme/shop"),
        ({"protected": {"autopilot/a"}}, "autopilot/a is a protected branch of acme/shop"),
    ],
    ids=["fork", "read-only", "protected"],
)
def test_forks_and_protected_branches_are_refused(
    project: Project, change: dict[str, Any], words: str
) -> None:
    """The message says what it is and what to do; nothing is pushed, nothing sent."""
    project.story("a")
    well(project.run())
    if "protected" in change:
        git(project.repo, "push", "-q", "origin", "main:refs/heads/autopilot/a")
    for name, value in change.items():
        setattr(project.api.repo, name, value)
    ran = well(project.run("pr", "a"), 2)
    assert words in ran.err
    assert project.outward() == []
    there = git(project.bare, "for-each-ref", "--format=%(objectname)", "refs/heads/autopilot/a").strip()
    assert there in {"", git(project.repo, "rev-parse", "main").strip()}


def test_nothing_is_pushed_by_force_and_a_closed_draft_stays_closed(project: Project) -> None:
    """What somebody pushed to the branch of a draft stays; so does the word of who closed it."""
    project.story("a", act("a", "made"), act("a", "better"))
    well(project.run("--draft-mr=on-green"))
    foreign = git(project.repo, "commit-tree", "-m", "theirs", "-p", "autopilot/a", "main^{tree}").strip()
    git(project.repo, "push", "-q", "origin", f"{foreign}:refs/heads/autopilot/a")
    project.api.add_review_comment(1, "Better, please.")
    ran = project.run("watch-prs", "--once")
    assert "nothing is pushed by force" in ran.err
    assert git(project.bare, "rev-parse", "autopilot/a").strip() == foreign
    project.pull_of("a")["state"] = "closed"
    before = project.outward()
    ran = well(project.run("pr", "a"), 2)
    assert "was closed by somebody" in ran.err
    assert project.outward() == before


def test_failed_checks_and_reviews_become_one_attempt(project: Project) -> None:
    """A check, a review and a note are quoted together; the answer names whom it is for."""
    project.story("a", act("a", "made"), act("a", "better"))
    well(project.run("--draft-mr=on-green"))
    tip = git(project.repo, "rev-parse", "autopilot/a").strip()
    failed = {"id": 77, "name": "lint", "conclusion": "failure", "output": {"title": "2 findings"}}
    project.api.repo.check_runs[tip] = [failed, {**failed, "id": 78, "name": "unit", "conclusion": "success"}]
    project.api.add_review(1, "CHANGES_REQUESTED", "Not yet. Closes #1, @everybody", user={"login": "bob"})
    project.api.add_review(1, "APPROVED", "Fine.")
    well(project.run("watch-prs", "--once"))
    prompt = project.actors.prompt("a")
    assert "the check lint failed:\n\n    > 2 findings" in prompt
    assert "bob says:\n\n    > Not yet." in prompt
    assert "unit" not in prompt
    assert "Fine." not in prompt
    (answer,) = project.api.repo.comments[1]
    assert answer["body"].startswith("About what bob said, the check lint: changed in ")
    require_no_harm(project)


def test_rounds_end_and_the_reviewers_learn_it_once(project: Project) -> None:
    """After `review-rounds` attempts a comment leads to no more; a note in the draft says so, one time."""
    with (project.repo / "autopilot-multi.toml").open("a") as file:
        file.write("review-rounds = 1\n")
    project.story("a", *(act("a", text) for text in ("made", "better", "best")))
    well(project.run("--draft-mr=on-green"))
    project.api.add_review_comment(1, "Better, please.")
    well(project.run("watch-prs", "--once"))
    project.api.add_review_comment(1, "Even better, please.")
    for _ in range(2):
        ran = well(project.run("watch-prs", "--once"))
        assert "review-rounds allows no more" in ran.out
    assert len(project.actors.calls("a")) == 2
    (note,) = project.api.repo.comments[1]
    assert "which is the limit" in note["body"]


def test_contradictory_suggestions_are_a_decision(project: Project) -> None:
    """Which of them is followed is asked, once; the answer goes into the prompt of the attempt."""
    project.story("a", act("a", "made"), act("a", "better"))
    well(project.run("--draft-mr=on-green"))
    for who, text in (("alice", "yes"), ("bob", "no")):
        body = f"This is better:\n```suggestion\n{text}\n```"
        project.api.add_review_comment(1, body, path="made-a.txt", line=1, user={"login": who})
    for _ in range(2):
        well(project.run("watch-prs", "--once"))
    assert len(project.actors.calls("a")) == 1
    listed = well(project.run("decide"))
    assert "reviewers want different things" in listed.out
    assert "B) Follow bob — no" in listed.out
    decided = well(project.run("decide", "a", "B"))
    assert "autopilot-multi watch-prs --once" in decided.out
    well(project.run("watch-prs", "--once"))
    assert "The user has decided: a: reviewers want different things: B) Follow bob — no" in (
        project.actors.prompt("a")
    )
    assert len(project.actors.calls("a")) == 2
    answers = [each for each in project.api.repo.review_comments[1] if "in_reply_to_id" in each]
    assert len(answers) == 2
    before = project.outward()
    well(project.run("watch-prs", "--once"))
    assert project.outward() == before


def test_killed_between_answers_none_is_given_twice(project: Project) -> None:
    """The mark of an answer is found again; the comment that has none yet gets its own."""
    project.story("a", act("a", "made"), act("a", "better"))
    well(project.run("--draft-mr=on-green"))
    for number in range(3):
        project.api.add_review_comment(1, f"Point {number}.", line=number + 1)

    def second_answer(request: Request) -> bool:
        there = [each for each in project.api.repo.review_comments[1] if "in_reply_to_id" in each]
        return request.line.endswith("/replies") and len(there) == 1

    killed_at(project, second_answer, "watch-prs", "--once")
    well(project.run("watch-prs", "--once"))
    answered = [
        each["in_reply_to_id"] for each in project.api.repo.review_comments[1] if "in_reply_to_id" in each
    ]
    assert len(answered) == len(set(answered)) == 3
    assert len(project.actors.calls("a")) == 2


def test_land_pr_hands_drafts_to_the_queue_of_the_forge(project: Project) -> None:
    """Those on the target become ready and are queued; a stacked one waits; nothing is merged by us."""
    project.story("a")
    project.story("b", depends_on=["a"])
    well(project.run("--draft-mr=on-green"))
    shown = well(project.run("land", "--pr", "--dry-run"))
    assert "a                        would be handed to the queue of the forge" in shown.out
    assert project.pull_of("a")["draft"]
    ran = well(project.run("land", "--pr", "--json"))
    assert [each["id"] for each in ran.data["queued"]] == ["a"]
    assert [each["id"] for each in ran.data["waiting"]] == ["b"]
    assert (project.pull_of("a")["draft"], project.pull_of("a")["queued"]) == (False, True)
    assert (project.pull_of("b")["draft"], project.pull_of("b").get("queued")) == (True, None)
    assert project.api.merges == 0
    assert json.loads(ran.out)["success"]


def test_a_run_that_could_open_no_drafts_does_not_start(project: Project) -> None:
    """What is wrong is found before a session is paid for; an outage is not: that may be over in time."""
    project.story("a")
    shown = well(project.run("plan", "--draft-mr=on-green"))
    assert "when it is done, the branch of each story is pushed to origin" in shown.err
    project.api.repo.fork = True
    refused = well(project.run("--draft-mr=on-green"), 1)
    assert "a fork of upstream/shop" in refused.err
    project.api.repo.fork = False
    git(project.repo, "remote", "set-url", "origin", str(project.bare))
    refused = well(project.run("--draft-mr=on-green"), 1)
    assert "the remote origin is on no forge that is known" in refused.err
    assert not (project.repo.parent / "actors" / "a.calls").exists()


def test_killed_in_an_attempt_the_next_round_continues_it(project: Project) -> None:
    """What was taken up is not lost with the process: the attempt ends, and the comment has one answer."""
    hold = project.repo.parent / "hold"
    wait = f"while test -f {hold}; do sleep 0.05; done"
    project.actors.story("a", act("a", "made"), act("a", "better"), verify=[VERIFY, wait])
    well(project.run("--draft-mr=on-green"))
    project.api.add_review_comment(1, "Better, please.")
    hold.touch()

    def in_progress(request: Request) -> bool:
        return request.method == "PATCH" and "**In progress**" in request.body["body"]

    killed_at(project, in_progress, "watch-prs", "--once")
    hold.unlink()
    seen = well(project.run("watch-prs", "--once"))
    assert "an attempt was interrupted" in seen.out
    require_shown(project, "a")
    answers = [each for each in project.api.repo.review_comments[1] if "in_reply_to_id" in each]
    assert len(answers) == 1


def test_what_an_agent_says_is_published_without_secrets(project: Project) -> None:
    """Its notes are quoted in the draft; a token in them is not, and they mention and close nothing."""
    notes = json.dumps({"status": "done", "notes": f"used {TOKEN} as @everybody said, closes #1"})
    files = {"made-a.txt": "made\n", ".orchestrator/01-implement-1.result.json": notes}
    project.story("a", {**act("a", "made"), "files": files})
    well(project.run("--draft-mr=on-green"))
    body = project.pull_of("a")["body"]
    assert "### What was done\n\n> used \\[redacted\\] as @\u200beverybody said, closes \\#1\n" in body
    assert TOKEN not in str([each.body for each in project.api.book])
