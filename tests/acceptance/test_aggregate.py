"""`aggregate`: state files found anywhere, of all dialects, in one table and one document."""

import os
from pathlib import Path

import pytest

from tests.acceptance.program import run
from tests.conftest import git
from tests.flows.state.samples import text_of

AUTODEV, AUTOPILOT = "_autodev_state.md", "_autopilot_state.md"


def put(folder: Path, sample: str, name: str = AUTOPILOT) -> Path:
    """Put a sample file into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(text_of(sample).encode())
    return path


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """Return a folder that holds files of three dialects, each where its story would put it."""
    root = tmp_path / "collected"
    put(root / "shop" / "_docs", "rich-failed")
    put(root / "api" / "_docs", "autodev-implement", AUTODEV)
    put(root / "tree" / "_docs" / "stories" / "checkout-17", "pointer-plan")
    put(root / "shop" / ".git" / "_docs", "pointer-failed")
    put(root / "shop" / "node_modules" / "x" / "_docs", "pointer-failed")
    return root


def test_60_three_dialects_are_one_table(found: Path, tmp_path: Path) -> None:
    """Acceptance 60: all stories in one table, what needs a person first; no repository is needed."""
    ran = run(tmp_path, "aggregate", str(found))
    assert ran.code == 0, ran.err
    head, table = ran.out.split("\n\n")
    assert head.startswith("blocker: shop: Step 2b (Blackbox Test Spec) failed")
    tried = "attempt 4 at step 2b, sub-step 1b — Test Case Generation, failed: no test cases"
    assert f"retry: shop: {tried}" in head
    rows = {line.split()[0]: line for line in table.splitlines()}
    assert list(rows) == ["STORY", "api", "shop", "checkout-17"]
    assert "autodev" in rows["api"]
    assert "existing-code (cycle 3)" in rows["api"]
    assert "10 Implement" in rows["api"]
    assert "rich" in rows["shop"]
    assert "pointer" in rows["checkout-17"]


def test_60_three_dialects_are_one_document(found: Path, tmp_path: Path) -> None:
    """Acceptance 60: one JSON document with all of them, the same keys for every dialect, all counted."""
    ran = run(tmp_path, "aggregate", str(found), "--json")
    states = {state["story"]: state for state in ran.data["states"]}
    assert {name: state["dialect"] for name, state in states.items()} == {
        "api": "autodev",
        "shop": "rich",
        "checkout-17": "pointer",
    }
    assert len({frozenset(state) for state in states.values()}) == 1
    assert states["shop"]["blockers"]
    assert ran.data["counts"] == {
        "total": 3,
        "not_started": 0,
        "in_progress": 2,
        "completed": 0,
        "skipped": 0,
        "failed": 1,
        "unreadable": 0,
    }
    assert ran.document["success"] is True


def test_a_file_that_cannot_be_read_does_not_hide_the_others(found: Path, tmp_path: Path) -> None:
    """It is listed with its problem after all others, its bytes stay, and the exit code is 1."""
    broken = found / "api" / "_docs" / AUTODEV
    broken.write_bytes(b"# nothing\n")
    before = sorted(path for path in found.rglob("*"))
    ran = run(tmp_path, "aggregate", str(found), str(tmp_path / "missing.md"))
    assert ran.code == 1
    lines = ran.out.splitlines()
    assert lines[-2].startswith(f"unreadable: {broken}: ")
    assert lines[-1].startswith(f"unreadable: {tmp_path / 'missing.md'}: cannot be read")
    assert any(line.startswith("checkout-17") for line in lines)
    assert sorted(path for path in found.rglob("*")) == before
    ran = run(tmp_path, "aggregate", str(found), "--json")
    assert ran.code == 1
    assert ran.document["success"] is False
    assert ran.data["counts"]["unreadable"] == 1
    assert [state["story"] for state in ran.data["states"] if "problem" in state] == ["api"]


def test_files_and_folders_may_be_named_twice(found: Path, tmp_path: Path) -> None:
    """One file is one row, however it was reached; a file may have any name."""
    own = put(tmp_path, "autodev-plan", "monday.md")
    (tmp_path / "link.md").symlink_to(own)
    ran = run(tmp_path, "aggregate", "monday.md", "link.md", str(found), str(found / "api"), "--json")
    assert [state["story"] for state in ran.data["states"]] == ["monday", "api", "shop", "checkout-17"]


def test_a_link_to_a_folder_is_not_followed(found: Path, tmp_path: Path) -> None:
    """A loop of links is no endless search."""
    (found / "shop" / "loop").symlink_to(found)
    assert run(tmp_path, "aggregate", str(found), "--json").data["counts"]["total"] == 3


def test_a_named_folder_without_files_is_told(tmp_path: Path) -> None:
    """Whoever names a folder expects something in it."""
    (tmp_path / "empty").mkdir()
    ran = run(tmp_path, "aggregate", "empty")
    assert ran.code == 1
    assert ran.out == "unreadable: empty: folder contains no state file\n"


def test_without_a_path_the_worktrees_and_the_checkout(repo: Path) -> None:
    """The stories' worktrees and the checkout itself, also from below its top; nothing else nearby."""
    root = repo.parent / f"{repo.name}.worktrees"
    for story, sample, name in (("a", "rich-plan", AUTOPILOT), ("b", "autodev-plan", AUTODEV)):
        git(repo, "worktree", "add", "-q", "-b", f"autopilot/{story}", str(root / story))
        put(root / story / "_docs", sample, name)
    put(repo / "_docs" / "stories" / "c", "pointer-plan")
    put(repo / "elsewhere", "pointer-plan")
    put(root / ".trash" / "old" / "_docs", "pointer-plan")
    (repo / "deep").mkdir()
    ran = run(repo / "deep", "aggregate", "--json")
    assert ran.code == 0, ran.out
    assert [state["story"] for state in ran.data["states"]] == ["a", "b", "c"]


def test_a_repository_without_state_files_is_no_error(repo: Path, tmp_path: Path) -> None:
    """There is nothing to join, and that is said; without a repository a path is needed."""
    ran = run(repo, "aggregate")
    assert (ran.code, ran.out) == (0, "no state files\n")
    assert run(repo, "aggregate", "--json").data["states"] == []
    outside = run(tmp_path, "aggregate")
    assert outside.code == 1
    assert "is not in a git repository" in outside.err


def test_flows_of_the_user_are_understood(repo: Path) -> None:
    """A state file may stand at a step of a flow that the repository defines itself."""
    (repo / "flows").mkdir()
    (repo / "flows" / "release.toml").write_text('[[steps]]\nnumber = "1"\nname = "Tag"\nprompt = "tag"\n')
    text = text_of("autodev-plan").replace("greenfield", "release").replace("step: 3", "step: 1")
    path = put(repo / "_docs", "autodev-plan", AUTODEV)
    path.write_text(text.replace("name: Plan", "name: Tag", 1))
    ran = run(repo, "aggregate", "--json")
    assert ran.data["states"][0]["flow"] == "release", ran.out


def test_what_files_hold_cannot_command_a_terminal(tmp_path: Path) -> None:
    """Escapes in a blocker or in a folder's name are shown harmless."""
    path = put(tmp_path / "a\x1b[31mb" / "_docs", "rich-failed")
    path.write_text(path.read_text().replace("no test cases", "no \x1b]0;owned\x07 cases"))
    ran = run(tmp_path, "aggregate", os.fspath(tmp_path / "a\x1b[31mb"))
    assert "\x1b" not in ran.out
    assert "\x07" not in ran.out
