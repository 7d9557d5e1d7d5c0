"""State files on disk: whole or old, joined with what others write, never lost."""

import ctypes
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest
from msgspec.structs import replace

from isolation.files.disk import LockFile
from runner.flows.state.disk import files, swap
from runner.flows.state.disk.files import load_state, save_state, save_sub_step, set_aside
from runner.flows.state.disk.swap import Changed, put
from runner.flows.state.errors import StateBusyError, StateError, UnreadableStateError
from runner.flows.state.model import Dialect, Phase, Position, StateFile, StepStatus
from runner.flows.state.reading import parse_state
from runner.flows.state.writing import new_state
from tests.flows.state import writers
from tests.flows.state.samples import text_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the state file goes."""
    return tmp_path / "_docs" / "_autodev_state.md"


@pytest.fixture
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judge damage at once: no writer is in the midst of it."""
    monkeypatch.setattr(swap, "SETTLING", -1.0)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    """Return the lock in the ignored folder."""
    return tmp_path / ".orchestrator" / "state.lock"


@pytest.fixture
def state(path: Path, lock: Path) -> StateFile:
    """Put a fresh state on disk."""
    return save_state(path, new_state(Dialect.AUTODEV, flow="existing-code"), None, lock=lock)


def agent(manner: str, path: Path, lock: Path, count: int) -> "subprocess.Popen[str]":
    """Start a second process that writes the file."""
    argv = [sys.executable, "-m", "tests.flows.state.writers", manner, str(path), str(lock), str(count)]
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, cwd=root, stdin=pipe, stdout=pipe, text=True, env=environment)


def test_no_file_is_no_state(path: Path) -> None:
    """Absence is an answer, not an error, and nothing is made."""
    assert load_state(path) is None
    assert not path.parent.exists()


def test_acceptance_49_the_first_save_makes_the_file(path: Path, lock: Path) -> None:
    """The folder and the file appear, at step 1, and nothing else is left beside them."""
    saved = save_state(path, new_state(Dialect.AUTODEV), None, lock=lock)
    assert load_state(path) == saved == new_state(Dialect.AUTODEV)
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    assert [item.name for item in lock.parent.iterdir()] == [lock.name]


def test_saving_what_is_there_touches_nothing(path: Path, lock: Path, state: StateFile) -> None:
    """An unchanged state keeps the very same file."""
    before = path.stat()
    save_state(path, state, state, lock=lock)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_mode_and_links_are_kept(path: Path, lock: Path, state: StateFile, tmp_path: Path) -> None:
    """A link stays a link, and a group's right to write stays too."""
    path.chmod(0o664)
    link = tmp_path / "link.md"
    link.symlink_to(path)
    save_state(link, replace(state, status=StepStatus.FAILED), state, lock=lock)
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o664
    assert parse_state(path.read_text()).status is StepStatus.FAILED


def test_a_stale_runner_does_not_undo_the_sub_skill(path: Path, lock: Path, state: StateFile) -> None:
    """What an agent wrote since, sub-step, remarks and sections, survives the runner's write."""
    theirs = path.read_text().replace(
        "phase: 0\n  name: awaiting-invocation", "phase: 3\n  name: merge-tests # mine"
    )
    path.write_text(theirs + "\n## Notes\nkept\n")
    saved = save_state(path, replace(state, status=StepStatus.COMPLETED, retry_count=1), state, lock=lock)
    assert saved.sub_step == Phase(phase=3, name="merge-tests")
    assert (saved.status, saved.retry_count) == (StepStatus.COMPLETED, 1)
    assert "merge-tests # mine" in saved.text
    assert saved.text.endswith("\n## Notes\nkept\n")
    assert path.read_text() == saved.text


def test_a_file_that_was_taken_away_comes_back(path: Path, lock: Path, state: StateFile) -> None:
    """The state file is never gone for long."""
    path.unlink()
    assert save_state(path, replace(state, step="2"), state, lock=lock).step == "2"
    assert path.exists()


def test_a_file_that_appeared_meanwhile_is_joined(path: Path, lock: Path) -> None:
    """The runner saw none, an agent made one: its sub-step counts."""
    path.parent.mkdir()
    path.write_text(text_of("autodev-implement"))
    fresh = new_state(Dialect.AUTODEV, flow="existing-code")
    saved = save_state(path, fresh, None, lock=lock)
    assert (saved.step, saved.sub_step) == ("1", Phase(phase=7, name="batch-loop", detail="batch 2 of ~4"))


def test_another_dialect_is_not_written_over(path: Path, lock: Path, state: StateFile) -> None:
    """A file that became another dialect is refused and stays."""
    path.write_text(text_of("rich-plan"))
    with pytest.raises(StateError, match="has become a rich file"):
        save_state(path, state, state, lock=lock)
    assert path.read_text() == text_of("rich-plan")


@pytest.mark.usefixtures("state")
def test_rules_are_checked_before_anything_is_written(path: Path, lock: Path) -> None:
    """Acceptance 56: a phase out of order or an unstructured sub-step does not reach the disk."""
    before = path.read_bytes()
    one = partial(save_sub_step, path, lock=lock, session="run/a/1")
    with pytest.raises(StateError, match="phase 2 does not follow 0: the next one is 1"):
        one(Phase(phase=2, name="y"))
    one(Phase(phase=1, name="x"))
    one(Phase(phase=2, name="y"))
    for wrong in (Phase(phase=1, name="x"), Phase(phase=4, name="z"), Phase(phase=2, name="z")):
        with pytest.raises(StateError, match="the next"):
            one(wrong)
    with pytest.raises(StateError, match="structured"):
        one(Position(text="4"))
    assert path.read_bytes() == before.replace(b"phase: 0", b"phase: 2").replace(b"awaiting-invocation", b"y")
    with pytest.raises(StateError, match="does not exist"):
        save_sub_step(path.with_name("none.md"), Phase(phase=1, name="x"), lock=lock, session="")


@pytest.mark.usefixtures("state")
def test_a_new_session_continues_or_starts_over(path: Path, lock: Path) -> None:
    """Its first save may be the recorded phase, the next one, or the first; then the order holds again."""
    save_sub_step(path, Phase(phase=1, name="x"), lock=lock, session="one")
    save_sub_step(path, Phase(phase=2, name="y"), lock=lock, session="two")
    save_sub_step(path, Phase(phase=2, name="y", detail="again"), lock=lock, session="three")
    save_sub_step(path, Phase(phase=1, name="x"), lock=lock, session="four")
    with pytest.raises(StateError, match="phase 3 does not follow 1"):
        save_sub_step(path, Phase(phase=3, name="z"), lock=lock, session="four")
    with pytest.raises(StateError, match="may also start over at phase 1"):
        save_sub_step(path, Phase(phase=3, name="z"), lock=lock, session="five")


@pytest.mark.usefixtures("_hasty")
def test_unreadable_files_are_set_aside_and_left_alone(path: Path, lock: Path, state: StateFile) -> None:
    """Load and save both refuse, keep one copy of each damage, and say where it is."""
    for number, damage in enumerate((b"garbage", b"\xff\xfe", b"garbage"), 1):
        path.write_bytes(damage)
        for _ in range(2):
            with pytest.raises(UnreadableStateError) as caught:
                load_state(path)
        with pytest.raises(UnreadableStateError):
            save_state(path, state, state, lock=lock)
        assert path.read_bytes() == damage
        copy = path.with_name(f"{path.name}.unreadable-{min(number, 2) if damage != b'garbage' else 1}")
        assert copy.read_bytes() == damage
        assert copy.name in caught.value.hint
        assert str(path) in caught.value.message
    assert len(list(path.parent.iterdir())) == 3
    saved = save_state(path, state, state, lock=lock, replace_unreadable=True)
    assert load_state(path) == saved == state


@pytest.mark.usefixtures("_hasty")
def test_a_save_keeps_unreadable_bytes_before_it_replaces_them(
    path: Path, lock: Path, state: StateFile
) -> None:
    """Nobody loaded the damage before: the save itself sees to the copy."""
    path.write_bytes(b"garbage")
    save_state(path, state, state, lock=lock, replace_unreadable=True)
    assert path.with_name(f"{path.name}.unreadable-1").read_bytes() == b"garbage"
    assert load_state(path) == state


def test_a_writer_in_the_midst_of_its_write_is_awaited(
    path: Path, state: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a file that is being written is read again before it is called unreadable."""
    whole = path.read_bytes()
    path.write_bytes(whole[:40])
    monkeypatch.setattr(time, "sleep", lambda _: path.write_bytes(whole))
    assert load_state(path) == state
    assert not list(path.parent.glob("*.unreadable*"))


@pytest.mark.usefixtures("state")
def test_an_old_half_file_is_judged_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody writes it any more, so nobody is awaited."""
    path.write_bytes(path.read_bytes()[:40])
    os.utime(path, (1, 1))
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("waited"))
    with pytest.raises(UnreadableStateError):
        load_state(path)


def test_a_held_lock_is_awaited_then_named(
    path: Path, lock: Path, state: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another's write is waited for; one that never ends is reported."""
    monkeypatch.setattr(files, "PATIENCE", 0.05)
    with (
        LockFile.attempt(lock) or pytest.fail("nobody else is here"),
        pytest.raises(StateBusyError, match=r"state\.lock"),
    ):
        save_state(path, state, state, lock=lock)
    assert save_state(path, replace(state, step="2"), state, lock=lock).step == "2"


def _between(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], times: int = 1) -> None:
    """Let another writer come between our look and our write."""
    real, left = swap._place, [times]

    def late(temporary: Path, path: Path, seen: bytes | None, whole: Callable[[bytes], bool]) -> bytes | None:
        if left[0]:
            left[0] -= 1
            act()
        return real(temporary, path, seen, whole)

    monkeypatch.setattr(swap, "_place", late)


@pytest.mark.parametrize("exchange", [True, False])
def test_acceptance_59_a_write_between_look_and_write_is_not_lost(
    path: Path, lock: Path, state: StateFile, monkeypatch: pytest.MonkeyPatch, *, exchange: bool
) -> None:
    """Both manners of putting a file in place see what came between, and join it."""
    if not exchange:
        monkeypatch.setattr(swap, "_renameat2", lambda: None)
    theirs = path.read_text().replace("phase: 0\n  name: awaiting-invocation", "phase: 3\n  name: late")
    _between(monkeypatch, lambda: path.write_text(theirs))
    saved = save_state(path, replace(state, retry_count=2), state, lock=lock)
    assert (saved.sub_step, saved.retry_count) == (Phase(phase=3, name="late"), 2)
    assert path.read_text() == saved.text
    assert [item.name for item in lock.parent.iterdir()] == [lock.name]


def test_acceptance_59_a_file_that_appears_at_the_last_moment_is_joined(
    path: Path, lock: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Creating never writes over a file that another made an instant before."""
    _between(monkeypatch, lambda: path.write_text(text_of("autodev-implement")))
    saved = save_state(path, new_state(Dialect.AUTODEV), None, lock=lock)
    assert saved.sub_step == Phase(phase=7, name="batch-loop", detail="batch 2 of ~4")


@pytest.mark.usefixtures("_hasty")
def test_garbage_that_comes_between_is_kept_beside(
    path: Path, lock: Path, state: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Our state stands; what displaced nothing readable is in a copy."""
    _between(monkeypatch, lambda: path.write_bytes(b"garbage"))
    saved = save_state(path, replace(state, retry_count=2), state, lock=lock)
    assert load_state(path) == saved
    assert path.with_name(f"{path.name}.unreadable-1").read_bytes() == b"garbage"


@pytest.mark.usefixtures("_hasty")
def test_an_endless_rival_is_reported(
    path: Path, lock: Path, state: StateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joining gives up in words, not in a loop."""
    monkeypatch.setattr(files, "PATIENCE", 0.2)
    numbers = count(1)

    def write() -> None:
        path.write_text(path.read_text() + f"\n## N{next(numbers)}\n")

    _between(monkeypatch, write, times=1_000_000)
    with pytest.raises(StateBusyError, match="continuously"):
        save_state(path, replace(state, retry_count=2), state, lock=lock)


@pytest.mark.usefixtures("_hasty")
def test_without_exchange_nothing_unseen_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A changed or vanished file is reported before the write; an unchanged one is replaced."""
    monkeypatch.setattr(swap, "_renameat2", lambda: None)
    path = tmp_path / "a"
    with pytest.raises(Changed):
        put(path, b"new", seen=b"old", staging=tmp_path, whole=bool)
    path.write_bytes(b"other")
    with pytest.raises(Changed):
        put(path, b"new", seen=b"old", staging=tmp_path, whole=bool)
    assert path.read_bytes() == b"other"
    assert put(path, b"new", seen=b"other", staging=tmp_path, whole=bool) == b"other"
    assert [item.name for item in tmp_path.iterdir() if item.is_file()] == ["a"]


def test_a_writer_that_still_holds_the_displaced_file_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bytes that arrive in the old file after the exchange are what comes back."""
    path = tmp_path / "a"
    path.write_bytes(b"")
    with path.open("wb", buffering=0) as late:
        parts = [b"la", b"te"]
        monkeypatch.setattr(time, "sleep", lambda _: late.write(parts.pop(0)))
        assert put(path, b"new", seen=b"old", staging=tmp_path, whole=b"late".__eq__) == b"late"
    assert path.read_bytes() == b"new"


def test_exchange_is_used_only_where_it_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other systems fall back to comparing and renaming."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _: object())
    assert swap._renameat2.__wrapped__() is None
    monkeypatch.setattr(sys, "platform", "other")
    assert swap._renameat2.__wrapped__() is None


def test_staging_on_another_device_falls_back_to_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename never crosses devices."""
    monkeypatch.setattr(swap, "_same_device", lambda _one, _other: False)
    monkeypatch.setattr(
        swap, "_write", lambda path, data, _: path.parent.name == "s" or path.write_bytes(data)
    )
    (tmp_path / "s").mkdir()
    put(tmp_path / "a", b"x", seen=None, staging=tmp_path / "s", whole=bool)
    assert (tmp_path / "a").read_bytes() == b"x"


def test_the_same_bytes_are_set_aside_once(tmp_path: Path) -> None:
    """Copies are numbered, and an existing equal one is enough."""
    path = tmp_path / "s.md"
    names = [set_aside(path, data).name for data in (b"a", b"b", b"a", b"c")]
    assert names == [f"s.md.unreadable-{number}" for number in (1, 2, 1, 3)]


@pytest.mark.usefixtures("state")
def test_acceptance_58_killed_writers_leave_the_old_file_or_the_new(path: Path, lock: Path) -> None:
    """Killed at any moment: the file is there, whole, and the next writer gets the lock."""
    chance = random.Random(58)  # noqa: S311  moments, not secrets
    with agent("mortals", path, lock, 0) as parent:
        for _ in range(12):
            _kill_a_writer(path, parent, after=chance.uniform(0.0, 0.08))
            left = load_state(path)
            assert left is not None
            assert isinstance(left.sub_step, Phase)
            assert len(left.sub_step.detail) in {10, 20_000}
            assert [item.name for item in path.parent.iterdir()] == [path.name]
            again = replace(left, sub_step=Phase(phase=0, name="loop"), status=StepStatus.FAILED)
            save_state(path, again, left, lock=lock)


def _kill_a_writer(path: Path, parent: "subprocess.Popen[str]", *, after: float) -> None:
    """Have a writer forked that has loaded all it needs, look at what it writes, and kill it."""
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write("\n")
    parent.stdin.flush()
    pid = int(parent.stdout.readline())
    try:
        deadline = time.monotonic() + after
        while time.monotonic() < deadline:
            seen = parse_state(path.read_text())
            assert isinstance(seen.sub_step, Phase)
            assert seen.sub_step.detail.strip("x") == ""
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.usefixtures("state")
def test_acceptance_59_runner_and_polite_agent_write_at_once(path: Path, lock: Path) -> None:
    """Both write as fast as they can: the last value of each one's fields is in the file."""
    process = agent("polite", path, lock, 150)
    last = writers.runner(path, lock, 150)
    assert process.communicate(timeout=60)[0] == "done\n"
    final = load_state(path)
    assert final is not None
    assert final.sub_step == Phase(phase=150, name="batch-loop", detail="batch 150")
    assert (final.name, final.retry_count, final.status) == ("Round 150", last.retry_count, last.status)


@pytest.mark.parametrize("manner", ["replacing", "in-place"])
def test_acceptance_59_an_agent_without_the_lock_loses_nothing(
    path: Path, lock: Path, manner: str, state: StateFile
) -> None:
    """An agent that asks nobody: its last sub-step and the runner's own fields are both there in the end."""
    start = save_state(path, replace(state, sub_step=Phase(phase=0, name="batch-loop")), state, lock=lock)
    process = agent(manner, path, lock, 100)
    current, number = start, 1
    while process.poll() is None:
        number += 1
        current = save_state(path, replace(current, name=f"Round {number}"), current, lock=lock)
    assert process.communicate(timeout=60)[0] == "done\n"
    final = save_state(path, replace(current, name="Last round"), current, lock=lock)
    assert final.sub_step == Phase(phase=100, name="batch-loop", detail="batch 100")
    assert final.name == "Last round"
    assert load_state(path) == final
