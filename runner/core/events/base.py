"""Events about the commit that stories start from: what verify commands do on it, and that it has moved.

`repo` is the repository whose base it is, by the name that its stories have for it; empty for the run's own.
"""

from typing import Any, TypeAlias

from msgspec import Struct


class BaseCheckStarted(Struct, frozen=True, kw_only=True):
    """Intent: a verify command is about to run on the untouched base."""

    command: str
    shared: bool
    log: str = ""
    repo: str = ""


class BaseChecked(Struct, frozen=True, kw_only=True):
    """What the command did there: `answer` is `passes`, `fails` or `cannot-start`; `output` is its end.

    `known`: an earlier run had asked the same of the same tree, so nothing ran.
    """

    command: str
    shared: bool
    answer: str
    exit_code: int | None = None
    detail: str = ""
    output: tuple[str, ...] = ()
    known: bool = False
    repo: str = ""


class BaseFollowed(Struct, frozen=True, kw_only=True):
    """Stories that have not started begin at `base` from now on, where the base branch is by now."""

    base: str
    before: str
    repo: str = ""


BaseBody: TypeAlias = BaseCheckStarted | BaseChecked | BaseFollowed

# As in `events.py`: a class may be renamed, its kind in the journal may not.
KINDS: dict[str, Any] = {
    "BaseCheckStarted": BaseCheckStarted,
    "BaseChecked": BaseChecked,
    "BaseFollowed": BaseFollowed,
}
