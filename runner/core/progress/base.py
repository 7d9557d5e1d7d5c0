"""What verify commands did on the untouched base, as a value."""

from msgspec import Struct


class BaseCheck(Struct, frozen=True, kw_only=True):
    """What a verify command did on the untouched base; `answer` is empty while it runs.

    `shared`: it is a command of the settings. `known`: an earlier run had asked. `output` is its end. `repo`
    is the repository whose base was asked, empty for that of the run.
    """

    command: str
    shared: bool
    started_at: float
    ended_at: float | None = None
    answer: str = ""
    exit_code: int | None = None
    detail: str = ""
    output: tuple[str, ...] = ()
    log: str = ""
    known: bool = False
    repo: str = ""
