"""Branches on a remote: whether it takes a push, asked before anything is spent, and the push itself.

Nothing is forced, except from a commit that the caller names as replaced. Addresses are shown without the
credentials that they may contain.
"""

import os
import re
import secrets
from base64 import b64decode
from collections.abc import Collection, Mapping
from contextlib import suppress

from msgspec import Struct

from isolation.errors import RepositoryError
from isolation.git.repository import GitOutput, Repository
from isolation.patterns import pattern

_CREDENTIALS = pattern(r"(\b[a-z][a-z0-9+.-]*://)[^/@\s]+@", re.IGNORECASE)
_MOVED = {"*": "new", " ": "moved", "=": "already there", "+": "replaced a failed attempt"}


class Pushed(Struct, frozen=True, kw_only=True):
    """What became of one branch; `refusal` says why the remote did not take it."""

    branch: str
    commit: str
    how: str = ""
    refusal: str = ""


def without_credentials(text: str) -> str:
    """Return text without the user and password of addresses in it."""
    return _CREDENTIALS.sub(r"\1", text)


def secrets_of_git(repository: Repository) -> tuple[str, ...]:
    """Return the credentials in headers that git sends to remotes, as they are and decoded.

    CI systems put a token there when they check out a repository.
    """
    # Without such a line, and without other files that may have one, git need not be asked.
    try:
        config = (repository.common_dir / "config").read_bytes().lower()
    except OSError:
        return ()
    if b"extraheader" not in config and b"[include" not in config and "GIT_CONFIG_COUNT" not in os.environ:
        return ()
    listed = repository.run("config", "--null", "--get-regexp", r"^http\..*extraheader$", check=False)
    found: list[str] = []
    for entry in listed.stdout.split("\0"):
        value = entry.partition("\n")[2]
        secret = value.rpartition(" ")[2].strip()
        found.append(secret)
        with suppress(ValueError):
            found.append(b64decode(secret, validate=True).decode("utf-8", "replace").partition(":")[2])
    return tuple(secret for secret in found if secret)


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


def push_branches(
    repository: Repository,
    remote: str,
    tips: Mapping[str, str],
    *,
    replaceable: Mapping[str, Collection[str]] | None = None,
) -> tuple[Pushed, ...]:
    """Push branches under their own names, and return what became of each; never by force.

    The one exception is a branch that is still at one of its `replaceable` commits there.
    """
    _require_name(remote)
    leases = _leases(repository, remote, replaceable or {})
    refs = [f"{'+' * (branch in leases)}refs/heads/{branch}:refs/heads/{branch}" for branch in tips]
    args = (
        "push",
        "--porcelain",
        "--no-verify",
        "--no-follow-tags",
        *(f"--force-with-lease=refs/heads/{branch}:{old}" for branch, old in leases.items()),
        remote,
        *refs,
    )
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


def _leases(
    repository: Repository, remote: str, replaceable: Mapping[str, Collection[str]]
) -> dict[str, str]:
    """Return the branches that are at a replaceable commit on the remote, with that commit."""
    if not replaceable:
        return {}
    names = (f"refs/heads/{branch}" for branch in replaceable)
    listed = repository.run("ls-remote", "--", remote, *names, check=False).stdout
    there = {ref.removeprefix("refs/heads/"): tip for tip, ref in map(str.split, listed.splitlines())}
    return {branch: there[branch] for branch, tips in replaceable.items() if there.get(branch) in tips}


def _require_name(remote: str) -> None:
    if remote.startswith("-"):
        raise RepositoryError(f"{remote!r} cannot name a remote", hint="`git remote` lists them")


def _reason(output: GitOutput) -> str:
    lines = [line.strip() for line in output.stderr.splitlines() if line.strip()]
    telling = [line for line in lines if line.startswith(("fatal:", "error:", "remote:"))]
    return without_credentials((telling or lines or ["git printed nothing"])[0])
