"""Peers are real processes outside of our tree; ours are not, wherever their parents went."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import trio

from isolation.keeper.client import open_keeper
from runner.agents.catalog import PROGRAMS
from runner.machine.peers import find_peers
from tests.isolation.keeper.scenes import spec

PROC = Path("/proc")
pytestmark = pytest.mark.skipif(not PROC.is_dir(), reason="no procfs")

# As a program: three processes of one name, one below the other; each says its number when it is there.
FAMILY = """
import os, signal
os.fork() or os.fork()
os.write(1, b"%d\\n" % os.getpid())
while True:
    signal.pause()
"""
# Starts a command outside of our tree: two forks and a session of its own. Ends when the command runs.
OUTSIDE = """
import os, signal, sys
running, pending = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(1, b"%d\\n" % os.getpid())
        os.execv(sys.argv[1], sys.argv[1:])
    os._exit(0)
os.wait()
os.close(pending)
os.read(running, 1)
"""
STAY = "signal.pause()"
# Another coordinator: two sessions under a keeper, each a `claude` that starts others.
COORDINATOR = """
import sys, trio
from pathlib import Path
from isolation.keeper.client import open_keeper
from tests.isolation.keeper.scenes import spec

async def hold(session):
    while chunk := await session.receive():
        sys.stdout.buffer.write(chunk)
        sys.stdout.flush()

async def main(folder, *argv):
    async with (
        open_keeper(alive_lock=folder / "alive.lock") as keeper,
        keeper.start(spec(folder, *argv)) as first,
        keeper.start(spec(folder, *argv)) as second,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(hold, first)
        nursery.start_soon(hold, second)

trio.run(main, Path(sys.argv[1]), *sys.argv[2:])
"""


def peers() -> set[int]:
    """Look at the real machine; others may be at work on it."""
    found = find_peers(PROC, PROGRAMS)
    assert found is not None
    return found


@pytest.fixture
def agent(tmp_path: Path) -> list[str]:
    """Return the command of an agent that is a script, and starts two more of itself."""
    script = tmp_path / "claude"
    script.write_text(FAMILY)
    return [sys.executable, str(script)]


@contextmanager
def outside(*argv: str, lines: int) -> Iterator[tuple[int, list[int]]]:
    """Run a command that is not below us, until it has said so many numbers; give its own, and those."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    launcher = [sys.executable, "-I", "-S", "-c", OUTSIDE, *argv]
    with subprocess.Popen(launcher, stdout=subprocess.PIPE, env=environment) as started:
        assert started.stdout is not None
        first = int(started.stdout.readline())
        try:
            said = [int(started.stdout.readline()) for _ in range(lines)]
            started.wait()
            yield first, said
        finally:
            os.killpg(os.getpgid(first), signal.SIGKILL)
            started.stdout.read()  # ends when no process is left that could write


def test_a_foreign_agent_counts_once(agent: list[str]) -> None:
    """Acceptance 47: three processes of one name outside of our tree are one peer, and end with it."""
    with outside(*agent, lines=3) as (first, said):
        assert first in said
        assert len(set(said)) == 3
        assert peers() & set(said) == {first}
    assert not peers() & set(said)


def test_a_foreign_program_is_known_by_its_name(tmp_path: Path) -> None:
    """Acceptance 47: an agent may be one binary without an interpreter."""
    program = tmp_path / "codex"
    shutil.copy(shutil.which("sleep") or "/bin/sleep", program)
    with outside(str(program), "1000", lines=0) as (first, _):
        assert first in peers()


def test_our_own_children_are_no_peers(agent: list[str]) -> None:
    """Acceptance 47: what this process started is ours, and what that starts."""
    with subprocess.Popen(agent, stdout=subprocess.PIPE, start_new_session=True) as started:
        assert started.stdout is not None
        said = {int(started.stdout.readline()) for _ in range(3)}
        assert started.pid in said
        found = peers()
        os.killpg(started.pid, signal.SIGKILL)
    assert not found & said


async def test_an_orphan_of_our_sessions_is_no_peer(agent: list[str], tmp_path: Path) -> None:
    """Acceptance 47: a daemon that left its session's tree is with the keeper, so it is ours."""
    with trio.fail_after(60):
        async with (
            open_keeper(alive_lock=tmp_path / "alive.lock") as keeper,
            keeper.start(spec(tmp_path, sys.executable, "-c", OUTSIDE + STAY, *agent)) as session,
        ):
            output = b""
            while output.count(b"\n") < 4:
                output += await session.receive()
            said = set(map(int, output.split()))
            assert len(said) == 3
            assert not peers() & said


def test_each_story_of_another_run_is_a_peer_once(agent: list[str], tmp_path: Path) -> None:
    """Acceptance 47: another coordinator's sessions count, by story and not by process."""
    command = [sys.executable, "-c", COORDINATOR, str(tmp_path), *agent]
    with outside(*command, lines=6) as (_, said):
        keepers = {above.pid for pid in said for above in psutil.Process(pid).parents()} & peers()
        assert len(keepers) == 2
        assert {psutil.Process(pid).name() for pid in keepers} == {"apm-keeper"}
        assert not peers() & set(said)
        assert not keepers & set(said)


def test_a_dead_agent_is_no_peer(tmp_path: Path) -> None:
    """What ended but was not collected, and a kernel thread, have no session, whatever their name."""
    for pid, state, flags in ((5, "S", 0), (6, "Z", 0), (7, "S", 0x00200000)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b) {state} 1 1 1 0 -1 {flags} 0 0\n")
        (tmp_path / str(pid) / "cmdline").write_text("claude\0")
    assert find_peers(tmp_path, PROGRAMS) == {5}


def test_without_procfs_psutil_is_asked(
    agent: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other systems have no such files; when psutil fails too, the number is unknown."""
    with outside(*agent, lines=3) as (first, said):
        found = find_peers(tmp_path / "none", PROGRAMS)
        assert found is not None
        assert found & set(said) == {first}

    def fail(_names: object) -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "process_iter", fail)
    assert find_peers(tmp_path / "none", PROGRAMS) is None
