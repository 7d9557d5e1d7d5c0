"""`rollback`: a step is taken back in a new commit, with documents, code, state file and journal."""

import sys
from pathlib import Path

import pytest

from isolation.paths import find_repository, journal_path
from tests.acceptance.branches import AUTODEV, IMPLEMENT, PLAN, Branch, after_plan, state
from tests.acceptance.program import commit_stories, run, write_story
from tests.conftest import git
from tests.flows.state.samples import text_of
from tests.records.sample_runs import RUN


@pytest.fixture
def branch(repo: Path) -> Branch:
    """Return a story of `greenfield` that has been through three steps of documents."""
    return after_plan(repo)


def test_documents_are_restored_and_the_state_follows(branch: Branch) -> None:
    """Two steps are taken back in one commit on top; what came before them stays, and so does history."""
    before, first = branch.tip, git(branch.repo, "rev-parse", f"{branch.name}~2").strip()
    main, branches = git(branch.repo, "status", "--porcelain", "-b"), git(branch.repo, "branch", "--all")
    ran = run(branch.repo, "rollback", "a", "Research", "--yes")
    assert ran.code == 0, ran.err
    assert "a is back at step 2 (Research): 2 checkpoints undone" in ran.out
    assert f"next: autopilot-multi resume {RUN}" in ran.out
    assert git(branch.repo, "rev-parse", f"{branch.name}~1").strip() == before
    assert branch.tree() == branch.tree(first)
    assert list(branch.tree()) == ["README.md", "_docs/00_problem/problem.md"]
    text = git(branch.repo, "show", f"{branch.name}:{AUTODEV}")
    for line in ("step: 2", "name: Research", "status: in_progress", "retry_count: 0", "phase: 0"):
        assert line in text
    assert (branch.path / AUTODEV).read_text() == text
    assert not (branch.path / "_docs" / "01_solution").exists()
    assert git(branch.path, "status", "--porcelain") == ""
    assert (git(branch.repo, "status", "--porcelain", "-b"), git(branch.repo, "branch", "--all")) == (
        main,
        branches,
    )


def test_the_commit_says_what_it_took_back(branch: Branch) -> None:
    """Trailers name run, story, step and every checkpoint; the document names them as well."""
    undone = git(branch.repo, "log", "-2", "--format=%H", branch.name).split()
    data = run(branch.repo, "rollback", "a", "2", "--yes", "--json").data
    message = git(branch.repo, "log", "-1", "--format=%B", branch.name)
    assert message.startswith("Roll back step 2 (Research)\n")
    for line in (f"Autopilot-Run: {RUN}", "Autopilot-Story: a", "Autopilot-Rollback: 2 Research"):
        assert line in message.splitlines()
    assert [line for line in message.splitlines() if "Reverts" in line] == [
        f"Autopilot-Reverts: {commit}" for commit in undone
    ]
    assert data["undone"] == undone
    assert data["commit"] == branch.tip
    assert data["restored"] == ["_docs/01_solution", "_docs/02_document"]
    assert data["step"] == {"number": "2", "name": "Research"}


def test_the_journal_follows(branch: Branch) -> None:
    """The story stands at the step with all its attempts, and the answer is recorded."""
    run(branch.repo, "rollback", "a", "Plan", "--yes")
    story = branch.snapshot()
    assert (story.place.number, story.place.name) == ("3", "Plan")
    assert (story.status.value, story.reason) == ("stopped", "step 3 (Plan) was rolled back")
    assert (story.progress.attempt, story.progress.implemented, story.decision) == (1, False, None)
    assert [decision.letter for decision in story.decided] == ["A"]
    assert story.workspace.commit == branch.tip
    assert story.workspace.commits == 4
    shown = run(branch.repo, "status").out
    assert "step 3 (Plan) was rolled back" in shown


def test_documents_that_were_there_before_the_step_are_as_they_were(repo: Path) -> None:
    """In the step's own folder one file was left alone and one rewritten: neither is lost with the step."""
    branch = Branch(repo)
    there = {"_docs/02_document/left.md": "mine\n", "_docs/02_document/rewritten.md": "mine\n"}
    branch.commit(None, there)
    branch.commit(PLAN, {"_docs/02_document/rewritten.md": "the step's\n", "_docs/02_document/new.md": "x\n"})
    assert run(repo, "rollback", "a", "Plan", "--yes").code == 0
    folder = branch.path / "_docs" / "02_document"
    assert {f"_docs/02_document/{path.name}": path.read_text() for path in folder.iterdir()} == there


def test_code_is_reversed_and_other_peoples_commits_stay(branch: Branch) -> None:
    """Implementation is taken back file by file; a commit that no step made is told, and kept."""
    planned = branch.tree()
    branch.commit(IMPLEMENT, {"app.py": "one\n", "_docs/03_implementation/notes.md": "made\n"})
    branch.commit(None, {"app.md": "by a person\n", "_docs/03_implementation/mine.md": "mine\n"})
    branch.commit(IMPLEMENT, {"app.py": "one\ntwo\n", "README.md": "hello app\n", AUTODEV: state("7", "T")})
    ran = run(branch.repo, "rollback", "a", "implement", "--yes")
    assert ran.code == 0, ran.err
    assert "by hand (not made by a step)" in ran.err
    tree = branch.tree()
    assert {path: tree[path] for path in planned} == planned
    assert set(tree) - set(planned) == {"app.md", "_docs/03_implementation/mine.md"}
    assert "step: 6" in git(branch.repo, "show", f"{branch.name}:{AUTODEV}")


def test_one_checkpoint_of_documents_does_not_make_a_step_of_documents(branch: Branch) -> None:
    """The step wrote code later on, so its folder is not restored as a whole: a person's file stays in it."""
    planned = branch.tree()
    branch.commit(IMPLEMENT, {"_docs/03_implementation/notes.md": "made\n"})
    branch.commit(None, {"_docs/03_implementation/mine.md": "mine\n"})
    branch.commit(IMPLEMENT, {"app.py": "one\n"})
    assert run(branch.repo, "rollback", "a", "implement", "--yes").code == 0
    assert set(branch.tree()) - set(planned) == {"_docs/03_implementation/mine.md"}


def test_an_early_step_takes_documents_and_code_along(branch: Branch) -> None:
    """Rolling back the plan also reverses what was implemented after it."""
    researched = branch.tree(f"{branch.name}~1")
    branch.commit(IMPLEMENT, {"app.py": "one\n", "_docs/02_document/architecture.md": "boxes, corrected\n"})
    branch.commit("7 Run Tests", {"_docs/03_implementation/test_report.md": "green\n"})
    branch.commit("done Done", {AUTODEV: state("done", "Done")})
    data = run(branch.repo, "rollback", "a", "3", "--yes", "--json").data
    assert branch.tree() == researched
    assert (len(data["undone"]), data["kept"]) == (4, [])


@pytest.mark.parametrize("kept_worktree", [True, False])
def test_every_kind_of_change_is_reversed(repo: Path, kept_worktree: bool) -> None:  # noqa: FBT001  a parameter
    """Binary files, modes, links, removals, renames and odd names; also when the worktree is gone."""
    branch = Branch(repo, flow="quick")
    branch.commit(None, {"old name.txt": "x\n", "run.sh": "#!/bin/sh\n", "gone.txt": "here\n"})
    before = branch.tree()
    (branch.path / "bin").write_bytes(bytes(range(256)) * 9)
    (branch.path / "ü\tx").write_text("odd\n")
    (branch.path / "link").symlink_to("README.md")
    (branch.path / "run.sh").chmod(0o755)
    git(branch.path, "mv", "old name.txt", "new name.txt")
    branch.commit("1 Implement", {"gone.txt": None, "crlf.txt": "a\r\nb\r\n", "no-newline": "x"})
    branch.commit("1 Implement", {"crlf.txt": "a\r\nc\r\n", "README.md": "other\n"})
    if not kept_worktree:
        git(repo, "worktree", "remove", str(branch.path))
    ran = run(repo, "rollback", "a", "1", "--yes")
    assert ran.code == 0, ran.err
    assert branch.tree() == before
    assert branch.path.exists() == kept_worktree
    assert git(repo, "worktree", "list").count("\n") == 1 + kept_worktree


def test_what_was_changed_since_is_not_guessed_at(branch: Branch) -> None:
    """A person built on the step's lines: the file is named, and everything stays as it is."""
    branch.commit(IMPLEMENT, {"app.py": "one\n", "other.py": "x\n"})
    tip = branch.commit(None, {"app.py": "one, mended by hand\n"})
    ran = run(branch.repo, "rollback", "a", "Implement", "--yes")
    assert ran.code == 1
    assert "cannot be reverted: app.py changed since" in ran.err
    assert branch.tip == tip
    assert git(branch.path, "status", "--porcelain") == ""
    leftover = list((branch.repo / ".git" / "autopilot").glob("rollback-*"))
    assert leftover == []


def test_a_change_beside_the_steps_own_lines_survives(branch: Branch) -> None:
    """Lines that a person added elsewhere in the same file are joined, as git revert does."""
    lines = [f"line {number}\n" for number in range(20)]
    branch.commit(None, {"app.py": "".join(lines)})
    branch.commit(IMPLEMENT, {"app.py": "".join(["by the step\n", *lines])})
    lines[2] = "by a person\n"  # within what a patch looks at to find its place
    branch.commit(None, {"app.py": "".join(["by the step\n", *lines])})
    assert run(branch.repo, "rollback", "a", "Implement", "--yes").code == 0
    assert (branch.path / "app.py").read_text() == "".join(lines)


def test_a_step_can_be_rolled_back_again_after_it_was_done_anew(branch: Branch) -> None:
    """What an earlier rollback took back is not taken back twice; a repeat finds nothing left to do."""
    researched = branch.tree(f"{branch.name}~1")
    assert run(branch.repo, "rollback", "a", "Plan", "--yes").code == 0
    once = branch.tip
    again = run(branch.repo, "rollback", "a", "Plan", "--yes")
    assert again.code == 0
    assert branch.tip == once
    branch.commit(PLAN, {"_docs/02_document/architecture.md": "better boxes\n"})
    data = run(branch.repo, "rollback", "a", "Plan", "--yes", "--json").data
    assert len(data["undone"]) == 1
    assert branch.tree() == researched
    data = run(branch.repo, "rollback", "a", "Problem", "--yes", "--json").data
    assert len(data["undone"]) == 2
    assert list(branch.tree()) == ["README.md"]


def test_a_rollback_that_was_killed_before_the_journal_heard_of_it_is_completed(branch: Branch) -> None:
    """The commit is there, the journal is old: the same command once more tells it."""
    journal = journal_path(find_repository(branch.repo).common_dir)
    old = {path: path.read_bytes() for path in journal.parent.glob("journal.db*")}
    run(branch.repo, "rollback", "a", "Plan", "--yes")
    tip = branch.tip
    for path in journal.parent.glob("journal.db*"):
        path.unlink()
    for path, data in old.items():
        path.write_bytes(data)
    assert branch.snapshot().place.name != "Plan"
    assert run(branch.repo, "rollback", "a", "Plan", "--yes").code == 0
    assert branch.tip == tip
    assert branch.snapshot().place.name == "Plan"


def test_only_the_last_cycle_is_taken_back(repo: Path) -> None:
    """In the second cycle of existing code, the first one's features stay."""
    branch = Branch(repo, flow="existing-code")
    for cycle in (1, 2):
        tasks = f"_docs/02_tasks/cycle{cycle}"
        text = text_of("autodev-implement").replace("cycle: 3", f"cycle: {cycle}")
        branch.commit("9 New Task", {f"{tasks}/1_x.md": "task\n", AUTODEV: text})
        branch.commit("10 Implement", {f"feature{cycle}.py": "x\n"})
    data = run(repo, "rollback", "a", "New Task", "--yes", "--json").data
    assert data["restored"] == ["_docs/02_tasks/cycle2"]
    assert list(branch.tree()) == ["README.md", "_docs/02_tasks/cycle1/1_x.md", "feature1.py"]
    assert "cycle: 2" in (branch.path / AUTODEV).read_text()


def test_a_rich_file_forgets_what_was_completed(repo: Path) -> None:
    """The step and all later ones leave Completed Steps; their dates are gone, the rest of the file stays."""
    branch = Branch(repo)
    path = "_docs/_autopilot_state.md"
    text = text_of("rich-plan")
    rows = "| 2 | Plan | 2026-04-20 | six components |\n| 3 | Decompose | 2026-04-21 | ten tasks |\n"
    at = text.index("\n| 1 ") + 1
    end = text.index("\n", at) + 1
    branch.commit("1 Research", {"_docs/01_solution/solution.md": "x\n"})
    branch.commit("2 Plan", {"_docs/02_document/architecture.md": "x\n"})
    branch.commit("3 Decompose", {"_docs/02_tasks/1_a.md": "x\n", path: text[:end] + rows + text[end:]})
    ran = run(repo, "rollback", "a", "Plan", "--yes")
    assert ran.code == 0, ran.err
    after = (branch.path / path).read_text()
    assert "six components" not in after
    assert "ten tasks" not in after
    assert text[at:end] in after
    assert git(branch.path, "status", "--porcelain") == ""


def test_a_state_file_that_git_ignores_follows_on_disk(branch: Branch) -> None:
    """Kept out of the commits, it still says where the story is."""
    git(branch.path, "rm", "-q", "--cached", AUTODEV)
    branch.commit(None, {".gitignore": f"/{AUTODEV}\n"})
    tip = branch.tip
    ran = run(branch.repo, "rollback", "a", "Plan", "--yes")
    assert ran.code == 0, ran.err
    assert "step: 3" in (branch.path / AUTODEV).read_text()
    assert AUTODEV not in git(branch.repo, "diff", "--name-only", tip, branch.name)


def test_an_unreadable_state_file_is_left_alone(branch: Branch) -> None:
    """Nobody guesses what it meant, and no copy makes the worktree dirty."""
    tip = branch.commit(None, {AUTODEV: "# nothing\n"})
    ran = run(branch.repo, "rollback", "a", "Plan", "--yes")
    assert ran.code == 1
    assert "cannot be read" in ran.err
    assert branch.tip == tip
    assert git(branch.path, "status", "--porcelain") == ""


def test_another_storys_commits_are_not_ours(branch: Branch) -> None:
    """A dependency's checkpoints on the same branch carry another name, and stay."""
    branch.commit(PLAN, {"_docs/02_document/other.md": "x\n", "lib.py": "x\n"}, story="b")
    assert run(branch.repo, "rollback", "a", "Plan", "--yes").code == 0
    assert "lib.py" in branch.tree()


def test_a_rolled_back_story_is_done_again_by_resume(repo: Path) -> None:
    """A real run, its step taken back, and a resume: the step runs once more and the story is done."""
    write_story(repo, "a", command=f"{sys.executable} -c \"open('n.txt', 'a').write('x')\"; date >> d.txt")
    commit_stories(repo)
    assert run(repo).code == 0
    first = git(repo, "rev-parse", "autopilot/a")
    rolled = run(repo, "rollback", "a", "Implement", "--yes", "--json").data
    assert git(repo, "ls-tree", "--name-only", "autopilot/a", "n.txt") == ""
    ran = run(repo, "resume", rolled["run_id"], "--json")
    assert ran.code == 0, ran.err
    assert ran.story("a")["status"] == "done"
    assert git(repo, "show", "autopilot/a:n.txt") == "x"
    assert git(repo, "merge-base", "--is-ancestor", first.strip(), "autopilot/a") == ""
    assert git(repo, "rev-list", "--count", "main..autopilot/a").strip() == "3"
