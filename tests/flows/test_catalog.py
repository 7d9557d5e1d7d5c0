"""The flows of the program in every edition, and the command that lists, shows and checks flows."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.cli.commands.show import flows as command
from runner.cli.output import Output
from runner.cli.parser import parse
from runner.core.errors import UsageError
from runner.core.flow import Edition, Flow, re_entry, transition
from runner.core.model import SessionKind
from runner.flows.catalog import BUILT_IN, _built_in, list_flows, load_flow

RICH_GREENFIELD = {
    "0": "Problem",
    "1": "Research",
    "2": "Plan",
    "2a": "UI Design",
    "3": "Decompose",
    "4": "Implement",
    "5": "Run Tests",
    "5b": "Security Audit",
    "5c": "Performance Test",
    "6": "Deploy",
}
RICH_EXISTING = {
    "2b": "Blackbox Test Spec",
    "2c": "Decompose Tests",
    "2d": "Implement Tests",
    "2e": "Refactor",
    "2ea": "UI Design",
    "2f": "New Task",
    "2g": "Implement",
    "2h": "Run Tests",
    "2hb": "Security Audit",
    "2hc": "Performance Test",
    "2i": "Deploy",
}
EDITIONS = [
    ("greenfield", Edition.RICH, 10),
    ("greenfield", Edition.POINTER, 10),
    ("greenfield", Edition.AUTODEV, 11),
    ("existing-code", Edition.RICH, 11),
    ("existing-code", Edition.POINTER, 13),
    ("existing-code", Edition.AUTODEV, 17),
    ("meta-repo", Edition.AUTODEV, 6),
    ("quick", Edition.AUTODEV, 2),
]


OWN = """
[[steps]]
number = 1
name = "Draft"
prompt = "Write it."
artifacts = "_docs/draft.md"

[[steps]]
number = 2
name = "Verify"
kind = "verify"
"""


def _own(root: Path, text: str = OWN, name: str = "ours") -> None:
    path = root / "flows" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


def _names(flow: Flow) -> dict[str, str]:
    return {step.number: step.name for step in flow.steps}


@pytest.mark.parametrize(("name", "edition", "count"), EDITIONS)
def test_each_flow_has_the_steps_that_its_dialect_numbers(name: str, edition: Edition, count: int) -> None:
    """10 and 13 in pointer, 11, 17 and 6 in autodev, all lettered steps in rich."""
    flow = load_flow(name, edition)
    assert len(flow.steps) == count
    if edition is not Edition.RICH:
        assert [step.number for step in flow.steps] == [str(number) for number in range(1, count + 1)]
    assert all(step.prompt for step in flow.steps if step.kind is SessionKind.WORK)


def test_the_flow_files_of_the_program_have_no_problems() -> None:
    """They pass the same check as a user's."""
    listed = list_flows()
    assert [one.name for one in listed] == list(BUILT_IN)
    assert [one.problems for one in listed] == [()] * 4
    for name in BUILT_IN:
        assert _built_in(name).problems == ()


def test_names_that_are_given_are_kept() -> None:
    """Where a dialect names a step, this is its name and number."""
    assert _names(load_flow("greenfield", Edition.RICH)) == RICH_GREENFIELD
    assert _names(load_flow("existing-code", Edition.RICH)) == RICH_EXISTING
    pointer = _names(load_flow("greenfield", Edition.POINTER))
    assert (pointer["3"], pointer["5"], pointer["6"]) == ("Plan", "Decompose", "Implement")
    pointer = _names(load_flow("existing-code", Edition.POINTER))
    assert [pointer[number] for number in ("2", "4", "5", "8", "9")] == [
        "Test Spec",
        "Decompose Tests",
        "Implement Tests",
        "New Task",
        "Implement",
    ]
    autodev = _names(load_flow("existing-code", Edition.AUTODEV))
    assert (autodev["3"], autodev["10"], autodev["17"]) == ("Test Spec", "Implement", "Retrospective")
    assert _names(load_flow("greenfield", Edition.AUTODEV))["3"] == "Plan"
    assert _names(load_flow("meta-repo", Edition.AUTODEV))["2"] == "Config Review"
    assert _names(load_flow("quick", Edition.ANY)) == {"1": "Implement", "2": "Verify"}


@pytest.mark.parametrize(
    ("name", "edition", "boundaries"),
    [
        ("greenfield", Edition.RICH, {"3": "4"}),
        ("greenfield", Edition.POINTER, {"5": "6"}),
        ("greenfield", Edition.AUTODEV, {"5": "6"}),
        ("existing-code", Edition.RICH, {"2c": "2d", "2f": "2g"}),
        ("existing-code", Edition.POINTER, {"4": "5", "8": "9"}),
        ("existing-code", Edition.AUTODEV, {"5": "6", "9": "10"}),
        ("meta-repo", Edition.AUTODEV, {"2": "3"}),
        ("quick", Edition.AUTODEV, {}),
    ],
)
def test_boundaries_are_exactly_those_that_are_marked(
    name: str, edition: Edition, boundaries: dict[str, str]
) -> None:
    """Acceptance 55, 62: after decomposing the chain stops with a question; all other rows chain without."""
    flow = load_flow(name, edition)
    found = {}
    for step in flow.steps:
        crossing = transition(flow, step.number)
        if crossing.question is not None:
            assert crossing.step is not None
            found[step.number] = crossing.step.number
    assert found == boundaries


def test_the_review_of_a_meta_repository_has_its_own_question() -> None:
    """It pauses for a person, not for a fresh context."""
    question = transition(load_flow("meta-repo", Edition.AUTODEV), "2").question
    assert question is not None
    assert question.title == "Config Review — is {docs}/_repo-config.yaml right?"
    assert question.recommendation == "A"
    assert "Pause" in question.option("A").text


def test_the_steps_that_create_work_items_are_marked() -> None:
    """Plan, Decompose, Decompose Tests and New Task, in every edition."""
    for name, edition, _ in EDITIONS:
        marked = {step.name for step in load_flow(name, edition).steps if step.tracker}
        given = {"greenfield": {"Plan", "Decompose"}, "existing-code": {"Decompose Tests", "New Task"}}
        assert marked == given.get(name, set())


def test_the_cycle_of_features_is_entered_at_new_task() -> None:
    """Acceptance 57: only the autodev edition of existing-code counts cycles."""
    loops = {
        (name, edition): found.name
        for name, edition, _ in EDITIONS
        if (found := re_entry(load_flow(name, edition))) is not None
    }
    assert loops == {("existing-code", Edition.AUTODEV): "New Task"}


def test_the_same_step_has_the_same_artifacts_in_every_edition() -> None:
    """A converted state file must not move the story."""
    for name in ("greenfield", "existing-code"):
        pointer = load_flow(name, Edition.POINTER)
        autodev = load_flow(name, Edition.AUTODEV)
        later = [(step.name, step.artifacts) for step in autodev.steps]
        assert all((step.name, step.artifacts) in later for step in pointer.steps)


def _command(output: Output, *argv: str) -> int:
    return command.execute(parse("flows", command, argv), output)


def test_the_command_lists_all_flows(
    make_repository: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """With their editions and counts, the user's too, broken ones included."""
    top = make_repository()
    _own(top)
    _own(top, "", name="broken")
    assert _command(Output(command="flows"), "-C", str(top)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any("existing-code" in line and "11 (rich), 13 (pointer), 17 (autodev)" in line for line in lines)
    assert any(line.split()[:2] == ["ours", "2"] for line in lines)
    assert any("broken" in line and "invalid" in line for line in lines)
    assert _command(Output(command="flows", as_json=True), "list", "-C", str(top)) == 0
    flows = json.loads(capsys.readouterr().out)["data"]["flows"]
    assert {one["name"] for one in flows} == {*BUILT_IN, "ours", "broken"}
    assert flows[1]["editions"] == [
        {"edition": "rich", "steps": 10},
        {"edition": "pointer", "steps": 10},
        {"edition": "autodev", "steps": 11},
    ]


def test_the_command_shows_steps_and_boundaries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Outside of a repository the flows of the program are there all the same."""
    assert _command(Output(command="flows"), "show", "existing-code", "-C", str(tmp_path)) == 0
    text = capsys.readouterr().out
    lines = text.splitlines()
    assert text.count("session boundary") == 2
    boundary = next(place for place, line in enumerate(lines) if "session boundary" in line)
    assert "Decompose Tests" in lines[boundary - 1]
    assert "Implement Tests" in lines[boundary + 1]
    assert "next cycle begins at step 9" in text
    argv = ("show", "existing-code", "--edition", "rich", "-C", str(tmp_path))
    assert _command(Output(command="flows", as_json=True), *argv) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["edition"] == "rich"
    assert [step["number"] for step in data["steps"] if step["session_boundary"]] == ["2c", "2f"]
    assert data["loop"] is None


def test_the_command_shows_a_users_flow_of_one_edition(
    make_repository: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The edition it has is the one that is meant."""
    top = make_repository()
    _own(top, "[[steps]]\nnumber = { pointer = 1 }\nname = 'only'\nprompt = 'p'\n", name="mine")
    assert _command(Output(command="flows"), "show", "mine", "-C", str(top)) == 0
    assert "mine, edition pointer" in capsys.readouterr().out
    assert _command(Output(command="flows"), "show", "quick", "-C", str(top)) == 0
    assert "quick\n" in capsys.readouterr().out


def test_the_command_checks_a_file_and_ends_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every problem with its hint on stdout; 0 when there is none."""
    _own(tmp_path)
    assert _command(Output(command="flows"), "check", "flows/ours.toml", "-C", str(tmp_path)) == 0
    assert capsys.readouterr().out == "flows/ours.toml: no problems\n"
    _own(tmp_path, "[[steps]]\nnumber = 1\nname = 'n'\nprompt = 'p'\nartfacts = 'x'\nsession_boundary = 1")
    assert _command(Output(command="flows"), "check", "flows/ours.toml", "-C", str(tmp_path)) == 1
    text = capsys.readouterr().out
    assert "unknown key 'artfacts'\n  hint: did you mean 'artifacts'?" in text
    assert "'session_boundary' must be true or false, not 1" in text
    argv = ("check", "flows/ours.toml", "-C", str(tmp_path))
    assert _command(Output(command="flows", as_json=True), *argv) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["success"] is False
    assert len(document["data"]["problems"]) == 2


@pytest.mark.parametrize(
    ("argv", "words"),
    [(("show",), "needs the NAME"), (("check",), "needs a FILE"), (("list", "x"), "takes no name")],
)
def test_the_command_says_what_it_needs(argv: tuple[str, ...], words: str) -> None:
    """A usage error names the argument."""
    with pytest.raises(UsageError, match=words):
        _command(Output(command="flows"), *argv)


@pytest.mark.parametrize("name", ["greenfield", "existing-code"])
def test_the_reference_lists_every_step_with_its_numbers(name: str) -> None:
    """The table of the documentation is the flow, row by row."""
    reference = Path(__file__).parents[2] / "docs/reference/flows.md"
    rows = reference.read_text(encoding="utf-8").replace("**", "").splitlines()
    numbers: dict[str, dict[str, str]] = {}
    for edition in ("rich", "pointer", "autodev"):
        for step in load_flow(name, Edition(edition)).steps:
            numbers.setdefault(", ".join(f"`{one}`" for one in step.artifacts), {})[edition] = step.number
    for artifacts, found in numbers.items():
        cells = " | ".join(found.get(edition, "–") for edition in ("rich", "pointer", "autodev"))  # noqa: RUF001  the dash of the table
        assert any(row.startswith(f"| {cells} | ") and row.endswith(f"| {artifacts} |") for row in rows), (
            cells
        )
