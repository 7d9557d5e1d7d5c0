"""A session under its keeper: what it gets, what it says, how it ends, and what it may not hold up."""

import os
import resource
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from isolation.errors import KeeperError
from isolation.keeper.client import Keeper, Session, open_keeper, wait_for_old_keepers
from isolation.kernel.process_tree import load_stat
from isolation.model import Exit, SessionSpec
from tests.isolation.keeper.scenes import UNTIL_GO, spec

MEBIBYTE = 1 << 20


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[Keeper]:
    """Return the keeper of a run."""
    with trio.fail_after(60):
        async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper:
            yield keeper


async def finish(session: Session) -> tuple[bytes, Exit]:
    output = bytearray()
    with trio.fail_after(20):
        while chunk := await session.receive():
            output += chunk
        return bytes(output), await session.wait()


async def run(keeper: Keeper, order: SessionSpec) -> tuple[bytes, Exit]:
    async with keeper.start(order) as session:
        return await finish(session)


def shell(folder: Path, script: str) -> SessionSpec:
    return spec(folder, "sh", "-c", script)


async def test_session_reports_output_and_exit_code(keeper: Keeper, tmp_path: Path) -> None:
    """Both streams come through one pipe; the code is the leader's own."""
    output, end = await run(keeper, shell(tmp_path, "echo out; echo err >&2; pwd; exit 3"))
    assert output == f"out\nerr\n{tmp_path}\n".encode()
    assert end == Exit(returncode=3, stopped=False)


async def test_death_by_signal_is_a_negative_code(keeper: Keeper, tmp_path: Path) -> None:
    """As in `subprocess`; and no stop was requested."""
    _, end = await run(keeper, shell(tmp_path, "kill -SEGV $$"))
    assert end == Exit(returncode=-signal.SIGSEGV, stopped=False)


async def test_prompt_is_stdin_then_eof(keeper: Keeper, tmp_path: Path) -> None:
    """A program that reads to the end of its input comes to an end."""
    output, end = await run(keeper, spec(tmp_path, "cat", prompt="do the work\n"))
    assert (output, end.returncode) == (b"do the work\n", 0)


async def test_output_is_bytes(keeper: Keeper, tmp_path: Path) -> None:
    """Invalid UTF-8, NULs and terminal escapes arrive unchanged."""
    everything = bytes(range(256)) * 1000
    (tmp_path / "bytes").write_bytes(everything)
    output, _ = await run(keeper, spec(tmp_path, "cat", "bytes"))
    assert output == everything


async def test_large_environment_and_odd_arguments_arrive(keeper: Keeper, tmp_path: Path) -> None:
    """More than a socket's buffer holds, and bytes that are no UTF-8."""
    odd = os.fsdecode(b"\xff=\n ")
    env = {f"V{number}": "x" * 10_000 for number in range(60)} | {"ODD": odd, "PATH": os.environ["PATH"]}
    order = spec(tmp_path, "sh", "-c", 'env | wc -c; printf %s "$ODD$1"', "sh", odd, env=env)
    output, _ = await run(keeper, order)
    size, _, rest = output.partition(b"\n")
    assert int(size) > 600_000
    assert rest == b"\xff=\n \xff=\n "


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGXFSZ])
async def test_signals_have_their_defaults(keeper: Keeper, tmp_path: Path, number: int) -> None:
    """What the keeper ignores for itself, the session does not inherit; nothing is blocked."""
    output, _ = await run(keeper, spec(tmp_path, "cat", "/proc/self/status"))
    masks = dict(line.split(":\t") for line in output.decode().splitlines() if line.startswith("Sig"))
    assert int(masks["SigIgn"], 16) >> (number - 1) & 1 == 0
    assert int(masks["SigBlk"], 16) == 0


async def test_session_inherits_three_descriptors(keeper: Keeper, tmp_path: Path) -> None:
    """Neither a socket of ours nor another session's pipe; it leads a session of its own."""
    async with keeper.start(shell(tmp_path, "sleep 1000")):
        script = "import os; print(*os.listdir('/proc/self/fd'), os.getsid(0) == os.getpid())"
        output, _ = await run(keeper, spec(tmp_path, sys.executable, "-I", "-S", "-c", script))
    # The fourth is the listing's own.
    assert output == b"0 1 2 3 True\n"


@pytest.mark.parametrize(
    ("argv", "folder", "message"),
    [
        (("no-such-program",), ".", "no-such-program in .*: No such file or directory"),
        (("./plain",), ".", "./plain in .*: Permission denied"),
        (("true",), "missing", "cannot start true: its folder .*missing: No such file"),
        (("true", "x" * 3_000_000), ".", "Argument list too long"),
        (("a\0b",), ".", "NUL character"),
    ],
)
async def test_program_that_cannot_start_is_an_error(
    keeper: Keeper, tmp_path: Path, argv: tuple[str, ...], folder: str, message: str
) -> None:
    """The error names program, folder and reason, and is not an exit code."""
    (tmp_path / "plain").touch(mode=0o644)
    order = spec(tmp_path, *argv)
    order = SessionSpec(argv=argv, cwd=tmp_path / folder, env=order.env, prompt=order.prompt)
    with pytest.raises(KeeperError, match=message) as caught:
        await run(keeper, order)
    assert caught.value.hint
    assert (await run(keeper, shell(tmp_path, "echo next")))[0] == b"next\n"


async def test_missing_prompt_is_an_error(keeper: Keeper, tmp_path: Path) -> None:
    """Nothing starts."""
    order = SessionSpec(argv=("true",), cwd=tmp_path, env={}, prompt=tmp_path / "none")
    with pytest.raises(KeeperError, match="none: No such file"):
        await run(keeper, order)


async def test_twenty_sessions_at_once(keeper: Keeper, tmp_path: Path) -> None:
    """Each gets its own output and its own code."""
    ends: dict[int, tuple[bytes, int]] = {}

    async def one(number: int) -> None:
        output, end = await run(keeper, shell(tmp_path, f"echo {number}; exit {number}"))
        ends[number] = (output, end.returncode)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(one, number)
    assert ends == {number: (f"{number}\n".encode(), number) for number in range(20)}


async def test_many_tasks_may_wait(keeper: Keeper, tmp_path: Path) -> None:
    """All learn the same, also when the one that reads is cancelled, and also afterwards."""
    ends: list[Exit] = []

    async def wait(session: Session) -> None:
        ends.append(await session.wait())

    async with keeper.start(shell(tmp_path, "read line; exit 5")) as session:
        async with trio.open_nursery() as nursery:
            with trio.move_on_after(0.01):
                await session.wait()
            for _ in range(3):
                nursery.start_soon(wait, session)
            session.stop(grace=5)
        ends.append(await session.wait())
    assert len(set(ends)) == 1
    assert len(ends) == 4


def descriptors(pid: int | str) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


async def test_no_descriptor_is_left_after_fifty_sessions(keeper: Keeper, tmp_path: Path) -> None:
    """Neither here nor in the fork server, whether sessions ended, failed or were killed."""
    counts = []
    for _ in range(2):
        for number in range(50):
            async with keeper.start(shell(tmp_path, "sleep 1000" if number % 2 else "true")) as session:
                if number % 2:
                    server = _server_pid(session)
            with pytest.raises(KeeperError):
                await run(keeper, spec(tmp_path, "no-such-program"))
        await run(keeper, shell(tmp_path, "true"))
        counts.append((descriptors("self"), descriptors(server) // 5))
    assert counts[0] == counts[1]


def _server_pid(session: Session) -> int:
    stat = load_stat(session._keeper_pid)
    assert stat is not None
    return stat.parent


async def flood(keeper: Keeper, folder: Path, size: int) -> int:
    """Receive one long line; gives the growth of our memory meanwhile."""

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    async with keeper.start(shell(folder, f"head -c {size} /dev/zero")) as session:
        before, peak, received, reads = resident(), 0, 0, 0
        while chunk := await session.receive():
            assert len(chunk) <= 65536
            received += len(chunk)
            reads += 1
            if reads % 100 == 0:
                peak = max(peak, resident())
        assert (await session.wait()).returncode == 0
    assert received == size
    return peak - before


async def test_long_line_needs_little_memory(keeper: Keeper, tmp_path: Path) -> None:
    """64 MiB without a newline pass through; nothing is kept."""
    assert await flood(keeper, tmp_path, 64 * MEBIBYTE) < 8 * MEBIBYTE


@pytest.mark.chaos
async def test_two_gibibytes_in_one_line_need_little_memory(keeper: Keeper, tmp_path: Path) -> None:
    """The size makes no difference."""
    assert await flood(keeper, tmp_path, 2048 * MEBIBYTE) < 8 * MEBIBYTE


async def test_a_foreign_holder_of_the_pipe_does_not_hold_up_the_end(keeper: Keeper, tmp_path: Path) -> None:
    """Once the tree is empty, what was printed is given out and the output ends."""
    async with keeper.start(shell(tmp_path, f"echo said; {UNTIL_GO}; exit 4")) as session:
        holder = os.open(f"/proc/{session.pid}/fd/1", os.O_WRONLY)
        (tmp_path / "go").touch()
        try:
            output, end = await finish(session)
            os.write(holder, b"too late")
            assert await session.receive() == b""
        finally:
            os.close(holder)
    assert (output, end.returncode) == (b"said\n", 4)


async def test_unread_output_does_not_hold_up_a_stop(keeper: Keeper, tmp_path: Path) -> None:
    """A session that is blocked on a full pipe ends like any other."""
    async with keeper.start(shell(tmp_path, "echo begun; exec cat /dev/zero")) as session:
        assert await session.receive()
        session.stop(grace=5)
        with trio.fail_after(4):
            assert (await session.wait()).stopped


async def test_the_start_of_a_program_does_not_double_the_memory(keeper: Keeper, tmp_path: Path) -> None:
    """Until it runs its program, a process that was just started has the memory of the one that starts it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    # The new process waits at the FIFO before its program, so it stays in that moment.
    first = f"[(os.POSIX_SPAWN_OPEN, 0, '{fifo}', os.O_RDONLY, 0)]"
    start = f"os.posix_spawn('/bin/true', ['true'], {{}}, file_actions={first})"
    lines = f"import os; b = bytearray(b'x') * (64 << 20); {start}"
    async with keeper.start(spec(tmp_path, sys.executable, "-c", lines)) as session:
        with trio.fail_after(20):
            while (usage := session.usage()) is None or usage.processes < 2:  # noqa: ASYNC110  nothing announces a fork
                await trio.sleep(0.01)
        assert 64 * MEBIBYTE <= usage.rss_bytes < 100 * MEBIBYTE
        os.close(os.open(fifo, os.O_WRONLY))
        await finish(session)


async def test_usage_counts_members_that_ended(keeper: Keeper, tmp_path: Path) -> None:
    """CPU time of a finished child stays; after the end nothing is known."""
    burn = f'{sys.executable} -I -S -c "import time\nwhile time.process_time() < 0.3: pass"'
    async with keeper.start(shell(tmp_path, f"{burn}; echo burnt; sleep 1000")) as session:
        with trio.fail_after(20):
            assert await session.receive() == b"burnt\n"
        usage = session.usage()
        assert usage is not None
        assert 0.2 < usage.cpu_seconds < 3
        assert 0 < usage.rss_bytes < 100 * MEBIBYTE
        session.kill()
        await session.wait()
        assert session.usage() is None


async def test_lock_is_free_only_when_all_keepers_are_gone(tmp_path: Path) -> None:
    """A missing file counts as free; a living server holds it."""
    lock = tmp_path / "alive.lock"
    with trio.fail_after(20):
        assert await wait_for_old_keepers(lock)
        async with open_keeper(alive_lock=lock) as keeper:
            await keeper.ready()
            with trio.move_on_after(0.1) as scope:
                await wait_for_old_keepers(lock)
            assert scope.cancelled_caught
        assert await wait_for_old_keepers(lock)


async def test_lock_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """The message names the file and the reason."""
    async with open_keeper(alive_lock=tmp_path / "missing" / "alive.lock") as keeper:
        with pytest.raises(KeeperError, match=r"missing/alive.lock: No such file") as caught:
            await keeper.ready()
    assert caught.value.hint
