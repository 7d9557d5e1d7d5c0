"""A user's own flow files: found by name, and every problem explained."""

from pathlib import Path
from textwrap import dedent

import pytest

from runner.core.flow import Edition
from runner.core.model import SessionKind
from runner.flows.catalog import BUILT_IN, FlowError, check_flow, list_flows, load_flow, load_flow_file

OWN = """
summary = "ours"
[[steps]]
number = 1
name = "Draft"
prompt = "Write it."
artifacts = "_docs/draft.md"
session_boundary = true
question = { title = "Go on?", options = ["Yes", "No"], recommendation = "A", reason = "it is short" }

[[steps]]
number = 2
name = "Publish"
command = "make publish"

[[steps]]
number = 3
name = "Verify"
kind = "verify"
"""


def _own(root: Path, text: str = OWN, name: str = "ours") -> Path:
    path = root / "flows" / f"{name}.toml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(dedent(text))
    return path


def test_a_users_flow_is_found_by_its_file_name(tmp_path: Path) -> None:
    """It suits every dialect unless it says otherwise."""
    path = _own(tmp_path)
    assert check_flow(path) == ()
    flow = load_flow("ours", Edition.RICH, tmp_path)
    assert flow == load_flow_file(path)
    assert flow.edition is Edition.ANY
    assert flow.steps[0].artifacts == ("_docs/draft.md",)
    assert flow.steps[0].boundary_question is not None
    assert flow.steps[1].command == ("sh", "-c", "make publish")
    assert flow.steps[2].kind is SessionKind.VERIFY
    assert [one.name for one in list_flows(tmp_path)] == [*BUILT_IN, "ours"]


def test_a_name_of_the_program_is_not_to_be_had(tmp_path: Path) -> None:
    """Neither replaces the other; who asks for it is told."""
    path = _own(tmp_path, name="quick")
    assert "name of a built-in flow" in str(check_flow(path)[0])
    with pytest.raises(FlowError, match=r"quick\.toml: 'quick' is the name of a built-in flow"):
        load_flow("quick", Edition.ANY, tmp_path)
    assert len(load_flow("greenfield", Edition.AUTODEV, tmp_path).steps) == 11


def test_unknown_flows_and_editions_are_named(tmp_path: Path) -> None:
    """With the nearest name, and what there is."""
    _own(tmp_path)
    with pytest.raises(FlowError, match="unknown flow 'grenfield'") as caught:
        load_flow("grenfield", Edition.AUTODEV, tmp_path)
    assert "did you mean 'greenfield'?" in caught.value.hint
    assert "ours" in caught.value.hint
    with pytest.raises(FlowError, match=r"unknown flow '\.\./ours'"):
        load_flow("../ours", Edition.AUTODEV, tmp_path)
    with pytest.raises(FlowError, match="'meta-repo' has no steps for the edition 'rich'"):
        load_flow("meta-repo", Edition.RICH)


_STEP = "[[steps]]\nnumber = 1\nname = 'n'\n"
_WORK = f"{_STEP}prompt = 'p'\n"

PROBLEMS = [
    ("", "the flow has no steps"),
    ("steps = 3", "'steps' must be a list of tables, each under [[steps]], not 3"),
    ("steps = [1]", "step 1: this is not a table but 1"),
    ("[[steps]]", "step 1: 'number' is missing"),
    ("[[steps]]\nnumber = 1\nname = ''\nprompt = 'p'", "step 1: 'name' is empty"),
    ('[[steps]]\nnumber = 1\nname = "a\\nb"\nprompt = "p"', "step 1 (a b): 'name' is not one plain line"),
    ("[[steps]]\nnumber = 'x1'\nname = 'n'\nprompt = 'p'", "step 1 (n): 'number' 'x1' is not a step number"),
    ("[[steps]]\nnumber = '2a'\nname = 'n'\nprompt = 'p'", "step 2a: only the rich edition"),
    ("[[steps]]\nnumber = 0\nname = 'n'\nprompt = 'p'", "step 0: only the rich edition"),
    ("[[steps]]\nnumber = 1.5\nname = 'n'\nprompt = 'p'", "'number' must be text, or a table"),
    ("[[steps]]\nnumber = { rch = '1' }\nname = 'n'\nprompt = 'p'", "no edition 'rch'. did you mean 'rich'?"),
    ("[[steps]]\nnumber = { rich = '1' }\nname = { pointer = 'n' }\nprompt = 'p'", "'name' has none"),
    (_STEP, "step 1 (n): the step has neither a prompt nor a command"),
    (f"{_WORK}kind = 'verify'", "verify commands: its prompt or command"),
    (f"{_STEP}kind = 'verfy'", """'kind' must be "work" or "verify", not 'verfy'"""),
    (f"{_STEP}command = []", "'command' must be a shell command"),
    (f"{_WORK}boundary = true", "unknown key 'boundary'"),
    (f"{_WORK}artifacts = ['/etc/x']", "is absolute"),
    (f"{_WORK}artifacts = ['_docs/../../x']", "has the component '..'"),
    (f"{_WORK}artifacts = ['_docs/[a']", "unclosed '['"),
    (f"{_WORK}artifacts = ['!x']", "negated"),
    (f"{_WORK}artifacts = ['.git/x']", "git's own folder"),
    (f"{_WORK}artifacts = ['']", "'artifacts' is empty"),
    (f'{_STEP}prompt = "\\u0000"', "holds a NUL character"),
    (f"{_WORK}session_boundary = true", "the last step, n, has a session boundary"),
    (f"name = 'other'\n{_WORK}", "the flow is called 'other', but its file"),
    (f"[loop]\nfrom = '9'\nto = '8'\n{_WORK}", "starts from step '9'"),
    (f"[loop]\nfrom = '1'\nto = '8'\n{_WORK}", "leads to step '8'"),
    (f"[loop]\nfrm = '1'\nto = '1'\n{_WORK}", "loop: unknown key 'frm'"),
    (f"[[detect]]\nevry = 'x'\n{_WORK}", "rule 1: unknown key 'evry'"),
    ("not toml", "not valid TOML"),
]


@pytest.mark.parametrize(("text", "words"), PROBLEMS)
def test_each_problem_is_explained(tmp_path: Path, text: str, words: str) -> None:
    """Where, what, and what to do."""
    problems = check_flow(_own(tmp_path, text))
    assert any(words in str(problem) for problem in problems), problems
    assert all(problem.hint for problem in problems)


def test_every_problem_is_told_not_only_the_first(tmp_path: Path) -> None:
    """A broken step does not hide the others, nor an unknown key at the top what stands below."""
    path = _own(
        tmp_path,
        """
        sumary = "x"
        [[steps]]
        number = 3
        name = "A"
        prompt = "p"
        artifacts = ["../x", "a//b"]
        [[steps]]
        number = 2
        name = "B"
        prompt = "p"
        [[steps]]
        number = 2
        name = "C"
        promt = "p"
        [[steps]]
        number = 2
        name = "D"
        prompt = "p"
        question = { title = "?", options = ["x"], recommendation = "A", reason = "r", why = 1 }
        [[steps]]
        number = 1
        name = "E"
        prompt = "p"
        question = { title = "?", options = ["x"], recommendation = "A", reason = "r" }
        [[steps]]
        number = 2
        name = "F"
        prompt = "p"
        """,
    )
    told = [str(problem) for problem in check_flow(path)]
    for words in (
        "unknown key 'sumary'",
        "step 1 (A): 'artifacts' cannot be used: the glob '../x'",
        "step 1 (A): 'artifacts' cannot be used: the glob 'a//b'",
        "step 3 (C): unknown key 'promt'",
        "step 4 (D): unknown key 'question.why'",
        "step 5 (E): the step has a question, but no session boundary",
        "step 5 (E): 'question': a question has 2 to 4 options, not 1",
        "step 1 comes after step 2",
        "the number 2 is used 2 times",
    ):
        assert any(words in line for line in told), (words, told)
    hints = [problem.hint for problem in check_flow(path)]
    assert "did you mean 'summary'?" in hints
    assert "did you mean 'prompt'?" in hints
    with pytest.raises(FlowError, match="unknown key 'sumary'") as caught:
        load_flow_file(path)
    assert f"shows {len(told) - 1} more" in caught.value.hint


def test_one_numbering_must_serve_the_whole_flow(tmp_path: Path) -> None:
    """A step of any edition beside steps of one edition has no place in either."""
    text = "[[steps]]\nnumber = 1\nname = 'a'\nprompt = 'p'\n"
    text += "[[steps]]\nnumber = { rich = '2' }\nname = 'b'\nprompt = 'p'\n"
    assert any("others a table" in str(problem) for problem in check_flow(_own(tmp_path, text)))


def test_a_file_name_that_cannot_name_a_flow_is_told(tmp_path: Path) -> None:
    """It stands in tables, state files and branch names."""
    assert "is not a valid flow name" in str(check_flow(_own(tmp_path, name="My Flow"))[0])
    with pytest.raises(FlowError, match="cannot be read"):
        check_flow(tmp_path / "nowhere.toml")


def test_the_documented_example_can_be_used(tmp_path: Path) -> None:
    """What the how-to shows passes the check that it tells of."""
    guide = Path(__file__).parents[2] / "docs/how-to/write-a-flow.md"
    example = guide.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    assert check_flow(_own(tmp_path, example, name="release-notes")) == ()
