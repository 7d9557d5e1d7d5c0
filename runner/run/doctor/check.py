"""One check of `doctor`: what was found and what to do."""

from enum import StrEnum

from msgspec import Struct


class Severity(StrEnum):
    """What a check means for a run: all is well, worth knowing, or no run is possible."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Struct, frozen=True, kw_only=True):
    """One check: what was found and, where something is wrong, what to do."""

    name: str
    level: Severity
    detail: str
    hint: str = ""
