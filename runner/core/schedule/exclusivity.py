"""Which sessions may run side by side in one repository family: modes, their class, and the rules.

An unknown mode counts as parallel, with a warning: a new kind of session must neither stop the others
nor be stopped because of its name. The result names the sessions in the way; what to do about them is
the user's choice, and no other session is ever ended for it.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import assert_never

from msgspec import Struct

from runner.core.model import MULTI_STORY
from runner.core.text.names import did_you_mean, shown


class Exclusivity(StrEnum):
    """What a mode demands of the others: to be alone, to work in another tree, or nothing."""

    EXCLUSIVE = "exclusive"
    PARALLEL = "parallel"
    ALWAYS = "always"


class Admission(StrEnum):
    """Whether a session may start beside others."""

    PASS = "pass"  # noqa: S105  not a password
    BLOCKED = "blocked"
    PROMOTION_OFFER = "promotion-offer"


MODES: Mapping[str, Exclusivity] = {
    "bootstrap": Exclusivity.EXCLUSIVE,
    "housekeeping": Exclusivity.EXCLUSIVE,
    "memory-cleanup": Exclusivity.EXCLUSIVE,
    "deep": Exclusivity.PARALLEL,
    "feature": Exclusivity.PARALLEL,
    MULTI_STORY: Exclusivity.PARALLEL,
    "discovery": Exclusivity.ALWAYS,
    "evolve": Exclusivity.ALWAYS,
    "plan": Exclusivity.ALWAYS,
    "portfolio": Exclusivity.ALWAYS,
    "repo-audit": Exclusivity.ALWAYS,
    "status": Exclusivity.ALWAYS,
}


class Classified(Struct, frozen=True, kw_only=True):
    """The class of a mode; `warning` is empty for a known one."""

    exclusivity: Exclusivity
    warning: str = ""


class ActiveSession(Struct, frozen=True, kw_only=True):
    """A running session: its description and its mode."""

    description: str
    mode: str


class AdmissionResult(Struct, frozen=True, kw_only=True):
    """Whether a session may start; `by` are the sessions in the way, in the order given."""

    verdict: Admission
    by: tuple[ActiveSession, ...] = ()


def classify(mode: str) -> Classified:
    """Return the class of a mode."""
    known = MODES.get(mode)
    if known is not None:
        return Classified(exclusivity=known)
    warning = f"mode {shown(mode)} is unknown and counts as parallel; {did_you_mean(mode, MODES)}"
    return Classified(exclusivity=Exclusivity.PARALLEL, warning=warning.rstrip("; "))


def runs_alone(mode: str) -> bool:
    """Return whether a session of this mode must have the repository to itself."""
    return MODES.get(mode) is Exclusivity.EXCLUSIVE


def session_type(mode: str) -> str:
    """Return the coarse type by which other programs tell sessions apart: feature, deep or housekeeping."""
    if runs_alone(mode):
        return "housekeeping"
    return mode if mode == "deep" else "feature"


def admission(caller: str, active: Sequence[ActiveSession], *, own_workspace: bool) -> AdmissionResult:
    """Return whether a session of mode `caller` may start beside those that are active.

    `own_workspace`: it works in a tree of its own, which is what a promotion would offer.
    """
    counting = tuple(one for one in active if classify(one.mode).exclusivity is not Exclusivity.ALWAYS)
    alone = tuple(one for one in counting if runs_alone(one.mode))
    match classify(caller).exclusivity:
        case Exclusivity.EXCLUSIVE if counting:
            return AdmissionResult(verdict=Admission.BLOCKED, by=counting)
        case Exclusivity.PARALLEL if alone:
            return AdmissionResult(verdict=Admission.BLOCKED, by=alone)
        case Exclusivity.PARALLEL if counting and not own_workspace:
            return AdmissionResult(verdict=Admission.PROMOTION_OFFER, by=counting)
        case Exclusivity.EXCLUSIVE | Exclusivity.PARALLEL | Exclusivity.ALWAYS:
            return AdmissionResult(verdict=Admission.PASS)
        case never:
            assert_never(never)
