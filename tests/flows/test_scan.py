"""What real folders say: which step a workspace is at, which flow suits it, what a skill says of itself."""

from pathlib import Path

import pytest

from runner.core.flow import AGREED, CORRECTED, PROJECT_DOCS, Edition, Flow, cross_check, in_place, locate
from runner.flows.catalog import load_flow
from runner.flows.scan import detect_flow, is_there, scan
from runner.flows.skill_state import SkillState, compare, read_skill_state

EDITIONS = [
    ("greenfield", Edition.RICH),
    ("greenfield", Edition.POINTER),
    ("greenfield", Edition.AUTODEV),
    ("existing-code", Edition.RICH),
    ("existing-code", Edition.POINTER),
    ("existing-code", Edition.AUTODEV),
    ("meta-repo", Edition.AUTODEV),
]


def _write(root: Path, *files: str) -> None:
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("something\n")


def placed_flow(name: str, edition: Edition) -> Flow:
    """Return a built-in flow whose documents are the project's."""
    return in_place(load_flow(name, edition), PROJECT_DOCS, "a")


def _number(workspace: Path, flow: Flow, *, cycle: int = 1) -> str | None:
    step = scan(workspace, flow, cycle=cycle).step
    return None if step is None else step.number


@pytest.mark.parametrize(("name", "edition"), EDITIONS)
def test_a_workspace_walks_through_its_flow_file_by_file(tmp_path: Path, name: str, edition: Edition) -> None:
    """After each step's artifacts the folders tell the next step, and at the end that all is done."""
    flow = placed_flow(name, edition)
    for step in flow.steps:
        assert _number(tmp_path, flow) == step.number
        for artifact in step.artifacts:
            glob, _, line = artifact.replace("{cycle}", "1").partition(" :: ")
            path = tmp_path / glob.replace("*", "01")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{line or 'done'}\n")
    assert _number(tmp_path, flow) is None


def test_folders_win_over_the_state_file(tmp_path: Path) -> None:
    """Acceptance 50: the file says Plan, but its architecture is written, so the story is past Plan."""
    flow = placed_flow("greenfield", Edition.RICH)
    _write(tmp_path, "_docs/00_problem/problem.md", "_docs/00_problem/acceptance_criteria.md")
    _write(tmp_path, "_docs/01_solution/solution.md")
    assert (
        locate(flow, scan(tmp_path, flow), recorded_step="2", recorded_status="in_progress").confidence
        == AGREED
    )
    _write(tmp_path, "_docs/02_document/architecture.md")
    detected = scan(tmp_path, flow)
    correction = cross_check(flow, "2", "in_progress", detected)
    assert correction is not None
    assert correction.step is not None
    assert correction.step.number == "2a"
    assert "_docs/02_document/ui_design.md missing" in correction.words
    assert locate(flow, detected, recorded_step="2").confidence == CORRECTED


def test_a_second_cycle_starts_over_at_new_task(tmp_path: Path) -> None:
    """Acceptance 57: what the first cycle wrote does not count for the second."""
    flow = placed_flow("existing-code", Edition.AUTODEV)
    for step in flow.steps:
        _write(tmp_path, *(name.replace("{cycle}", "1").replace("*", "x_y") for name in step.artifacts))
    assert _number(tmp_path, flow) is None
    assert _number(tmp_path, flow, cycle=2) == "9"
    _write(tmp_path, "_docs/02_tasks/cycle2/01_search.md", "_docs/02_tasks/cycle2/dependencies.md")
    assert _number(tmp_path, flow, cycle=2) == "10"
    _write(tmp_path, "_docs/03_implementation/implementation_report_search_cycle2.md")
    assert _number(tmp_path, flow, cycle=2) == "11"


def test_empty_files_and_folders_prove_nothing(tmp_path: Path) -> None:
    """Only a file with something in it is an artifact."""
    (tmp_path / "_docs/a.md").parent.mkdir()
    (tmp_path / "_docs/a.md").touch()
    (tmp_path / "_docs/sub").mkdir()
    (tmp_path / "_docs/gone.md").symlink_to("nowhere")
    for artifact in ("_docs/a.md", "_docs/*.md", "_docs/", "_docs/sub/", "_docs/**", "_docs/gone.md"):
        assert not is_there(tmp_path, artifact)
    (tmp_path / "_docs/sub/b.md").write_text("x")
    assert is_there(tmp_path, "_docs/")
    assert is_there(tmp_path, "_docs/sub/")
    assert is_there(tmp_path, "_docs/**")
    assert not is_there(tmp_path, "_docs/*.md")
    assert not is_there(tmp_path, "_docs/sub")


def test_an_artifact_may_ask_for_a_line(tmp_path: Path) -> None:
    """The flag of the reviewed file, not the file, ends the review."""
    flow = placed_flow("meta-repo", Edition.AUTODEV)
    config = tmp_path / "_docs/_repo-config.yaml"
    config.parent.mkdir()
    config.write_text("confirmed_by_user: false\n# confirmed_by_user: true when reviewed\n")
    assert _number(tmp_path, flow) == "2"
    config.write_bytes(b"\xff\r\n  confirmed_by_user: true\r\n")
    assert _number(tmp_path, flow) == "3"


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ((), "greenfield"),
        (("README.md", "stories/001.md"), "greenfield"),
        (("services/api/main.py",), "existing-code"),
        (("node_modules/x/index.js", "packages/a/node_modules/y.js", ".tool/x.py"), "greenfield"),
        (("main.go", "_docs/00_problem/problem.md"), "greenfield"),
        (("main.go", "_docs/00_problem/problem.md", "_docs/06_metrics/retrospective.md"), "existing-code"),
        (("_docs/02_document/state.json",), "existing-code"),
        ((".gitmodules",), "meta-repo"),
        ((".gitmodules", "docs/setup.py"), "meta-repo"),
        ((".gitmodules", "pyproject.toml", "app.py"), "existing-code"),
        ((".gitmodules", "app.sln", "app.cs"), "existing-code"),
        (("_docs/_repo-config.yaml", "main.py"), "meta-repo"),
    ],
)
def test_the_first_flow_that_matches_wins(tmp_path: Path, files: tuple[str, ...], found: str) -> None:
    """Meta-repository, then existing code, then new."""
    _write(tmp_path, *files)
    assert detect_flow(tmp_path) == found


def test_detection_follows_the_edition(tmp_path: Path) -> None:
    """The older dialects know no meta-repository, and end greenfield with Deploy."""
    _write(tmp_path, "_docs/_repo-config.yaml")
    assert detect_flow(tmp_path, Edition.POINTER) == "greenfield"
    assert detect_flow(tmp_path, Edition.ANY) == "meta-repo"
    _write(tmp_path, "_docs/00_problem/problem.md", "_docs/07_deploy/deploy_report.md")
    assert detect_flow(tmp_path, Edition.RICH) == "existing-code"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"current_step": 4}', SkillState(number="4")),
        ('{"current_step": "4 — Verification", "modules": []}', SkillState(number="4", name="Verification")),
        ('{"phase": 7, "name": "batch-loop"}', SkillState(number="7", name="batch-loop")),
        ('{"progress": {"step": "1b", "step_name": "Cases"}}', SkillState(number="1b", name="Cases")),
        ('{"current_phase": {"name": "verification"}}', SkillState(name="verification")),
        ('{"step": true}', SkillState(problem="state.json names neither a step nor a phase")),
        ("[]", SkillState(problem="state.json holds an empty list, not a table")),
    ],
)
def test_a_skills_own_state_is_read_as_far_as_it_goes(
    tmp_path: Path, text: str, expected: SkillState
) -> None:
    """Formats differ; a number and a name are what most have."""
    path = tmp_path / "state.json"
    path.write_text(text)
    assert read_skill_state(path) == expected


def test_a_skills_state_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    """Nothing is guessed, and nothing fails."""
    assert read_skill_state(tmp_path / "state.json") is None
    (tmp_path / "state.json").write_text("{")
    state = read_skill_state(tmp_path / "state.json")
    assert state is not None
    assert "not valid JSON" in state.problem
    assert not compare(state, "4").consistent
    folder = read_skill_state(tmp_path)
    assert folder is not None
    assert "cannot be read" in folder.problem


@pytest.mark.parametrize(
    ("state", "sub_step", "consistent"),
    [
        (None, "4 — Verification", True),
        (SkillState(number="4"), "4 — Verification", True),
        (SkillState(number="4", name="Verification"), "4 verification", True),
        (SkillState(name="Architecture Review"), "4 architecture-review", True),
        (SkillState(number="5"), "4 — Verification", False),
        (SkillState(number="4", name="Review"), "4 — Verification", False),
        (SkillState(number="1"), "1b — Test Case Generation", False),
        (SkillState(number="4"), "", False),
        (SkillState(number="4"), "0", False),
    ],
)
def test_a_skills_state_is_compared_with_the_sub_step(
    state: SkillState | None, sub_step: str, *, consistent: bool
) -> None:
    """What both tell must be the same; the words say who said what."""
    result = compare(state, sub_step)
    assert result.consistent is consistent
    assert result.words
