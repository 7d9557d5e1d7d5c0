"""What stories do to their worktrees, and whether a tree is exactly what a fresh one is."""

import atexit
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import trio

from isolation.git.repository import Repository
from isolation.model import Workspace, WorkspaceRequest
from isolation.paths import worktree_root
from isolation.worktree.opening import create_or_attach
from isolation.worktree.pool.pool import Pool
from isolation.worktree.pool.seals import load_seals
from isolation.worktree.pool.turnover import Turnover
from isolation.worktree.removal import close
from isolation.worktree.stale_locks import remove_stale_locks
from tests.conftest import begin_repository, git
from tests.isolation.worktree.worktrees import git_dir_of, wanted

Behavior = Callable[[Path], "subprocess.Popen[bytes] | None"]
EXTENSIONS = (b"UNTR", b"FSMN", b"link", b"sdir", b"REUC")
NEEDED = {"HEAD", "commondir", "gitdir", "index", "locked", "logs"}


def fill(top: Path) -> None:
    """Fill a repository with some of everything: folders, modes, links, text and attributes."""
    (top / "src" / "deep").mkdir(parents=True)
    for number in range(4):
        (top / "src" / f"f{number}.py").write_text(f"line {number}\nsecond line\n")
    (top / "src" / "deep" / "data.txt").write_text("text\n" * 20)
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "link").symlink_to("src/f0.py")
    (top / "sub dir ü").mkdir()
    (top / "sub dir ü" / "näme").write_text("x\n")
    (top / ".gitignore").write_text("*.o\nbuild/\n")
    (top / ".gitattributes").write_text("*.py text=auto\n")
    git(top, "add", "-A")
    git(top, "commit", "-q", "-m", "fill")


def filled(top: Path) -> Path:
    """Return a new repository that is filled; the first one of a process is made, the others are copies."""
    shutil.copytree(_template(), top, symlinks=True)
    return top


@cache
def _template() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="histories-template-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    top = folder / "repo"
    begin_repository(top)
    for name, value in (("user.name", "Story"), ("user.email", "story@example.com")):
        git(top, "config", name, value)
    fill(top)
    return top


def quietly(path: Path, *args: str) -> None:
    """Run git where it may refuse."""
    subprocess.run(["git", *args], cwd=path, capture_output=True, check=False)


def edit(path: Path) -> None:
    (path / "src" / "f1.py").write_text("edited\n")


def edit_in_secret(path: Path) -> None:
    """Keep the size and the time of modification."""
    file = path / "src" / "f2.py"
    before = file.stat()
    file.write_bytes(file.read_bytes().replace(b"second", b"SECOND"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def delete(path: Path) -> None:
    (path / "src" / "f3.py").unlink(missing_ok=True)


def leave_files(path: Path) -> None:
    (path / "build" / "x").mkdir(parents=True, exist_ok=True)
    (path / "build" / "x" / "out").write_text("built")
    (path / "made.o").write_text("object")
    (path / "empty" / "er").mkdir(parents=True, exist_ok=True)


def nest(path: Path) -> None:
    """Leave a repository that git ignores, and one that it never looks at."""
    quietly(path, "init", "-q", "build/inner")
    quietly(path / "src", "init", "-q", ".")


def skip_worktree(path: Path) -> None:
    quietly(path, "update-index", "--skip-worktree", "src/f1.py")
    (path / "src" / "f1.py").write_text("hidden\n")


def assume_unchanged(path: Path) -> None:
    quietly(path, "update-index", "--assume-unchanged", "run.sh")
    (path / "run.sh").write_text("#!/bin/sh\nhidden\n")


def sparse(path: Path) -> None:
    """Leave files out, as sparse checkouts do, without the shared configuration."""
    quietly(path, "ls-files", "src")
    for number in range(4):
        quietly(path, "update-index", "--skip-worktree", f"src/f{number}.py")
        (path / "src" / f"f{number}.py").unlink(missing_ok=True)


def other_line_ends(path: Path) -> None:
    """Have a file written by other rules, which git takes for unchanged."""
    (path / "src" / "f0.py").unlink(missing_ok=True)
    quietly(path, "-c", "core.autocrlf=true", "checkout", "--", "src/f0.py")


def attributes_for_a_moment(path: Path) -> None:
    file = path / "src" / "deep" / "data.txt"
    (path / "src" / ".gitattributes").write_text("*.txt text eol=crlf\n")
    file.unlink(missing_ok=True)
    quietly(path, "checkout", "--", str(file))
    (path / "src" / ".gitattributes").unlink()


def attributes_for_good(path: Path) -> None:
    (path / ".gitattributes").write_text("* text eol=crlf\n")
    quietly(path, "add", "-A")
    quietly(path, "rm", "-rfq", "--cached", "src")
    quietly(path, "reset", "-q", "--hard")


def modes(path: Path) -> None:
    with suppress(OSError):
        (path / "src" / "f2.py").chmod(0o600)
        (path / "run.sh").chmod(0o644)


def folder_modes(path: Path) -> None:
    (path / "src").chmod(0o700)


def folder_to_link(path: Path) -> None:
    """Make a tracked folder a link that leads out of the tree."""
    outside = path.parent.parent / "outside"
    outside.mkdir(exist_ok=True)
    (outside / "näme").write_text("outside\n")
    for name in (path / "sub dir ü").glob("*"):
        name.unlink()
    with suppress(OSError):
        (path / "sub dir ü").rmdir()
        (path / "sub dir ü").symlink_to(outside)


def file_to_folder(path: Path) -> None:
    with suppress(OSError):
        (path / "link").unlink()
        (path / "link").mkdir()
        (path / "link" / "in").write_text("x")


def second_name(path: Path) -> None:
    """Link a file to a name elsewhere, by which it can be changed later."""
    outside = path.parent.parent / f"second-{time.time_ns()}"
    with suppress(OSError):
        os.link(path / "src" / "f1.py", outside)


def index_formats(path: Path) -> None:
    quietly(path, "update-index", "--untracked-cache", "--index-version", "4")
    quietly(path, "update-index", "--split-index")


def half_merge(path: Path) -> None:
    quietly(path, "checkout", "-q", "-b", f"side-{time.time_ns()}", "HEAD~1")
    (path / "src").mkdir(exist_ok=True)
    (path / "src" / "f0.py").write_text("theirs\n")
    quietly(path, "add", "-A")
    quietly(path, "commit", "-q", "-m", "theirs")
    quietly(path, "merge", "-q", "main")


def bisect(path: Path) -> None:
    quietly(path, "bisect", "start", "HEAD", "HEAD~1")


def stale_lock(path: Path) -> None:
    (git_dir_of(path) / "index.lock").touch()


def leave_in_git_dir(path: Path) -> None:
    git_dir = git_dir_of(path)
    (git_dir / "config.worktree").write_text("[user]\n\tname = Somebody Else\n")
    (git_dir / "ORIG_HEAD").write_text("0" * 40 + "\n")
    (git_dir / "info").mkdir(exist_ok=True)
    (git_dir / "info" / "sparse-checkout").write_text("/src/\n")
    (git_dir / "hooks").mkdir(exist_ok=True)
    (git_dir / "hooks" / "post-checkout").write_text("#!/bin/sh\ntouch planted\n")
    (git_dir / "autopilot-brought").write_bytes(b"made.o\0")


def marked_folder(path: Path) -> None:
    with suppress(OSError):
        os.setxattr(path / "src" / "deep", "user.left", b"x")


def work(path: Path) -> None:
    """Do ordinary work, committed by the story itself."""
    (path / f"work-{time.time_ns()}.txt").write_text("work\n")
    quietly(path, "add", "-A")
    quietly(path, "commit", "-q", "-m", "work")


HARMLESS: tuple[Behavior, ...] = (
    *(edit, edit_in_secret, delete, leave_files, sparse, other_line_ends, attributes_for_a_moment),
    *(attributes_for_good, modes, folder_to_link, file_to_folder, second_name, index_formats, work),
    leave_in_git_dir,
)
"""After these a tree can be recycled."""

DOUBTFUL: tuple[Behavior, ...] = (nest, folder_modes, marked_folder)
"""After these the next story gets a fresh one."""

KEPT: tuple[Behavior, ...] = (skip_worktree, assume_unchanged, half_merge, bisect, stale_lock)
"""After these the tree stays with its story: something in it might be lost."""


class Stories:
    """Stories of one repository, one after another, through its pool."""

    def __init__(self, top: Path, *, size: int = 2, turnover: bool = False) -> None:
        """Without spares, small trees go from story to story if there is a `turnover`."""
        self.repository = Repository.open(top)
        self.turnover = turnover
        self.root = worktree_root(self.repository.common_dir)
        self.size = size
        self.number = 0
        self.recycled = 0
        self._pictures: dict[tuple[str, str], dict[str, object]] = {}

    def pool(self, run: str, *, guarded: bool = True) -> Pool:
        """Return the pool as a run uses it."""
        turnover = None
        if self.turnover:
            turnover = Turnover(self.repository, run)
            turnover.expect(100)
        return Pool(
            repository=self.repository,
            root=self.root,
            run_id=run,
            size=0 if self.turnover else self.size,
            guarded=guarded,
            turnover=turnover,
        )

    def request(self, pool: Pool) -> WorkspaceRequest:
        """Ask for the worktree of the story whose turn it is."""
        return wanted(self.repository, f"s{self.number}", run=pool.run_id)

    async def open(self, pool: Pool, *, again: bool = False) -> Workspace:
        """Open the worktree of the next story; with `again` it may be one that a killed run has begun."""
        self.number += 1
        spares = len(load_seals(self.repository.common_dir))
        request = self.request(pool)
        if again:
            remove_stale_locks(self.repository, request.path, request.branch)  # as a run does first
        if again and request.path.exists():
            assert (await create_or_attach(self.repository, request, trio.CapacityLimiter(2))).reattached
            return await self.open(pool, again=True)
        workspace = await create_or_attach(self.repository, request, trio.CapacityLimiter(2), pool=pool)
        self.recycled += len(load_seals(self.repository.common_dir)) < spares
        return workspace

    async def end(self, pool: Pool, workspace: Workspace) -> bool:
        """Commit everything and close the story's worktree, as a finished story does; False if it is kept."""
        quietly(workspace.path, "add", "-A")
        quietly(workspace.path, "commit", "-q", "-m", "all")
        closing = await close(self.repository, workspace, sweep=False, reuse=pool.accept)
        await pool.finish(self.repository.resolve("main"))
        return closing.removed

    def require_fresh(self, workspace: Workspace) -> None:
        """Fail unless a worktree is byte by byte what `git worktree add` makes, index and config included."""
        seen = pictured(workspace.path)
        meant = self._fresh(workspace.head, str(seen["config"]))
        differing = {key: (seen.get(key), meant.get(key)) for key in seen | meant}
        wrong = {key: pair for key, pair in differing.items() if pair[0] != pair[1]}
        assert not wrong, wrong
        git_dir = git_dir_of(workspace.path)
        assert workspace.head == git(workspace.path, "rev-parse", "HEAD").strip()
        assert (git_dir / "HEAD").read_text() == f"ref: refs/heads/{workspace.branch}\n"
        assert {each.name for each in git_dir.iterdir()} == NEEDED
        line = (git_dir / "logs" / "HEAD").read_text().splitlines()[0]
        assert line.split()[:2] == ["0" * 40, workspace.head]

    def _fresh(self, commit: str, config: str) -> dict[str, object]:
        """Return what a new worktree at a commit is; the same under the same configuration, so made once."""
        if (commit, config) not in self._pictures:
            fresh = self.root.parent / "fresh"
            git(self.repository.top, "worktree", "add", "-q", "--detach", str(fresh), commit)
            try:
                self._pictures[commit, config] = pictured(fresh)
            finally:
                git(self.repository.top, "worktree", "remove", "--force", str(fresh))
        return self._pictures[commit, config]


def pictured(path: Path) -> dict[str, object]:
    """Return all that a session could notice of a worktree besides where it is."""
    found: dict[str, object] = {}
    for folder, folders, names in os.walk(path):
        for name in (*folders, *names):
            each = Path(folder, name)
            relative, mode = str(each.relative_to(path)), each.lstat().st_mode
            if relative == ".git":
                found[relative] = mode
            elif stat.S_ISLNK(mode):
                found[relative] = (mode, each.readlink())
            else:
                found[relative] = (mode, each.read_bytes() if stat.S_ISREG(mode) else None)
    found["top"] = path.stat().st_mode
    found["index"] = git(path, "ls-files", "--stage", "-v", "-z", "--resolve-undo")
    found["stages"] = git(path, "ls-files", "--stage", "-z", "--others", "--unmerged")
    found["extensions"] = {
        mark for mark in (b"UNTR", b"FSMN", b"link", b"sdir", b"REUC") if mark in _index(path)
    }
    found["version"] = _index(path)[4:8]
    found["config"] = git(path, "config", "--list", "--show-scope")
    found["status"] = git(path, "status", "--porcelain", "--ignored")
    found["refreshed"] = git(path, "diff-files", "--name-only")
    return found


def _index(path: Path) -> bytes:
    return (git_dir_of(path) / "index").read_bytes()
