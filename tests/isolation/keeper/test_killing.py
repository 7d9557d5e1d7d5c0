"""Nothing of a session is left: not after a stop, not after its end, not after anyone's death."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio

from isolation.errors import KeeperError
from isolation.keeper import client as keeper_module
from isolation.keeper import fork_server
from isolation.keeper.client import Keeper, Session, open_keeper, wait_for_old_keepers
from isolation.kernel import process_tree
from tests.isolation.keeper import scenes as keeper_scenes
from tests.isolation.keeper.scenes import DEAF_SHAPES, SHAPES, UNTIL_GO, living, ready, shape_spec, spec

NOBODY = 65534
USERS = [None, NOBODY] if os.getuid() == 0 else [None]


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[Keeper]:
    """Return the keeper of a run."""
    with trio.fail_after(60):
        async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper:
            yield keeper


@pytest.fixture
def token() -> Iterator[str]:
    """Return a mark for a tree, and leave nothing of it to later tests."""
    mark = uuid.uuid4().hex
    yield mark
    for pid in living(mark):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that any user may use."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(name)


async def chunks(session: Session) -> AsyncIterator[bytes]:
    while chunk := await session.receive():
        yield chunk


def never_again(token: str) -> bool:
    """Search several times, since something that forks all the time may escape one search."""
    return not any(living(token) for _ in range(20))


@pytest.mark.parametrize("shape", SHAPES)
async def test_stop_ends_every_shape_of_tree(keeper: Keeper, tmp_path: Path, token: str, shape: str) -> None:
    """When the end is reported, and at most a second after the grace, no process is left."""
    grace = 0.3 if shape in DEAF_SHAPES else 20
    async with keeper.start(shape_spec(tmp_path, shape, token)) as session:
        await ready(session)
        assert living(token) or shape == "frantic"
        session.stop(grace=grace)
        with trio.fail_after(min(grace, 0.3) + 1):
            end = await session.wait()
        assert never_again(token)
    assert end.stopped
    assert end.returncode in {-signal.SIGTERM, -signal.SIGKILL}
    assert end.survivors == ()


@pytest.mark.parametrize("shape", sorted(DEAF_SHAPES))
async def test_stop_escalates(keeper: Keeper, tmp_path: Path, token: str, shape: str) -> None:
    """A long grace is cut short by a shorter one, and by a kill."""
    for escalate in (lambda session: session.stop(grace=0), Session.kill):
        async with keeper.start(shape_spec(tmp_path, shape, token)) as session:
            await ready(session)
            session.stop(grace=1000)
            session.stop(grace=2000)
            escalate(session)
            with trio.fail_after(1):
                end = await session.wait()
            session.stop(grace=1)
            session.kill()
            assert never_again(token)
        assert (end.returncode, end.stopped) == (-signal.SIGKILL, True)


@pytest.mark.chaos
@pytest.mark.parametrize("shape", SHAPES)
async def test_hundred_kills_leave_nothing(keeper: Keeper, tmp_path: Path, token: str, shape: str) -> None:
    """Whatever the timing, no process survives."""
    for _ in range(100):
        async with keeper.start(shape_spec(tmp_path, shape, token)) as session:
            await ready(session)
            session.kill()
            with trio.fail_after(1):
                assert (await session.wait()).survivors == ()
            assert never_again(token)


async def test_stop_leaves_the_grace_to_clean_up(keeper: Keeper, tmp_path: Path) -> None:
    """SIGTERM comes first, and the leader's own code is the answer."""
    script = "trap 'echo cleaned; exit 9' TERM; echo ready; while :; do sleep 0.01; done"
    async with keeper.start(spec(tmp_path, "sh", "-c", script)) as session:
        await ready(session)
        session.stop(grace=20)
        with trio.fail_after(5):
            output = b"".join([chunk async for chunk in chunks(session)])
            end = await session.wait()
    assert b"cleaned\n" in output
    assert (end.returncode, end.stopped) == (9, True)


async def test_daemon_left_by_a_finished_session_is_dead_before_the_end(
    keeper: Keeper, tmp_path: Path, token: str
) -> None:
    """The session's own code stands, and it does not count as stopped."""
    async with keeper.start(shape_spec(tmp_path, "leaves-daemon", token)) as session:
        with trio.fail_after(5):
            end = await session.wait()
        assert living(token) == []
    assert (end.returncode, end.stopped) == (7, False)


async def test_daemon_left_behind_may_remove_its_lock_file(keeper: Keeper, tmp_path: Path) -> None:
    """Such as a `git gc` in the background: it is asked before it is killed."""
    script = "touch lock; echo ready; trap 'rm lock; exit' TERM; while :; do sleep 0.01; done"
    leader = f'setsid sh -c "{script}" & until [ -e lock ]; do sleep 0.01; done; sleep 0.1'
    async with keeper.start(spec(tmp_path, "sh", "-c", leader)) as session:
        await session.wait()
    assert not (tmp_path / "lock").exists()


async def test_cancellation_ends_the_tree(keeper: Keeper, tmp_path: Path, token: str) -> None:
    """At the moment when the block is left, nothing runs; the cancellation goes on."""
    with trio.CancelScope() as scope:
        async with keeper.start(shape_spec(tmp_path, "deaf", token)) as session:
            await ready(session)
            pids = living(token)
            scope.cancel()
            await trio.sleep_forever()
    stats = [process_tree.load_stat(pid) for pid in pids]
    assert scope.cancelled_caught
    assert len(pids) > 2
    assert not any(stat and stat.alive for stat in stats)


async def test_error_in_the_block_ends_the_tree_and_stays_itself(
    keeper: Keeper, tmp_path: Path, token: str
) -> None:
    """No exception group is wrapped around what the caller raised."""

    async def fail() -> None:
        async with keeper.start(shape_spec(tmp_path, "deaf", token)) as session:
            await ready(session)
            raise LookupError

    with pytest.raises(LookupError):
        await fail()
    assert living(token) == []


async def test_start_cancelled_at_any_moment_leaves_nothing(
    keeper: Keeper, tmp_path: Path, token: str
) -> None:
    """Also between the request and the keeper's answer."""
    for step in range(40):
        with trio.move_on_after(step * 0.0004):
            async with keeper.start(shape_spec(tmp_path, "plain", token)) as session:
                await session.wait()
        assert living(token) == []


async def test_killed_keeper_takes_only_its_own_session(keeper: Keeper, tmp_path: Path, token: str) -> None:
    """Its tree is dead when the failure is told, its neighbour never notices."""
    neighbour = spec(tmp_path, "sh", "-c", f"{UNTIL_GO}; echo unharmed")
    async with keeper.start(neighbour) as other:
        for shape in ("deaf", "reforking", "plain"):
            async with keeper.start(shape_spec(tmp_path, shape, token)) as session:
                await ready(session)
                os.kill(session._keeper_pid, signal.SIGKILL)
                with trio.fail_after(5), pytest.raises(KeeperError, match="SIGKILL"):
                    await session.wait()
                assert never_again(token)
                assert await session.receive() == b""
        (tmp_path / "go").touch()
        assert await other.receive() == b"unharmed\n"
        assert (await other.wait()).returncode == 0


async def test_a_later_stop_never_lengthens_the_grace(keeper: Keeper, tmp_path: Path, token: str) -> None:
    """Acceptance 39: a short grace stays short, whatever is requested afterwards."""
    async with keeper.start(shape_spec(tmp_path, "deaf", token)) as session:
        await ready(session)
        session.stop(grace=0.1)
        session.stop(grace=3600)
        with trio.fail_after(30):
            assert (await session.wait()).stopped
    assert never_again(token)


@pytest.mark.parametrize("who", ["keeper", "server"])
async def test_neither_server_nor_keeper_takes_orders_by_signals(
    keeper: Keeper, tmp_path: Path, who: str
) -> None:
    """What a closed terminal or a hasty `kill` sends ends nothing: both obey their sockets alone."""
    running = spec(tmp_path, "sh", "-c", f"echo ready; {UNTIL_GO}; echo done")
    async with keeper.start(running) as session:
        await ready(session)
        stat = process_tree.load_stat(session._keeper_pid)
        assert stat is not None
        pid = session._keeper_pid if who == "keeper" else stat.parent
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
            os.kill(pid, number)
        async with keeper.start(spec(tmp_path, "echo", "still here")) as another:
            assert await another.receive() == b"still here\n"
        assert process_tree.load_stat(pid) is not None
        (tmp_path / "go").touch()
        assert await session.receive() == b"done\n"
        end = await session.wait()
    assert (end.returncode, end.stopped) == (0, False)


async def test_a_killed_server_is_started_anew_and_running_sessions_go_on(
    keeper: Keeper, tmp_path: Path
) -> None:
    """What runs ends well, under its own keeper, which still holds the lock; what is new starts as ever."""
    running = spec(tmp_path, "sh", "-c", f"echo ready; {UNTIL_GO}; echo done")
    async with keeper.start(running) as session:
        await ready(session)
        _kill_server_of(session)
        for _ in range(2):
            async with keeper.start(spec(tmp_path, "echo", "new")) as new:
                assert await new.receive() == b"new\n"
                assert (await new.wait()).returncode == 0
        with trio.move_on_after(0.05) as scope:
            await wait_for_old_keepers(tmp_path / "alive.lock")
        assert scope.cancelled_caught
        (tmp_path / "go").touch()
        assert await session.receive() == b"done\n"
        assert (await session.wait()).returncode == 0


async def test_a_server_that_cannot_be_started_anew_is_an_error(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told, and tried again for the next session."""
    async with keeper.start(spec(tmp_path, "sh", "-c", f"echo ready; {UNTIL_GO}")) as session:
        await ready(session)
        _kill_server_of(session)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "executable", "/nowhere/python")
        for _ in range(2):
            with pytest.raises(KeeperError, match="cannot start the fork server"):
                async with keeper.start(spec(tmp_path, "true")):
                    pass
    async with keeper.start(spec(tmp_path, "true")) as session:
        assert (await session.wait()).returncode == 0


async def test_a_server_that_is_killed_before_it_serves_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody notices; if it happens again and again, the message says that, and blames no file."""
    async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper:
        os.kill(keeper._server.pid, signal.SIGKILL)
        await keeper.ready()
        async with keeper.start(spec(tmp_path, "true")) as session:
            assert (await session.wait()).returncode == 0
    monkeypatch.setattr(fork_server, "_BOOT", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper:
        with pytest.raises(KeeperError, match="it was killed 3 times before it could serve"):
            await keeper.ready()


def _kill_server_of(session: Session) -> None:
    """Kill it, and wait until it has let go of all that it had open."""
    stat = process_tree.load_stat(session._keeper_pid)
    assert stat is not None
    os.kill(stat.parent, signal.SIGKILL)
    os.waitid(os.P_PID, stat.parent, os.WEXITED | os.WNOWAIT)


def _readable_copy(root: Path, copy: Path) -> Path:
    """Put what an ordinary user must read where it can: the checkout itself may be closed to others."""
    for name in ("isolation", "tests/isolation"):
        shutil.copytree(root / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tests" / "__init__.py").touch()
    return copy


async def start_coordinator(
    folder: Path, shape: str, token: str, grace: str, user: int | None
) -> trio.Process:
    arguments = [str(folder), shape, token, grace, *([] if user is None else [str(user)])]
    root = Path(keeper_scenes.__file__).parents[3]
    if user is not None:
        root = _readable_copy(root, folder / "source")
    return await trio.lowlevel.open_process(
        [sys.executable, "-m", "tests.isolation.keeper.scenes", *arguments],
        stdout=subprocess.PIPE,
        cwd=root,
    )


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("shape", SHAPES)
async def test_killed_coordinator_leaves_no_orphan(
    open_folder: Path, token: str, shape: str, user: int | None
) -> None:
    """Within a second all is dead, and the lock that `resume` waits for is free."""
    with trio.fail_after(30):
        process = await start_coordinator(open_folder, shape, token, "never", user)
        assert process.stdout is not None
        assert await process.stdout.receive_some() == b"up\n"
        process.kill()
        with trio.fail_after(1):
            assert await wait_for_old_keepers(open_folder / "alive.lock")
        assert never_again(token)
        await process.wait()
        await process.stdout.aclose()


async def stop_as_nobody(folder: Path, shape: str, token: str) -> bytes:
    with trio.fail_after(30):
        process = await start_coordinator(folder, shape, token, "0.2", NOBODY)
        assert process.stdout is not None
        output = b"".join([chunk async for chunk in process.stdout])
        await process.wait()
    return output


@pytest.mark.skipif(NOBODY not in USERS, reason="only root can become another user")
@pytest.mark.parametrize("shape", SHAPES)
async def test_ordinary_user_ends_every_shape_of_tree(open_folder: Path, token: str, shape: str) -> None:
    """No privilege is needed."""
    output = await stop_as_nobody(open_folder, shape, token)
    assert output == b"up\nstopped=True survivors=() left=[]\n"
    assert living(token) == []


@pytest.mark.skipif(NOBODY not in USERS, reason="only root can become another user")
async def test_process_that_may_not_be_killed_is_reported(open_folder: Path, token: str) -> None:
    """A daemon that became root is named as a survivor, after a bounded time."""
    setpriv = shutil.which("setpriv")
    if setpriv is None or os.statvfs(open_folder).f_flag & os.ST_NOSUID:
        pytest.skip("needs setpriv, and a file system that lets it become root")
    shutil.copy(setpriv, open_folder)
    (open_folder / "setpriv").chmod(0o4755)
    output = await stop_as_nobody(open_folder, "foreign", token)
    (survivor,) = living(token)
    assert f"stopped=True survivors=({survivor},)".encode() in output


async def test_group_level_ends_what_kept_its_group(
    tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a subreaper a tree is still ended, and what stayed in its group after its end."""
    monkeypatch.setattr(keeper_module, "kill_level", lambda: process_tree.GROUP)
    with trio.fail_after(30):
        async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper:
            for shape in ("plain", "setsid", "stopped"):
                async with keeper.start(shape_spec(tmp_path, shape, token)) as session:
                    await ready(session)
                    session.stop(grace=1)
                    assert (await session.wait()).stopped
                    assert living(token) == []
            left = f"sh -c 'echo ready; sleep 1000; :' x {token}"
            script = f"{left} | (read line; echo $line) & sleep 0.1"
            async with keeper.start(spec(tmp_path, "sh", "-c", script)) as session:
                await session.wait()
                assert living(token) == []


async def test_every_way_to_list_a_tree_agrees(
    keeper: Keeper, tmp_path: Path, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The children files, the parents in procfs, and `ps`."""
    async with keeper.start(shape_spec(tmp_path, "deaf", token)) as session:
        await ready(session)
        tree = process_tree.Tree(session._keeper_pid)
        await _agree(tree, token)
        monkeypatch.setattr(process_tree, "_CHILDREN_FILES", False)
        await _agree(tree, token)
        if shutil.which("ps"):
            monkeypatch.setattr(process_tree, "load_table", process_tree._load_table_of_ps)
            await _agree(tree, token)


async def _agree(tree: process_tree.Tree, token: str) -> None:
    """Wait until a tree lists exactly its living members; one just started or ended may be missing."""
    with trio.fail_after(10):
        while sorted(living(token)) != sorted(tree.members()):  # noqa: ASYNC110  no event reports that moment
            await trio.sleep(0.01)


@pytest.mark.parametrize("shape", ["plain", "scrubbed", "deaf", "reforking"])
async def test_a_keeper_and_the_server_killed_at_once_leave_nothing(
    keeper: Keeper, tmp_path: Path, token: str, shape: str
) -> None:
    """The coordinator inherits the tree and ends it; a neighbor under the killed server is unharmed."""
    if process_tree.kill_level() != process_tree.SUBREAPER:
        pytest.skip("orphans cannot be inherited here")
    neighbor = spec(tmp_path, "sh", "-c", f"echo ready; {UNTIL_GO}; echo unharmed")
    async with keeper.start(neighbor) as other:
        await ready(other)
        async with keeper.start(shape_spec(tmp_path, shape, token)) as session:
            await ready(session)
            _kill_server_of(session)
            os.kill(session._keeper_pid, signal.SIGKILL)
            with trio.fail_after(15), pytest.raises(KeeperError):
                await session.wait()
            assert never_again(token)
        async with keeper.start(spec(tmp_path, "echo", "new")) as new:
            assert await new.receive() == b"new\n"
        (tmp_path / "go").touch()
        assert await other.receive() == b"unharmed\n"
        assert (await other.wait()).returncode == 0
