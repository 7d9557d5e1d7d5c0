"""Forecasts against real merges: nothing is missed, nothing is invented, and little is asked."""

import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from isolation.git.forecast.forecaster import Forecaster
from isolation.git.forecast.merge_tree import merge_tree
from isolation.git.forecast.scratch import scratch
from isolation.git.repository import Repository
from tests.conftest import git
from tests.isolation.git.forecast.random_branches import make_branches, pairs_of, really_conflict

BASE = {"a.txt": "1\n2\n3\n", "d/x": "x\n" * 9, "d/y": "y\n" * 9, "d/z": "z\n" * 9, "own": "own\n"}


@pytest.fixture
def project(repo: Path) -> Path:
    """Return a repository with a few files on main."""
    for name, text in BASE.items():
        (repo / name).parent.mkdir(exist_ok=True)
        (repo / name).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "base")
    return repo


def branch(repo: Path, name: str, *commands: tuple[str, ...], files: dict[str, str] | None = None) -> str:
    """Make a branch with one commit by git commands and written files."""
    git(repo, "switch", "-q", "-c", name, "main")
    for command in commands:
        git(repo, *command)
    for file, text in (files or {}).items():
        (repo / file).parent.mkdir(parents=True, exist_ok=True)
        (repo / file).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", name)
    git(repo, "switch", "-q", "main")
    return git(repo, "rev-parse", name).strip()


def clashes(repo: Path, *tips: str, forecaster: Forecaster | None = None) -> dict[tuple[str, str], set[str]]:
    """Return the files in conflict of each pair, named by their positions."""
    with scratch(Repository.open(repo)) as place:
        named = {str(number): tip for number, tip in enumerate(tips)}
        found = (forecaster or Forecaster()).clashes(place, named)
    return {pair: set(clash.files) or {clash.reason} for pair, clash in found.items()}


def compare(folder: Path, count: int, seed: int) -> tuple[list[tuple[str, str]], list[tuple[str, str]], int]:
    """Return the missed and the invented conflicts of random pairs, and how many there really are."""
    tips = make_branches(folder / "random", int((2 * count) ** 0.5) + 20, seed)
    pairs = pairs_of(tips, count, seed)
    with scratch(Repository.open(folder / "random")) as place:
        foreseen = {frozenset(pair) for pair in Forecaster().clashes(place, tips)}
    really = list(really_conflict(folder / "random", pairs))
    assert len(really) == count
    judged = list(zip(pairs, really, strict=True))
    missed = [pair for pair, real in judged if real and frozenset(pair) not in foreseen]
    invented = [pair for pair, real in judged if not real and frozenset(pair) in foreseen]
    return missed, invented, sum(really)


def test_a_hundred_random_pairs_are_as_git_merge_finds_them(tmp_path: Path) -> None:
    """With renames of files and folders, files in the place of folders, modes, links and submodules."""
    missed, invented, conflicts = compare(tmp_path, 100, seed=3)
    assert (missed, invented) == ([], [])
    assert conflicts >= 10


@pytest.mark.chaos
def test_two_thousand_random_pairs_are_as_git_merge_finds_them(tmp_path: Path) -> None:
    """Recall 1.0, precision at least 0.99."""
    missed, invented, conflicts = compare(tmp_path, 2_000, seed=7)
    assert missed == []
    assert len(invented) <= 0.01 * conflicts


def test_what_can_meet_is_asked_and_nothing_else(project: Path) -> None:
    """A line in common, a rename and an edit, folders and files; branches apart never cost a merge."""
    forecaster = Forecaster()
    one, two = branch(project, "one", files={"new/1": "1\n"}), branch(project, "two", files={"new/2": "2\n"})
    assert clashes(project, one, two, forecaster=forecaster) == {}
    assert forecaster.asked == 0
    edit = branch(project, "edit", files={"a.txt": "1\nedit\n3\n"})
    other = branch(project, "other", files={"a.txt": "1\nother\n3\n"})
    assert clashes(project, edit, other) == {("0", "1"): {"a.txt"}}
    gone = branch(project, "gone", ("rm", "-q", "a.txt"))
    assert clashes(project, edit, gone) == {("0", "1"): {"a.txt"}}
    renamed = branch(project, "renamed", ("mv", "d", "e"))
    added = branch(project, "added", files={"d/new": "new\n"})
    edited = branch(project, "edited", files={"d/x": "x\n" * 8 + "end\n"})
    found = clashes(project, renamed, added, edited, one)
    assert set(found) == {("0", "1")}, "a file in a renamed folder; an edit follows its file"
    file, folder = (
        branch(project, "file", files={"p": "p\n"}),
        branch(project, "folder", files={"p/q": "q\n"}),
    )
    assert set(clashes(project, file, folder)) == {("0", "1")}


def test_a_folder_renamed_in_two_directions_is_a_conflict_without_a_file(project: Path) -> None:
    """Only git's message says so; for a landing it is a conflict, too."""
    git(project, "switch", "-q", "main")
    for name in "uvwx":
        (project / f"d/{name}2").write_text(f"{name}\n" * 9)
    git(project, "rm", "-q", "d/x", "d/y", "d/z")
    git(project, "add", "-A")
    git(project, "commit", "-q", "-m", "four files")
    moves = [("mv", f"d/{name}2", f"{to}/{name}2") for name, to in zip("uvwx", "eeff", strict=True)]
    for name in "ef":
        (project / name).mkdir()
    split = branch(project, "split", *moves)
    added = branch(project, "added", files={"d/new": "new\n"})
    asked = subprocess.run(
        ["git", "merge-tree", "--write-tree", "--name-only", "--no-messages", split, added],
        cwd=project,
        check=False,
        capture_output=True,
    )
    assert (asked.returncode, len(asked.stdout.split())) == (1, 1), "the case: a tree, and no file"
    assert clashes(project, split, added) == {("0", "1"): {"d"}}
    assert merge_tree(Repository.open(project), split, added)[1] == ("d",)


def test_a_new_commit_costs_its_own_pairs_only(project: Path) -> None:
    """What is known of two commits is never asked again."""
    forecaster = Forecaster()
    tips = [branch(project, f"s{number}", files={"a.txt": f"1\ns{number}\n3\n"}) for number in range(6)]
    assert len(clashes(project, *tips, forecaster=forecaster)) == 15
    assert forecaster.asked == 15
    again = branch(project, "again", files={"a.txt": "1\nagain\n3\n"})
    assert len(clashes(project, *tips[:-1], again, forecaster=forecaster)) == 15
    assert forecaster.asked == 20
    clashes(project, *tips[:-1], again, forecaster=forecaster)
    assert forecaster.asked == 20


def test_branches_on_branches_are_compared_from_where_they_parted(project: Path) -> None:
    """What the older one changed is no conflict for those on it; what they revert may be one."""
    lower = branch(project, "lower", files={"a.txt": "1\nlower\n3\n"})
    git(project, "switch", "-q", "-c", "upper", "lower")
    (project / "a.txt").write_text("1\nupper\n3\n")
    git(project, "commit", "-qam", "upper")
    git(project, "switch", "-q", "-c", "back", "lower")
    (project / "a.txt").write_text(BASE["a.txt"])
    git(project, "commit", "-qam", "back")
    git(project, "switch", "-q", "main")
    upper, back = (git(project, "rev-parse", name).strip() for name in ("upper", "back"))
    assert clashes(project, lower, upper) == {}
    assert clashes(project, upper, back) == {("0", "1"): {"a.txt"}}, "unlike main, back has changed it"


def test_a_git_that_does_one_merge_a_process_finds_the_same(project: Path) -> None:
    """Version 2.38 has no way to ask for several."""
    tips = {name: branch(project, name, files={"a.txt": f"{name}\n", name: "own\n"}) for name in ("p", "q")}
    tips["r"] = branch(project, "r", files={"q": "rival\n"})
    repository = Repository.open(project)
    found = []
    for version in (repository.version, (2, 38, 5)):
        with scratch(replace(repository, version=version)) as place:
            found.append(Forecaster().clashes(place, tips))
    assert found[0] == found[1]
    assert set(found[0]) == {("p", "q"), ("q", "r")}


def test_unrelated_histories_cannot_be_merged_and_hide_nothing_else(project: Path) -> None:
    """Git refuses such a pair; the others are answered."""
    git(project, "switch", "-q", "--orphan", "stranger")
    git(project, "commit", "-q", "--allow-empty", "-m", "stranger")
    stranger = git(project, "rev-parse", "HEAD").strip()
    git(project, "switch", "-q", "main")
    edits = [branch(project, name, files={"a.txt": f"{name}\n"}) for name in ("one", "two")]
    found = clashes(project, edits[0], stranger, edits[1])
    assert found["0", "2"] == {"a.txt"}
    assert found["0", "1"] == found["1", "2"] == {"they have no common history"}


def test_merges_crosswise_are_left_to_git(project: Path) -> None:
    """Two bases: the forecast says what a merge says."""
    names = ("one", "two")
    tips = [branch(project, name, files={"a.txt": f"{name}\n2\n3\n", name: name}) for name in names]
    for name, other in ((names[0], tips[1]), (names[1], tips[0])):
        git(project, "switch", "-q", name)
        git(project, "merge", "-q", "-X", "ours", "-m", "cross", other)
    git(project, "switch", "-q", "main")
    crossed = [git(project, "rev-parse", name).strip() for name in names]
    third = branch(project, "third", files={"b.txt": "third\n"})
    _, paths = merge_tree(Repository.open(project), *crossed)
    assert clashes(project, *crossed, third) == ({("0", "1"): set(paths)} if paths else {})


def test_a_snapshot_reads_a_worktree_and_leaves_no_trace(project: Path, tmp_path: Path) -> None:
    """Changed, new, deleted and staged files count, ignored and large ones do not; nor does a lock."""
    work = tmp_path / "work"
    git(project, "worktree", "add", "-q", "-b", "story", str(work), "main")
    (work / ".gitignore").write_text("*.log\n")
    (work / "a.txt").write_text("1\nchanged\n3\n")
    (work / "new.txt").write_text("new\n")
    (work / "build.log").write_text("ignored\n")
    with (work / "dump [1].bin").open("wb") as file:
        file.truncate(17 << 20)
    (work / "own").unlink()
    (work / "d" / "x").write_text("staged\n")
    git(work, "add", "d/x")
    index = Path(git(work, "rev-parse", "--absolute-git-dir").strip()) / "index"
    before = index.read_bytes(), index.stat().st_mtime_ns, git(project, "count-objects", "-v")
    index.with_name("index.lock").touch()
    repository = Repository.open(project)
    with scratch(repository) as place:
        commit, uncommitted = place.snapshot(work)
        assert place.snapshot(work) == (commit, uncommitted), "the same files are the same commit"
        changed = place.run("diff-tree", "-r", "--name-status", "main", commit).stdout.split("\n")
        assert uncommitted
        named = {*(line.replace("\t", " ") for line in changed if line)}
        assert named == {"A .gitignore", "M a.txt", "M d/x", "A new.txt", "D own"}
        rival = branch(project, "rival", files={"a.txt": "1\nrival\n3\n"})
        assert set(Forecaster().clashes(place, {"one": commit, "two": rival})) == {("one", "two")}
        assert place.snapshot(project) == (git(project, "rev-parse", "HEAD").strip(), False)
    after = index.read_bytes(), index.stat().st_mtime_ns
    assert after == before[:2]
    assert git(project, "cat-file", "--batch-check", "--batch-all-objects").count(commit) == 0


def test_what_git_cannot_stage_leaves_the_commit(project: Path, tmp_path: Path) -> None:
    """A repository without a commit in the worktree: its branch is judged."""
    work = tmp_path / "work"
    git(project, "worktree", "add", "-q", "-b", "story", str(work), "main")
    git(work, "init", "-q", "inner")
    (work / "inner" / "file").write_text("x\n")
    with scratch(Repository.open(project)) as place:
        assert place.snapshot(work) == (git(project, "rev-parse", "main").strip(), False)
