"""`status`: the aggregated state of a run, instant, and honest about who is alive."""

import json
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from msgspec.structs import replace

from isolation.paths import find_repository, journal_path
from runner.core.events import events as ev
from runner.core.events.fold import fold
from runner.core.model import RunId, StoryId
from runner.records.telemetry import write_run
from tests.acceptance.written_runs import (
    PROGRAM,
    autopilot,
    coordinator,
    document,
    rest_of,
    write_events,
    write_log,
)
from tests.conftest import git
from tests.records.sample_runs import RUN, START, done, ended_events, event, mixed_events, started, working
from tests.schemas import complaints

DOCS = Path(__file__).resolve().parents[2] / "docs"
OTHER = RunId("20260102-130000-cd34")


def test_no_run_yet(repo: Path) -> None:
    """In a fresh repository the answer is an error with a hint, and nothing is created."""
    failed = autopilot(repo, "status")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.splitlines()[0] == "error: this repository has no runs yet"
    assert failed.stderr.splitlines()[1].startswith("hint: `autopilot-multi`")
    assert document(repo, "status")["error"]["code"] == "not-found"
    assert not (repo / ".git" / "autopilot").exists()


def test_outside_a_repository(tmp_path: Path) -> None:
    """Without a repository the error says so, in both forms."""
    assert autopilot(tmp_path, "status").returncode == 1
    assert document(tmp_path, "status")["error"]["code"] == "repository"


def test_ended_run_as_table_and_as_document(repo: Path) -> None:
    """People get the table and nothing else; programs get the shared document."""
    write_events(repo, ended_events())
    shown = autopilot(repo, "status")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"run {RUN} · ended after 47.4 s · 1 done, 1 failed, 1 skipped\n")
    assert "autopilot/api-3: 2 commits, verified" in shown.stdout
    data = document(repo, "status")["data"]
    assert (data["run_id"], data["state"]) == (RUN, "ended")
    assert [story["status"] for story in data["stories"]] == ["done", "failed", "skipped"]


def test_looking_changes_nothing(repo: Path) -> None:
    """Status of an ended run leaves the autopilot folder byte-identical."""
    write_events(repo, ended_events())
    folder = repo / ".git" / "autopilot"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    autopilot(repo, "status")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_dead_coordinator_is_not_running(repo: Path) -> None:
    """A run without an end and without a holder is interrupted, and the hint says how to go on."""
    write_events(repo, mixed_events())
    shown = autopilot(repo, "status").stdout
    assert f"run {RUN} · interrupted" in shown
    assert f"autopilot-multi resume {RUN}" in shown
    assert document(repo, "status")["data"]["counts"]["running"] == 0


def test_living_coordinator_is_running_with_last_lines(repo: Path) -> None:
    """While the holder lives the run is running, and each running story shows its newest line."""
    write_events(repo, mixed_events())
    write_log(repo, "docs-2", b"first\n\x1b[32mEditing\x1b[0m docs/guide.md\n\n")
    with coordinator(repo):
        shown = autopilot(repo, "status").stdout
        assert document(repo, "status")["data"]["state"] == "running"
    assert "· running for " in shown
    assert "Implement: Editing docs/guide.md\n" in shown
    assert autopilot(repo, "status").stdout.startswith(f"run {RUN} · interrupted")


def test_run_that_goes_on_is_shown_before_a_newer_one(repo: Path) -> None:
    """When an older run was resumed, that is the run a person wants to see."""
    write_events(repo, mixed_events())
    write_events(repo, ended_events(OTHER))
    assert document(repo, "status")["data"]["run_id"] == OTHER
    with coordinator(repo, RUN):
        assert document(repo, "status")["data"]["run_id"] == RUN
        assert document(repo, "status", OTHER)["data"]["state"] == "ended"


def test_another_runs_coordinator_does_not_revive_this_one(repo: Path) -> None:
    """The lease of one run says nothing about another that died."""
    write_events(repo, mixed_events())
    write_events(repo, [started("a", run=OTHER)])
    with coordinator(repo, OTHER):
        assert document(repo, "status", RUN)["data"]["state"] == "ended"
        assert document(repo, "status")["data"]["run_id"] == OTHER


def test_run_is_named_by_its_beginning(repo: Path) -> None:
    """A beginning that fits one run is enough; one that fits several names them."""
    write_events(repo, ended_events())
    write_events(repo, ended_events(OTHER))
    assert document(repo, "status", "20260102-12")["data"]["run_id"] == RUN
    several = autopilot(repo, "status", "2026")
    assert several.returncode == 1
    assert OTHER in several.stderr
    assert RUN in several.stderr


def test_run_is_seen_from_a_linked_worktree(repo: Path, tmp_path: Path) -> None:
    """Every checkout of the repository shows the same runs."""
    write_events(repo, ended_events())
    linked = tmp_path / "linked"
    subprocess.run(["git", "worktree", "add", "-q", str(linked)], cwd=repo, check=True)
    assert document(linked, "status")["data"]["run_id"] == RUN
    assert document(repo.parent, "status", "-C", str(linked))["data"]["run_id"] == RUN


def test_corrupt_journal_is_named_and_kept(repo: Path) -> None:
    """A damaged journal is an error that names the file; looking does not repair it."""
    path = journal_path(find_repository(repo).common_dir)
    path.parent.mkdir()
    path.write_bytes(b"not a database at all\n" * 100)
    failed = autopilot(repo, "status")
    assert failed.returncode == 2
    assert str(path) in failed.stderr
    assert [item.name for item in path.parent.iterdir()] == ["journal.db"]


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_status_loads_no_heavy_library(repo: Path, flags: tuple[str, ...]) -> None:
    """Instant means: no trio, no GitPython, no pydantic, and no rich off a terminal."""
    first, *others = mixed_events()
    assert isinstance(first.body, ev.RunStarted)
    head = git(repo, "rev-parse", "HEAD").strip()  # once it has moved, git says what is merged
    write_events(repo, [replace(first, body=replace(first.body, base=head)), *others])
    script = (
        "import sys; from runner.cli.main import run_program;"
        f"code = run_program(['status', *{list(flags)!r}]);"
        "heavy = {'trio', 'git', 'pydantic', 'rich', 'psutil', 'yaml', 'typing_extensions', 'dataclasses',"
        "'tempfile', 'difflib', 'runner.core.settings'} & set(sys.modules);"
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], cwd=repo, capture_output=True, text=True, check=False
    )
    assert loaded.stderr == ""
    assert loaded.returncode == 0


def test_watch_follows_to_the_end(repo: Path) -> None:
    """Off a terminal the table comes anew with each change, and the last one is the end."""
    write_events(repo, [started("a"), *working("a", 1)])
    with coordinator(repo) as holder:
        watching = subprocess.Popen(
            [*PROGRAM, "status", "--watch"], cwd=repo, stdout=subprocess.PIPE, text=True
        )
        assert watching.stdout is not None
        first = watching.stdout.readline()
        assert "· running for" in first
        write_events(repo, [*done("a", 5), event(6, ev.RunEnded(exit_code=0))])
        rest = rest_of(watching)
        assert holder.poll() is None
    assert watching.returncode == 0
    assert rest.rpartition("\nrun ")[2].startswith(f"{RUN} · ended after 6.0 s")


def test_watch_with_json_waits_for_the_one_document(repo: Path) -> None:
    """`--watch --json` prints one document, when the run is over."""
    write_events(repo, [started("a"), *working("a", 1)])
    with coordinator(repo):
        watching = subprocess.Popen(
            [*PROGRAM, "status", "--watch", "--json"], cwd=repo, stdout=subprocess.PIPE, text=True
        )
        time.sleep(0.6)
        assert watching.poll() is None
        write_events(repo, [*done("a", 5), event(6, ev.RunEnded(exit_code=0))])
        text = rest_of(watching)
    assert json.loads(text)["data"]["state"] == "ended"


def test_watch_ends_when_the_coordinator_dies(repo: Path) -> None:
    """A killed coordinator does not leave its watchers hanging."""
    write_events(repo, [started("a"), *working("a", 1)])
    with coordinator(repo) as holder:
        watching = subprocess.Popen(
            [*PROGRAM, "status", "--watch"], cwd=repo, stdout=subprocess.PIPE, text=True
        )
        assert watching.stdout is not None
        watching.stdout.readline()
        holder.kill()
        assert "interrupted" in rest_of(watching)
    assert watching.returncode == 0


def test_hostile_output_is_neutralised(repo: Path) -> None:
    """What a session printed cannot drive the terminal of the one who looks."""
    write_events(repo, [started("a"), *working("a", 1)])
    write_log(repo, "a", b"\x1b]0;owned\x07\x1b[2Jbad\xff")
    write_events(repo, [event(3, ev.Noted(message="\x1b[31mred", story_id=StoryId("a")))])
    with coordinator(repo):
        shown = autopilot(repo, "status").stdout
    assert "\x1b" not in shown
    assert "bad\ufffd" in shown


def test_an_active_run_says_what_it_waits_for_and_when_it_will_end(repo: Path) -> None:
    """From the records of an earlier run, as instants that the schema knows; for people as words."""
    earlier = RunId("20260101-120000-ab12")
    past = [started("docs-2", "ops-1", "ui-4", run=earlier)]
    for name in ("docs-2", "ops-1", "ui-4"):
        past += [*working(name, 1, run=earlier), *done(name, 601, run=earlier)]
    write_run(fold(earlier, [*past, event(700, ev.RunEnded(exit_code=0), earlier)]), repo)
    at = time.time() - START - 60
    write_events(repo, [replace(each, at=each.at + at) for each in mixed_events()])
    with coordinator(repo):
        told = document(repo, "status")
        shown = autopilot(repo, "status").stdout
    schema = json.loads((DOCS / "reference" / "status.schema.json").read_text())
    assert complaints(schema, told) == []
    stories = {story["id"]: story for story in told["data"]["stories"]}
    assert stories["ui-4"]["waits_for"]["words"] == "waits for docs-2"
    assert stories["docs-2"]["waits_for"] is None
    end = datetime.fromisoformat(stories["docs-2"]["expected_end"]["likely"]).timestamp()
    assert 500 < end - time.time() < 600
    whole = datetime.fromisoformat(told["data"]["expected_end"]["latest"]).timestamp()
    assert 1000 < whole - time.time() < 1210, "ui-4 comes after docs-2"
    assert "waits for docs-2" in shown
    assert " min left" in shown
    assert "$0.50 of ~$1.25" in shown
