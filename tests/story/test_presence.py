"""Being present: seen while the block runs, by a beating heart, and gone with its end."""

import time
from pathlib import Path

import pytest
import trio

from isolation.paths import sessions_dir
from runner.core.errors import RunnerError
from runner.machine.registry import Registry, SessionEntry
from runner.story import presence
from runner.story.presence import BEAT_SECONDS, present


class Watched(Registry):
    """The real registry, which says after every attempt to write that it was made."""

    def __init__(self, common_dir: Path) -> None:
        super().__init__(common_dir)
        self._written = trio.Event()
        self._trio = trio.lowlevel.current_trio_token()

    def write(self, entry: SessionEntry) -> None:
        """Write, whatever comes of it, and tell."""
        try:
            super().write(entry)
        finally:
            self._trio.run_sync_soon(self._tell)

    def _tell(self) -> None:
        self._written.set()
        self._written = trio.Event()

    async def next_beat(self) -> None:
        """Wait for the next attempt."""
        await self._written.wait()


@pytest.fixture
async def registry(tmp_path: Path) -> Watched:
    (tmp_path / "common").mkdir()
    return Watched(tmp_path / "common")


@pytest.fixture
def entry(registry: Watched) -> SessionEntry:
    return registry.entry("run/story/01", mode="deep", now=time.time(), run_id="run")


@pytest.fixture
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let hearts beat fast."""
    monkeypatch.setattr(presence, "BEAT_SECONDS", 0.01)


def _fail(message: str) -> None:
    raise AssertionError(message)


async def test_a_session_is_seen_while_its_block_runs(registry: Watched, entry: SessionEntry) -> None:
    """Others see it from when it says so to the last line, and not after."""
    async with present(registry, entry, note=_fail) as presence:
        await presence.seen()
        assert [one.session_id for one in registry.active(time.time())] == ["run/story/01"]
    assert registry.active(time.time()) == ()


async def test_a_session_withdraws_while_its_block_goes_on(registry: Watched, entry: SessionEntry) -> None:
    """Its end need not wait for the disk; a second word changes nothing."""
    with trio.fail_after(30):
        async with present(registry, entry, note=_fail) as presence:
            await presence.seen()
            presence.end()
            while registry.active(time.time()):
                await trio.lowlevel.checkpoint()
            presence.end()
    assert registry.active(time.time()) == ()


def test_the_heart_beats_once_a_minute() -> None:
    """Well within the 15 minutes that make a peer."""
    assert BEAT_SECONDS == 60


@pytest.mark.usefixtures("_fast")
async def test_the_heart_beats(registry: Watched, entry: SessionEntry) -> None:
    """The heartbeat is renewed again and again, with the time of then."""
    began = time.time()
    ticks = iter(range(100))
    seen = []
    with trio.fail_after(30):
        async with present(registry, entry, note=_fail, clock=lambda: began + next(ticks)) as presence:
            await presence.seen()
            for _ in range(3):
                await registry.next_beat()
                seen += [one.heartbeat - began for one in registry.active(began)]
    assert seen == pytest.approx([1, 2, 3], abs=0.01)


@pytest.mark.usefixtures("_fast")
async def test_an_entry_that_was_swept_comes_back(registry: Watched, entry: SessionEntry) -> None:
    """A machine that slept for an hour is seen again with the next beat."""
    with trio.fail_after(30):
        async with present(registry, entry, note=_fail) as presence:
            await presence.seen()
            registry.sweep(time.time() + 1e6)
            await registry.next_beat()
            assert len(registry.active(time.time())) == 1


async def test_a_cancelled_session_withdraws(registry: Watched, entry: SessionEntry) -> None:
    """The end is shielded: a session that is stopped leaves the registry, too."""
    with trio.CancelScope() as scope:
        async with present(registry, entry, note=_fail) as presence:
            await presence.seen()
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert registry.active(time.time()) == ()


@pytest.mark.parametrize("error", [RunnerError("expected"), KeyError("a bug")])
async def test_an_error_in_the_block_passes_as_it_is(
    registry: Watched, entry: SessionEntry, error: Exception
) -> None:
    """No group hides it from the code that judges the story."""
    with pytest.raises(type(error)) as caught:
        async with present(registry, entry, note=_fail):
            raise error
    assert caught.value is error
    assert registry.active(time.time()) == ()


@pytest.mark.usefixtures("_fast")
async def test_a_disk_that_refuses_is_a_note(registry: Watched, entry: SessionEntry, tmp_path: Path) -> None:
    """The block runs to its end all the same, and the complaint is made once, not every beat."""
    sessions_dir(tmp_path / "common").parent.mkdir()
    sessions_dir(tmp_path / "common").write_text("a file where the folder should be")
    notes: list[str] = []
    with trio.fail_after(30):
        async with present(registry, entry, note=notes.append):
            for _ in range(3):
                await registry.next_beat()
    assert len([note for note in notes if note.startswith("other sessions cannot see run/story/01")]) == 1


async def test_another_programs_file_is_a_note_and_stays(
    registry: Watched, entry: SessionEntry, tmp_path: Path
) -> None:
    """It is in the way, it is named, and it is there afterwards, byte for byte."""
    folder = sessions_dir(tmp_path / "common")
    folder.mkdir(parents=True)
    theirs = folder / "run%2Fstory%2F01.json"
    theirs.write_text('{"session_id": "somebody"}')
    notes: list[str] = []
    async with present(registry, entry, note=notes.append) as presence:
        await presence.seen()
    assert "belongs to another session" in notes[0]
    assert theirs.read_text() == '{"session_id": "somebody"}'
    assert list(folder.iterdir()) == [theirs]
