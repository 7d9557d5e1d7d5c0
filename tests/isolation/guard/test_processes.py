"""A session that cannot reach other processes still does all with its own, and its keeper all with it."""

import os
import sys
from pathlib import Path

import trio
from msgspec.structs import replace

from isolation.keeper.client import open_keeper
from isolation.model import Confinement, EnforcementLevel, Means
from tests.isolation.guard.guard_scenes import play
from tests.isolation.guard.test_guard import means, open_folder, user
from tests.isolation.keeper.scenes import ready, spec

OWN = {
    "debugger": "command -v strace > /dev/null || exit 0; strace -f -o /dev/null sh -c 'true; true'",
    "attaching debugger": "command -v strace > /dev/null || exit 0; sleep 9 & "
    "timeout -s INT 0.2 strace -o /dev/null -p $!; test $? = 124 && kill $!",
    "signal": "sleep 9 & kill $!; wait $!; test $? = 143",
    "group": "trap 'exit 0' TERM; kill -TERM 0; exit 1",
    "limits": "ulimit -c 0 && ulimit -n 100 && prlimit --nofile=50 true",
    "list": "ps -p $PPID > /dev/null && test -r /proc/$PPID/stat",
    "look": 'sleep 9 & test "$(readlink /proc/$!/cwd)" = "$(pwd -P)" && kill $!',
}
SANDBOXES = {
    "namespaces": "unshare -Urm sh -c 'mount -t tmpfs x /mnt && touch /mnt/x'",
    "processes": "unshare -Urmpf --mount-proc sh -c 'test $$ = 1 && kill -0 1'",
}
MEMORY = 64 << 20
HUNGRY = f"held = bytearray({MEMORY}); print('ready', flush=True); import time; time.sleep(60)"


__all__ = ["means", "open_folder", "user"]


def test_its_own_processes_are_its_own(open_folder: Path, user: int | None, means: Means) -> None:
    """Debuggers, signals, limits and, under mounts, sandboxes inside work as without a guard."""
    commands = OWN | (SANDBOXES if means is Means.MOUNTS else {})
    if (os.geteuid() if user is None else user) == 0:
        commands.pop("processes", None)  # to root the kernel's settings in /proc are closed
    ended = play("worktree", open_folder, user, means=means, commands=commands)
    assert {name: told for name, told in ended.items() if told[0] != 0} == {}


async def test_a_guarded_tree_is_measured(tmp_path: Path, means: Means) -> None:
    """The keeper's side sees memory and number of processes by the machine's own process ids."""
    script = f'{sys.executable} -c "{HUNGRY}" & wait'
    confinement = Confinement(level=EnforcementLevel.DENY, means=means)
    order = replace(spec(tmp_path, "sh", "-c", script), confinement=confinement)
    with trio.fail_after(30):
        async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper, keeper.start(order) as session:
            await ready(session)
            used = session.usage()
            assert used is not None
            assert (used.processes, used.rss_bytes > MEMORY) == (2, True)
            session.stop(grace=5)
            assert (await session.wait()).stopped
