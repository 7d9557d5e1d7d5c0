"""What a commit must not lack or hold: changes hidden from git, conflict markers."""

import pytest

from isolation.git.commit_flaws import conflict_markers, may_have_markers, reveal_hidden
from isolation.git.repository import Repository
from tests.conftest import git

HEAD = "0" * 40
CONFLICT = "<<<<<<< ours\n1\n=======\n2\n>>>>>>> theirs\n"


def test_a_sparse_checkout_keeps_what_it_leaves_out(repository: Repository) -> None:
    """Only files that are there can hide a change; the bits of the others belong to the sparse checkout."""
    top = repository.top
    for name in ("seen", "hidden"):
        (top / name).mkdir()
        (top / name / "a").write_text("a\n")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "more")
    git(top, "sparse-checkout", "set", "seen")
    git(top, "update-index", "--skip-worktree", "seen/a")
    git(top, "update-index", "--assume-unchanged", "README.md")
    assert set(reveal_hidden(repository, top, HEAD)) <= {"README.md", "seen/a"}
    assert git(top, "ls-files", "-v").splitlines() == ["H README.md", "S hidden/a", "H seen/a"]


def test_a_file_deleted_behind_a_bit_shows(repository: Repository) -> None:
    """Without a sparse checkout nothing else sets the bit of a missing file."""
    top = repository.top
    git(top, "update-index", "--skip-worktree", "--", "README.md")
    (top / "README.md").unlink()
    assert reveal_hidden(repository, top, HEAD) == ("README.md",)
    assert git(top, "status", "--porcelain") == " D README.md\n"


@pytest.mark.parametrize(
    ("text", "marked"),
    [
        (CONFLICT, True),
        (CONFLICT.replace("\n", "\r\n"), True),
        (CONFLICT.replace("1\n", "1\n||||||| base\n0\n"), True),
        ("++ looks like a header\n" + CONFLICT, True),
        ("<<<<<<< ours\n=======\n", False),
        (">>>>>>> theirs\n=======\n<<<<<<< ours\n", False),
        ("Seven!!\n=======\n> quoted\n", False),
        (CONFLICT.replace("<<<<<<<", "  <<<<<<<"), False),
        ("\0" + CONFLICT, False),
    ],
)
@pytest.mark.parametrize("name", ["file", "a name with spaces", "ä"])
def test_a_whole_set_of_added_markers_is_found(
    repository: Repository, text: str, name: str, *, marked: bool
) -> None:
    """In text files, line by line, wherever it is in the file; the quick look never overlooks one."""
    top, base = repository.top, repository.resolve("HEAD")
    (top / name).write_text(f"before\n{text}after\n", newline="")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "more")
    found = conflict_markers(repository, base, "HEAD", top)
    assert found == ((name,) if marked else ())
    assert may_have_markers(top, (name,)) or not found


def test_markers_that_were_there_or_are_meant_are_left_alone(repository: Repository) -> None:
    """Only what the commits add counts, and a file's attribute says how long its markers are."""
    top = repository.top
    (top / "old").write_text(CONFLICT)
    git(top, "add", "-A")
    git(top, "commit", "-qm", "old")
    base = repository.resolve("HEAD")
    (top / "old").write_text(CONFLICT + "more\n")
    (top / "sample").write_text(CONFLICT)
    (top / "long").write_text("".join(f"{line[0] * 5}{line}" for line in CONFLICT.splitlines(keepends=True)))
    (top / ".gitattributes").write_text("sample conflict-marker-size=32\nlong conflict-marker-size=12\n")
    git(top, "add", "-A")
    git(top, "commit", "-qm", "new")
    assert conflict_markers(repository, base, "HEAD", top) == ("long",)
