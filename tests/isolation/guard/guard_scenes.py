"""Sessions that try to write where they may not, as any user.

A scene (`worktree`, `claim`, `witness`) takes a wish: `{"means", "level", "commands"}`. It makes a repository
in a folder as that user, confines sessions and returns what became of each command. `{main}`, `{git}` and
`{sibling}` in a command are filled in.

As a program this module has all that scenes need loaded, and forks for each scene that it is asked for.
"""

import atexit
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio
from msgspec.structs import replace

from isolation.git.repository import Repository
from isolation.guard import guard
from isolation.guard.view import view_of
from isolation.keeper.client import Keeper, open_keeper
from isolation.model import Confinement, EnforcementLevel, Means, SessionSpec
from isolation.paths import worktree_root
from isolation.shared_tree.levels import LEVELS
from tests.conftest import GIT_ENVIRONMENT, git
from tests.isolation.keeper.scenes import become, spec
from tests.isolation.worktree.worktrees import commit, make

Outcome = tuple[int, str]
PROTECTIONS = {each.level: each for each in (guard.READ_ONLY, guard.OVERLAID)}
_LIMIT = 120
"""After how many seconds a scene is killed."""
FILES = ("README.md", "pkg/a.py", "pkg/deep/b.py", "lib/c.py", "lib/deep/d.py")


def make_repository(folder: Path) -> Path:
    """Make a repository with some files, a hook folder, and a folder that worktrees share."""
    root = folder / "repo"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / ".gitignore").write_text("node_modules/\n")
    for name in FILES:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{name}\n")
    (root / "node_modules").mkdir()
    (root / ".git" / "hooks").mkdir(exist_ok=True)
    commit(root, "first")
    for name in ("home", "tmp"):
        (folder / name).mkdir()
    (folder / "shortcut").symlink_to(root)
    return root


def can_mount(*, overlay: bool = False) -> bool:
    """Ask the system's own tools, not ours, whether this user may mount."""
    mount = "mkdir a b c d && mount -t overlay x -o lowerdir=a,upperdir=b,workdir=c,userxattr d"
    with tempfile.TemporaryDirectory() as folder:
        command = ["unshare", "-rm", "sh", "-c", mount if overlay else "true"]
        return subprocess.run(command, cwd=folder, check=False, stderr=subprocess.DEVNULL).returncode == 0


def landlock_version() -> int:
    """Ask the kernel; below 3 files can be truncated."""
    return int(ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1))


@cache
def require(level: EnforcementLevel, means: Means) -> None:
    """Skip what the machine lacks; what it has must work."""
    has = landlock_version() >= 3
    if means is Means.MOUNTS:
        has = can_mount(overlay=level is EnforcementLevel.DIVERT)
    if not has:
        pytest.skip(f"this machine lacks {means} for {level}")
    assert guard.attempt(PROTECTIONS[level], means) == ""


async def execute(keeper: Keeper, order: SessionSpec) -> Outcome:
    """Run one session to its end."""
    async with keeper.start(order) as session:
        output = b""
        while chunk := await session.receive():
            output += chunk
        return (await session.wait()).returncode, output.decode()


def order(folder: Path, cwd: Path, command: str, confinement: Confinement | None) -> SessionSpec:
    """Order a shell in a folder, under a confinement."""
    environment = {
        **GIT_ENVIRONMENT,
        "PATH": os.environ["PATH"],
        "LC_ALL": "C",
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
    }
    made = spec(folder, "sh", "-c", command, env=environment)
    return replace(made, cwd=cwd, confinement=confinement)


async def in_worktree(folder: Path, wish: dict[str, Any]) -> dict[str, Outcome]:
    """Run each command in a story's worktree, beside a sibling's."""
    root = make_repository(folder)
    repository = Repository.open(root)
    own, sibling = await make(repository, "one"), await make(repository, "two")
    view = view_of(repository.paths, worktree_root(repository.common_dir), {}) if wish.get("view") else None
    assert not isinstance(view, str)
    confinement = guard.for_worktree(
        repository,
        own,
        means=Means(wish["means"]),
        root=worktree_root(repository.common_dir),
        shared=("node_modules",),
        view=view,
    )
    git_dir = view.git_place if view else root / ".git"
    places = {"main": root, "git": git_dir, "sibling": sibling.path}
    cwd = root if view else own.path
    async with open_keeper(alive_lock=folder / "alive.lock") as keeper:
        return {
            name: await execute(keeper, order(folder, cwd, _filled(command, places), confinement))
            for name, command in wish["commands"].items()
        }


def _filled(command: str, places: dict[str, Path]) -> str:
    for name, place in places.items():
        command = command.replace(f"{{{name}}}", str(place))
    return command


async def in_claims(folder: Path, wish: dict[str, Any]) -> dict[str, Outcome]:
    """Run one command for each story of a shared tree, all at the same time; story N owns `packN`."""
    root = make_repository(folder)
    level = EnforcementLevel(wish["level"])
    results: dict[str, Outcome] = {}

    async def carry(keeper: Keeper, story: str, command: str) -> None:
        owned = f"pack{story}"
        (root / owned).mkdir()
        scratch = folder / "layers" / story
        scratch.mkdir(parents=True)
        confinement = LEVELS[level].confine(root, [owned], scratch)
        assert confinement is not None
        if wish.get("means"):
            confinement = replace(confinement, means=Means(wish["means"]))
        text = _filled(command, {"main": root, "git": root / ".git", "own": root / owned})
        results[story] = await execute(keeper, order(folder, root, text, confinement))

    async with open_keeper(alive_lock=folder / "alive.lock") as keeper, trio.open_nursery() as nursery:
        for story, command in wish["commands"].items():
            nursery.start_soon(carry, keeper, story, command)
    return results


async def in_sight(folder: Path, wish: dict[str, Any]) -> dict[str, Outcome]:
    """Run Python scripts in a tree of which they own `own`; the outputs are what the witness saw, as JSON."""
    root = make_repository(folder)
    for name in wish["files"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("old")
    confinement = LEVELS[EnforcementLevel.DENY].confine(root, ["own"], folder)
    assert confinement is not None
    confinement = replace(confinement, means=Means(wish["means"]), witnessed=root)
    results: dict[str, Outcome] = {}
    async with open_keeper(alive_lock=folder / "alive.lock") as keeper:
        for name, script in wish["scripts"].items():
            made = replace(order(folder, root, "", confinement), argv=(sys.executable, "-c", script))
            async with keeper.start(made) as session:
                said = b""
                while chunk := await session.receive():
                    said += chunk
                ended = await session.wait()
            assert ended.attempts is not None, said
            seen = [[attempt.operation, attempt.path] for attempt in ended.attempts.named]
            report = {"seen": seen, "unnamed": ended.attempts.unnamed, "said": said.decode()}
            results[name] = ended.returncode, json.dumps(report)
    return results


def play(scene: str, folder: Path, user: int | None, **wish: object) -> dict[str, Outcome]:
    """Run a scene in a process of its own, as that user."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    uid = os.getuid() if user is None else user
    server.stdin.write(json.dumps([scene, str(folder), uid, dict(os.environ), wish]) + "\n")
    server.stdin.flush()
    return {name: (code, output) for name, (code, output) in json.loads(server.stdout.readline()).items()}


@cache
def _server() -> "subprocess.Popen[str]":
    """Start the program, once, from a copy that any user can read: the checkout may be closed to others."""
    root, copy = Path(__file__).parents[3], Path(tempfile.mkdtemp(prefix="scenes-"))
    copy.chmod(0o755)
    for name in ("isolation", "tests/isolation"):
        shutil.copytree(root / name, copy / name)
    for name in ("__init__.py", "conftest.py"):
        shutil.copy(root / "tests" / name, copy / "tests")
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.isolation.guard.guard_scenes"],
        cwd=copy,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def close() -> None:
        server.communicate()
        shutil.rmtree(copy)

    atexit.register(close)
    return server


def _serve() -> None:
    """Fork for each line of the input, which asks for a scene, and print what became of it as JSON."""
    for name in ("git.cmd", "isolation.keeper.trial"):
        import_module(name)  # an ordinary user may not be able to read where it stands
    for line in sys.stdin:
        answer, ours = os.pipe()
        pid = os.fork()
        if not pid:
            os.close(answer)
            signal.alarm(_LIMIT)
            _answer(json.loads(line), ours)
        os.close(ours)
        with os.fdopen(answer) as text:
            sys.stdout.write(f"{text.read() or None}\n")
        sys.stdout.flush()
        os.waitpid(pid, 0)


def _answer(asked: list[Any], descriptor: int) -> NoReturn:
    scene, folder, uid, environment, wish = asked
    os.environ.clear()
    os.environ.update(environment)
    if uid != os.getuid():
        become(uid)
    scenes = {"worktree": in_worktree, "claim": in_claims, "witness": in_sight}
    ended = trio.run(scenes[scene], Path(os.path.realpath(folder)), wish)
    with os.fdopen(descriptor, "w") as answer:
        answer.write(json.dumps(ended))
    sys.exit()


if __name__ == "__main__":
    _serve()
