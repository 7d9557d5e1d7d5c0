"""What is kept in quarantine: made once, read back, brought out without overwriting anything."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isolation.errors import RepositoryError, WorkspaceError
from isolation.git.repository import GitOutput, Repository
from isolation.shared_tree import quarantine
from isolation.shared_tree.quarantine import (
    REFS,
    ChangeEffect,
    ForeignChange,
    Quarantine,
    classify,
    quarantine_changes,
    undo_changes,
)
from isolation.shared_tree.restore import apply, export, load, load_all
from isolation.shared_tree.snapshot import Contents, Fingerprint, Snapshot, differences, take_snapshot
from tests.conftest import git

ODD = "odd \n\udcff name"


@pytest.fixture
def top(make_repository: Callable[..., Path]) -> Path:
    """Return a checkout to write in."""
    return make_repository(files={"a": "a\n", "dir/b": "b\n"})


def _known(top: Path) -> tuple[Contents, Snapshot]:
    repository = Repository.open(top)
    snapshot = take_snapshot(top, open_to_all=lambda _: False)
    contents = Contents(repository=repository, top=top, index=top / ".git" / "test.index")
    contents.begin(snapshot)
    return contents, snapshot


def _changes(contents: Contents, before: Snapshot) -> list[ForeignChange]:
    after = take_snapshot(contents.top, open_to_all=lambda _: False)
    found = classify(differences(before, after), contents)
    return [change for change in found.values() if change is not None]


def _keep(contents: Contents, changes: list[ForeignChange], story: str = "s") -> Quarantine:
    return quarantine_changes(
        contents.repository, contents.top, changes, run_id="run-1", story_ids=(story,), date=1.0
    )


def test_what_is_kept_can_be_read_back_to_the_byte(top: Path, tmp_path: Path) -> None:
    """Odd names, links, modes, bytes that are no text, and names that git itself does not take."""
    contents, before = _known(top)
    (top / ODD).write_bytes(b"\x00\xff\r\n")
    (top / "a").write_bytes(b"changed")
    (top / "link").symlink_to("nowhere")
    (top / "run").write_text("#!/bin/sh\n")
    (top / "run").chmod(0o750)
    (top / "n/.git").mkdir(parents=True)
    (top / "n/.git/config").write_text("inner")
    (top / "dir/b").unlink()
    kept = _keep(contents, _changes(contents, before))
    assert load(contents.repository, "run-1/s/1") == kept == load_all(contents.repository)[0]
    assert kept.ref == f"{REFS}run-1/s/1"
    assert git(top, "show", f"{kept.ref}:files/n/dot-git/config") == "inner"
    assert git(top, "ls-tree", kept.ref, "files/run", "files/a").split()[::4] == ["100644", "100755"]
    out = tmp_path / "out"
    assert set(export(contents.repository, kept, out)) == {ODD, "a", "link", "run", "n/.git/config"}
    assert (out / ODD).read_bytes() == b"\x00\xff\r\n"
    assert (out / "link").readlink() == Path("nowhere")
    assert (out / "run").stat().st_mode & 0o777 == 0o750
    assert {change.path: change.what for change in kept.changes}["dir/b"] is ChangeEffect.DELETED


def test_all_who_may_have_done_it_are_named(top: Path) -> None:
    """What is read back names the same stories as what was kept."""
    contents, before = _known(top)
    (top / "new").write_text("x")
    changes, who = _changes(contents, before), ("one", "two")
    kept = quarantine_changes(contents.repository, top, changes, run_id="run-1", story_ids=who, date=1.0)
    assert load(contents.repository, "run-1/one/1") == kept
    assert kept.story_ids == who


def test_what_cannot_be_compared_counts_as_changed(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file too large to be remembered was written to, and is as long as before."""
    monkeypatch.setattr("isolation.shared_tree.snapshot.LARGEST", 2)
    (top / "large").write_text("old")
    contents, before = _known(top)
    (top / "large").write_text("new")
    assert [(change.path, change.what) for change in _changes(contents, before)] == [
        ("large", ChangeEffect.CHANGED)
    ]


def test_refs_are_made_once_and_never_moved(top: Path) -> None:
    """Each quarantine has a number of its own."""
    contents, before = _known(top)
    refs = []
    for text in ("one", "two"):
        (top / "new").write_text(text)
        refs.append(_keep(contents, _changes(contents, before)).ref)
    assert refs == [f"{REFS}run-1/s/1", f"{REFS}run-1/s/2"]
    assert [git(top, "show", f"{ref}:files/new") for ref in refs] == ["one", "two"]


def test_a_ref_that_another_was_faster_to_make_is_left_to_it(
    top: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process takes the next number between its choice and its use: that ref stays."""
    contents, before = _known(top)
    (top / "new").write_text("ours")
    changes = _changes(contents, before)
    theirs, ref = git(top, "rev-parse", "HEAD").strip(), f"{REFS}run-1/s/1"
    ask = Repository.run

    def crowded(self: Repository, *args: str, **options: Any) -> GitOutput:
        answer = ask(self, *args, **options)
        if args[0] == "for-each-ref":
            git(top, "update-ref", ref, theirs)
        return answer

    monkeypatch.setattr(Repository, "run", crowded)
    with pytest.raises(RepositoryError):
        _keep(contents, changes)
    assert git(top, "rev-parse", ref).strip() == theirs
    assert (top / "new").read_text() == "ours"


def test_nothing_is_undone_when_it_cannot_be_read_back(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Content that the store lost is an error before anything is touched."""
    contents, before = _known(top)
    (top / "new").write_text("precious")
    changes = _changes(contents, before)
    lost = git(top, "hash-object", "--", "new").strip()
    monkeypatch.setattr("isolation.shared_tree.quarantine.store", lambda *_: {"new": lost})
    with pytest.raises((RepositoryError, WorkspaceError)):
        _keep(contents, changes)
    assert (top / "new").read_text() == "precious"
    assert not load_all(contents.repository)


@pytest.mark.parametrize("name", ["a", "new", "dir/b"])
def test_what_changed_again_after_it_was_kept_stays(top: Path, name: str) -> None:
    """What its owner wrote meanwhile is never overwritten: a change, a creation, a deletion."""
    contents, before = _known(top)
    (top / "a").write_text("foreign\n")
    (top / "new").write_text("foreign\n")
    (top / "dir/b").unlink()
    kept = _keep(contents, _changes(contents, before))
    (top / name).write_text("the owner's\n")
    assert undo_changes(contents, kept.changes) == (name,)
    assert (top / name).read_text() == "the owner's\n"
    others = {"a": "a\n", "dir/b": "b\n", "new": None}
    for other in others.keys() - {name}:
        assert ((top / other).read_text() if (top / other).exists() else None) == others[other]


@pytest.mark.parametrize("name", ["new", "a"])
def test_what_was_not_kept_is_not_undone(top: Path, name: str) -> None:
    """A file that could not be stored stays as it is, made or rewritten."""
    contents, before = _known(top)
    (top / name).write_text("unkept")
    (change,) = _changes(contents, before)
    assert undo_changes(contents, [change]) == (name,)
    assert (top / name).read_text() == "unkept"


def test_what_its_owner_writes_at_that_very_moment_stays(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A foreign story deleted a file; its owner writes it again while it is being restored, and keeps it."""
    contents, before = _known(top)
    (top / "dir/b").unlink()
    kept = _keep(contents, _changes(contents, before))
    restore = quarantine._restore_attributes

    def faster(place: Path, fingerprint: Fingerprint) -> bool:
        (top / "dir/b").write_text("the owner's\n")
        return restore(place, fingerprint)

    monkeypatch.setattr(quarantine, "_restore_attributes", faster)
    assert undo_changes(contents, kept.changes) == ("dir/b",)
    assert (top / "dir/b").read_text() == "the owner's\n"


def test_files_that_had_several_names_are_not_parted(top: Path, tmp_path: Path) -> None:
    """A foreign story made one more name elsewhere: a copy in place would part those that belong together."""
    os.link(top / "a", top / "twin")
    contents, before = _known(top)
    os.link(top / "a", tmp_path / "third")
    kept = _keep(contents, _changes(contents, before))
    assert undo_changes(contents, kept.changes) == ("a", "twin")
    assert (top / "a").samefile(top / "twin")


def test_nothing_is_put_back_through_a_link(top: Path, tmp_path: Path) -> None:
    """A folder that leads elsewhere by now is not followed."""
    contents, before = _known(top)
    (top / "dir/b").write_text("foreign")
    kept = _keep(contents, _changes(contents, before))
    outside = tmp_path / "outside"
    (top / "dir").rename(outside)
    (top / "dir").symlink_to(outside)
    assert undo_changes(contents, kept.changes) == ("dir/b",)
    assert (outside / "b").read_text() == "foreign"


def test_bringing_out_overwrites_nothing(top: Path, tmp_path: Path) -> None:
    """One path that is taken refuses all of it, before anything is written."""
    contents, before = _known(top)
    for name in ("new", "other"):
        (top / name).write_text("foreign")
    kept = _keep(contents, _changes(contents, before))
    out = tmp_path / "out"
    out.mkdir()
    (out / "other").symlink_to("nowhere")
    with pytest.raises(WorkspaceError, match="already has these files, and nothing is overwritten: other"):
        export(contents.repository, kept, out)
    assert os.listdir(out) == ["other"]  # noqa: PTH208  a broken link counts, too


def test_applying_needs_a_clean_place(top: Path) -> None:
    """Into the checkout only where it is free or as committed; the user's own edit refuses it."""
    contents, before = _known(top)
    (top / "a").write_text("foreign\n")
    (top / "new").write_text("foreign\n")
    kept = _keep(contents, _changes(contents, before))
    assert undo_changes(contents, kept.changes) == ()
    (top / "a").write_text("the user's\n")
    with pytest.raises(WorkspaceError, match="nothing is overwritten: a"):
        apply(contents.repository, kept)
    assert not (top / "new").exists()
    git(top, "checkout", "-q", "a")
    assert apply(contents.repository, kept) == ("a", "new")
    assert (top / "a").read_text() == (top / "new").read_text() == "foreign\n"
    with pytest.raises(WorkspaceError, match="nothing is overwritten: a, new"):
        apply(contents.repository, kept)


@pytest.mark.parametrize("name", ["nope", "--all", "../heads/main", ""])
def test_a_name_that_is_none_is_an_error(top: Path, name: str) -> None:
    """Whatever is asked for, only a quarantine is given."""
    with pytest.raises(WorkspaceError, match="unknown quarantine"):
        load(Repository.open(top), name)
