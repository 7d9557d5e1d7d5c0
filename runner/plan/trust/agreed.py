"""What the user has agreed to in a repository, and what is still to be asked.

It is kept in the user's own data folder, never in the repository, under the path of the git directory; a copy
elsewhere asks again.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from isolation.files.disk import replace_file
from isolation.git.repository import Repository
from runner.core.errors import RunnerError
from runner.core.text.names import one_line
from runner.core.trust import Asked, Demand, not_agreed
from runner.machine.user_folders import data_folder
from runner.plan.trust.lines import with_lines

ALWAYS = "always"
_MOST_KEPT = 20_000
_SHOWN = 3


class TrustError(RunnerError):
    """The repository's files ask for something that the user has not agreed to; nothing was run."""

    code = "trust"


class Trust(Struct, frozen=True, kw_only=True):
    """What the user has agreed to in one repository; `always` means everything."""

    agreed: tuple[tuple[str, str], ...] = ()
    always: bool = False


def not_agreed_yet(
    repository: Repository, demands: Sequence[Demand], *, trust: str, environ: Mapping[str, str]
) -> tuple[Asked, ...]:
    """Return what the user must be asked about before anything runs; nothing if all is agreed to."""
    if trust == ALWAYS or not demands:
        return ()
    known = load_trust(repository, environ)
    return () if known.always else with_lines(repository.top, not_agreed(demands, set(known.agreed)))


def refusal(asked: Sequence[Asked], *, hint: str, whose: str = "this repository") -> TrustError:
    """Return the error that names the first things that the user has not agreed to."""
    first = "; ".join(f"{one.what} `{one_line(one.text)}` ({one.where})" for one in asked[:_SHOWN])
    more = f"; and {len(asked) - _SHOWN} more" if len(asked) > _SHOWN else ""
    return TrustError(
        f"files of {whose} ask for something that you have not agreed to: {first}{more}", hint=hint
    )


def load_trust(repository: Repository, environ: Mapping[str, str]) -> Trust:
    """Read what the user has agreed to; a file that cannot be read agrees to nothing."""
    try:
        read = json.loads(_file(repository, environ).read_bytes())
        agreed = tuple((str(what), str(value)) for what, value in read["agreed"])
        return Trust(agreed=agreed, always=read["always"] is True)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Trust()


def agree(
    repository: Repository,
    demands: Iterable[Demand | Asked],
    environ: Mapping[str, str],
    *,
    always: bool = False,
) -> None:
    """Record that the user agrees to these demands, or to everything in this repository."""
    known = load_trust(repository, environ)
    contents = dict.fromkeys((*known.agreed, *((one.what, one.value) for one in demands)))
    _save(repository, environ, Trust(agreed=tuple(contents)[-_MOST_KEPT:], always=always or known.always))


def forget(repository: Repository, environ: Mapping[str, str]) -> bool:
    """Forget what the user has agreed to; return whether there was anything."""
    path = _file(repository, environ)
    known = path.exists()
    path.unlink(missing_ok=True)
    return known


def _file(repository: Repository, environ: Mapping[str, str]) -> Path:
    key = hashlib.sha256(os.fsencode(os.path.realpath(repository.common_dir))).hexdigest()[:32]
    return data_folder(environ) / "autopilot-multi" / "trust" / f"{key}.json"


def _save(repository: Repository, environ: Mapping[str, str], trust: Trust) -> None:
    path = _file(repository, environ)
    document = {
        "repository": str(repository.top),
        "always": trust.always,
        "agreed": [list(content) for content in trust.agreed],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, json.dumps(document, indent=1).encode(), mode=0o600)
    except OSError as error:
        raise TrustError(
            f"what you agreed to cannot be recorded in {path}: {error.strerror}",
            hint="make the folder writable, or add --trust for this run.",
        ) from error
