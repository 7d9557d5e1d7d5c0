"""Overlays over a shared tree: real sessions write into them, and only what is theirs reaches the tree."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from isolation.claims import globs as claims
from isolation.git.repository import Repository
from isolation.keeper.client import open_keeper
from isolation.model import EnforcementLevel, Means
from isolation.shared_tree.findings import Finding
from isolation.shared_tree.levels import LEVELS, Enforcement, SharedTree
from isolation.shared_tree.restore import load_all
from tests.conftest import git
from tests.isolation.guard.guard_scenes import execute, order, require
from tests.isolation.shared_tree.trees import PACKAGES

OWNERS = {
    "a": ["packages/a/**"],
    "g": ["**/*.md", "src/**", "!src/keep/**"],
    "f": ["one.txt"],
}


@pytest.fixture
def tree(make_repository: Callable[..., Path]) -> Path:
    """Return a checkout with files of several owners, and some without."""
    require(EnforcementLevel.DIVERT, Means.MOUNTS)
    files = ("one.txt", "two.txt", "src/s.py", "src/keep/k.py", "src/deep/d.py", "lib/l.py", "lib/doc.md")
    return make_repository(files={**PACKAGES, **{name: f"{name}\n" for name in files}})


def _diversion(tree: Path, tmp_path: Path, shared: tuple[str, ...] = ()) -> Enforcement:
    writable = claims.compile(["cache/**"])
    return LEVELS[EnforcementLevel.DIVERT].open(
        SharedTree(
            repository=Repository.open(tree),
            run_id="run-1",
            claims={name: claims.compile(globs) for name, globs in OWNERS.items()},
            writable=writable,
            open_to_all=writable,
            folders=shared,
            overlays=tmp_path / "layers" / "run-1",
        )
    )


async def _session(
    diversion: Enforcement, tmp_path: Path, story: str, tree: Path, script: str
) -> tuple[Finding, ...]:
    with trio.fail_after(60):
        async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper:
            async with diversion.watch.session(story) as watched:
                made = order(tmp_path, tree, f"set -e\n{script}", diversion.confine(story))
                code, output = await execute(keeper, made)
            assert code == 0, output
    return watched.findings


def _status(tree: Path) -> set[str]:
    return set(git(tree, "status", "--porcelain", "--untracked-files=all").splitlines())


async def _paths(
    tree: Path, tmp_path: Path, story: str, script: str, shared: tuple[str, ...] = ()
) -> dict[str, str]:
    findings = await _session(_diversion(tree, tmp_path, shared), tmp_path, story, tree, script)
    return {change.path: change.what.value for finding in findings for change in finding.quarantine.changes}


async def test_what_a_story_owns_reaches_the_tree_by_glob(tree: Path, tmp_path: Path) -> None:
    """Acceptance 18: created, edited, deleted, renamed, linked, in a claim that is not a folder."""
    script = """
    echo new > lib/new.md; echo more >> lib/doc.md; mkdir -p x/y; echo z > x/y/z.md
    mv src/s.py src/t.py; rm -r src/deep; ln -s t.py src/link; chmod 755 src/t.py
    """
    assert await _paths(tree, tmp_path, "g", script) == {}
    assert _status(tree) == {
        *("?? lib/new.md", " M lib/doc.md", "?? x/y/z.md", " D src/s.py", "?? src/t.py", " D src/deep/d.py"),
        "?? src/link",
    }
    assert (tree / "src/t.py").stat().st_mode & 0o777 == 0o755
    assert (tree / "src/link").readlink() == Path("t.py")
    assert not (tree / "src/deep").exists()
    assert not (tmp_path / "layers/run-1/g").exists()


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo x > new.txt", {"new.txt": "created"}),
        ("mkdir -p d/e; echo x > d/e/f", {"d/e/f": "created"}),
        ("mkdir void", {"void": "created"}),
        ("echo x > two.txt", {"two.txt": "changed"}),
        ("rm two.txt", {"two.txt": "deleted"}),
        ("rm -r lib", {"lib": "deleted", "lib/l.py": "deleted", "lib/doc.md": "deleted"}),
        ("mv two.txt 2.txt", {"two.txt": "deleted", "2.txt": "created"}),
        ("ln -s two.txt link", {"link": "created"}),
        ("chmod 600 two.txt", {"two.txt": "mode changed"}),
        ("touch two.txt", {"two.txt": "touched"}),
        ("rm -r lib; mkdir lib; echo x > lib/l.py", {"lib/doc.md": "deleted", "lib/l.py": "changed"}),
        ("rm -r lib; ln -s src lib", {"lib": "changed", "lib/l.py": "deleted", "lib/doc.md": "deleted"}),
        ("rm two.txt; mkdir two.txt", {"two.txt": "changed"}),
        ("exec 3<> two.txt; cat <&3", {}),
        ("echo x > .orchestrator/other", {".orchestrator/other": "created"}),
    ],
)
async def test_what_it_does_not_own_never_does(
    tree: Path, tmp_path: Path, script: str, found: dict[str, str]
) -> None:
    """Acceptance 18, open cases 1 to 4: it succeeds, is kept as the story's own, and others never see it."""
    assert await _paths(tree, tmp_path, "a", f"{script}; echo own > packages/a/x") == found
    assert _status(tree) == {" M packages/a/x"}
    assert [one.story_ids for one in load_all(Repository.open(tree))] == ([("a",)] if found else [])


async def test_a_negated_glob_and_a_single_file_are_exact(tree: Path, tmp_path: Path) -> None:
    """What a claim takes back is foreign; a single file can be replaced as tools do it."""
    assert await _paths(tree, tmp_path, "g", "echo x > src/keep/k.py") == {"src/keep/k.py": "changed"}
    assert await _paths(tree, tmp_path, "f", "sed -i s/one/1/ one.txt; echo x > three.txt") == {
        "three.txt": "created"
    }
    assert (tree / "one.txt").read_text() == "1.txt\n"
    assert _status(tree) == {" M one.txt"}


async def test_a_folder_of_mixed_owners_loses_only_what_is_the_storys(tree: Path, tmp_path: Path) -> None:
    """Removing a folder takes the story's files, and the others stay and are named."""
    assert await _paths(tree, tmp_path, "g", "rm -r lib") == {"lib/l.py": "deleted"}
    assert _status(tree) == {" D lib/doc.md"}


async def test_shared_folders_are_real_and_new_ones_come_over(tree: Path, tmp_path: Path) -> None:
    """What is open to all is written as it is, or brought over where it was not there before."""
    assert await _paths(tree, tmp_path, "a", "mkdir -p cache/x; echo 1 > cache/x/y") == {}
    assert (tree / "cache/x/y").read_text() == "1\n"
    assert await _paths(tree, tmp_path, "a", "echo 2 > cache/x/y", shared=("cache",)) == {}
    assert (tree / "cache/x/y").read_text() == "2\n"


async def test_a_layer_that_a_crash_left_is_settled_first(tree: Path, tmp_path: Path) -> None:
    """Acceptance 68: the unfinished work of a killed run is there when its story goes on."""
    diversion = _diversion(tree, tmp_path)
    with trio.fail_after(60):
        async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper:
            made = order(tmp_path, tree, "echo half > lib/doc.md; echo x > two.txt", diversion.confine("g"))
            await execute(keeper, made)  # and then the coordinator is gone
    findings = await _session(
        _diversion(tree, tmp_path), tmp_path, "g", tree, "grep half lib/doc.md; grep two two.txt"
    )
    assert [finding.quarantine.paths for finding in findings] == [("two.txt",)]
    assert (tree / "lib/doc.md").read_text() == "half\n"
    assert (tree / "two.txt").read_text() == "two.txt\n"


async def test_stories_see_what_the_others_have_finished(tree: Path, tmp_path: Path) -> None:
    """A dependant finds its dependency's work in the tree."""
    await _paths(tree, tmp_path, "g", "echo done > lib/doc.md")
    assert await _paths(tree, tmp_path, "a", "grep done lib/doc.md") == {}


async def test_another_storys_layer_is_closed(tree: Path, tmp_path: Path) -> None:
    """Nobody slips something into what another story brings over."""
    other = tmp_path / "layers/run-1/g/upper"
    other.mkdir(parents=True)
    refused = f"! echo x > {other}/evil.md"
    assert await _paths(tree, tmp_path, "a", refused) == {}
    assert not list(other.iterdir())
