"""Kills at every change that opening, keeping and removing a layer make on the disk; as a program.

`python -m tests.isolation.worktree.pool.overlay_kills STAGE [STEP]` kills a process before its first change,
its second and so on, until one gets through; with a step of 3 before its first, its fourth and so on. After
each kill another process recovers as a run that begins does, and finds the story's tree whole, with all that
was written in it.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import trio

from isolation.git.checkout import read_status
from isolation.git.repository import Repository
from isolation.kernel.layers import is_covered, part_from_machine
from isolation.model import Workspace
from isolation.paths import worktree_root
from isolation.worktree.layers.lifting import make_plain
from isolation.worktree.layers.records import clear_dead, load_layers
from isolation.worktree.layers.seeing import cover_all
from isolation.worktree.opening import create_or_attach
from isolation.worktree.pool.bottoms import Bottoms
from isolation.worktree.removal import close_path
from tests.conftest import GIT_ENVIRONMENT, git
from tests.isolation.worktree.pool.behavior import fill
from tests.isolation.worktree.worktrees import wanted

STAGES = ("open", "plain", "remove")
CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "open"}
KILLED = 9
PATIENCE = 20.0


class _Strike:
    """Ends this process before the change of a number, once it is armed."""

    def __init__(self, number: int, folder: Path) -> None:
        self.left, self.folder, self.armed = number, str(folder), False
        sys.addaudithook(self)

    def __call__(self, event: str, args: tuple[object, ...]) -> None:
        if not self.armed or event not in CHANGES or not str(args[0]).startswith(self.folder):
            return
        if event == "open" and not (isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)):
            return
        self.left -= 1
        if self.left < 0:
            os._exit(KILLED)


def _open(top: Path, *, interrupted: bool) -> Workspace:
    repository = Repository.open(top)
    root = worktree_root(repository.common_dir)
    bottoms = Bottoms(repository=repository, root=root, run_id="run-1")
    bottoms.begin()
    opening = partial(create_or_attach, repository, wanted(repository, "s", run="run-1"))
    limiter = trio.CapacityLimiter(1)

    async def opened() -> Workspace:
        return await opening(limiter, interrupted=interrupted, bottoms=bottoms)

    return trio.run(opened)


def _act(top: Path, stage: str, strike: _Strike) -> None:
    """Open a story's worktree and end it; the strike is armed during one of these."""
    part_from_machine()
    repository = Repository.open(top)
    strike.armed = stage == "open"
    workspace = _open(top, interrupted=False)
    strike.armed = False
    assert is_covered(workspace.path)
    if stage == "open":
        return
    if stage == "plain":
        (workspace.path / "work.txt").write_text("work\n")
        (workspace.path / "src" / "f1.py").unlink()
    strike.armed = True
    if stage == "plain":
        assert make_plain(repository, workspace.path) == ""
    else:
        assert close_path(repository, workspace.path, workspace.branch, sweep=False).removed


def _recover(top: Path, stage: str) -> None:
    """Begin another run in what is left: the worktree is there or made again, and nothing is lost."""
    part_from_machine()
    repository = Repository.open(top)
    clear_dead(repository.common_dir)
    cover_all(repository.common_dir, patience=PATIENCE)
    workspace = _open(top, interrupted=stage == "open")
    dirty = ("src/f1.py", "work.txt") if stage == "plain" else ()
    status = read_status(repository, workspace.path)
    assert tuple(sorted(status.dirty)) == dirty, (status, list(workspace.path.iterdir()))
    assert status.branch == workspace.branch
    if dirty:
        assert (workspace.path / "work.txt").read_text() == "work\n"
    recorded = {layer.path for layer in load_layers(repository.common_dir)}
    assert recorded == ({str(workspace.path)} if is_covered(workspace.path) else set())


def _in_child(act: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except BaseException:  # noqa: BLE001  whatever it is, this process ends here
            sys.excepthook(*sys.exc_info())
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _scene(folder: Path, stage: str, number: int) -> bool:
    """Kill at one change; False once there was none left to kill at."""
    top = folder / f"{stage}-{number}" / "repo"
    shutil.copytree(folder / "repo", top, symlinks=True)

    def act() -> None:
        _act(top, stage, _Strike(number, top.parent))

    ended = _in_child(act)
    assert ended in {0, KILLED}, f"{stage}, change {number}: {ended}"
    assert _in_child(partial(_recover, top, stage)) == 0, f"{stage}, change {number}: not recovered"
    return ended == KILLED


def main(stage: str, step: int) -> None:
    """Kill at one change after the other, and print how many there were."""
    assert stage in STAGES
    with tempfile.TemporaryDirectory(prefix="overlay-kills-") as name:
        top = Path(name).resolve() / "repo"
        top.mkdir()
        git(top, "init", "-q", "-b", "main")
        for key, value in (("user.name", "Story"), ("user.email", "story@example.com")):
            git(top, "config", key, value)
        fill(top)
        number = 0
        while _scene(top.parent, stage, number):
            number += step
    print(f"{stage}: {number // step} kills")  # noqa: T201  a program


if __name__ == "__main__":
    os.environ.update(GIT_ENVIRONMENT)
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1)
