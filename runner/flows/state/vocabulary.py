"""Which values the dialects allow, and which step comes after which.

The facts of the format in one place: step ranges per dialect and flow, the lettered steps of the rich
dialect in the order of a project, and the step names that the dialects fix. `quick` is this program's own
flow; a user's flows are passed in as a `Vocabulary`.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from isolation.patterns import pattern
from runner.flows.state.model import DONE, Dialect, StateFile, StepStatus

MAX_RETRY = 3
EXISTING_CODE = "existing-code"

RICH_STEPS = (
    *("0", "1", "2"),
    *("2a", "2b", "2c", "2d", "2e", "2ea", "2f", "2g", "2h", "2hb", "2hc", "2i"),
    *("3", "4", "5", "5b", "5c", "6"),
)
_RICH_ORDER = {step: place for place, step in enumerate(RICH_STEPS)}

_FLOWS: Mapping[Dialect, Mapping[str, int]] = {
    Dialect.RICH: {},
    Dialect.POINTER: {"greenfield": 10, EXISTING_CODE: 13, "quick": 2},
    Dialect.AUTODEV: {"greenfield": 11, EXISTING_CODE: 17, "meta-repo": 6, "quick": 2},
}

RICH_NAMES = frozenset(
    {
        "Problem",
        "Research",
        "Plan",
        "UI Design",
        "Blackbox Test Spec",
        "Decompose Tests",
        "Implement Tests",
        "Refactor",
        "New Task",
        "Implement",
        "Run Tests",
        "Security Audit",
        "Performance Test",
        "Deploy",
        "Decompose",
        "Done",
        "Verify",
    }
)
"""The names of the rich dialect, and `Verify` of this program's `quick` flow."""

NAMED_STEPS: Mapping[tuple[Dialect, str], Mapping[str, str]] = {
    (Dialect.RICH, "greenfield"): {
        "Problem": "0",
        "Research": "1",
        "Plan": "2",
        "UI Design": "2a",
        "Decompose": "3",
        "Implement": "4",
        "Run Tests": "5",
        "Security Audit": "5b",
        "Performance Test": "5c",
        "Deploy": "6",
    },
    (Dialect.RICH, EXISTING_CODE): {
        "Blackbox Test Spec": "2b",
        "Decompose Tests": "2c",
        "Implement Tests": "2d",
        "Refactor": "2e",
        "UI Design": "2ea",
        "New Task": "2f",
        "Implement": "2g",
        "Security Audit": "2hb",
        "Performance Test": "2hc",
        "Deploy": "2i",
    },
    (Dialect.POINTER, "greenfield"): {"Plan": "3", "Decompose": "5", "Implement": "6"},
    (Dialect.POINTER, EXISTING_CODE): {
        "Test Spec": "2",
        "Decompose Tests": "4",
        "Implement Tests": "5",
        "New Task": "8",
        "Implement": "9",
    },
    (Dialect.AUTODEV, "greenfield"): {"Plan": "3"},
    (Dialect.AUTODEV, EXISTING_CODE): {"Test Spec": "3", "Implement": "10"},
    (Dialect.AUTODEV, "meta-repo"): {"Config Review": "2"},
    (Dialect.RICH, "quick"): {"Implement": "1", "Verify": "2"},
    (Dialect.POINTER, "quick"): {"Implement": "1", "Verify": "2"},
    (Dialect.AUTODEV, "quick"): {"Implement": "1", "Verify": "2"},
}
"""Step numbers by name: a conversion needs them to find the same step."""

_NUMBER = pattern(r"[1-9][0-9]{0,5}")
_STATUS_ORDER = (
    StepStatus.NOT_STARTED,
    StepStatus.IN_PROGRESS,
    StepStatus.FAILED,
    StepStatus.SKIPPED,
    StepStatus.COMPLETED,
)


class Vocabulary(Struct, frozen=True, kw_only=True):
    """What is allowed beyond the dialects' own values: the user's flows, by last step, and step names."""

    flows: Mapping[str, int] = field(default_factory=dict)
    names: frozenset[str] = frozenset()

    def last_step(self, dialect: Dialect, flow: str) -> int | None:
        """Return the number of a flow's last step; None for a flow that the dialect does not know."""
        own = _FLOWS[dialect].get(flow)
        return self.flows.get(flow) if own is None else own

    def flow_names(self, dialect: Dialect) -> tuple[str, ...]:
        """Return the flows that the dialect may name."""
        return (*_FLOWS[dialect], *(name for name in self.flows if name not in _FLOWS[dialect]))

    def allows_step(self, dialect: Dialect, flow: str | None, step: str) -> bool:
        """Return whether a file of this dialect and flow may be at `step`."""
        if step == DONE:
            return True
        if dialect is Dialect.RICH:
            return step in _RICH_ORDER
        last = self.last_step(dialect, flow or "")
        return last is not None and _NUMBER.fullmatch(step) is not None and int(step) <= last

    def allows_name(self, name: str) -> bool:
        """Return whether a file of the rich dialect may name a step so."""
        return name in RICH_NAMES or name in self.names

    def steps_in_words(self, dialect: Dialect, flow: str | None) -> str:
        """Return the allowed steps as text for a message."""
        if dialect is Dialect.RICH:
            letters = ", ".join(step for step in RICH_STEPS if len(step) > 1)
            return f"0 to 6, {letters}, done"
        return f"1 to {self.last_step(dialect, flow or '')} for {flow}, done"


STANDARD = Vocabulary()
"""The dialects' own values and `quick`, without any user flows."""


def first_step(dialect: Dialect) -> str:
    """Return the step of a new file."""
    return "0" if dialect is Dialect.RICH else "1"


def step_order(dialect: Dialect, step: str) -> int:
    """Return a number that increases along a flow; an unknown step comes before all others."""
    if step == DONE:
        return 1_000_000
    if dialect is Dialect.RICH:
        return _RICH_ORDER.get(step, -1)
    return int(step) if _NUMBER.fullmatch(step) else -1


def progress(state: StateFile) -> tuple[int, int, int]:
    """Return how far a state is; of two states of one flow, the greater is further along."""
    return state.cycle or 0, step_order(state.dialect, state.step), _STATUS_ORDER.index(state.status)
