"""The only module that calls git: one way to run it, and the questions asked of it.

Its methods block; from trio they run through `offload`, in a thread that cancellation never abandons, so git
is never left halfway. GitPython makes repositories and keeps credentials out of messages. It is loaded for
that alone: loading it takes as long as forty git commands.

Invariants:

- Every call names its directory with `-C` and may not search above it, so that a worktree whose `.git`
  vanished is never mistaken for an enclosing repository.
- No call takes optional locks, prompts on a terminal, starts a gc or a file system monitor.
- A command in a story's tree runs under a confinement, see `contained/boundary.py`.
- A command gets the user's environment without the variables that point at another repository, and speaks
  English, so that its messages can be read.
"""

import os
import re
import shlex
import shutil
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

from msgspec import Struct

from isolation.errors import CommandKilledError, GitCommandError, KeeperError, RepositoryError
from isolation.files.disk import replace_file
from isolation.git.contained.boundary import confinement_of
from isolation.git.contained.concealment import concealed
from isolation.git.contained.fifos import set_fifos_aside
from isolation.git.contained.object_store import settle_stores, take_over
from isolation.git.contained.private_refs import pending, take_over_ref
from isolation.git.contained.story_branches import note_command, note_move
from isolation.git.contained.visit import Confined, Visit, settle_visit, visit_at, visiting
from isolation.git.direct.program import git_program, polite_prefix
from isolation.git.direct.ref_move import make_branch, move_ref
from isolation.git.direct.refs import NO_REF, has_commit, read_head, read_ref
from isolation.git.metadata_lock import metadata_lock
from isolation.keeper.confined import run_confined
from isolation.keeper.unconfined import run_unconfined
from isolation.model import Confinement
from isolation.paths import RepositoryPaths, find_repository

if TYPE_CHECKING:
    import trio

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

OLDEST_GIT = (2, 31)
_FOREIGN_REPOSITORY = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_COMMON_DIR",
        "GIT_DIR",
        "GIT_GRAFT_FILE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_INDEX_FILE",
        "GIT_INDEX_VERSION",
        "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NAMESPACE",
        "GIT_OBJECT_DIRECTORY",
        "GIT_PREFIX",
        "GIT_QUARANTINE_PATH",
        "GIT_REPLACE_REF_BASE",
        "GIT_SHALLOW_FILE",
        "GIT_WORK_TREE",
    }
)
# checkStat and trustctime: a file edited back to its old size and time must still be seen.
# fsync: after a power failure no branch may point at a commit that never reached the disk.
_OPTIONS = (
    "--no-optional-locks",
    *("-c", "gc.auto=0"),
    *("-c", "maintenance.auto=false"),
    *("-c", "core.fsmonitor=false"),
    *("-c", "core.quotePath=false"),
    *("-c", "core.checkStat=default"),
    *("-c", "core.trustctime=true"),
    *("-c", "core.filesRefLockTimeout=5000"),
    *("-c", "core.packedRefsTimeout=5000"),
    *("-c", "core.fsync=committed,reference"),
)
_UPDATES_FILES = "-u"
_NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
_WITH_CREDENTIALS = ("//", "extraheader")
"""What the words of a command have in them that may hold a credential: addresses and headers."""
_HINTS = (
    ("No space left on device", "free disk space, then resume the run; what was committed is safe"),
    ("Read-only file system", "git must be able to write to the repository"),
    ("Permission denied", "git must be able to read the files there, and to write to the repository"),
    (
        ".lock': File exists",
        "another git command is running there; if none is, remove the lock file it names",
    ),
)


class GitOutput(Struct, frozen=True, kw_only=True):
    """The output of a git command; bytes that are not UTF-8 survive as surrogates, as in `os.fsdecode`."""

    returncode: int
    stdout: str
    stderr: str

    def fields(self) -> tuple[str, ...]:
        """Return the parts of a `-z` answer."""
        return tuple(part for part in self.stdout.split("\0") if part)


def scrubbed(env: Mapping[str, str]) -> dict[str, str]:
    """Return `env` without what points at a repository, index or work tree."""
    return {name: value for name, value in env.items() if name not in _FOREIGN_REPOSITORY}


def offload(
    function: Callable[[*Ts], T], *args: *Ts, limiter: "trio.CapacityLimiter | None" = None
) -> Awaitable[T]:
    """Run a blocking function in a thread; a cancelled caller still waits for its end."""
    from isolation.files import threads  # loads trio

    return threads.run(function, *args, limiter=limiter)


class Repository(Struct, frozen=True, kw_only=True, dict=True):
    """A repository whose git works; `cwd` of every method is the top of one of its checkouts."""

    paths: RepositoryPaths
    version: tuple[int, ...]

    @classmethod
    def open(cls, start: Path) -> "Repository":
        """Find the repository around `start` and make sure that git can read it."""
        paths = find_repository(start)
        settle_stores(paths.common_dir)
        if shutil.which("git") is None:
            raise RepositoryError("git is not installed, or not on PATH", hint="install git 2.31 or newer")
        closed = cls(paths=paths, version=())
        text = closed.run("version").stdout
        version = tuple(int(part) for part in re.findall(r"\d+", text)[:3])
        if version < OLDEST_GIT:
            raise RepositoryError(f"git is too old: {text.strip()}", hint="install git 2.31 or newer")
        probe = closed.run("rev-parse", "--git-dir", check=False)
        if "dubious ownership" in probe.stderr:
            raise RepositoryError(
                f"git does not trust {paths.top}: it belongs to another user",
                hint=f"if you do: git config --global --add safe.directory {shlex.quote(str(paths.top))}",
            )
        if probe.returncode != 0:
            raise RepositoryError(
                f"git cannot read the repository at {paths.top}: {_first_line(probe.stderr)}",
                hint="run inside a git repository, or `git init` to make one",
            )
        opened = cls(paths=paths, version=version)
        for name in pending(paths.common_dir):
            opened.take_over(name)
        return opened

    @cached_property
    def top(self) -> Path:
        """The checkout that this was opened from."""
        return self.paths.top

    @cached_property
    def common_dir(self) -> Path:
        """The git directory that all worktrees share."""
        return self.paths.common_dir

    @cached_property
    def main_checkout(self) -> Path | None:
        """The first working tree; a bare repository has none."""
        return self.paths.main_checkout

    def run(
        self,
        *args: str,
        cwd: Path | None = None,
        check: bool = True,
        env: Mapping[str, str] | None = None,
        stdin: bytes | None = None,
        idle: bool = False,
    ) -> GitOutput:
        """Run one git command to its end; with `check`, a failure raises `GitCommandError`.

        An `idle` one takes only what the machine has to spare.
        """
        where = cwd or self.top
        surroundings = {"GIT_TERMINAL_PROMPT": "0", "GIT_CEILING_DIRECTORIES": _ceiling(where), **(env or {})}
        named = surroundings.get("GIT_INDEX_FILE")
        index, writes = Path(named) if named else None, _UPDATES_FILES in args
        known = visit.means if (visit := visit_at(where, index)) else None
        confinement = known.confinement if known else confinement_of(self.paths, where, index, writes=writes)
        # Hooks in the files of a checkout may be a story's.
        moves = confinement is None and args[0] in {"branch", "update-ref"}
        whole = (*_NO_HOOKS, *args) if moves and self._hooks_path[:1] not in {"", "/"} else args
        common = self.common_dir
        output = _run(whole, where, surroundings, confinement, stdin, common=common, idle=idle, known=known)
        note_command(common, args, stdin)
        if visit and known:
            visit.note()
        elif confinement and confinement.store:
            self._settle(confinement.store)
        if output.returncode < 0:  # no answer at all, so not one that a caller could read as a no
            raise CommandKilledError(
                f"`{_shown(args)}` was killed from outside (signal {-output.returncode})",
                hint="is there enough memory? resume the run",
            )
        if check and output.returncode != 0:
            raise failure(args, output)
        return output

    @contextmanager
    def visiting(self, tree: Path, index: Path | None = None) -> Iterator[None]:
        """Let the commands of a block on a story's tree, or with a private index, be one visit. Blocks.

        None of them may write to files of a shared tree, and no session of the story may be alive; see
        `contained/visit.py`.
        """
        confine = partial(confinement_of, self.paths, tree, index)
        user = partial(scrubbed, os.environ)
        with visiting(Visit(tree, index, confine, user, self._settle)):
            yield

    def _settle(self, store: str) -> None:
        """Take over what commands on the tree of a store have made."""
        with suppress(OSError):  # they are found where they are; the next command tries again
            take_over(self.common_dir, store)
        self.take_over(store)

    def take_over(self, name: str) -> bool:
        """Move a story's branch to where commands in the worktree of this name moved it; true if they did."""
        ask, move = partial(self.run, check=False), partial(self.move_ref, check=False)
        return take_over_ref(self.common_dir, name, ask, move, top=self.top)

    def move_ref(self, ref: str, commit: str, before: str, why: str, *, check: bool = True) -> GitOutput:
        """Move a branch to a commit by compare-and-swap; zeros `before` mean that there must be none."""
        settle_visit()
        paths = (self.common_dir, self.top)
        if not self._hooks_path and move_ref(*paths, ref, commit=commit, before=before, why=why):
            note_move(self.common_dir, ref)
            return GitOutput(returncode=0, stdout="", stderr="")
        return self.run("update-ref", "-m", why, ref, commit, before, check=check)

    def make_branch(self, branch: str, commit: str) -> GitOutput:
        """Make a branch at a commit, which follows no other; git says why it cannot."""
        usual = self._has_commit(commit) and not self._hooks_path
        if usual and make_branch(self.common_dir, branch, commit, self.committer):
            note_move(self.common_dir, f"refs/heads/{branch}")
            return GitOutput(returncode=0, stdout="", stderr="")
        return self.run("branch", "--no-track", branch, commit, check=False)

    def resolve(self, ref: str) -> str:
        """Return the commit that `ref` names now."""
        if not ref.startswith("-"):  # git would take it for an option
            found = self.run("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}", check=False)
            if found.returncode == 0:
                return found.stdout.strip()
        if not self.run("for-each-ref", "--count=1").stdout and self.head() is None:
            raise RepositoryError(
                f"the repository at {self.top} has no commits yet",
                hint="make a first commit, then run again",
            )
        raise RepositoryError(
            f"unknown base {ref!r}",
            hint="name a branch, a tag or a commit; `git branch --all` lists the branches",
        )

    def branch_tip(self, branch: str) -> str | None:
        """Return the commit at the tip of a local branch; None without such a branch."""
        settle_visit()
        read = read_ref(self.common_dir, f"refs/heads/{branch}")
        if read == NO_REF:
            return None
        if read is not None and self._has_commit(read):
            return read
        found = self.run("rev-parse", "--verify", "--quiet", f"refs/heads/{branch}^{{commit}}", check=False)
        return self._seen(found.stdout.strip()) if found.returncode == 0 else None

    def name_of_branch(self, branch: str) -> str:
        """Return the shortest unambiguous name of a branch; a tag of the same name would take precedence."""
        if all(read_ref(self.common_dir, ref) == NO_REF for ref in (f"refs/tags/{branch}", f"refs/{branch}")):
            return branch  # the usual case, without a process
        args = ("for-each-ref", "--format=%(refname:short)", f"refs/heads/{branch}")
        return self.run(*args, check=False).stdout.strip() or branch

    def is_ancestor(self, ancestor: str, descendant: str) -> bool:
        """Return whether the first commit is in the history of the second."""
        if ancestor == descendant:
            return True
        args = ("merge-base", "--is-ancestor", ancestor, descendant)
        output = self.run(*args, check=False)
        if output.returncode not in {0, 1}:
            raise failure(args, output)
        return output.returncode == 0

    def trees(self, commits: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tree id of each commit."""
        return tuple(self.run("rev-parse", *(f"{commit}^{{tree}}" for commit in commits)).stdout.split())

    def count_commits(self, base: str, tip: str) -> int:
        """Count the commits that `tip` has beyond `base`."""
        if tip == base:
            return 0
        return int(self.run("rev-list", "--count", f"{base}..{tip}", "--").stdout)

    def changed_paths(self, base: str, tip: str, cwd: Path | None = None) -> tuple[str, ...]:
        """Return every path that differs between two commits; a rename is both of its paths."""
        args = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", base, tip, "--")
        return self.run(*args, cwd=cwd).fields()

    def head(self, cwd: Path | None = None) -> str | None:
        """Return the commit that a checkout is at; None before the first commit."""
        if cwd is None or cwd == self.top:
            read = read_head(self.common_dir, self.top)
            if read is not None and self._has_commit(read):
                return read
        found = self.run("rev-parse", "--verify", "--quiet", "HEAD^{commit}", cwd=cwd, check=False)
        return self._seen(found.stdout.strip()) if found.returncode == 0 else None

    def _has_commit(self, commit: str) -> bool:
        """Return, without a process, whether git has a commit that some ref holds; False may be wrong."""
        return commit in self._commits or has_commit(self.common_dir, commit)

    def _seen(self, commit: str) -> str:
        """Remember that git has found a commit; one that a ref holds is never removed."""
        self._commits.add(commit)
        return commit

    @cached_property
    def _commits(self) -> set[str]:
        return set()

    @cached_property
    def _hooks_path(self) -> str:
        """Where the user's git looks for hooks, if not in the git directory; asked once."""
        return self.run("config", "--type=path", "--get", "core.hooksPath", check=False).stdout.strip()

    @property
    def has_checkout_hook(self) -> bool:
        """Whether a hook may run at the end of a checkout."""
        return bool(self._hooks_path) or (self.common_dir / "hooks" / "post-checkout").exists()

    @cached_property
    def has_identity(self) -> bool:
        """Whether the user has a name and an address to commit under, not ones git made up; asked once."""
        return bool(self.author and self.committer)

    @cached_property
    def author(self) -> str:
        """The user as git names the author of a commit; empty without a name and an address. Asked once."""
        return self._configured("GIT_AUTHOR_IDENT")

    @cached_property
    def committer(self) -> str:
        """The user as git logs who has moved a branch; empty without a name and an address. Asked once."""
        return self._configured("GIT_COMMITTER_IDENT")

    def _configured(self, ident: str) -> str:
        """Return an identity without its time; empty if git would have to make it up."""
        found = self.run("-c", "user.useConfigOnly=true", "var", ident, check=False)
        return found.stdout[: found.stdout.rindex(">") + 1] if found.returncode == 0 else ""

    @cached_property
    def names_user(self) -> bool:
        """Whether git's configuration, the environment left aside, has a name and an address; asked once."""
        keys = ("user.name", "user.email")
        return all(self.run("config", "--get", key, check=False).returncode == 0 for key in keys)

    @cached_property
    def signs_commits(self) -> bool:
        """Whether the user has git sign commits; `commit-tree` does not look by itself. Asked once."""
        args = ("config", "--type=bool", "--get", "commit.gpgSign")
        return self.run(*args, check=False).stdout.strip() == "true"

    @cached_property
    def signing_key(self) -> str:
        """The key that the user has git sign with, by name or as a file; asked once."""
        return self.run("config", "--get", "user.signingKey", check=False).stdout.strip()

    def exclude(self, pattern: str) -> None:
        """Have every checkout of the repository ignore `pattern`, without touching a tracked file."""
        path = Path(os.path.realpath(self.common_dir / "info" / "exclude"))
        line = os.fsencode(pattern)
        if line in _lines(path):
            return
        with metadata_lock(self.common_dir):
            lines = _lines(path)  # again, since another run may have added it meanwhile
            if line not in lines:
                path.parent.mkdir(parents=True, exist_ok=True)
                mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
                replace_file(path, b"".join(each + b"\n" for each in (*lines, line)), mode=mode)


def init_repository(path: Path) -> Repository:
    """Make a new repository with one empty commit on `main`, as `demo` needs it."""
    path.mkdir(parents=True)
    _load_gitpython()
    from git.repo import Repo

    Repo.init(path, initial_branch="main")
    repository = Repository.open(path)
    variables = (f"GIT_{role}_{part}" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL"))
    who = dict.fromkeys(variables, "autopilot-multi")
    repository.run("commit", "--quiet", "--allow-empty", "--message", "Begin", env=who)
    return repository


def _run(
    args: tuple[str, ...],
    where: Path,
    env: Mapping[str, str],
    confinement: Confinement | None,
    stdin: bytes | None,
    *,
    common: Path,
    idle: bool,
    known: Confined | None = None,
) -> GitOutput:
    """Run a command; on a story's tree what a session has planted there gets no further than the session."""
    polite = polite_prefix(os.environ.get("PATH")) if idle else ()
    command = [*polite, git_program(os.environ.get("PATH")), "-C", str(where), *_OPTIONS, *args]
    user: Mapping[str, str] = known.user if known else scrubbed(os.environ)
    if confinement is not None and known is None:
        confinement, user = concealed(confinement, user)
    surroundings = {**user, "LANGUAGE": "C", "LC_ALL": "C", **env}
    try:
        if confinement is None:
            free = partial(set_fifos_aside, common)
            ended = run_unconfined(command, env=surroundings, stdin=stdin, waiting=free)
        else:
            key = known.key if known else None
            ended = run_confined(
                command, cwd=where, env=surroundings, confinement=confinement, stdin=stdin, key=key
            )
    except CommandKilledError:
        raise
    except KeeperError as error:
        raise GitCommandError(error.message, returncode=-1, stderr="", hint=error.hint) from error
    return GitOutput(
        returncode=ended.returncode,
        stdout=ended.stdout.decode(errors="surrogateescape"),
        stderr=ended.stderr.decode(errors="surrogateescape").rstrip("\n"),
    )


def failure(args: tuple[str, ...], output: GitOutput) -> GitCommandError:
    """Return the error for a failed command, with git's message; credentials in addresses are left out."""
    hint = next((hint for text, hint in _HINTS if text in output.stderr), "")
    return GitCommandError(
        f"`{_shown(args)}` failed with exit code {output.returncode}: {_first_line(output.stderr)}",
        returncode=output.returncode,
        stderr=output.stderr,
        hint=hint or "run the command by hand to see more",
    )


def _shown(args: tuple[str, ...]) -> str:
    words = ["git", *args]
    if any(sign in word.lower() for word in args for sign in _WITH_CREDENTIALS):
        _load_gitpython()
        from git.util import remove_password_if_present

        words = remove_password_if_present(words)
    command = " ".join(words)
    return command if len(command) <= 160 else f"{command[:159]}…"  # noqa: PLR2004  a line and a half


def _first_line(stderr: str) -> str:
    """Return the line with the reason: git's own `fatal:` or `error:`, else the first."""
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:"))]
    return (telling or lines or ["git printed nothing"])[0]


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines()
    except FileNotFoundError:
        return []


def _ceiling(where: Path) -> str:
    inherited = os.environ.get("GIT_CEILING_DIRECTORIES", "")
    return os.pathsep.join(part for part in (str(where.parent), inherited) if part)


def _load_gitpython() -> None:
    """Load GitPython, without its warnings if git is missing."""
    had = os.environ.get("GIT_PYTHON_REFRESH")
    os.environ["GIT_PYTHON_REFRESH"] = "quiet"
    try:
        import git  # noqa: F401  its parts are imported where they are used
    finally:
        if had is None:
            del os.environ["GIT_PYTHON_REFRESH"]
        else:
            os.environ["GIT_PYTHON_REFRESH"] = had
