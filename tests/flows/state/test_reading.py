"""Telling dialects apart, allowed values, and what a refusal says."""

import pytest

from runner.core.work_items.tracker import Tracker
from runner.flows.state.errors import UnreadableStateError
from runner.flows.state.model import AWAITING, Dialect, Phase, Position, Problem, StepStatus
from runner.flows.state.reading import decode, find_problems, parse_state
from runner.flows.state.vocabulary import RICH_STEPS, Vocabulary
from runner.flows.state.writing import TEMPLATES, new_state
from tests.flows.state.samples import text_of

RICH, POINTER, AUTODEV = (TEMPLATES[dialect] for dialect in (Dialect.RICH, Dialect.POINTER, Dialect.AUTODEV))


def refused(text: str) -> tuple[Problem, ...]:
    """Return the problems of a text that must not be read."""
    with pytest.raises(UnreadableStateError) as caught:
        parse_state(text)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        (RICH, Dialect.RICH),
        (POINTER, Dialect.POINTER),
        (AUTODEV, Dialect.AUTODEV),
        ("step: 2\nname: Plan\nstatus: completed\n", Dialect.RICH),
        (POINTER + "cycle: 1\n", Dialect.AUTODEV),
        (POINTER.replace("# Autopilot", "# Autodev"), Dialect.AUTODEV),
        (POINTER.replace("greenfield", "meta-repo"), Dialect.AUTODEV),
        (POINTER.replace("sub_step: 0", "sub_step:\n  phase: 0\n  name: x"), Dialect.AUTODEV),
        (POINTER.replace("sub_step: 0", "sub_step: {phase: 0, name: x}"), Dialect.AUTODEV),
        (POINTER + "\n## Blockers\n- x\n", Dialect.POINTER),
        ("# Autodev State\nflow: greenfield\nstep: 1\nname: Plan\nstatus: failed\n", Dialect.AUTODEV),
        (
            RICH.replace("## Current Step\n", "## Current Step\n```yaml\n").replace(
                "\n\n## Comp", "\n```\n\n## Comp"
            ),
            Dialect.RICH,
        ),
        ("```\n" + AUTODEV + "```\n", Dialect.AUTODEV),
        (
            "```\n# Autodev State\nflow: greenfield\nstep: 1\nname: P\nstatus: failed\n## More\n```\n",
            Dialect.AUTODEV,
        ),
    ],
)
def test_the_dialect_is_told_by_the_content(text: str, dialect: Dialect) -> None:
    """Keys and structure decide, then the title; a file's name is never asked."""
    assert parse_state(text).dialect is dialect


@pytest.mark.parametrize("step", [*RICH_STEPS, "done", '"done"', "'2ea'"])
def test_rich_takes_every_step_of_its_own(step: str) -> None:
    """Numbers, lettered steps and done, with or without quotes."""
    assert parse_state(RICH.replace("step: 0", f"step: {step}", 1)).step == step.strip("\"'")


@pytest.mark.parametrize(
    ("template", "flow", "last"),
    [
        (POINTER, "greenfield", 10),
        (POINTER, "existing-code", 13),
        (POINTER, "quick", 2),
        (AUTODEV, "greenfield", 11),
        (AUTODEV, "existing-code", 17),
        (AUTODEV, "meta-repo", 6),
        (AUTODEV, "quick", 2),
    ],
)
def test_step_ranges_follow_dialect_and_flow(template: str, flow: str, last: int) -> None:
    """The first and the last step and done are allowed, one less and one more are not."""
    for step in ("1", str(last), "done"):
        text = template.replace("flow: greenfield", f"flow: {flow}").replace("step: 1", f"step: {step}")
        assert parse_state(text).step == step
    for step in ("0", str(last + 1), "2a", "01", "1.5", "-1", "", "one", "\uff11"):
        text = template.replace("flow: greenfield", f"flow: {flow}").replace("step: 1", f"step: {step}")
        (problem, *_) = refused(text)
        assert problem.line == 5
        assert problem.key == "step"
        assert problem.value == step
        assert problem.allowed == f"1 to {last} for {flow}, done"
        assert problem.hint


@pytest.mark.parametrize("status", StepStatus)
def test_every_status_is_read(status: StepStatus) -> None:
    """All five, with a remark behind it or not."""
    for tail in ("", "   ", "  ← set by the runner", " # noted", " <!-- noted -->"):
        assert parse_state(AUTODEV.replace("not_started", status.value + tail)).status is status


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "not_started",
            "in_progres",
            ["line 7", "'in_progres'", "in_progress", "did you mean 'in_progress'?"],
        ),
        ("flow: greenfield", "flow: greenfeld", ["line 4", "greenfield, existing-code, meta-repo, quick"]),
        ("retry_count: 0", "retry_count: 4", ["line 12", "retry_count '4'", "0 to 3"]),
        ("retry_count: 0", "retry_count: -1", ["'-1'", "0 to 3"]),
        ("retry_count: 0", "retry_count: many", ["'many'"]),
        ("cycle: 1", "cycle: 0", ["line 13", "cycle '0'", "1 or more"]),
        ("cycle: 1", "cycle: one", ["cycle 'one'"]),
        ("step: 1", "step: [1-11 for greenfield]", ["line 5", "placeholder", "by hand"]),
        ("step: 1", "Step: 1", ["step is missing", "'Step' is not read"]),
        ("flow: greenfield\n", "", ["flow is missing"]),
        ("status: not_started\n", "", ["status is missing"]),
        ("step: 1", "step: 1\nstep: 2", ["line 6", "step appears twice"]),
        ("## Current", "<<<<<<< ours\n## Current", ["line 3", "conflict markers"]),
        ("## Current Step", "## Current Step\nx\n## Current Step", ["line 5", "which one counts"]),
        ("## Current Step", "## Now", ["no `## Current Step`"]),
    ],
)
def test_a_refusal_says_where_what_and_what_to_do(old: str, new: str, words: list[str]) -> None:
    """Line, key, value, what is allowed and a way out stand in the message."""
    told = " ".join(str(problem) for problem in refused(AUTODEV.replace(old, new, 1)))
    for word in words:
        assert word in told


def test_two_fenced_states_are_ambiguous() -> None:
    """Which of two blocks counts is not guessed, with headings or without."""
    for block in (AUTODEV, text_of("pointer-plan")):
        told = str(refused(f"```\n{block}```\n\n```\n{block}```\n")[0])
        assert "a second fenced block" in told


def test_all_problems_are_listed_at_once() -> None:
    """A person corrects a file in one go."""
    text = (
        AUTODEV.replace("not_started", "x")
        .replace("retry_count: 0", "retry_count: 9")
        .replace("phase: 0", "phase: 0.5")
    )
    problems = find_problems(text.encode())
    assert [(item.key, item.fatal) for item in problems] == [
        ("status", True),
        ("retry_count", True),
        ("sub_step", False),
    ]


def test_unknown_values_of_lesser_weight_are_reported_and_left_out() -> None:
    """A wrong tracker, a missing name or counter, an odd cycle: a state all the same, with problems."""
    text = AUTODEV.replace("name: Problem\n", "").replace(
        "retry_count: 0\ncycle: 1\n", "tracker: trello\ncycle: 4\n"
    )
    state = parse_state(text)
    assert (state.name, state.retry_count, state.cycle, state.tracker) == ("", 0, 4, None)
    assert [item.key for item in state.problems] == ["name", "retry_count", "cycle", "tracker"]
    assert parse_state(AUTODEV.replace("cycle: 1\n", "")).problems[0].message.startswith("cycle is missing")


def test_rich_names_are_the_dialects_own_or_the_users() -> None:
    """A name that the dialect does not list is reported, unless the user's flows have it."""
    text = RICH.replace("name: Problem", "name: Paint it")
    assert [item.key for item in parse_state(text).problems] == ["name"]
    assert parse_state(text, vocabulary=Vocabulary(names=frozenset({"Paint it"}))).problems == ()


def test_a_users_flow_is_allowed_where_it_is_known() -> None:
    """The user's flows come with their last step."""
    text = AUTODEV.replace("flow: greenfield", "flow: release").replace("step: 1", "step: 4")
    assert refused(text)[0].key == "flow"
    own = Vocabulary(flows={"release": 4})
    assert parse_state(text, vocabulary=own).step == "4"
    assert new_state(Dialect.AUTODEV, flow="release", vocabulary=own).flow == "release"
    with pytest.raises(UnreadableStateError):
        parse_state(text.replace("step: 4", "step: 5"), vocabulary=own)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("sub_step:\n  phase: 4.5\n  name: x\n", "not an integer"),
        ("sub_step:\n  phase: -1\n  name: x\n", "not an integer"),
        ("sub_step:\n  phase: four\n  name: x\n", "not an integer"),
        ("sub_step:\n  phase: 4\n  name: Not Kebab\n", "not kebab-case"),
        ("sub_step:\n  phase: 4\n  name: a--b\n", "not kebab-case"),
        ("sub_step:\n  phase: 4\n  name: awaiting-invocation\n", "reserved for phase 0"),
        ("sub_step:\n  phase: 4\n", "needs `phase:` and `name:`"),
        ("sub_step:\n", "needs `phase:` and `name:`"),
        ("sub_step:\n  phase: 4\n  phase: 5\n  name: x\n", "a part twice"),
        ("sub_step:\nphase: 4\nname: x\ndetail: y\n", "not indented"),
        ("sub_step: 4 — Review\n", "not the structured form"),
        ("sub_step: 4\n  phase: 4\n  name: x\n", "a value of its own"),
        ("", "sub_step is missing"),
    ],
)
def test_acceptance_56_a_broken_sub_step_is_unknown_never_guessed(written: str, message: str) -> None:
    """The rest of the file counts; the sub-step does not, and the parse error can be logged."""
    start, end = AUTODEV.index("sub_step:"), AUTODEV.index("retry_count")
    state = parse_state(AUTODEV[:start] + written + AUTODEV[end:])
    assert state.sub_step is None
    (problem,) = state.problems
    assert (problem.key, problem.fatal) == ("sub_step", False)
    assert message in problem.message
    assert "folders" in problem.hint


def test_a_skipped_step_without_its_number_is_reported() -> None:
    """The section is read as bullets; one that names no number counts for nothing, and says so."""
    text = AUTODEV + "\n## Skipped Steps\n- 3 — Plan (2026-11-17)\n- 2b: x\n- the plan\n- none\n"
    state = parse_state(text)
    assert state.skipped_steps == ("3", "2b")
    assert [problem.value for problem in state.problems] == ["the plan"]
    assert not any(problem.fatal for problem in state.problems)
    twice = parse_state(text + "\n## Skipped Steps\n- 4\n")
    assert "a second section 'Skipped Steps'" in twice.problems[0].message
    assert twice.skipped_steps == ("3", "2b")


def test_the_inline_form_of_a_sub_step_is_read() -> None:
    """The mapping in braces says the same."""
    start, end = AUTODEV.index("sub_step:"), AUTODEV.index("retry_count")
    for written, meant in (
        ('{phase: 0, name: awaiting-invocation, detail: ""}', AWAITING),
        ("{ phase: 3, name: merge }", Phase(phase=3, name="merge")),
        ('{phase: 3, name: merge, detail: "a, b"}', Phase(phase=3, name="merge", detail="a, b")),
    ):
        assert parse_state(f"{AUTODEV[:start]}sub_step: {written}\n{AUTODEV[end:]}").sub_step == meant


@pytest.mark.parametrize(
    ("text", "number", "name"),
    [
        ("4 — Architecture Review", "4", "Architecture Review"),
        ("1b — Test Case Generation", "1b", "Test Case Generation"),
        ("4.5 - Review", "4.5", "Review"),
        ("7: Ticket", "7", "Ticket"),
        ("12", "12", ""),
        ("reviewing", "", "reviewing"),
    ],
)
def test_a_position_has_a_number_and_a_name(text: str, number: str, name: str) -> None:
    """The older sub-step is one text, of which number and name can be told."""
    state = parse_state(POINTER.replace("sub_step: 0", f"sub_step: {text}"))
    assert isinstance(state.sub_step, Position)
    assert (state.sub_step.number, state.sub_step.name) == (number, name)
    assert not state.sub_step.idle


def test_an_unfilled_or_missing_position_is_unknown() -> None:
    """The template's own words are no sub-step; no line at all is allowed."""
    state = parse_state(POINTER.replace("sub_step: 0", "sub_step: [0, or number + name]"))
    assert (state.sub_step, len(state.problems)) == (None, 1)
    assert parse_state(POINTER.replace("sub_step: 0\n", "")).problems == ()


def test_a_section_given_twice_is_reported() -> None:
    """Only the first is read, and that is said."""
    state = parse_state(RICH + "\n## Blockers\n- second\n\n## Notes\n\n## Notes\n")
    assert state.blockers == ()
    assert [item.key for item in state.problems] == ["blockers"]


def test_fenced_and_commented_lines_of_a_section_are_no_values() -> None:
    """An example in a fence or a comment is not the list itself."""
    text = RICH.replace(
        "## Key Decisions\n- none", "## Key Decisions\n```\n- example\n```\n- real\n<!--\n- old\n-->\n"
    )
    assert parse_state(text).decisions == ("real",)


def test_trackers_are_read_in_every_dialect() -> None:
    """The tracker is one of three, wherever it stands in the block."""
    for template in (RICH, POINTER, AUTODEV):
        for tracker in Tracker:
            assert parse_state(template.replace("retry", f"tracker: {tracker}\nretry")).tracker is tracker


@pytest.mark.parametrize(
    ("data", "words"), [(b"step: \xff", "byte 6 is not valid UTF-8"), (b"a\nstep: \0", "NUL")]
)
def test_bytes_that_are_no_text_are_refused(data: bytes, words: str) -> None:
    """Other encodings and zero-filled files are damage."""
    with pytest.raises(UnreadableStateError, match=words):
        decode(data)
    assert find_problems(data)[0].line in {1, 2}


def test_an_indented_block_and_keys_of_others_are_left_alone() -> None:
    """Deeper keys below unknown ones are not the block's own."""
    lines = ("flow: quick", "step: 2", "name: Verify", "status: failed", "owner:", "  name: Bob", "cycle: 1")
    text = "## Current Step\n" + "".join(f"  {line}\n" for line in lines)
    state = parse_state(text)
    assert (state.name, state.cycle) == ("Verify", 1)
