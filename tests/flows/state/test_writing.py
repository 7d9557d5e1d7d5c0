"""What may be written, and how the text changes."""

import pytest
from msgspec.structs import replace

from runner.core.work_items.tracker import Tracker
from runner.flows.state.dialects.autodev import broken_order
from runner.flows.state.errors import StateError
from runner.flows.state.model import (
    AWAITING,
    CompletedRow,
    Dialect,
    LastSession,
    Phase,
    Position,
    RetryRow,
    StateFile,
    StepRef,
    StepStatus,
)
from runner.flows.state.reading import parse_state
from runner.flows.state.writing import TEMPLATES, new_state, render
from tests.flows.state.samples import text_of

AUTODEV = TEMPLATES[Dialect.AUTODEV]
ROW = CompletedRow(step="0", name="Problem", completed="2026-01-01", outcome="a | b")
RETRY = RetryRow(attempt="1", step="0", name="Problem", sub_step="", reason="no", timestamp="now")


@pytest.mark.parametrize(
    ("dialect", "step"), [(Dialect.RICH, "0"), (Dialect.POINTER, "1"), (Dialect.AUTODEV, "1")]
)
def test_acceptance_49_a_new_file_stands_at_its_first_step(dialect: Dialect, step: str) -> None:
    """Step 0 in rich, 1 in the others; not started, no retries, no problems."""
    state = new_state(dialect)
    assert (state.step, state.status, state.retry_count) == (step, StepStatus.NOT_STARTED, 0)
    assert (state.flow, state.cycle) == (
        (None, None) if dialect is Dialect.RICH else ("greenfield", state.cycle)
    )
    assert state.cycle == (1 if dialect is Dialect.AUTODEV else None)
    assert parse_state(state.text) == state
    assert parse_state(state.text).problems == ()


def test_a_new_file_names_its_flow_and_first_step() -> None:
    """The flow's own first step comes from the caller."""
    state = new_state(Dialect.AUTODEV, flow="quick", first=StepRef(step="1", name="Implement"))
    assert "flow: quick\nstep: 1\nname: Implement\n" in state.text


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        (Phase(phase=4.5, name="x"), "not an integer"),  # type: ignore[arg-type]  # what is refused
        (Phase(phase=True, name="x"), "not an integer"),
        (Phase(phase=-1, name="x"), "not an integer"),
        (Phase(phase=1, name="Not Kebab"), "not kebab-case"),
        (Phase(phase=1, name="trailing-"), "not kebab-case"),
        (Phase(phase=1, name=""), "not kebab-case"),
        (Phase(phase=1, name="awaiting-invocation"), "reserved"),
    ],
)
def test_acceptance_56_a_sub_step_against_the_rules_is_not_written(phase: Phase, message: str) -> None:
    """Fractional, not kebab-case, or the reserved name elsewhere: refused."""
    state = replace(new_state(Dialect.AUTODEV), sub_step=phase)
    with pytest.raises(StateError, match=message):
        render(state)


RECORDED = Phase(phase=3, name="y", detail="batch 1")


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize(
    ("phase", "within", "over"),
    [
        (Phase(phase=4, name="z"), "", ""),
        (Phase(phase=3, name="y", detail="batch 2"), "", ""),
        (RECORDED, "", ""),
        (AWAITING, "", ""),
        (Phase(phase=3, name="z"), "phase 3 is 'y' already; the next save point is phase 4", None),
        (Phase(phase=2, name="x"), "phase 2 does not follow 3: the next one is 4", None),
        (Phase(phase=5, name="x"), "phase 5 does not follow 3: the next one is 4", None),
        (Phase(phase=1, name="x"), "phase 1 does not follow 3: the next one is 4", ""),
        (Phase(phase=0, name="x"), "phase 0 does not follow 3: the next one is 4", ""),
    ],
)
def test_a_phase_rises_by_one_and_a_new_session_may_start_over(
    phase: Phase, within: str, over: str | None, *, first: bool
) -> None:
    """Within a session each save is the next phase, or the same one again; `over` is the first save's own."""
    expected = within if not first or over is None else over
    assert broken_order(phase, RECORDED, first=first).startswith(expected)
    assert bool(broken_order(phase, RECORDED, first=first)) == bool(expected)
    assert broken_order(phase, None, first=first) == "", "nothing is known that it could follow"


@pytest.mark.parametrize(
    ("dialect", "values", "message"),
    [
        (Dialect.RICH, {"step": "7"}, "step '7'"),
        (Dialect.POINTER, {"step": "11"}, "step '11'"),
        (Dialect.POINTER, {"flow": "meta-repo"}, "flow 'meta-repo'"),
        (Dialect.AUTODEV, {"flow": None}, "flow 'None'"),
        (Dialect.AUTODEV, {"retry_count": 4}, "retry_count 4"),
        (Dialect.AUTODEV, {"cycle": 0}, "cycle 0"),
        (Dialect.AUTODEV, {"cycle": None}, "cycle None"),
        (Dialect.AUTODEV, {"sub_step": Position(text="4")}, "structured"),
        (Dialect.RICH, {"sub_step": AWAITING}, "does not fit into rich"),
        (Dialect.AUTODEV, {"sub_step": None}, "cannot become unknown"),
        (Dialect.POINTER, {"sub_step": None}, "cannot become unknown"),
        (Dialect.AUTODEV, {"text": "nothing"}, "a text that contains one"),
        (Dialect.AUTODEV, {"text": TEMPLATES[Dialect.RICH]}, "a rich file cannot take"),
        (
            Dialect.RICH,
            {"completed": (CompletedRow(step="-", name="", completed="", outcome=""),)},
            "read back differently",
        ),
    ],
)
def test_values_that_are_not_allowed_are_not_written(
    dialect: Dialect, values: dict[str, object], message: str
) -> None:
    """The same limits as in reading, and nothing that would read back as something else."""
    with pytest.raises(StateError, match=message):
        render(replace(new_state(dialect), **values))


@pytest.mark.parametrize(
    "broken",
    [
        "sub_step: 4.5 ← the old way\n",
        "sub_step:\n  phase: 4.5\n  mode: kept\n  name: x\n",
        "sub_step:\nphase: 4\nname: x\ndetail: y\n",
        "sub_step: {phase: 1, name: x}\n",
        "",
    ],
)
def test_a_broken_sub_step_is_written_anew_and_foreign_lines_stay(broken: str) -> None:
    """Resetting heals the field; a remark or an unknown part in it is not lost."""
    start, end = AUTODEV.index("sub_step:"), AUTODEV.index("retry_count")
    text = AUTODEV[:start] + broken + AUTODEV[end:]
    healed = render(replace(parse_state(text), sub_step=Phase(phase=2, name="plan", detail="a\nb")))
    assert parse_state(healed).sub_step == Phase(phase=2, name="plan", detail="a\nb")
    assert parse_state(healed).problems == ()
    for kept in ("← the old way", "  mode: kept\n"):
        assert (kept in healed) == (kept in text)


def test_only_parts_that_changed_are_touched() -> None:
    """A new phase leaves name and detail, remarks included, as they were."""
    text = text_of("autodev-implement").replace("name: batch-loop", "name: batch-loop   # theirs")
    changed = render(
        replace(parse_state(text), sub_step=Phase(phase=8, name="batch-loop", detail="batch 2 of ~4"))
    )
    assert changed == text.replace("phase: 7", "phase: 8")


@pytest.mark.parametrize("end", ["\n", ""])
def test_missing_keys_are_added_where_they_belong(end: str) -> None:
    """Each goes behind its predecessor, also when the file has no final newline."""
    text = "flow: greenfield\nstep: 1\nname: Plan\nstatus: failed\n\n# mine" + end
    wanted = replace(parse_state(text), retry_count=2, sub_step=Position(text="4"), tracker=Tracker.JIRA)
    assert render(wanted) == (
        "flow: greenfield\nstep: 1\nname: Plan\nstatus: failed\n"
        "sub_step: 4\nretry_count: 2\ntracker: jira\n\n# mine" + end
    )
    short = parse_state("# Autodev State\r\nflow: quick\r\nstep: 1\r\nname:\r\nstatus: failed")
    full = render(replace(short, name="Implement", sub_step=AWAITING, retry_count=3, cycle=2))
    assert full == (
        "# Autodev State\r\nflow: quick\r\nstep: 1\r\nname: Implement\r\nstatus: failed\r\n"
        "sub_step:\r\n  phase: 0\r\n"
        '  name: awaiting-invocation\r\n  detail: ""\r\nretry_count: 3\r\ncycle: 2'
    )


def test_a_tracker_can_be_taken_away() -> None:
    """Its line goes, no other does."""
    text = text_of("autodev-config-review")
    assert render(replace(parse_state(text), tracker=None)) == text.replace("tracker: ado\n", "")


def test_missing_sections_are_made_in_their_order() -> None:
    """A rich file without history gets the sections that it needs, behind those it has."""
    block = "step: 1\nname: Research\nstatus: completed\nsub_step: 0\nretry_count: 0\n"
    text = f"# Autopilot State\n\n### Current Step\n{block}\n## Mine\nx"
    state = parse_state(text)
    full = replace(
        state,
        completed=(ROW,),
        decisions=("yes",),
        last_session=LastSession(date="d", reason="r"),
        retry_log=(RETRY,),
        blockers=("no",),
    )
    written = render(full)
    titles = [line for line in written.split("\n") if line.startswith("#")]
    assert titles[1:] == [
        "### Current Step", "### Completed Steps", "### Key Decisions", "### Last Session", "### Retry Log",
        "### Blockers", "## Mine",
    ]  # fmt: skip
    assert written.endswith("## Mine\nx")
    assert parse_state(written) == full


def test_sections_of_a_bare_block_go_into_its_fence() -> None:
    """A rich block without headings keeps its history inside of the same fence."""
    text = "notes\n\n```\nstep: 1\nname: Research\nstatus: completed\nretry_count: 0\n```\n\nmore\n"
    written = render(replace(parse_state(text), blockers=("no",)))
    assert written == text.replace("0\n```", "0\n\n## Blockers\n- no\n```")


def test_placeholders_give_way_and_come_back() -> None:
    """`none`, the template's bullets and rows of dots are replaced; the last item leaves `none`."""
    text = text_of("rich-plan").replace("- [none]", "- [blocker 1, if any]\n- [none]")
    state = parse_state(text)
    blocked = render(replace(state, blockers=("docker is down", "none", "[x]", " y"), completed=()))
    assert '## Blockers\n- docker is down\n- "none"\n- "[x]"\n- " y"\n\n## House rules' in blocked
    again = replace(parse_state(blocked), blockers=(), completed=(ROW,))
    assert "## Blockers\n- none\n\n## House rules" in render(again)
    assert "-------------|\n| 0 | Problem | 2026-01-01 | a \\| b |\n\n" in render(again)


def test_rows_are_edited_one_by_one() -> None:
    """Rows that stay keep their bytes; new ones come before, between and after them."""
    text = text_of("rich-failed")
    state = parse_state(text)
    log = state.retry_log
    changed = replace(state, retry_log=(RETRY, log[0], log[3], replace(RETRY, attempt="5")))
    lines = render(changed).split("\n")
    kept = [line for line in text.split("\n") if line.startswith(("| 1 | 2b", "| 4 | 2b"))]
    at = lines.index(kept[0])
    assert lines[at - 1 : at + 3] == [
        "| 1 | 0 | Problem |  | no | now |",
        *kept,
        "| 5 | 0 | Problem |  | no | now |",
    ]


def test_a_list_may_change_entirely() -> None:
    """Replaced, inserted and removed bullets, with lines of continuation."""
    state = parse_state(text_of("rich-plan"))
    for decisions in (
        ("new",),
        ("a", *state.decisions),
        (*state.decisions, "z"),
        (state.decisions[1], "b", "c"),
        (),
    ):
        assert parse_state(render(replace(state, decisions=decisions))).decisions == decisions


def test_an_empty_table_section_gets_its_header() -> None:
    """A heading alone is enough to go on from."""
    text = TEMPLATES[Dialect.RICH]
    start, end = text.index("\n| Attempt"), text.index("\n## Blockers")
    written = render(replace(parse_state(text[:start] + text[end:]), retry_log=(RETRY,)))
    assert "## Retry Log\n\n| Attempt | Step | Name | SubStep | Failure Reason | Timestamp |\n|---" in written


def test_the_last_session_may_be_partial() -> None:
    """Missing keys are added, placeholders filled, and an emptied session is no session."""
    text = TEMPLATES[Dialect.RICH].replace(
        "ended_at:\nreason:\nnotes:\n", "reason: [completed step / …]\nmood: good\n"
    )
    state = parse_state(text)
    assert state.last_session is None
    full: StateFile = replace(
        state, last_session=LastSession(date="d", ended_at="e", reason="[r]", notes="n # 1")
    )
    assert parse_state(render(full)) == full
    assert "mood: good\n" in render(full)
    assert parse_state(render(replace(parse_state(render(full)), last_session=None))).last_session is None
