"""The journal: durable, readable while it is written, never emptied, never misread."""

import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

import pytest

from runner.core.errors import JournalError, NotFoundError
from runner.core.events import events as ev
from runner.core.model import RunId, StoryId
from runner.records.journal import Journal
from runner.records.journal_file import quiet_state
from tests.records.sample_runs import RUN, event, mixed_events, started

OTHER = RunId("20260102-130000-cd34")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Name a journal in a folder that does not exist yet."""
    return tmp_path / "autopilot" / "journal.db"


def noted(message: str) -> ev.Event:
    return event(1, ev.Noted(message=message))


def test_events_come_back_as_they_went_in(path: Path) -> None:
    """Tuples, nested values, unknown characters and lone surrogates survive the journal."""
    written = [*mixed_events(), noted("naïve \udcff \x1b[31m 日本")]
    with Journal.open(path) as journal:
        journal.append(written)
    with Journal.open_readonly(path) as journal:
        read = journal.events(RUN)
    # Lists inside JSON stay lists; everything that the fold reads is the same.
    assert [ev.encode(item.body) for item in read[1:]] == [ev.encode(item.body) for item in written[1:]]
    assert [item.at for item in read] == [item.at for item in written]


def test_what_is_only_for_the_eye_is_not_kept(path: Path) -> None:
    """The newest line of a session is shown, never journalled."""
    with Journal.open(path) as journal:
        journal.append([started("a"), event(2, ev.OutputSeen(story_id=StoryId("a"), line="hi"))])
        assert len(journal.events(RUN)) == 1


def test_reader_follows_a_living_writer(path: Path) -> None:
    """A reader that opened first sees what the coordinator appends afterwards."""
    with Journal.open(path) as writer:
        writer.append([started("a")])
        with Journal.open_readonly(path) as reader:
            first, place = reader.events_after(RUN, 0)
            writer.append([noted("later")])
            second, newer = reader.events_after(RUN, place)
            assert reader.events_after(RUN, newer) == ([], newer), "nothing is read twice"
    assert len(first) == 1
    assert [item.body for item in second] == [ev.Noted(message="later")]


def test_reader_of_a_quiet_journal_notices_a_new_writer(path: Path) -> None:
    """A view that was opened while no process wrote still sees later events."""
    with Journal.open(path) as writer:
        writer.append([started("a")])
    with Journal.open_readonly(path) as reader:
        _, place = reader.events_after(RUN, 0)
        with Journal.open(path) as writer:
            writer.append([noted("later")])
            assert len(reader.events_after(RUN, place)[0]) == 1


def test_reader_of_a_quiet_journal_notices_a_writer_that_came_and_went(path: Path) -> None:
    """What was written and closed between two looks is seen at the second."""
    with Journal.open(path) as writer:
        writer.append([started("a")])
    with Journal.open_readonly(path) as reader:
        _, place = reader.events_after(RUN, 0)
        with Journal.open(path) as writer:
            writer.append([noted("later")])
        assert len(reader.events_after(RUN, place)[0]) == 1


def test_looking_leaves_no_trace_when_the_run_is_over(path: Path) -> None:
    """Status of an ended run creates no file beside the journal and does not touch it."""
    with Journal.open(path) as journal:
        journal.append([started("a")])
    before = {item.name: item.stat().st_mtime_ns for item in path.parent.iterdir()}
    with Journal.open_readonly(path) as journal:
        assert journal.runs() == [RUN]
        assert {item.name: item.stat().st_mtime_ns for item in path.parent.iterdir()} == before
    assert {item.name: item.stat().st_mtime_ns for item in path.parent.iterdir()} == before


@pytest.mark.parametrize("way", [Journal.open, Journal.open_existing])
def test_every_commit_is_flushed_to_the_disk(path: Path, way: Callable[[Path], Journal]) -> None:
    """No power cut can be had in a test, so SQLite is asked for what it does: a log, flushed each time."""
    Journal.open(path).close()
    with way(path) as journal:
        asked = [
            journal._connection.execute(f"PRAGMA {name}").fetchone()
            for name in ("synchronous", "journal_mode")
        ]
    assert asked == [(2,), ("wal",)]


KILLED_WRITER = """
import os, sys
from pathlib import Path
from runner.records.journal import Journal
from tests.records.sample_runs import started
journal = Journal.open(Path(sys.argv[1]))
journal.append([started("a")])
os.kill(os.getpid(), 9)
"""


def killed_writer(path: Path) -> None:
    """Let a coordinator append and be killed immediately; its write-ahead log stays behind."""
    subprocess.run([sys.executable, "-c", KILLED_WRITER, str(path)], check=False)
    assert path.with_name("journal.db-wal").stat().st_size > 0


def test_append_survives_a_kill(path: Path) -> None:
    """What `append` has returned from is there for the next reader and the next coordinator."""
    killed_writer(path)
    with Journal.open_readonly(path) as journal:
        assert len(journal.events(RUN)) == 1
    with Journal.open(path) as journal:
        assert len(journal.events(RUN)) == 1
        assert journal.notes == ()


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """Return a folder that any user may enter, outside pytest's private one."""
    folder = Path(mkdtemp(prefix="autopilot-journal-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


STRANGER = """
import os, shutil, sys, tempfile  # what is loaded late, a stranger could not load from root's own Python
from pathlib import Path
from runner.records.journal import Journal
if os.geteuid() == 0:
    os.setuid(65534)
print(len(Journal.open_readonly(Path(sys.argv[1])).events(sys.argv[2])))
"""


@pytest.mark.parametrize("killed", [True, False])
def test_read_only_folder_can_be_read(public_folder: Path, *, killed: bool) -> None:
    """A user who may read but not write there sees the whole run, also what waits in the write-ahead log."""
    path = public_folder / "journal.db"
    if killed:
        killed_writer(path)
        path.with_name("journal.db-shm").unlink()
    else:
        with Journal.open(path) as journal:
            journal.append([started("a")])
    for file in public_folder.iterdir():
        file.chmod(0o644)  # it is made for its owner alone
    public_folder.chmod(0o555)
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, str(path), RUN], check=True, capture_output=True, text=True
    )
    assert done.stdout == "1\n"


def test_append_is_all_or_nothing(path: Path) -> None:
    """A batch whose last event cannot be written leaves none of it behind."""
    with Journal.open(path) as journal:
        with pytest.raises(TypeError):
            journal.append([noted("first"), noted(b"not json")])  # type: ignore[arg-type]  # on purpose
        journal._connection.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON events WHEN NEW.data LIKE '%second%'"
            " BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        with pytest.raises(JournalError):
            journal.append([noted("first"), noted("second")])
        assert journal.events(RUN) == []
        journal.append([noted("third")])
        assert len(journal.events(RUN)) == 1


def test_threads_may_append_at_once(path: Path) -> None:
    """Eight threads lose nothing and mix no transactions."""
    with Journal.open(path) as journal:

        def work(number: int) -> None:
            for _ in range(20):
                journal.append([noted(str(number)), noted(str(number))])

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        messages = [item.body.message for item in journal.events(RUN) if isinstance(item.body, ev.Noted)]
    assert len(messages) == 320
    assert messages[::2] == messages[1::2]


def test_full_disk_is_a_clear_error_and_keeps_what_was_there(path: Path) -> None:
    """When the file may not grow, the append fails with a hint and earlier events are intact."""
    with Journal.open(path) as journal:
        journal.append([started("a")])
        journal._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = journal._connection.execute("PRAGMA page_count").fetchone()[0]
        journal._connection.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(JournalError, match="no space left") as failure:
            journal.append([noted("x" * 1_000_000)])
        assert "resume" in failure.value.hint
        assert len(journal.events(RUN)) == 1


GARBAGE = b"this is not a database, but it is somebody's\n" * 200


@pytest.mark.parametrize("damage", ["garbage", "middle", "truncated"])
def test_corrupt_journal_is_set_aside_and_reported(path: Path, damage: str) -> None:
    """The coordinator begins a new journal and keeps every byte of the damaged one."""
    with Journal.open(path) as journal:
        journal.append([noted("x" * 3000) for _ in range(200)])
    data = path.read_bytes()
    middle = len(data) // 2
    broken = {
        "garbage": GARBAGE,
        "middle": data[:4096] + b"\xff" * (middle - 4096) + data[middle:],
        "truncated": data[:middle],
    }[damage]
    path.write_bytes(broken)
    with pytest.raises(JournalError, match=r"journal\.db is damaged"):
        open_and_read(path)
    assert path.read_bytes() == broken
    with Journal.open(path) as journal:
        assert "kept as journal.db.corrupt-1" in journal.notes[0]
        assert journal.runs() == []
        journal.append([started("a")])
    assert path.with_name("journal.db.corrupt-1").read_bytes() == broken


def open_and_read(path: Path) -> None:
    with Journal.open_readonly(path) as journal:
        journal.events(RUN)


def test_the_log_of_a_corrupt_journal_goes_with_it(path: Path) -> None:
    """Acceptance 71: what a killed writer left beside it is kept, and nothing of it gets into the new one."""
    with Journal.open(path) as journal:
        journal.append([noted("x" * 1000) for _ in range(100)])
    killed_writer(path)
    size = path.stat().st_size
    with path.open("r+b") as file:  # the log holds a few of its pages only
        file.seek(size // 4)
        file.write(b"x" * (size // 2))
    with Journal.open(path) as journal:
        assert journal.runs() == []
        assert "was kept as journal.db.corrupt-1" in journal.notes[0]
    kept = {item.name for item in path.parent.iterdir() if "corrupt" in item.name}
    assert {"journal.db.corrupt-1", "journal.db.corrupt-1-wal"} <= kept


def test_a_writer_between_two_transactions_is_not_taken_for_gone(path: Path) -> None:
    """It has just emptied its log; the file alone is not to be trusted while it is there."""
    with Journal.open(path) as writer:
        writer.append([started("a")])
        writer._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert path.with_name("journal.db-wal").stat().st_size == 0
        assert quiet_state(path) is None
    assert quiet_state(path) is not None


def test_second_corrupt_journal_does_not_replace_the_first(path: Path) -> None:
    """Each damaged file gets a name of its own."""
    path.parent.mkdir()
    for text in (GARBAGE, GARBAGE.upper()):
        path.write_bytes(text)
        Journal.open(path).close()
    assert path.with_name("journal.db.corrupt-1").read_bytes() == GARBAGE
    assert path.with_name("journal.db.corrupt-2").read_bytes() == GARBAGE.upper()


@pytest.mark.parametrize("way", [Journal.open, Journal.open_existing, Journal.open_readonly])
def test_newer_version_is_refused_and_untouched(path: Path, way: Callable[[Path], Journal]) -> None:
    """A journal of a later program is neither read nor changed by this one."""
    Journal.open(path).close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = {item.name: item.read_bytes() for item in path.parent.iterdir()}
    with pytest.raises(JournalError, match="newer version"):
        way(path)
    assert {item.name: item.read_bytes() for item in path.parent.iterdir()} == before


def test_unknown_kind_of_event_is_refused(path: Path) -> None:
    """An event that this version does not know stops the reading instead of being skipped."""
    with Journal.open(path) as journal:
        journal.append([started("a")])
        journal._connection.execute(
            "INSERT INTO events (run_id, at, kind, data) VALUES (?, 0, 'StoryTeleported', '{}')", (RUN,)
        )
        with pytest.raises(JournalError, match=r"StoryTeleported.*newer version"):
            journal.events(RUN)


@pytest.mark.parametrize("content", [None, b""])
def test_no_journal_yet_is_not_an_error_of_the_system(path: Path, content: bytes | None) -> None:
    """Without a journal, or with one that was never begun, looking says so and creates nothing."""
    if content is not None:
        path.parent.mkdir()
        path.write_bytes(content)
    for way in (Journal.open_readonly, Journal.open_existing):
        with pytest.raises(NotFoundError, match="no runs yet") as failure:
            way(path)
        assert "autopilot-multi" in failure.value.hint
    assert path.exists() is (content is not None)


def test_path_that_cannot_hold_a_journal_is_a_clear_error(tmp_path: Path) -> None:
    """A folder in the journal's place is named, with a hint."""
    (tmp_path / "journal.db").mkdir()
    with pytest.raises(JournalError, match=r"cannot open the journal .*journal\.db") as failure:
        Journal.open(tmp_path / "journal.db")
    assert failure.value.hint


def test_runs_are_found_by_the_beginning_of_their_id(path: Path) -> None:
    """The newest run comes first; a beginning must name exactly one."""
    with Journal.open(path) as journal:
        with pytest.raises(NotFoundError, match="no runs yet"):
            journal.newest_run()
        journal.append([started("a", run=RUN)])
        journal.append([started("a", run=OTHER)])
        journal.append([noted("late news of the older run")])
        assert journal.runs() == [OTHER, RUN]
        assert journal.newest_run() == OTHER
        assert journal.find_run("20260102-12") == RUN
        with pytest.raises(NotFoundError, match="2 runs begin with") as several:
            journal.find_run("2026")
        with pytest.raises(NotFoundError, match="no run begins with 'x'") as unknown:
            journal.find_run("x")
        journal.append([started("a", run=RunId(f"{RUN}-again"))])
        assert journal.find_run(RUN) == RUN, "a whole id is no beginning"
    for failure in (several, unknown):
        assert RUN in failure.value.hint
        assert OTHER in failure.value.hint


def test_requests_reach_the_coordinator_from_another_connection(path: Path) -> None:
    """What another process asks is seen once, in order, by the run it was meant for."""
    with Journal.open(path) as coordinator:
        coordinator.append([started("a")])
        with Journal.open_existing(path) as other:
            other.add_request(RUN, "stop", StoryId("a"), {"now": True})
            other.add_request(OTHER, "stop")
            other.add_request(RUN, "stop")
        first, second = coordinator.requests_after(RUN)
        assert (first.kind, first.story_id, first.data) == ("stop", "a", {"now": True})
        assert (second.story_id, second.data) == (None, {})
        assert coordinator.requests_after(RUN, second.id) == []


def test_writer_of_requests_never_sets_a_journal_aside(path: Path) -> None:
    """Only the holder of the lease may replace a damaged journal."""
    path.parent.mkdir()
    path.write_bytes(GARBAGE)
    with pytest.raises(JournalError, match="damaged"):
        Journal.open_existing(path)
    assert [item.name for item in path.parent.iterdir()] == ["journal.db"]
