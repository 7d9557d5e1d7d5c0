"""Clones of repositories that stories name by URL: one for each, in the user's data folder.

A clone is made once, when the user has agreed to its URL, and fetched by each run. Nothing in it is ever
removed or reset: its branches hold the work of stories.
"""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from isolation.errors import GitCommandError, RepositoryError
from isolation.git.remotes import without_credentials
from isolation.git.repository import Repository
from isolation.patterns import pattern
from runner.core.errors import RunnerError
from runner.core.text.names import slug
from runner.core.trust import Demand
from runner.machine.user_folders import data_folder

ORIGIN_HEAD = "refs/remotes/origin/HEAD"
_URL = pattern(r"(?:https?|ssh|git|file)://\S+")
_SCP = pattern(r"(?:[\w.-]+@)?[\w.-]+:(?!//)\S+")
_SECRET = pattern(r"https?://[^/@\s]*:[^/@\s]+@.*")
# Neither may a transport start a program, nor may git follow a redirect to one.
_ALLOWED = (
    *("-c", "protocol.allow=never"),
    *(
        word
        for name in ("https", "http", "ssh", "git", "file")
        for word in ("-c", f"protocol.{name}.allow=always")
    ),
)


class NotClonedError(RunnerError):
    """Stories work in a repository that is not cloned yet, which only `run` does, if the user agrees."""

    code = "not-cloned"

    def __init__(self, message: str, *, hint: str, url: str, demands: Sequence[Demand]) -> None:
        super().__init__(message, hint=hint)
        self.url = url
        self.demands = tuple(demands)


def is_url(text: str) -> bool:
    """Whether a text is the URL of a repository, also in the short form of ssh."""
    return bool(_URL.fullmatch(text) or (_SCP.fullmatch(text) and "/" not in text.partition(":")[0]))


def has_password(url: str) -> bool:
    """Whether a URL holds a password, which would be written into the clone and into records."""
    return bool(_SECRET.fullmatch(url))


def name_in(url: str) -> str:
    """Return the last part of a URL, which names the repository."""
    return url.rstrip("/").rpartition("/")[2].rpartition(":")[2].removesuffix(".git")


def clone_path(url: str, environ: Mapping[str, str]) -> Path:
    """Return where the clone of a URL is, or will be; its worktrees are beside it."""
    name = slug(name_in(url))  # whatever the URL says, it names a folder
    key = hashlib.sha256(url.encode(errors="surrogateescape")).hexdigest()[:12]
    # Not in the folder of the program: sessions do not see that one.
    return data_folder(environ) / "autopilot-multi-repositories" / f"{name}-{key}" / name


def clone(door: Repository, url: str, environ: Mapping[str, str]) -> Path:
    """Clone a URL and return where; a clone that fails leaves nothing behind. Blocks, perhaps for long.

    `door` is any repository: git is started through one.
    """
    path = clone_path(url, environ)
    if (path / ".git").is_dir():
        return path
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        door.run(
            *_ALLOWED, "clone", "--quiet", "--no-recurse-submodules", "--", url, str(draft), cwd=path.parent
        )
        draft.rename(path)
    except (GitCommandError, OSError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        if (path / ".git").is_dir():  # another run was faster
            return path
        raise RepositoryError(
            f"cannot clone {without_credentials(url)}: {_reason(error)}",
            hint="nothing was started; check the address and that `git clone` works with it by hand.",
        ) from error
    return path


def fetch(repository: Repository, url: str) -> None:
    """Bring a clone up to date with its remote; branches of stories stay as they are. Blocks."""
    try:
        repository.run(*_ALLOWED, "fetch", "--quiet", "--no-recurse-submodules", "--no-tags", "origin")
        # The remote may have another default branch by now; one without any keeps what is known.
        repository.run(*_ALLOWED, "remote", "set-head", "origin", "--auto", check=False)
    except GitCommandError as error:
        raise RepositoryError(
            f"cannot fetch {without_credentials(url)}: {_reason(error)}",
            hint=f"nothing was started; try `git -C {repository.top} fetch origin` by hand.",
        ) from error


def base_in_clone(repository: Repository, wanted: str) -> str:
    """Return the commit that stories of a clone start from: a branch of the remote, else any name."""
    if not wanted:
        return repository.resolve(ORIGIN_HEAD)
    found = repository.run(
        "rev-parse", "--verify", "--quiet", f"refs/remotes/origin/{wanted}^{{commit}}", check=False
    )
    return found.stdout.strip() or repository.resolve(wanted)


def _reason(error: Exception) -> str:
    text = error.stderr if isinstance(error, GitCommandError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote:", "ERROR:"))]
    return without_credentials((telling or lines or ["git printed nothing"])[0])
