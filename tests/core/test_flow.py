"""Where a story is in its flow: the folders decide, and say why."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.choose import Question, QuestionKind, lettered
from runner.core.flow import (
    AGREED,
    AMBIGUOUS,
    CORRECTED,
    DONE,
    QUICK,
    UNKNOWN,
    DetectedPosition,
    Edition,
    Flow,
    FlowStep,
    artifact_parts,
    cross_check,
    in_cycle,
    locate,
    next_step,
    number_key,
    position,
    re_entry,
    step,
    transition,
)
from runner.flows.catalog import load_flow

REVIEW = Question(
    kind=QuestionKind.BOUNDARY,
    title="Is it right?",
    options=lettered(["Yes", "No"]),
    recommendation="A",
    why="w",
)


def _flow(*steps: FlowStep, edition: Edition = Edition.AUTODEV, loop_to: str | None = None) -> Flow:
    return Flow(name="sample", edition=edition, steps=steps, loop_from=None, loop_to=loop_to)


PLAN = FlowStep(number="1", name="Plan", artifacts=("plan",))
DESIGN = FlowStep(number="2", name="UI Design", artifacts=("design",), optional=True)
DECOMPOSE = FlowStep(number="2a", name="Decompose", artifacts=("tasks", "order"), session_boundary=True)
BUILD = FlowStep(number="3", name="Implement")
REPORT = FlowStep(number="4", name="Report", artifacts=("report_cycle{cycle}",))
FLOW = _flow(PLAN, DESIGN, DECOMPOSE, BUILD, REPORT, loop_to="2a")
SILENT = _flow(FlowStep(number="1", name="Implement"), FlowStep(number="2", name="Verify"))


def _present(*names: str) -> Callable[[str], bool]:
    return lambda artifact: artifact in names


def _number(found: FlowStep | None) -> str | None:
    return None if found is None else found.number


@pytest.mark.parametrize(
    ("there", "found", "allowed"),
    [
        ((), "1", ("1",)),
        (("plan",), "2", ("2", "2a")),
        (("plan", "design"), "2a", ("2a",)),
        (("plan", "tasks"), "2", ("2", "2a")),
        (("plan", "tasks", "order"), "3", ("3", "4")),
        (("plan", "tasks", "order", "report_cycle1"), None, (DONE,)),
    ],
)
def test_the_position_is_the_first_step_whose_artifacts_are_not_there(
    there: tuple[str, ...], found: str | None, allowed: tuple[str, ...]
) -> None:
    """Optional steps and those without artifacts are passed once a later one is done."""
    detected = position(FLOW, _present(*there))
    assert _number(detected.step) == found
    assert detected.allowed == allowed
    assert detected.ahead == ()


def test_the_reason_names_what_is_missing() -> None:
    """The words stand in the log beside a correction."""
    assert (
        position(FLOW, _present("plan", "design", "tasks")).reason == "Decompose is not done: order missing"
    )
    assert "leaves no artifact" in position(SILENT, _present()).reason
    assert "all artifacts" in position(_flow(PLAN), _present("plan")).reason


def test_folders_that_contradict_themselves_say_which_steps_look_done() -> None:
    """The first open step still is the position; what lies ahead makes it doubtful."""
    detected = position(FLOW, _present("design", "report_cycle1"))
    assert _number(detected.step) == "1"
    assert detected.ahead == (DESIGN, REPORT)


def test_a_step_skipped_by_choice_counts_as_passed() -> None:
    """Its artifacts will never come, and must not call the story back."""
    assert _number(position(FLOW, _present(), skipped={"1"}).step) == "2"
    assert position(FLOW, _present("plan"), skipped={"2a", "4"}).step is None


def test_the_cycle_decides_which_report_counts() -> None:
    """A report of the last cycle does not finish this one."""
    there = _present("plan", "tasks", "order", "report_cycle1")
    assert position(FLOW, there, cycle=1).step is None
    assert _number(position(FLOW, there, cycle=2).step) == "3"
    assert in_cycle("a{cycle}b", 12) == "a12b"


def test_a_flow_without_artifacts_allows_every_step() -> None:
    """Then only the state file knows."""
    assert position(SILENT, _present()).allowed == ("1", "2", DONE)


_NUMBERS = ("1", "2", "2a", "3", "4")
_ARTIFACTS = st.sets(st.sampled_from(["plan", "design", "tasks", "order", "report_cycle1"]))
_STATUSES = st.sampled_from(["not_started", "in_progress", "completed", "skipped", "failed"])


@given(there=_ARTIFACTS, more=_ARTIFACTS)
def test_more_artifacts_never_move_a_story_back(there: set[str], more: set[str]) -> None:
    """What is done stays done."""
    order = [*_NUMBERS, DONE]
    before = position(FLOW, _present(*there))
    after = position(FLOW, _present(*there | more))
    assert order.index(after.allowed[0]) >= order.index(before.allowed[0])
    assert order.index(after.allowed[-1]) >= order.index(before.allowed[-1])


@given(there=_ARTIFACTS)
def test_no_required_step_before_the_position_is_open(there: set[str]) -> None:
    """The position never jumps over work that the folders show undone."""
    detected = position(FLOW, _present(*there))
    start = [*_NUMBERS, DONE].index(detected.allowed[0])
    for passed in FLOW.steps[:start]:
        assert passed.optional or all(in_cycle(name, 1) in there for name in passed.artifacts)
    for open_until in FLOW.steps[start:]:
        if open_until.number in detected.allowed[:-1]:
            assert open_until.optional or not open_until.artifacts


@given(there=_ARTIFACTS, recorded=st.sampled_from([*_NUMBERS, DONE, "9", "?"]), status=_STATUSES)
def test_a_corrected_state_file_agrees_on_the_next_look(there: set[str], recorded: str, status: str) -> None:
    """Acceptance 50: one correction is enough, and it is the place the folders tell."""
    detected = position(FLOW, _present(*there))
    correction = cross_check(FLOW, recorded, status, detected)
    place = locate(FLOW, detected, recorded_step=recorded, recorded_status=status)
    assert place.correction == correction
    if correction is None:
        assert place.confidence == AGREED
        return
    assert correction.step == detected.step == place.step
    assert detected.reason in correction.words
    now = DONE if correction.step is None else correction.step.number
    assert cross_check(FLOW, now, "in_progress", detected) is None


def _check(recorded: str, status: str, *there: str) -> str | None:
    correction = cross_check(FLOW, recorded, status, position(FLOW, _present(*there)))
    return correction.words if correction else None


def test_folders_win_over_the_file_in_words() -> None:
    """Acceptance 50: the file says Plan, its artifact is there, so the story is past it."""
    assert _check("1", "in_progress", "plan", "design") == (
        "the state file said step 1 in_progress, the folders say step 2a (Decompose): "
        "Decompose is not done: tasks, order missing; corrected to step 2a (Decompose)"
    )
    assert _check("3", "not_started", "plan", "design") is not None
    assert _check("2a", "in_progress", "plan", "design") is None


def test_done_is_believed_only_when_the_folders_allow_it() -> None:
    """Acceptance 50: a file that says done over missing artifacts is corrected."""
    words = _check(DONE, "completed")
    assert words is not None
    assert words.startswith("the state file said done completed, the folders say step 1 (Plan)")
    assert _check(DONE, "completed", "plan", "tasks", "order", "report_cycle1") is None


def test_a_completed_step_means_the_next_one() -> None:
    """The pointer had not moved on yet when the program was killed."""
    assert _check("1", "completed", "plan") is None
    assert _check("1", "completed") is not None
    assert _check("4", "completed", "plan", "tasks", "order", "report_cycle1") is None
    detected = position(FLOW, _present("plan"))
    assert _number(locate(FLOW, detected, recorded_step="1", recorded_status="completed").step) == "2"


def test_a_failure_is_not_undone_by_artifacts_of_the_step_that_failed() -> None:
    """A person must see it first, though the folders look finished."""
    detected = position(FLOW, _present("plan"))
    assert cross_check(FLOW, "1", "failed", detected) is None
    assert locate(FLOW, detected, recorded_step="1", recorded_status="failed").step == PLAN
    assert cross_check(FLOW, "1", "failed", position(FLOW, _present("plan", "design"))) is not None


def test_a_recorded_skip_is_not_called_back() -> None:
    """A skipped step leaves no artifacts; the next one is meant."""
    place = locate(FLOW, position(FLOW, _present()), recorded_step="1", recorded_status="skipped")
    assert (place.step, place.correction) == (DESIGN, None)


def test_an_unknown_step_is_never_guessed_at() -> None:
    """The folders tell the place; where they cannot, nothing is sure."""
    found = cross_check(FLOW, "12", "in_progress", position(FLOW, _present("plan", "design")))
    assert found is not None
    assert found.sure
    assert "names step '12', which the flow sample does not have; the folders say step 2a" in found.words
    unsure = locate(SILENT, position(SILENT, _present()), recorded_step="9", recorded_status="in_progress")
    assert unsure.confidence == UNKNOWN
    assert unsure.correction is not None
    assert unsure.correction.words.endswith("the folders show nothing")


def test_confidence_follows_what_file_and_folders_say() -> None:
    """1 when they agree, lower when corrected, lower still when the folders contradict themselves."""
    clear, torn = position(FLOW, _present("plan", "design")), position(FLOW, _present("report_cycle1"))
    assert locate(FLOW, clear).confidence == AGREED
    assert locate(FLOW, clear, recorded_step="2a").confidence == AGREED
    assert locate(FLOW, clear, recorded_step="4").confidence == CORRECTED
    assert locate(FLOW, torn).confidence == AMBIGUOUS
    assert locate(FLOW, torn, recorded_step="4").confidence == AMBIGUOUS
    assert locate(FLOW, torn, recorded_step="1").confidence == AGREED
    finished = position(FLOW, _present("plan", "tasks", "order", "report_cycle1"))
    assert locate(FLOW, finished, recorded_step=DONE).step is None
    assert AGREED > CORRECTED > 0.85 > AMBIGUOUS > UNKNOWN == 0


@given(there=_ARTIFACTS, recorded=st.sampled_from(_NUMBERS), status=_STATUSES)
def test_confidence_is_a_share(there: set[str], recorded: str, status: str) -> None:
    """Between 0 and 1, and whole only without a correction."""
    place = locate(FLOW, position(FLOW, _present(*there)), recorded_step=recorded, recorded_status=status)
    assert 0 <= place.confidence <= 1
    assert (place.confidence == AGREED) == (place.correction is None)


def test_one_logical_next_step_asks_nothing() -> None:
    """Acceptance 62: only a boundary has a question; every other row chains."""
    assert transition(FLOW, "1").question is None
    assert _number(transition(FLOW, "1").step) == "2"
    assert transition(FLOW, "4").step is None
    assert transition(FLOW, "4").question is None


def test_a_boundary_asks_and_names_the_next_step() -> None:
    """Acceptance 55: after decompose the chain stops, and the next step is the one that implements."""
    crossing = transition(FLOW, "2a", summary=["3 tasks"])
    assert _number(crossing.step) == "3"
    assert crossing.question is not None
    assert crossing.question.title == "Decompose complete — start implementation?"
    assert crossing.question.details == ("3 tasks",)
    assert crossing.question.warning


@pytest.mark.parametrize("edition", [Edition.RICH, Edition.POINTER])
def test_the_older_dialects_keep_their_own_boundary_question(edition: Edition) -> None:
    """Acceptance 55: their template has no warning."""
    question = transition(_flow(DECOMPOSE, BUILD, edition=edition), "2a").question
    assert question is not None
    assert question.options[1].text == "Continue implementation in this conversation"
    assert not question.warning


def test_a_boundary_may_have_a_question_of_its_own() -> None:
    """Acceptance 55: the flow decides what its pause means."""
    own = FlowStep(number="1", name="Review", session_boundary=True, boundary_question=REVIEW)
    assert transition(_flow(own, BUILD), "1").question == REVIEW
    shown = transition(_flow(own, BUILD), "1", summary=["Produced: x.yaml"]).question
    assert shown is not None
    assert shown.details == ("Produced: x.yaml",)


def test_a_skipped_step_follows_nothing() -> None:
    """The question of a boundary names the step that is really next; after the last one there is none."""
    first = FlowStep(number="1", name="Decompose", session_boundary=True)
    flow = _flow(first, FlowStep(number="2", name="Review"), BUILD)
    moved = transition(flow, "1", skipped=("2",))
    assert moved.step == BUILD
    assert moved.question is not None
    assert "start implementation?" in moved.question.title
    assert transition(flow, "1", skipped=("2", BUILD.number)).step is None


def test_the_next_cycle_begins_only_by_re_entry() -> None:
    """Acceptance 57: the end of the flow is its end; the loop is entered on a new start."""
    assert next_step(FLOW, "4") is None
    assert re_entry(FLOW) == DECOMPOSE
    assert re_entry(SILENT) is None


def test_steps_are_found_by_number() -> None:
    """An unknown one is none, and has no successor."""
    assert step(FLOW, "2a") is DECOMPOSE
    assert step(FLOW, "7") is None
    with pytest.raises(ValueError, match="the flow sample has no step 7"):
        next_step(FLOW, "7")


def test_numbers_sort_as_the_flows_use_them() -> None:
    """Letters come behind the bare number, longer ones behind shorter."""
    ordered = ["0", "2", "2a", "2e", "2ea", "2f", "2h", "2hb", "2hc", "2i", "3", "10"]
    keys = [number_key(number) for number in ordered]
    assert None not in keys
    assert keys == sorted(keys, key=lambda key: key or (0, ""))
    assert [number_key(text) for text in ("", "a2", "2A", "2.5", DONE, "-1")] == [None] * 6


def test_an_artifact_may_name_a_line() -> None:
    """The line follows two colons."""
    assert artifact_parts("a/b.yaml :: ok: true") == ("a/b.yaml", "ok: true")
    assert artifact_parts("a/b::c") == ("a/b::c", "")


def test_a_position_is_a_plain_value() -> None:
    """Two looks at the same folders are equal, so that a correction is not made twice."""
    assert position(FLOW, _present("plan")) == position(FLOW, _present("plan"))
    assert isinstance(position(FLOW, _present()), DetectedPosition)


def test_the_quick_flow_is_the_one_in_its_file() -> None:
    """What is known without reading the file is what the file says."""
    read = load_flow("quick", Edition.ANY)
    assert [(one.number, one.name, one.kind) for one in read.steps] == [
        (one.number, one.name, one.kind) for one in QUICK.steps
    ]
