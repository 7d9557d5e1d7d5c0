"""The dialects' own examples as files, what they mean, and strategies for all that is allowed."""

from datetime import UTC, datetime
from pathlib import Path

from hypothesis import strategies as st
from msgspec.structs import replace

from runner.core.work_items.tracker import Tracker
from runner.flows.state.model import (
    CompletedRow,
    Dialect,
    LastSession,
    Phase,
    Position,
    RetryRow,
    StateFile,
    StepStatus,
)
from runner.flows.state.vocabulary import RICH_NAMES, RICH_STEPS, STANDARD
from runner.flows.state.writing import TEMPLATES

FIXTURES = Path(__file__).parent / "fixtures"
NAMES = sorted(path.stem for path in FIXTURES.glob("*.md"))
AT = datetime(2026, 4, 23, 3, 6, 32, tzinfo=UTC)


def text_of(name: str) -> str:
    """Return a fixture's text, line endings as they are."""
    return (FIXTURES / f"{name}.md").read_bytes().decode()


_GENERATION = "1b — Test Case Generation"
_FAILED_LOG = tuple(
    RetryRow(
        attempt=str(number),
        step="2b",
        name="Blackbox Test Spec",
        sub_step=_GENERATION,
        reason="docker is not running" if number < 3 else "no test cases",
        timestamp=f"2026-04-22T10:0{number - 1}:00+00:00",
    )
    for number in range(1, 5)
)
_RICH_FAILED = StateFile(
    dialect=Dialect.RICH,
    step="2b",
    name="Blackbox Test Spec",
    status=StepStatus.FAILED,
    sub_step=Position(text=_GENERATION),
    retry_count=3,
    retry_log=_FAILED_LOG,
    blockers=(
        "Step 2b (Blackbox Test Spec) failed at sub-step 1b — Test Case Generation after 3 retries; the last failure: no test cases",  # noqa: E501  one line of the file
    ),
)

EXPECTED = {
    "rich-plan": StateFile(
        dialect=Dialect.RICH,
        step="2",
        name="Plan",
        status=StepStatus.IN_PROGRESS,
        sub_step=Position(text="4 — Architecture Review & Risk Assessment"),
        completed=(
            CompletedRow(
                step="0", name="Problem", completed="2026-04-20", outcome="problem.md and acceptance criteria"
            ),
            CompletedRow(
                step="1",
                name="Research",
                completed="2026-04-21",
                outcome="3 drafts, Postgres | SQLite compared",
            ),
        ),
        decisions=(
            "Tech stack: Python + Rust for perf-critical, Postgres DB",
            "Größe der Ausgabe: höchstens 10 MB — naïve Lösung reicht ✓ because nobody has more",
        ),
        last_session=LastSession(
            date="2026-04-22",
            ended_at="Step 2 Plan — SubStep 4 Architecture Review & Risk Assessment",
            reason="context limit",
            notes="components are drawn",
        ),
    ),
    "rich-failed": _RICH_FAILED,
    "rich-mirrored": _RICH_FAILED,
    "pointer-plan": StateFile(
        dialect=Dialect.POINTER,
        flow="greenfield",
        step="3",
        name="Plan",
        status=StepStatus.IN_PROGRESS,
        sub_step=Position(text="4 — Architecture Review & Risk Assessment"),
    ),
    "pointer-failed": StateFile(
        dialect=Dialect.POINTER,
        flow="existing-code",
        step="2",
        name="Test Spec",
        status=StepStatus.FAILED,
        sub_step=Position(text=_GENERATION),
        retry_count=3,
    ),
    "autodev-plan": StateFile(
        dialect=Dialect.AUTODEV,
        flow="greenfield",
        step="3",
        name="Plan",
        status=StepStatus.IN_PROGRESS,
        sub_step=Phase(phase=4, name="architecture-review-risk-assessment"),
        cycle=1,
    ),
    "autodev-failed": StateFile(
        dialect=Dialect.AUTODEV,
        flow="existing-code",
        step="3",
        name="Test Spec",
        status=StepStatus.FAILED,
        sub_step=Phase(phase=1, name="test-case-generation", detail="variant 1b"),
        retry_count=3,
        cycle=1,
    ),
    "autodev-config-review": StateFile(
        dialect=Dialect.AUTODEV,
        flow="meta-repo",
        step="2",
        name="Config Review",
        status=StepStatus.IN_PROGRESS,
        sub_step=Phase(
            phase=0, name="awaiting-human-review", detail="awaiting review of _docs/_repo-config.yaml"
        ),
        cycle=1,
        tracker=Tracker.ADO,
    ),
    "autodev-implement": StateFile(
        dialect=Dialect.AUTODEV,
        flow="existing-code",
        step="10",
        name="Implement",
        status=StepStatus.IN_PROGRESS,
        sub_step=Phase(phase=7, name="batch-loop", detail="batch 2 of ~4"),
        cycle=3,
    ),
}

_free = st.text(max_size=30)
_cells = st.text(st.characters(codec="utf-8", exclude_characters="\n\r"), max_size=20).map(
    lambda text: text.strip(" \t\r")
)
_kebab = st.from_regex(r"[a-z0-9]{1,5}(-[a-z0-9]{1,5}){0,3}", fullmatch=True).filter(
    lambda name: name != "awaiting-invocation"
)
_phases = st.builds(Phase, phase=st.integers(0, 10**9 - 1), name=_kebab, detail=_free)
_rich_steps = st.sampled_from([*RICH_STEPS, "done"])
_completed = st.builds(CompletedRow, step=_rich_steps, name=_cells, completed=_cells, outcome=_cells)
_retries = st.builds(
    RetryRow,
    attempt=st.integers(1, 4).map(str),
    step=_rich_steps,
    name=_cells,
    sub_step=_cells,
    reason=_cells,
    timestamp=_cells,
)
_sessions = st.builds(LastSession, date=_free, ended_at=_free, reason=_free, notes=_free).map(
    lambda session: session if session != LastSession() else None
)
_skipped = st.builds("{} — {} (2026-04-23)".format, st.integers(1, 17), _free)
_common = {
    "status": st.sampled_from(StepStatus),
    "retry_count": st.integers(0, 3),
    "tracker": st.sampled_from([None, *Tracker]),
}


@st.composite
def states(draw: st.DrawFn, *, dialect: Dialect | None = None) -> StateFile:
    """Any state that may be written, on its dialect's template."""
    kind = dialect or draw(st.sampled_from(Dialect))
    common = {name: draw(strategy) for name, strategy in _common.items()}
    base = StateFile(dialect=kind, step="0", name="", status=StepStatus.NOT_STARTED, text=TEMPLATES[kind])
    state = replace(base, **common)
    if kind is Dialect.RICH:
        return replace(
            state,
            step=draw(_rich_steps),
            name=draw(st.sampled_from(sorted(RICH_NAMES)) | _free),
            sub_step=Position(text=draw(_free)),
            completed=tuple(draw(st.lists(_completed, max_size=4))),
            decisions=tuple(draw(st.lists(_free, max_size=4))),
            last_session=draw(_sessions | st.none()),
            retry_log=tuple(draw(st.lists(_retries, max_size=4))),
            blockers=tuple(draw(st.lists(_free, max_size=3))),
        )
    flow = draw(st.sampled_from(STANDARD.flow_names(kind)))
    last = STANDARD.last_step(kind, flow) or 1
    state = replace(
        state, flow=flow, step=draw(st.integers(1, last).map(str) | st.just("done")), name=draw(_free)
    )
    state = replace(state, skipped=tuple(draw(st.lists(_skipped | _free, max_size=3))))
    if kind is Dialect.POINTER:
        return replace(state, sub_step=Position(text=draw(_free)))
    return replace(state, sub_step=draw(_phases), cycle=draw(st.integers(1, 10**9 - 1)))
