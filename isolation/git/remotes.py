"""Branches on a remote: whether it takes a push, asked before anything is spent, and the push itself.

Nothing is forced. Addresses are shown without the credentials that they may contain.
"""

import re
import secrets
from collections.abc import Mapping

from msgspec import Struct

from isolation.errors import RepositoryError
from isolation.git.repository import GitOutput, Repository

_CREDENTIALS = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/@\s]+@", re.IGNORECASE)
_MOVED = {"*": "new", " ": "moved", "=": "already there"}


class Pushed(Struct, frozen=True, kw_only=True):
    """What became of one branch; `refusal` says why the remote did not take it."""

    branch: str
    commit: str
    how: str = ""
    refusal: str = ""


def without_credentials(text: str) -> str:
    """Return text without the user and password of addresses in it."""
    return _CREDENTIALS.sub(r"\1", text)


def described(repository: Repository, remote: str) -> str:
    """Return a remote with the address that a push goes to, if it is more than its name."""
    found = repository.run("remote", "get-url", "--push", "--", remote, check=False).stdout.strip()
    return without_credentials(f"{remote} ({found})" if found else remote)


def require_pushable(repository: Repository, remote: str, commit: str) -> None:
    """Raise unless the remote can be reached and lets this user push; changes nothing there."""
    _require_name(remote)
    unused = f"refs/heads/autopilot/check-{secrets.token_hex(6)}"
    args = (
        "push",
        "--dry-run",
        "--porcelain",
        "--no-verify",
        "--no-follow-tags",
        remote,
        f"{commit}:{unused}",
    )
    output = repository.run(*args, check=False)
    if output.returncode != 0:
        raise RepositoryError(
            f"cannot push to {described(repository, remote)}: {_reason(output)}",
            hint="nothing was started; `git remote -v` lists the remotes. Check the address and your "
            "permissions, name another one with --remote, or run without --push",
        )


def push_branches(repository: Repository, remote: str, tips: Mapping[str, str]) -> tuple[Pushed, ...]:
    """Push branches under their own names, and return what became of each; never by force."""
    _require_name(remote)
    refs = [f"refs/heads/{branch}:refs/heads/{branch}" for branch in tips]
    args = ("push", "--porcelain", "--no-verify", "--no-follow-tags", remote, *refs)
    output = repository.run(*args, check=False)
    found: dict[str, Pushed] = {}
    for line in output.stdout.splitlines():
        flag, _, rest = line.partition("\t")
        names, _, summary = rest.partition("\t")
        branch = names.rpartition(":")[2].removeprefix("refs/heads/")
        if branch in tips:
            how = _MOVED.get(flag, "")
            refusal = "" if how else without_credentials(summary)
            found[branch] = Pushed(branch=branch, commit=tips[branch], how=how, refusal=refusal)
    lost = "" if output.returncode == 0 else _reason(output)
    return tuple(
        found.get(branch, Pushed(branch=branch, commit=tip, refusal=lost)) for branch, tip in tips.items()
    )


def _require_name(remote: str) -> None:
    if remote.startswith("-"):
        raise RepositoryError(f"{remote!r} cannot name a remote", hint="`git remote` lists them")


def _reason(output: GitOutput) -> str:
    lines = [line.strip() for line in output.stderr.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))]
    return without_credentials((telling or lines or ["git printed nothing"])[0])
