"""What a finished step has left, read in the words that agents use."""

from pathlib import Path

import pytest

from runner.flows.boundary_summary import Produced, read_produced, ready_notes

ARTIFACTS = ("_docs/02_tasks/*_*.md", "_docs/02_tasks/dependencies.md")


def decomposed(tmp_path: Path, *tasks: str, order: str = "") -> Produced:
    """Write task files and their order, and read them."""
    folder = tmp_path / "_docs/02_tasks"
    folder.mkdir(parents=True)
    for number, text in enumerate(tasks, 1):
        (folder / f"{number:02}_task.md").write_text(text)
    (folder / "dependencies.md").write_text(order or "one after the other\n")
    return read_produced(tmp_path, ARTIFACTS)


@pytest.mark.parametrize(
    "line",
    [
        "Complexity: 3",
        "complexity points: 3",
        "**Complexity**: 3 points",
        "- **Complexity points:** 3",
        "| Complexity | 3 |",
        "| **Complexity** (points) | 3 |",
        "complexity = 3",
        "Estimated complexity: ~3",
        "## Complexity points\n\n3 points",
        "### Complexity: 3",
        "Story points: 3",
        "Points: 3",
        "> Complexity — points: 3",
    ],
)
def test_points_are_read_in_many_forms(tmp_path: Path, line: str) -> None:
    """Each line says 3, whatever it looks like; a task that says nothing is counted as such."""
    found = decomposed(tmp_path, f"# Task\n\nGoal: 7 things\n{line}\n\nDepends on: 01\n", "# Task\nGoal: x\n")
    assert (found.points, found.without_points) == (3, 1)
    assert "Complexity points: 3 (1 task without)" in found.lines


@pytest.mark.parametrize(
    ("order", "batches"),
    [
        ("# Order\n\n## Batch 1\n- 01\n\n## Batch 2\n- 02, 03\n", 2),
        ("01 in batch 1; 02 and 03 in batch 2; 04 in batch 2\n", 2),
        ("| Batch | Tasks |\n| Batch 1 | 01 |\n| Batch 2 | 02 |\n| Batch 3 | 03 |\n", 3),
        ("### Batch A\n01\n### Batch B\n02\n", 2),
        ("Batches: 5\n\nBatch 1: 01\n", 5),
        ("- **Estimated batches**: ~4\n", 4),
        ("Put the batch into the queue. A batch of files is no batch of ours.\n", 0),
    ],
)
def test_batches_are_counted_in_the_order(tmp_path: Path, order: str, batches: int) -> None:
    """Headings, running text, a table or a total; without any, four tasks make one, and it says so."""
    found = decomposed(tmp_path, *["Complexity: 1.5\n"] * 5, order=order)
    assert (found.batches, found.estimated) == ((batches, False) if batches else (2, True))
    shown = str(batches) if batches else "about 2 (the order names none; 4 tasks each)"
    assert found.lines == ("Tasks: 5", f"Estimated batches: {shown}", "Complexity points: 7.5")


def test_points_may_be_in_the_order_alone(tmp_path: Path) -> None:
    """A column of its table, without the row of the total; or the total itself; or nothing anywhere."""
    table = "| Task | Points |\n|---|---|\n| 01 | 3 |\n| 02 | **5** |\n| Total | 8 |\n\n| a |\n| 1 |\n"
    assert decomposed(tmp_path / "table", "x\n", "x\n", order=table).points == 8
    total = decomposed(tmp_path / "total", "x\n", order="Total complexity points: 13\n")
    assert total.lines[-1] == "Complexity points: 13"
    nothing = decomposed(tmp_path / "nothing", "x\n")
    assert nothing.lines[-1] == "Complexity points: none given"
    assert nothing.words == "1 task, about 1 batch, no complexity points"


def test_other_steps_name_their_documents(tmp_path: Path) -> None:
    """What decomposes nothing lists its files; a step without files shows nothing."""
    for name in "abcdefg":
        (tmp_path / f"{name}.md").write_text("x\n")
    assert read_produced(tmp_path, ["*.md :: x"]).lines == (
        "Produced: a.md, b.md, c.md, d.md, e.md and 2 more",
    )
    assert read_produced(tmp_path, ["*.yaml"]).lines == ()


def test_a_boundary_notes_what_is_complete_and_ready() -> None:
    """The next session finds it in the state file."""
    produced = Produced(tasks=2, batches=1, points=8)
    notes = ready_notes("Decompose", "Implement", produced)
    assert notes == "Decompose complete, implementation ready: 2 tasks, 1 batch, 8 complexity points"
    assert ready_notes("Config Review", "Status", Produced()) == "Config Review complete, status ready"
