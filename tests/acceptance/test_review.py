"""The review step: a second agent reads verified work; its word costs attempts and never overrides a gate."""

from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import Ran, commit_stories, run, write_story
from tests.conftest import git

WORKER = """\
echo '{"cost": 0.5}'
echo "work $AUTOPILOT_ATTEMPT" >> "%(trace)s"
cp "$AUTOPILOT_PROMPT_FILE" "%(prompts)s/$AUTOPILOT_STORY_ID-work-$AUTOPILOT_ATTEMPT"
echo "attempt $AUTOPILOT_ATTEMPT" >> work.txt
"""
READER = """\
echo '{"cost": 0.25}'
echo "review $AUTOPILOT_ATTEMPT $(pwd | grep -c _review)" >> "%(trace)s"
cp "$AUTOPILOT_PROMPT_FILE" "%(prompts)s/$AUTOPILOT_STORY_ID-review-$AUTOPILOT_ATTEMPT"
echo changed > work.txt; echo more > more.txt; git add -A; git commit -qm "by the reviewer"
git update-ref refs/heads/autopilot/$AUTOPILOT_STORY_ID HEAD 2> /dev/null
sh "%(answers)s/$AUTOPILOT_STORY_ID"
"""


class Desk:
    """A repository with an agent that works, and one that reads and answers as it is told."""

    def __init__(self, repo: Path, tmp_path: Path) -> None:
        self.repo, self.trace = repo, tmp_path / "trace"
        self.prompts, self.answers = tmp_path / "prompts", tmp_path / "answers"
        self.prompts.mkdir()
        self.answers.mkdir()
        agents = ""
        for name, text in (("worker", WORKER), ("reader", READER)):
            script = tmp_path / f"{name}.sh"
            script.write_text(text % {"trace": self.trace, "prompts": self.prompts, "answers": self.answers})
            agents += f'[agents.{name}]\nargv = ["sh", "{script}"]\nevents = {{cost = "cost"}}\n'
        (repo / "autopilot-multi.toml").write_text(
            f'agent = "worker"\nreview = "reader"\npeer-abort = 1000\nbase-check = "off"\n{agents}'
        )

    def story(self, story_id: str, answer: str, **keys: Any) -> None:
        """Add a story whose reviewer answers by a script."""
        (self.answers / story_id).write_text(answer)
        write_story(self.repo, story_id, **{"verify": ["test -s work.txt"], **keys})

    def run(self, *args: str) -> Ran:
        """Run all stories."""
        commit_stories(self.repo)
        return run(self.repo, "run", "--json", "--max-stories=4", "--window=fixed", *args)

    def prompt(self, name: str) -> str:
        """Return what a session was told."""
        return (self.prompts / name).read_text()


@pytest.fixture
def desk(repo: Path, tmp_path: Path) -> Desk:
    return Desk(repo, tmp_path)


AGAIN = """echo '{"review": "again", "because": "the second line is missing"}'"""
ACCEPT = """echo '{"review": "accept"}' > "$AUTOPILOT_RESULT_FILE" """


def test_a_reviewer_costs_attempts_and_never_overrides_a_gate(desk: Desk) -> None:
    """*Again* is an attempt with its reason; on the last one the gates decide; what is unread is named."""
    desk.story("a", f"test $AUTOPILOT_ATTEMPT = 1 && {{ {AGAIN}; exit; }}; {ACCEPT}", body="Write two lines.")
    desk.story("always", AGAIN, max_attempts=2)
    desk.story("gate", ACCEPT, verify=["false"], max_attempts=1)
    desk.story("mumbles", "echo maybe")
    desk.story("fails", "exit 9")
    desk.story("unread", AGAIN, review="off")
    desk.story("command", ACCEPT, command="echo x > work.txt")
    ran = desk.run()
    assert ran.code == 4, ran.err
    a = ran.story("a")
    assert (a["status"], a["attempt"], a["usage"]["cost_usd"]) == ("done", 2, 1.5)
    assert a["review"] == {"by": "reader", "verdict": "accept", "because": ""}
    asked, again = desk.prompt("a-review-1"), desk.prompt("a-work-2")
    assert "Write two lines." in asked
    assert "+attempt 1" in asked
    assert "the second line is missing" in again
    assert "attempt 1 of 4 failed: review by reader: the second line is missing" in ran.err
    always = ran.story("always")
    assert (always["status"], always["attempt"]) == ("done", 2), "its gates pass, and they decide"
    assert always["review"]["verdict"] == "again"
    gate = ran.story("gate")
    assert (gate["status"], gate["review"]) == ("failed", None), "only what passes is read"
    assert ran.story("mumbles")["review"]["because"] == "it gave no answer"
    assert ran.story("fails")["review"]["because"] == "its session failed: exit code 9"
    assert ran.story("unread")["review"] is None
    assert ran.story("command")["review"]["verdict"] == "accept"
    notes = {note["story_id"]: note["message"] for note in ran.data["notes"]}
    assert notes["always"] == "review by reader: it would try again: the second line is missing"
    assert notes["mumbles"] == "review by reader: no opinion: it gave no answer"
    for name in ("a", "always", "mumbles", "fails", "command"):
        assert ran.story(name)["status"] == "done"
        assert git(desk.repo, "rev-parse", f"autopilot/{name}").strip() == ran.story(name)["commit"]
        tree = git(desk.repo, "ls-tree", "--name-only", f"autopilot/{name}").split()
        assert "more.txt" not in tree, "what it wrote is gone"
    reviews = [line for line in desk.trace.read_text().splitlines() if line.startswith("review")]
    assert reviews[0] == "review 1 1", "it reads in a checkout of its own"
    assert not list(Path(a["workspace"] or desk.repo).parent.glob("_review*"))
    text = " ".join(run(desk.repo, "status").out.split())
    assert "review by reader: would try again: the second line is missing" in text


def test_a_reviewer_without_money_is_no_opinion_and_bad_names_are_refused(desk: Desk) -> None:
    """The budget is one for all; verified work is not lost for want of a reader."""
    desk.story("a", ACCEPT)
    ran = desk.run("--story-cost-budget=0.4")
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert ran.story("a")["review"]["verdict"] == "none"
    assert "no session could start" in ran.story("a")["review"]["because"]
    refused = run(desk.repo, "plan", "--review=nobody-known")
    assert refused.code == 1
    assert "review: agent 'nobody-known' is not configured" in refused.err
