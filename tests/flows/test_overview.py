"""One page about all stories of a run: what the journal knows and what the files say, joined."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from isolation.git.repository import Repository
from runner.core import choose
from runner.core.events import events as ev
from runner.core.events.fold import fold
from runner.core.model import RunSnapshot, StoryId
from runner.flows.overview import DOCS_PAGE, PAGE, AggregatePage, rows_of, vocabulary_of
from runner.flows.state.aggregate import Row
from tests.conftest import git
from tests.flows.state.samples import text_of
from tests.records.sample_runs import BASE, COMMIT, RUN, event, started

READER = """
import sys, pathlib
page, stop = map(pathlib.Path, sys.argv[1:])
print("reading", flush=True)
while not stop.exists():
    text = page.read_text()
    assert text.startswith("# State of all stories") and text.endswith("SQLite\\n"), text
"""


def opened(story: str, path: Path) -> list[ev.Event]:
    """Create a workspace for a story."""
    name = StoryId(story)
    place = ev.WorkspaceOpened(
        story_id=name, branch=f"autopilot/{story}", path=str(path), base=BASE, head=BASE
    )
    return [event(1, ev.StoryStarted(story_id=name)), event(2, place)]


def remembered(story: str, topic: str, text: str, at: float = 5) -> ev.Event:
    """Let the journal keep what a file has no section for."""
    return event(at, ev.Remembered(story_id=StoryId(story), topic=topic, text=text))


def asked(story: str, title: str = "Red or blue?", at: float = 6) -> ev.Event:
    """Let a story ask."""
    question = choose.decision(title, ["Red", "Blue"], recommendation="B", why="it is calmer")
    return event(
        at,
        ev.DecisionAsked(
            story_id=StoryId(story), decision_id=f"{story}-1", question=choose.to_json(question)
        ),
    )


def folded(*events: ev.Event | Sequence[ev.Event]) -> RunSnapshot:
    """Fold events, or lists of them."""
    flat = [one for part in events for one in ([part] if isinstance(part, ev.Event) else part)]
    return fold(RUN, flat)


def with_file(folder: Path, sample: str, name: str = "_autopilot_state.md") -> Path:
    """Make a workspace that holds one state file."""
    (folder / "_docs").mkdir(parents=True)
    (folder / "_docs" / name).write_bytes(text_of(sample).encode())
    return folder


def by_story(rows: list[Row]) -> dict[str, Row]:
    """Find rows by their story."""
    return {row.story: row for row in rows}


@pytest.fixture
def three(tmp_path: Path) -> RunSnapshot:
    """Return a run of three stories in three dialects, and one that has no file."""
    rich = with_file(tmp_path / "w" / "rich", "rich-failed")
    pointer = with_file(tmp_path / "w" / "pointer", "pointer-plan")
    autodev = with_file(tmp_path / "w" / "autodev", "autodev-implement", "_autodev_state.md")
    return folded(
        started("rich", "pointer", "autodev", "later", flow="greenfield"),
        opened("rich", rich),
        opened("pointer", pointer),
        opened("autodev", autodev),
        remembered("pointer", "decision", "Postgres, not SQLite"),
        asked("autodev"),
    )


def test_three_dialects_are_one_list(three: RunSnapshot) -> None:
    """Acceptance 60: every story has a row, whatever its dialect, and in the order of the run."""
    rows = rows_of(three)
    assert [row.story for row in rows] == ["rich", "pointer", "autodev", "later"]
    states = [row.state for row in rows]
    assert [state.dialect.value for state in states if state] == ["rich", "pointer", "autodev", "journal"]
    assert rows[0].all_blockers()[0].startswith("Step 2b (Blackbox Test Spec) failed")
    assert rows[1].all_decisions() == ("Postgres, not SQLite",)
    assert rows[2].open_decisions == (
        "Red or blue? A) Red, B) Blue; recommended: `autopilot-multi decide autodev B`",
    )
    assert states[3] is not None
    assert (states[3].step, states[3].status.value) == ("", "not_started")


def test_files_are_read_as_they_are_now(three: RunSnapshot, tmp_path: Path) -> None:
    """What an agent writes shows at the next look, without any event."""
    path = tmp_path / "w" / "autodev" / "_docs" / "_autodev_state.md"
    before = by_story(rows_of(three))["autodev"].state
    assert before is not None
    assert before.retry_count == 0
    path.write_text(path.read_text().replace("retry_count: 0", "retry_count: 2"))
    after = by_story(rows_of(three))["autodev"].state
    assert after is not None
    assert after.retry_count == 2


def test_a_half_written_file_is_awaited(three: RunSnapshot, tmp_path: Path) -> None:
    """An agent that empties the file and then fills it is not reported as a broken file."""
    path = tmp_path / "w" / "autodev" / "_docs" / "_autodev_state.md"
    whole = path.read_text()
    path.write_text("")
    late = threading.Timer(0.1, path.write_text, [whole])
    late.start()
    row = by_story(rows_of(three))["autodev"]
    late.join()
    assert row.state is not None


def test_a_broken_file_is_a_blocker_of_its_story_alone(three: RunSnapshot, tmp_path: Path) -> None:
    """A file that stays unreadable is named, left as it is, and the others show."""
    path = tmp_path / "w" / "pointer" / "_docs" / "_autopilot_state.md"
    path.write_bytes(b"\xff\xfe nonsense")
    rows = by_story(rows_of(three))
    assert rows["pointer"].state is None
    assert rows["pointer"].all_blockers()[0].startswith("the state file ")
    assert rows["rich"].state is not None
    assert path.read_bytes() == b"\xff\xfe nonsense"


def test_retries_of_the_journal_become_rows_of_the_log(tmp_path: Path) -> None:
    """Those of the current step, with step, attempt and reason; those of steps behind it do not show."""
    run = folded(
        started("a"),
        opened("a", with_file(tmp_path / "a", "autodev-plan", "_autodev_state.md")),
        event(
            3,
            ev.PlaceFound(story_id=StoryId("a"), step_number="3", step_name="Plan", confidence=1.0),
        ),
        remembered("a", "retry", "2 Research, attempt 1: no network", at=4),
        remembered("a", "retry", "3 Plan, attempt 1: no\narchitecture", at=5),
        remembered("a", "retry", "something else", at=6),
    )
    (row,) = rows_of(run)
    assert [(entry.step, entry.name, entry.attempt, entry.reason) for entry in row.all_retries()] == [
        ("3", "Plan", "1", "no architecture"),
        ("3", "Plan", "", "something else"),
    ]
    assert row.all_retries()[0].timestamp == "2026-01-02T12:03:16.000Z"


def test_an_acted_upon_decision_takes_its_blocker_along(tmp_path: Path) -> None:
    """What a person has answered holds nothing up any more, and is not shown as if it did."""
    name = StoryId("a")
    events = [
        started("a"),
        *opened("a", with_file(tmp_path / "a", "pointer-plan")),
        remembered("a", "blocker", "Step 3 (Plan) failed", at=4),
        asked("a", at=5),
    ]
    assert rows_of(fold(RUN, events))[0].all_blockers() == ("Step 3 (Plan) failed",)
    events += [
        event(7, ev.DecisionAnswered(story_id=name, decision_id="a-1", letter="A", by="you")),
        event(8, ev.DecisionApplied(story_id=name, decision_id="a-1", retry=True)),
    ]
    (row,) = rows_of(fold(RUN, events))
    assert row.all_blockers() == ()
    assert row.open_decisions == ()
    events.append(remembered("a", "blocker", "and again", at=9))
    assert rows_of(fold(RUN, events))[0].all_blockers() == ("and again",)


def test_a_failure_without_a_blocker_tells_its_reason() -> None:
    """A story that failed before it had a file still says first why."""
    failed = ev.StoryFinished(story_id=StoryId("a"), verdict="failed", reason="no such agent")
    (row,) = rows_of(folded(started("a"), event(3, failed)))
    assert row.all_blockers() == ("no such agent",)


def test_an_unknown_question_is_still_an_open_decision() -> None:
    """A question in a form that this version does not know is not hidden."""
    odd = ev.DecisionAsked(story_id=StoryId("a"), decision_id="a-1", question={"text": "?"})
    (row,) = rows_of(folded(started("a"), event(3, odd)))
    assert row.open_decisions == ("see `autopilot-multi decide`: decision a-1",)


def test_the_file_of_a_finished_story_is_read_from_its_branch(repo: Path) -> None:
    """The worktree is gone, the branch is there; a branch without a file is told by the journal."""
    git(repo, "switch", "-q", "-c", "autopilot/a")
    with_file(repo / "x", "rich-plan")
    (repo / "x" / "_docs").rename(repo / "_docs")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "state")
    git(repo, "switch", "-q", "main")
    git(repo, "branch", "autopilot/b")

    def ended(name: str) -> list[ev.Event]:
        story = StoryId(name)
        return [
            *opened(name, repo.parent / "gone" / name),
            event(3, ev.Checkpointed(story_id=story, commit=COMMIT, commits=1)),
            event(4, ev.WorkspaceClosed(story_id=story, removed=True, reason="")),
            event(5, ev.StoryFinished(story_id=story, verdict="done", reason="")),
        ]

    run = folded(started("b", "a", flow="greenfield"), ended("a"), ended("b"))
    rows = by_story(rows_of(run, repository=Repository.open(repo)))
    assert str(rows["a"].found.path) == "autopilot/a:_docs/_autopilot_state.md"
    assert rows["a"].state is not None
    assert rows["a"].state.dialect.value == "rich"
    assert rows["b"].state is not None
    assert (rows["b"].state.dialect.value, rows["b"].state.step) == ("journal", "done")


def test_the_page_tells_first_what_needs_a_person(three: RunSnapshot, repo: Path) -> None:
    """Blockers, open decisions and retry logs, then the table of all stories."""
    AggregatePage(repo).write(three)
    page = (repo / PAGE).read_text()
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == ["## Blockers", "## Open decisions", "## Retry log", "## Stories", "## Decisions"]
    for story in ("rich", "pointer", "autodev", "later"):
        assert f"| {story} | " in page
    AggregatePage(repo).write(three)
    assert (repo / PAGE).read_text() == page


def test_a_checkout_stays_as_it_was(three: RunSnapshot, repo: Path) -> None:
    """Beside the documents the page is written only where git ignores it: a tracked one is not touched."""
    Repository.open(repo).exclude(".orchestrator/")
    AggregatePage(repo).write(three)
    assert not (repo / "_docs").exists()
    (repo / "_docs").mkdir()
    AggregatePage(repo).write(three)
    assert not (repo / DOCS_PAGE).exists()
    assert git(repo, "status", "--porcelain") == ""
    Repository.open(repo).exclude(DOCS_PAGE)
    AggregatePage(repo).write(three)
    assert (repo / DOCS_PAGE).read_text() == (repo / PAGE).read_text()
    assert git(repo, "status", "--porcelain") == ""
    (repo / DOCS_PAGE).write_text("mine\n")
    git(repo, "add", "-f", DOCS_PAGE)
    git(repo, "commit", "-q", "-m", "kept")
    AggregatePage(repo).write(three)
    assert (repo / DOCS_PAGE).read_text() == "mine\n"


def test_a_page_that_would_be_the_same_is_not_written(three: RunSnapshot, repo: Path) -> None:
    """Most seconds change nothing; one that was removed is back with the next look."""
    page = AggregatePage(repo)
    page.write(three)
    written = (repo / PAGE).stat()
    page.write(three)
    assert (repo / PAGE).stat() == written
    (repo / PAGE).unlink()
    page.write(three)
    assert (repo / PAGE).exists()


def test_readers_never_see_half_a_page(three: RunSnapshot, repo: Path) -> None:
    """While the page is written again and again, every look at it finds a whole one."""
    AggregatePage(repo).write(three)
    reader = subprocess.Popen(
        [sys.executable, "-c", READER, str(repo / PAGE), str(repo / "stop")],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert reader.stdout is not None
    with reader.stdout:
        assert reader.stdout.readline() == "reading\n"
    for _ in range(20):
        AggregatePage(repo).write(three)
    (repo / "stop").touch()
    assert reader.wait(timeout=20) == 0


def test_flows_of_the_user_are_known(repo: Path) -> None:
    """A state file may name a flow that the repository itself defines."""
    assert vocabulary_of(repo).flows == {}
    (repo / "flows").mkdir()
    (repo / "flows" / "release.toml").write_text(
        '[[steps]]\nnumber = "1"\nname = "Tag"\nprompt = "tag"\n'
        '[[steps]]\nnumber = "2"\nname = "Publish"\nprompt = "publish"\n'
    )
    (repo / "flows" / "broken.toml").write_text("= nonsense")
    known = vocabulary_of(repo)
    assert known.flows == {"release": 2}
    assert known.names == {"Tag", "Publish"}


def test_a_page_costs_two_git_commands_at_most(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many stories there are: it is written whenever one of them ends or asks."""
    names = [f"s{number}" for number in range(100)]
    events = [started(*names, flow="greenfield")]
    for name in names[:50]:
        events += opened(name, with_file(tmp_path / "w" / name, "autodev-implement", "_autodev_state.md"))
    for name in names[50:]:
        story = StoryId(name)
        events += opened(name, tmp_path / "gone")
        events.append(event(3, ev.Checkpointed(story_id=story, commit=COMMIT, commits=1)))
        events.append(event(4, ev.WorkspaceClosed(story_id=story, removed=True, reason="")))
    (repo / "_docs").mkdir()
    trace = tmp_path / "trace"
    monkeypatch.setenv("GIT_TRACE", str(trace))
    AggregatePage(repo).write(fold(RUN, events))
    assert trace.read_text().count("trace: built-in: git") == 2
