"""What the user asks of a story in a shared tree: its claim in the checkout follows its branch."""

from pathlib import Path

import pytest

from tests.acceptance.flow_stories import AUTODEV, AUTOPILOT, sessions, story
from tests.acceptance.program import commit_stories, run
from tests.conftest import git

pytestmark = pytest.mark.usefixtures("memory")

SHARED = ("--bg-isolation", "none", "--deconflict-paths", "pkg/{id}/**", "--max-stories", "2")
CODE = (
    'case "$AUTOPILOT_STEP" in *Implement) mkdir -p "pkg/$AUTOPILOT_STORY_ID";'
    ' echo made > "pkg/$AUTOPILOT_STORY_ID/new.py"; echo changed > "pkg/$AUTOPILOT_STORY_ID/old.py";; esac;'
    ' "$@"'
)


@pytest.fixture
def tree(repo: Path) -> Path:
    """Return a repository with two packages, and with things of the user's that nobody may touch."""
    for name in "ab":
        (repo / "pkg" / name).mkdir(parents=True)
        (repo / "pkg" / name / "old.py").write_text("before\n")
    (repo / "README.md").write_text("committed\n")
    commit_stories(repo)
    (repo / "README.md").write_text("edited, not staged\n")
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    return repo


def _held(repo: Path, *, but: str) -> dict[str, bytes]:
    """Read what must stay: the index, HEAD, all other refs, and every file outside a story's claim."""
    files = {path.relative_to(repo).as_posix(): path for path in repo.rglob("*") if path.is_file()}
    spared = (f"pkg/{but}/", f"_docs/stories/{but}/", ".git/", ".orchestrator/")
    held = {name: path.read_bytes() for name, path in files.items() if not name.startswith(spared)}
    refs = git(repo, "for-each-ref", "--format=%(refname) %(objectname)").splitlines()
    others = [ref for ref in refs if not ref.startswith(f"refs/heads/autopilot/{but} ")]
    head = [git(repo, "symbolic-ref", "HEAD"), *others]
    return {**held, "index": (repo / ".git/index").read_bytes(), "refs": "\n".join(head).encode()}


def _claim(repo: Path, name: str) -> dict[str, str]:
    """Read the files that a story owns."""
    found = [*(repo / "pkg" / name).rglob("*"), *(repo / "_docs/stories" / name).rglob("*")]
    return {path.relative_to(repo).as_posix(): path.read_text() for path in found if path.is_file()}


def _on_branch(repo: Path, name: str) -> dict[str, str]:
    own = ("--", f"pkg/{name}", f"_docs/stories/{name}")
    names = git(repo, "ls-tree", "-r", "--name-only", f"autopilot/{name}", *own).splitlines()
    return {path: git(repo, "show", f"autopilot/{name}:{path}") for path in names}


@pytest.mark.protocol("003.29")
def test_a_done_and_a_parked_story_return_to_a_step(tree: Path, memory: Path) -> None:
    """Code and documents of the claim are as before the step; the neighbor's and the user's files stay."""
    story(tree, "a", script=CODE)
    story(tree, "b", "ask:Deploy", script=CODE)
    commit_stories(tree)
    ran = run(tree, *SHARED, "--cross-boundaries", "--json")
    assert [one["status"] for one in ran.data["stories"]] == ["done", "parked"], ran.err
    for name in "ab":
        before, tip = _held(tree, but=name), git(tree, "rev-parse", f"autopilot/{name}").strip()
        assert _claim(tree, name)[f"pkg/{name}/old.py"] == "changed\n"
        rolled = run(tree, "rollback", name, "Plan", "--yes", "--json")
        assert rolled.code == 0, rolled.err
        assert git(tree, "rev-parse", f"autopilot/{name}~1").strip() == tip, "history is never rewritten"
        owned = _claim(tree, name)
        assert owned[f"pkg/{name}/old.py"] == "before\n"
        assert f"pkg/{name}/new.py" not in owned
        assert "step: 3\nname: Plan\nstatus: in_progress\n" in owned[f"_docs/stories/{name}/{AUTODEV}"]
        assert owned == _on_branch(tree, name)
        assert _held(tree, but=name) == before
    ended = run(tree, "resume", "--json")
    assert [one["status"] for one in ended.data["stories"]] == ["done", "done"], ended.err
    assert [sessions(memory).count(f"{name}-3 attempt 1") for name in "ab"] == [2, 2]
    assert _claim(tree, "a")["pkg/a/new.py"] == "made\n"
    assert _claim(tree, "a") == _on_branch(tree, "a")


@pytest.mark.protocol("003.29", "003.27", "003.12")
def test_a_changed_file_is_named_and_a_skip_and_an_answer_are_committed(tree: Path) -> None:
    """A file of the claim that differs from the branch stops a rollback; a skip and an answer never do."""
    story(tree, "a", "ask:Research", script=CODE, dialect="rich")
    commit_stories(tree)
    assert run(tree, *SHARED, "--cross-boundaries").code == 5
    mine = tree / "pkg/a/old.py"
    mine.write_text("mine\n")
    tip = git(tree, "rev-parse", "autopilot/a")
    refused = run(tree, "rollback", "a", "Problem", "--yes")
    assert refused.code == 1
    assert "1 uncommitted file: pkg/a/old.py" in refused.err
    assert "git restore --source autopilot/a -- PATH" in refused.err
    assert (mine.read_text(), git(tree, "rev-parse", "autopilot/a")) == ("mine\n", tip)
    assert run(tree, "decide", "a", "A").code == 0
    assert "Which database?" in _on_branch(tree, "a")[f"_docs/stories/a/{AUTOPILOT}"]
    before = _held(tree, but="a")
    skipped = run(tree, "skip", "a", "UI Design", "--yes")
    assert skipped.code == 0, skipped.err
    text = _on_branch(tree, "a")[f"_docs/stories/a/{AUTOPILOT}"]
    assert "| 2a | UI Design | " in text
    assert (tree / "_docs/stories/a" / AUTOPILOT).read_text() == text
    assert _on_branch(tree, "a")["pkg/a/old.py"] == "before\n", "the user's edit is on no branch"
    assert mine.read_text() == "mine\n"
    assert _held(tree, but="a") == before
