"""Drafts on a scripted GitLab: what the door sends, and what it makes of the answers."""

import pytest

from runner.forge.drafts.gitlab import GitLab
from runner.forge.drafts.hosted import Verdict, mark_of
from tests.forge.direct import direct
from tests.forge.merge_requests import PROJECT, GitLabApi

COMMIT = "c0ffee" * 6 + "c0ff"


@pytest.fixture
def api() -> GitLabApi:
    """Return a service with two branches."""
    api = GitLabApi()
    api.branches |= {"main": "0" * 40, "autopilot/a": COMMIT}
    return api


@pytest.fixture
def forge(api: GitLabApi) -> GitLab:
    """Return the project; requests reach the service without a program in between."""
    return GitLab(rest=direct(api, "GitLab"), name=PROJECT)


def test_a_draft_is_created_found_and_updated(api: GitLabApi, forge: GitLab) -> None:
    """Its title keeps what people made of it; one of a fork's branch is not ours."""
    assert forge.find("autopilot/a") is None
    made = forge.create("autopilot/a", "main", "A title", "text")
    assert api.requests[1]["title"] == "Draft: A title"
    forge.update(made.number, base="main", body="new text")
    found = forge.find("autopilot/a")
    assert found is not None
    assert (found.number, found.body, found.draft, found.is_open, found.commit) == (
        1,
        "new text",
        True,
        True,
        COMMIT,
    )
    api.requests[1]["source_project_id"] = 8
    assert forge.find("autopilot/a") is None


def test_what_the_project_says_of_itself(api: GitLabApi, forge: GitLab) -> None:
    """Forks, protected branches, and those that are not there."""
    assert (forge.hosted().fork_of, forge.hosted().pushes, forge.hosted().default_branch) == (
        "",
        True,
        "main",
    )
    api.forked = {"path_with_namespace": "up/shop"}
    assert forge.hosted().fork_of == "up/shop"
    api.protected.add("main")
    assert [forge.is_protected(name) for name in ("main", "autopilot/a", "gone")] == [True, False, None]


def test_statuses_and_failed_jobs(api: GitLabApi, forge: GitLab) -> None:
    """Our own status is no failed job, and neither is one that may fail."""
    forge.set_status(COMMIT, Verdict.FAILURE, "no", "")
    job = {"id": 5, "status": "failed", "name": "lint", "description": "2 findings"}
    api.statuses[COMMIT] += [job, {**job, "id": 6, "allow_failure": True}]
    forge.create("autopilot/a", "main", "A title", "text")
    (item,) = forge.said(1, COMMIT, ()).items
    assert (item.id, item.kind, item.author, item.text) == ("check-5", "check", "lint", "2 findings")


def test_only_people_who_may_push_are_listened_to(api: GitLabApi, forge: GitLab) -> None:
    """Guests are strangers unless they are named; their marks are not ours; resolved threads are over."""
    forge.create("autopilot/a", "main", "A title", "text")
    line = {"position": {"new_path": "a.py", "new_line": 3}}
    note = api.add_note(1, "alice", "Better.", **line)
    api.add_note(1, "guest", f"Worse. {mark_of('answer x')}")
    api.add_note(1, "alice", "Done by now.", resolved=True)
    api.add_note(1, "alice", "changed the title", system=True)
    said = forge.said(1, COMMIT, ())
    assert [(each.author, each.path, each.line, each.text) for each in said.items] == [
        ("alice", "a.py", 3, "Better.")
    ]
    assert (said.strangers, said.marks) == (("guest",), frozenset())
    forge.answer(1, said.items[0].thread, f"Changed. {mark_of('answer y')}")
    forge.answer(1, "", f"Also this. {mark_of('answer z')}")
    assert api.discussions[1][0]["notes"][1]["body"].startswith("Changed.")
    again = forge.said(1, COMMIT, ("guest",))
    assert again.marks == {"answer x", "answer y", "answer z"}
    assert [each.id for each in again.items] == [f"note-{note['id']}"]


@pytest.mark.parametrize(("trains", "queue"), [(True, "train"), (False, "pipeline")])
def test_the_queue_is_the_train_or_the_pipeline(
    api: GitLabApi, forge: GitLab, *, trains: bool, queue: str
) -> None:
    """The draft becomes ready; a merge at once is never asked for."""
    api.trains = trains
    forge.enqueue(forge.create("autopilot/a", "main", "A title", "text"), "squash")
    assert (api.requests[1]["title"], api.requests[1]["queued"], api.merges) == ("A title", queue, 0)
    *_, last = api.book
    assert (last.body["sha"], last.body["squash"]) == (COMMIT, True)
