"""What an older version wrote is read, resumed and joined by this one: journal, records, shards, state.

`make_fixtures.py` says how the fixtures were made. If one of these tests fails, a user who installs the
new version in the middle of a run loses it: bring the old format back instead of making new fixtures.
"""

import json
import shutil
import sqlite3
import tarfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from runner.core.events.events import decode, encode
from tests.acceptance.program import run
from tests.conftest import git

FIXTURES = Path(__file__).parent / "fixtures"
MADE_IN = "/tmp/demo"  # noqa: S108  where the fixtures were made
SENTENCES = {"reason", "next", "hint"}
"""Keys whose values are for people and may be worded better at any time."""


def unpack(name: str, target: Path) -> Path:
    """Unpack a fixture as if its runs had happened in `target`; return the repository."""
    with tarfile.open(FIXTURES / f"{name}.tar.xz") as archive:
        archive.extractall(target, filter="data")
    links = [*target.glob("*/.git/worktrees/*/gitdir"), *target.glob("*.worktrees/*/.git")]
    for link in [*links, *target.glob("*/.git/autopilot/sessions/*.json")]:
        link.write_text(link.read_text().replace(MADE_IN, str(target)))
    for journal in target.glob("*/.git/autopilot/journal.db"):
        _move_journal(journal, target)
    return target / name


def _move_journal(journal: Path, target: Path) -> None:
    """Change paths inside a journal without folding its write-ahead log, which a killed run leaves."""
    log = journal.with_name("journal.db-wal")
    logged = log.exists()
    connection = sqlite3.connect(journal)
    connection.execute("UPDATE events SET data = replace(data, ?, ?)", (MADE_IN, str(target)))
    connection.commit()
    written = {path: path.read_bytes() for path in (journal, log) if path.exists()}
    connection.close()
    if logged:
        for path, content in written.items():
            path.write_bytes(content)


def answer(name: str, target: Path) -> Any:
    """Read what the old program answered, without its sentences and with the paths of `target`."""
    text = (FIXTURES / "answers" / f"{name}.json").read_text().replace(MADE_IN, str(target))
    return json.loads(text)


def without_sentences(value: Any) -> Any:
    """Leave out what is written for people."""
    match value:
        case dict():
            return {key: without_sentences(part) for key, part in value.items() if key not in SENTENCES}
        case list():
            return [without_sentences(part) for part in value]
        case _:
            return value


def same(found: dict[str, Any], name: str, target: Path) -> None:
    """Check that the new program answers what the old one did; it may know more."""
    _contained(answer(name, target), without_sentences(found), "")


def _contained(old: Any, new: Any, place: str) -> None:
    if isinstance(old, dict):
        assert isinstance(new, dict), place
        for key, value in old.items():
            assert key in new, f"{place}/{key} is gone"
            _contained(value, new[key], f"{place}/{key}")
    elif isinstance(old, list):
        assert isinstance(new, list), place
        assert len(old) == len(new), place
        for number, (left, right) in enumerate(zip(old, new, strict=True)):
            _contained(left, right, f"{place}/{number}")
    else:
        assert old == new, place


def test_every_kind_of_event_is_still_known() -> None:
    """Each event that the old journal could hold is read, and written again with the same keys."""
    lines = (FIXTURES / "every-kind.ndjson").read_text().splitlines()
    assert len(lines) == 32
    for line in lines:
        old = json.loads(line)
        kind, data = encode(decode(old["kind"], old["data"]))
        assert kind == old["kind"]
        again = json.loads(json.dumps(data))
        assert {key: again.get(key) for key in old["data"]} == old["data"], kind


def test_status_of_a_finished_run(tmp_path: Path) -> None:
    """Done, failed, skipped and no-work stories are shown as the old program showed them."""
    repo = unpack("finished", tmp_path)
    shown = run(repo, "status", "--json")
    same(shown.document, "finished-status", tmp_path)
    statuses = {story["id"]: story["status"] for story in shown.data["stories"]}
    assert statuses == {
        "greeting": "done",
        "hopeless": "failed",
        "after-hopeless": "skipped",
        "idle": "no_work",
    }


def test_what_the_old_program_finished_is_not_repeated(tmp_path: Path) -> None:
    """`resume` has nothing to do, and the next run knows from the old journal what is done."""
    repo = unpack("finished", tmp_path)
    resumed = run(repo, "resume")
    assert resumed.code == 4, resumed.err
    assert run(repo, "status", "--json").story("hopeless")["sessions"] == 8, "nothing ran"
    again = run(repo, "run", "--json")
    assert again.story("greeting")["status"] == "done"
    assert again.story("greeting")["sessions"] == 0, "the old journal says that it is done"


def test_history_reads_the_old_records(tmp_path: Path) -> None:
    """Totals come from the lines that the old program wrote, also next to new ones."""
    repo = unpack("finished", tmp_path)
    same(run(repo, "history", "--json").document, "finished-history", tmp_path)
    records = repo / ".orchestrator" / "metrics" / "autopilot.jsonl"
    before = records.read_text().splitlines()
    assert run(repo, "run", "--again", "--only=greeting").code == 0
    assert records.read_text().splitlines()[: len(before)] == before, "old lines stay byte for byte"
    assert len(run(repo, "history", "--json").data["runs"]) == 2


def test_logs_and_reports_of_an_old_run(tmp_path: Path) -> None:
    """What sessions printed is found through the journal, and every report is written from it."""
    repo = unpack("finished", tmp_path)
    assert "never passes" in run(repo, "logs", "hopeless").out
    page = run(repo, "report", "--format", "html")
    assert page.code == 0, page.err
    assert "never passes" in page.out
    suites = ET.fromstring(run(repo, "report", "--format", "junit").out)  # noqa: S314  our own
    assert {suite.get("name") for suite in suites} == {"greeting", "hopeless", "after-hopeless", "idle"}


def test_a_run_that_the_old_program_was_killed_in_is_resumed(tmp_path: Path) -> None:
    """What was done is not repeated, what was interrupted and what waited is carried out."""
    repo = unpack("killed", tmp_path)
    assert (repo / ".git" / "autopilot" / "journal.db-wal").stat().st_size, "the log was never folded"
    same(run(repo, "status", "--json").document, "killed-status", tmp_path)
    (repo / ".git" / "go").touch()
    before = git(repo, "rev-parse", "autopilot/first")
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 0, resumed.err
    assert {story["id"]: story["status"] for story in resumed.data["stories"]} == {
        "first": "done",
        "middle": "done",
        "last": "done",
    }
    assert resumed.story("first")["sessions"] == 1, "it is not repeated"
    assert git(repo, "rev-parse", "autopilot/first") == before
    assert git(repo, "show", "autopilot/last:last.txt") == "first\n"
    assert run(repo, "history", "--json").data["runs"][0]["counts"]["done"] == 3


def test_a_decision_that_the_old_program_asked_for_is_answered(tmp_path: Path) -> None:
    """The question is shown, the answer counts, and the flow goes on to its end where it was."""
    repo = unpack("parked", tmp_path)
    same(run(repo, "status", "--json").document, "parked-status", tmp_path)
    same(run(repo, "decide", "--json").document, "parked-decide", tmp_path)
    assert run(repo, "decide", "shop", "A").code == 0
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.story("shop")["status"] == "done"
    steps = git(repo, "log", "--format=%s", "main..autopilot/shop").splitlines()
    assert len(steps) == 12, "each step of the flow has one commit, none was repeated"


def test_shards_of_the_old_program_are_joined(tmp_path: Path) -> None:
    """The run, its exit code and its branches are those that the old program would give."""
    unpack("pipeline", tmp_path)
    repo = tmp_path / "origin"
    files = [str(tmp_path / "shards"), "--matrix", str(tmp_path / "matrix.json")]
    joined = run(repo, "aggregate", *files, "--branches", "--json")
    assert joined.code == 4, joined.err
    same(joined.document, "pipeline-aggregate", tmp_path)
    assert git(repo, "show", "autopilot/top:top.txt") == "base\n"
    page = run(repo, "report", str(tmp_path / "shards"), "--format", "markdown")
    assert page.out.startswith("## 2 done, 1 failed")


def test_shards_of_the_old_program_are_taken_into_a_repository(tmp_path: Path) -> None:
    """Events in shards become events in a journal, and a job of the new program builds on an old shard."""
    unpack("pipeline", tmp_path)
    repo, shards = tmp_path / "origin", tmp_path / "shards"
    shutil.rmtree(shards / "top")
    job = run(repo, "run", "--only=top", "--shard-in", str(shards), "--shard-out", str(shards / "top"))
    assert job.code == 0, job.err
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", str(repo), str(clone))
    assert run(clone, "aggregate", str(shards), "--into-repo", "--branches").code == 4
    shown = {story["id"]: story["status"] for story in run(clone, "status", "--json").data["stories"]}
    assert shown == {"base": "done", "top": "done", "broken": "failed"}


@pytest.mark.parametrize(
    ("dialect", "step", "status", "retries"),
    [("autodev", "6", "not_started", 0), ("pointer", "1", "failed", 3), ("rich", "0", "failed", 3)],
)
def test_state_files_of_every_dialect(
    tmp_path: Path, dialect: str, step: str, status: str, retries: int
) -> None:
    """State files are shown and checked as the old program meant them."""
    shutil.copy(FIXTURES / "state" / f"{dialect}.md", tmp_path / "state.md")
    (state,) = run(tmp_path, "state", "show", "state.md", "--json").data["states"]
    assert state["dialect"] == dialect
    assert (state["step"], state["status"], state["retry_count"]) == (step, status, retries)
    assert run(tmp_path, "state", "check", "state.md").code == 0
