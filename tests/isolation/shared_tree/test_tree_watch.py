"""Who changed what in a shared tree, with real files, a real clock and real sessions' worth of changes."""

import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from isolation.claims import globs as claims
from isolation.git.repository import Repository
from isolation.shared_tree.findings import Finding
from isolation.shared_tree.restore import load_all
from isolation.shared_tree.snapshot import file_system_time, take_snapshot
from isolation.shared_tree.tree_watch import TreeWatch
from tests.conftest import git
from tests.isolation.shared_tree.trees import PACKAGES, in_the_middle, watch

Act = Callable[[Path], object]


@pytest.fixture
def tree(make_repository: Callable[..., Path]) -> Path:
    """Return a checkout with everything that git does not show."""
    top = make_repository(
        files={
            **PACKAGES,
            "root.txt": "root\n",
            "dir/one": "one\n",
            "dir/two": "two\n",
            "hidden.txt": "hidden\n",
            ".gitignore": "*.env\n/cache/\n",
        }
    )
    (top / "secret.env").write_text("ignored\n")
    (top / "notes.txt").write_text("the user's, untracked\n")
    (top / "dir/two").write_text("two, edited by the user\n")
    (top / "empty").mkdir()
    (top / "link").symlink_to("root.txt")
    (top / "tool").write_text("#!/bin/sh\n")
    (top / "twin").write_text("twins\n")
    os.link(top / "twin", top / "other-twin")
    subprocess.run(["git", "init", "-q", str(top / "nested")], check=True)
    (top / "nested/inner").write_text("inner\n")
    git(top, "update-index", "--skip-worktree", "hidden.txt")
    (top / "hidden.txt").write_text("hidden, and edited by the user\n")
    os.utime(top / "root.txt", ns=(1, 1_600_000_000_000_000_000))
    return top


def _state(top: Path) -> dict[str, tuple[int, bytes, int]]:
    """Read all that is outside the program's own folders: mode, content and time of change."""
    found = {}
    for path, fingerprint in take_snapshot(top, open_to_all=lambda _: False).items():
        place = top / path
        data = (
            os.fsencode(place.readlink())
            if fingerprint.is_link
            else b""
            if fingerprint.is_folder
            else place.read_bytes()
        )
        found[path] = (fingerprint.mode, data, fingerprint.mtime_ns)
    return found


async def _session(watching: TreeWatch, story: str, act: Act, top: Path) -> tuple[Finding, ...]:
    with trio.fail_after(60):
        async with watching.session(story) as watched:
            act(top)
        return watched.findings


def _paths(findings: tuple[Finding, ...]) -> set[str]:
    return {path for finding in findings for path in finding.quarantine.paths}


def _write(name: str, top: Path) -> None:
    (top / name).parent.mkdir(parents=True)
    (top / name).write_text("new")


def _relink(top: Path) -> None:
    (top / "link").unlink()
    (top / "link").symlink_to("notes.tx")


def _edited_in_secret(top: Path) -> None:
    """Edit a file to the same size and give it its old time back."""
    place = top / "root.txt"
    before = place.stat()
    place.write_text("evil\n")
    os.utime(place, ns=(before.st_atime_ns, before.st_mtime_ns))


def _through_a_link(top: Path) -> None:
    (top / "packages/a/way").symlink_to("../../dir")
    (top / "packages/a/way/one").write_text("by a link\n")


def _through_a_hard_link(top: Path) -> None:
    os.link(top / "root.txt", top / "packages/a/same")
    (top / "packages/a/same").write_text("by a hard link\n")
    (top / "packages/a/same").unlink()


def _two_names(name: str, text: str, top: Path) -> None:
    """Make a hard link to a file, and write through it."""
    (top / name).touch()
    os.link(top / name, top / "second")
    if text:
        (top / "second").write_text(text)


def _one_content_under_two_names(top: Path) -> None:
    """Change what the user keeps under two names."""
    (top / "twin").write_text("by its twin\n")


def _folder_to_link(top: Path) -> None:
    shutil.rmtree(top / "dir")
    (top / "dir").symlink_to("packages")


def _file_to_folder(top: Path) -> None:
    (top / "root.txt").unlink()
    (top / "root.txt").mkdir()
    (top / "root.txt/inner").write_text("inner")


FOREIGN: dict[str, tuple[Act, set[str]]] = {
    "create": (lambda top: (top / "new.txt").write_text("new"), {"new.txt"}),
    "create deep": (partial(_write, "n/e/w/f"), {"n/e/w/f"}),
    "append": (lambda top: (top / "root.txt").write_text("root\nmore\n"), {"root.txt"}),
    "edit in secret": (_edited_in_secret, {"root.txt"}),
    "edit what the user edited": (lambda top: (top / "dir/two").write_text("three"), {"dir/two"}),
    "edit untracked": (lambda top: (top / "notes.txt").write_text("theirs"), {"notes.txt"}),
    "edit ignored": (lambda top: (top / "secret.env").write_text("stolen"), {"secret.env"}),
    "edit hidden": (lambda top: (top / "hidden.txt").write_text("found"), {"hidden.txt"}),
    "edit nested": (lambda top: (top / "nested/inner").write_text("outer"), {"nested/inner"}),
    "configure nested": (lambda top: (top / "nested/.git/config").write_text(""), {"nested/.git/config"}),
    "delete": (lambda top: (top / "root.txt").unlink(), {"root.txt"}),
    "delete folder": (lambda top: shutil.rmtree(top / "dir"), {"dir/one", "dir/two"}),
    "delete empty folder": (lambda top: (top / "empty").rmdir(), {"empty"}),
    "rename": (lambda top: (top / "root.txt").rename(top / "moved.txt"), {"root.txt", "moved.txt"}),
    "rename in": (lambda top: (top / "root.txt").rename(top / "packages/a/mine"), {"root.txt"}),
    "replace": (
        lambda top: [(top / "t").write_text("replaced"), (top / "t").replace(top / "root.txt")],
        {"root.txt"},
    ),
    "make folder": (lambda top: (top / "void").mkdir(), {"void"}),
    "link": (lambda top: (top / "new-link").symlink_to("/etc/passwd"), {"new-link"}),
    "relink": (_relink, {"link"}),
    "through a link": (_through_a_link, {"dir/one"}),
    "through a hard link": (_through_a_hard_link, {"root.txt"}),
    "a second name": (partial(_two_names, "notes.txt", ""), {"notes.txt", "second"}),
    "through a second name": (partial(_two_names, "root.txt", "evil\n"), {"root.txt", "second"}),
    "new under two names": (partial(_two_names, "new", "new\n"), {"new", "second"}),
    "a second name of its own": (lambda top: os.link(top / "tool", top / "packages/a/tool"), {"tool"}),
    "what has two names": (_one_content_under_two_names, {"twin", "other-twin"}),
    "chmod": (lambda top: (top / "root.txt").chmod(0o600), {"root.txt"}),
    "chmod folder": (lambda top: (top / "dir").chmod(0o700), {"dir"}),
    "make executable": (lambda top: (top / "tool").chmod(0o755), {"tool"}),
    "touch": (lambda top: os.utime(top / "root.txt"), {"root.txt"}),
    "folder to link": (_folder_to_link, {"dir", "dir/one", "dir/two"}),
    "file to folder": (_file_to_folder, {"root.txt", "root.txt/inner"}),
    "another's claim": (lambda top: (top / "packages/b/x").write_text("mine now"), {"packages/b/x"}),
}


@pytest.mark.parametrize("name", list(FOREIGN))
async def test_a_foreign_change_is_named_kept_and_undone(tree: Path, name: str) -> None:
    """Acceptance 18, open cases 1, 2, 3, 4 and 9: what is not the story's is found, kept, and as it was."""
    act, paths = FOREIGN[name]
    watching = watch(tree)
    before = _state(tree)
    findings = await _session(watching, "a", act, tree)
    written = {path: data for path, data in _state(tree).items() if not path.startswith("packages/a/")}
    assert _paths(findings) == paths
    assert all(finding.quarantine.story_ids == ("a",) and not finding.stayed for finding in findings)
    assert written == {path: data for path, data in before.items() if not path.startswith("packages/a/")}
    assert [one.paths for one in load_all(Repository.open(tree))] == [tuple(sorted(paths))]
    assert await _session(watching, "a", lambda _: None, tree) == ()


@pytest.mark.parametrize(
    "act",
    [
        lambda top: (top / "packages/a/x").write_text("mine"),
        partial(_write, "packages/a/d/f"),
        lambda top: shutil.rmtree(top / "packages/a"),
        lambda top: (top / "packages/a/x").rename(top / "packages/a/y"),
        partial(_write, "shared/x/y"),
        lambda top: (top / "root.txt").read_text(),
        lambda top: git(top, "status"),
    ],
)
async def test_what_is_its_own_or_open_to_all_is_no_finding(tree: Path, act: Act) -> None:
    """A story may do what it likes with its claim, and with what is open to everybody."""
    watching = watch(tree)
    assert await _session(watching, "a", act, tree) == ()
    assert not load_all(Repository.open(tree))


async def test_folders_on_the_way_to_a_claim_may_come_and_go(tree: Path) -> None:
    """A folder that is made only to hold what a story owns is not a foreign change."""
    owners = {"a": claims.compile(["new/deep/**"]), "b": claims.compile(["**/b.txt"])}
    watching = watch(tree, owners)
    assert not await _session(watching, "a", lambda top: (top / "new/deep/x").mkdir(parents=True), tree)
    assert not await _session(watching, "a", lambda top: shutil.rmtree(top / "new"), tree)

    assert not await _session(watching, "b", partial(_write, "some/where/b.txt"), tree)
    assert not await _session(watching, "b", lambda top: shutil.rmtree(top / "some"), tree)


async def test_what_the_user_does_while_no_story_works_stays(tree: Path) -> None:
    """Between sessions the tree is the user's alone."""
    watching = watch(tree)
    await _session(watching, "a", lambda _: None, tree)
    (tree / "root.txt").write_text("the user's own edit\n")
    (tree / "dir/one").unlink()
    file_system_time_passes(tree)
    assert await _session(watching, "a", lambda _: None, tree) == ()
    assert (tree / "root.txt").read_text() == "the user's own edit\n"
    assert not (tree / "dir/one").exists()


def file_system_time_passes(top: Path) -> None:
    """Wait until the file system's clock, which has coarse ticks, shows a later time."""
    folder = top / ".orchestrator"
    now = file_system_time(folder)
    while file_system_time(folder) == now:
        pass


async def test_a_branch_that_the_user_switches_to_stays(tree: Path) -> None:
    """What a move of HEAD accounts for is not undone under the user's hands."""
    git(tree, "branch", "other")
    git(tree, "rm", "-q", "dir/one")
    git(tree, "commit", "-q", "-m", "without one")
    watching = watch(tree)

    def act(top: Path) -> None:
        git(top, "switch", "-q", "other")
        (top / "root.txt").write_text("foreign\n")

    assert _paths(await _session(watching, "a", act, tree)) == {"root.txt"}
    assert (tree / "dir/one").read_text() == "one\n"


async def test_the_time_of_a_change_tells_who_it_was(tree: Path) -> None:
    """Of two stories whose sessions overlap, the one that was not at work yet is not suspected."""
    watching = watch(tree)
    found: dict[str, tuple[Finding, ...]] = {}
    with trio.fail_after(60):
        async with watching.session("a") as first:
            (tree / "root.txt").write_text("by a\n")
            file_system_time_passes(tree)
            async with watching.session("b") as second:
                pass
            found["b"] = second.findings
        found["a"] = first.findings
    assert found["b"] == ()
    assert [finding.quarantine.story_ids for finding in found["a"]] == [("a",)]
    assert (tree / "root.txt").read_text() == "root\n"


async def test_where_several_may_have_done_it_all_are_named_and_then_work_alone(tree: Path) -> None:
    """Without the system's help the honest answer is a list; the next sessions tell the guilty."""
    watching = watch(tree)
    with trio.fail_after(60):
        async with watching.session("a") as first, watching.session("b") as second:
            (tree / "root.txt").write_text("by somebody\n")
    for watched in (first, second):
        (finding,) = watched.findings
        assert finding.quarantine.story_ids == ("a", "b")
        assert "one of these stories changed paths outside its claim: a, b: " in finding.words
    inside: list[str] = []
    together: set[frozenset[str]] = set()

    async def work(story: str, found: dict[str, tuple[Finding, ...]]) -> None:
        async with watching.session(story) as watched:
            inside.append(story)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
                together.add(frozenset(inside))
            if story == "b":
                (tree / "root.txt").write_text("by b again\n")
            inside.remove(story)
        found[story] = watched.findings

    found: dict[str, tuple[Finding, ...]] = {}
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for story in ("a", "b", "c"):
                nursery.start_soon(work, story, found)
    assert together == {frozenset("a"), frozenset("b"), frozenset("c")}
    assert (found["a"], found["c"]) == ((), ())
    assert _paths(found["b"]) == {"root.txt"}
    assert not watching.is_suspect("a")
    assert watching.is_suspect("b")


async def test_a_running_owner_keeps_what_it_writes(tree: Path) -> None:
    """The comparison at one story's end never touches the paths of another that is running."""
    watching = watch(tree)
    with trio.fail_after(60):
        async with watching.session("b") as owner:
            async with watching.session("a") as other:
                (tree / "packages/b/x").write_text("by its owner\n")
                (tree / "packages/b/y").write_text("by its owner, too\n")
            assert (tree / "packages/b/x").read_text() == "by its owner\n"
        assert (owner.findings, other.findings) == ((), ())
    assert (tree / "packages/b/y").read_text() == "by its owner, too\n"


async def test_what_an_owner_finished_is_what_is_put_back(tree: Path) -> None:
    """A finished story's work is restored as that story left it, not as it was at the start."""
    watching = watch(tree)
    await _session(watching, "b", lambda top: (top / "packages/b/x").write_text("finished\n"), tree)
    findings = await _session(watching, "a", lambda top: (top / "packages/b/x").write_text("spoiled\n"), tree)
    assert _paths(findings) == {"packages/b/x"}
    assert (tree / "packages/b/x").read_text() == "finished\n"


async def test_what_is_too_large_to_be_kept_is_found_and_left(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose content was never stored cannot be restored, and the finding says so."""
    monkeypatch.setattr("isolation.shared_tree.snapshot.LARGEST", 8)
    watching = watch(tree)
    findings = await _session(watching, "a", lambda top: (top / "notes.txt").write_text("theirs"), tree)
    assert _paths(findings) == {"notes.txt"}
    assert [finding.stayed for finding in findings] == [("notes.txt",)]
    assert "not undone: notes.txt" in findings[0].words
    assert (tree / "notes.txt").read_text() == "theirs"
    assert await _session(watching, "a", lambda _: None, tree) == ()


@pytest.mark.parametrize("text", ["evil\n", "longer than before\n"])
async def test_what_changes_again_while_it_is_put_back_is_found_by_the_next_look(
    tree: Path, text: str
) -> None:
    """Open case 4: another story's change of the same path, made in the middle of a look, is not lost."""
    # A filter runs while the content is compared, and while it is read to be restored.
    (tree / ".git/info/attributes").write_text("root.txt filter=meanwhile\n")
    watching = watch(tree)
    before = _state(tree)

    def change() -> None:
        for name in ("notes.txt", "tool"):
            (tree / name).chmod(0o600)

    with in_the_middle(tree, "smudge", change), trio.fail_after(60):
        async with watching.session("b") as other:
            async with watching.session("a"):
                (tree / "root.txt").write_text(text)
                os.utime(tree / "notes.txt")
            assert (tree / "tool").stat().st_mode & 0o777 == 0o600, "the filter did its work"
            git(tree, "config", "filter.meanwhile.smudge", "cat")
    assert {"notes.txt", "tool"} <= _paths(other.findings)
    assert _state(tree) == before
    assert await _session(watching, "c", lambda _: None, tree) == ()


async def test_a_cancelled_session_is_looked_at_all_the_same(tree: Path) -> None:
    """However a session ends, what it did to others is undone."""
    watching = watch(tree)
    with trio.move_on_after(30) as scope:
        async with watching.session("a"):
            (tree / "root.txt").write_text("foreign\n")
            scope.cancel()
            await trio.sleep_forever()
    assert (tree / "root.txt").read_text() == "root\n"
    assert [one.paths for one in load_all(Repository.open(tree))] == [("root.txt",)]


@pytest.fixture
def filtered(make_repository: Callable[..., Path]) -> Path:
    """Return a checkout whose text files have other line ends than git's copies of them."""
    top = make_repository(
        files={**PACKAGES, ".gitattributes": "*.txt text eol=crlf\n", "a.txt": "one\ntwo\n"}
    )
    (top / "a.txt").unlink()
    git(top, "checkout", "-q", "a.txt")
    assert (top / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    return top


async def test_files_come_back_through_gits_filters(filtered: Path) -> None:
    """The restored content is what the file held, not what git stores."""
    watching = watch(filtered)
    assert _paths(await _session(watching, "a", lambda top: (top / "a.txt").unlink(), filtered)) == {"a.txt"}
    assert (filtered / "a.txt").read_bytes() == b"one\r\ntwo\r\n"
    kept = (filtered / "a.txt").stat()
    touched = await _session(watching, "a", lambda top: os.utime(top / "a.txt"), filtered)
    assert [change.what for finding in touched for change in finding.quarantine.changes] == ["touched"]
    assert (filtered / "a.txt").stat().st_mtime_ns == kept.st_mtime_ns
