"""Several git commands on a story's tree in a row, as one visit."""

from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.claims import globs
from isolation.git import repository as git_door
from isolation.git.contained import boundary
from isolation.git.plain.content import settings_of
from isolation.git.private_index import claim_tree, fresh_index
from isolation.git.repository import Repository
from isolation.paths import claim_index_path
from tests.conftest import git
from tests.isolation.worktree.worktrees import make


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the trees whose confinement was worked out, as that happens."""
    found: list[Path] = []
    real: Callable[..., object] = boundary.confinement_of

    def confinement_of(paths: object, where: Path, *rest: object, **more: object) -> object:
        found.append(where)
        return real(paths, where, *rest, **more)

    monkeypatch.setattr(git_door, "confinement_of", confinement_of)
    return found


async def test_commands_of_a_visit_share_one_look(repository: Repository, looks: list[Path]) -> None:
    """What they make is there for each other at once, and for everybody afterwards."""
    path = (await make(repository, "one")).path
    (path / "new").write_text("new\n")
    looks.clear()
    with repository.visiting(path):
        repository.run("add", "new", cwd=path)
        repository.run("commit", "-qm", "new", cwd=path)
        tip = repository.run("rev-parse", "HEAD", cwd=path).stdout.strip()
    assert looks.count(path) == 1
    assert git(repository.top, "rev-parse", "autopilot/one").strip() == tip
    assert git(repository.top, "cat-file", "-t", tip).strip() == "commit"
    assert not list((repository.common_dir / "autopilot" / "objects" / "one").glob("??/*"))
    git(repository.top, "fsck", "--strict", "--no-dangling")


async def test_a_look_outside_sees_what_the_visit_has_made(repository: Repository) -> None:
    """Also one that takes no process."""
    path = (await make(repository, "one")).path
    (path / "new").write_text("new\n")
    with repository.visiting(path):
        repository.run("add", "new", cwd=path)
        repository.run("commit", "-qm", "new", cwd=path)
        tip = repository.branch_tip("autopilot/one")
        assert tip == repository.run("rev-parse", "autopilot/one").stdout.strip()
        (path / "new").write_text("newer\n")
        repository.run("commit", "-qam", "newer", cwd=path)
        assert repository.count_commits(tip or "", repository.resolve("autopilot/one")) == 1


async def test_an_error_ends_the_visit_like_any_other_end(repository: Repository, looks: list[Path]) -> None:
    """What was made is taken over; the next command is on its own again."""
    path = (await make(repository, "one")).path

    def fail() -> None:
        with repository.visiting(path):
            repository.run("commit", "-q", "--allow-empty", "-m", "kept", cwd=path)
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert git(repository.top, "log", "-1", "--format=%s", "autopilot/one").strip() == "kept"
    looks.clear()
    repository.run("status", cwd=path)
    assert looks == [path]


async def test_another_tree_is_no_part_of_the_visit(repository: Repository, looks: list[Path]) -> None:
    """Its commands may write to their own tree only."""
    one, two = [(await make(repository, name)).path for name in ("one", "two")]
    looks.clear()
    with repository.visiting(one):
        repository.run("commit", "-q", "--allow-empty", "-m", "one", cwd=one)
        repository.run("commit", "-q", "--allow-empty", "-m", "two", cwd=two)
    assert [tree for tree in looks if tree != repository.top] == [one, two]
    assert [
        git(repository.top, "log", "-1", "--format=%s", f"autopilot/{n}").strip() for n in ("one", "two")
    ] == [
        "one",
        "two",
    ]


def test_a_claim_in_the_shared_tree_is_read_in_one_visit(repository: Repository, looks: list[Path]) -> None:
    """Its commands share one look and know each other's objects; outside, the tree is whole."""
    index = claim_index_path(repository.common_dir, "autopilot/one")
    tip, claim = repository.resolve("HEAD"), globs.compile(("mine", "more"))
    assert claim_tree(repository, repository.top, index=index, tip=tip, claim=claim).changed == ()
    for name in ("mine", "more", "other"):
        (repository.top / name).write_bytes(b"%b\r\n" % name.encode())  # so that it is left to git
    settings_of(repository)
    looks.clear()
    built = claim_tree(repository, repository.top, index=index, tip=tip, claim=claim)
    assert looks == [repository.top]
    assert built.changed == ("mine", "more")
    assert not list((repository.common_dir / "autopilot" / "objects" / ".shared").glob("??/*"))
    assert git(repository.top, "cat-file", "-s", f"{built.tree}:more").strip() == "6"


def test_another_index_is_no_part_of_the_visit(repository: Repository, looks: list[Path]) -> None:
    """Its commands may write to their own index only."""
    one, two = (claim_index_path(repository.common_dir, f"autopilot/{name}") for name in ("one", "two"))
    looks.clear()
    with repository.visiting(repository.top, one):
        for index in (one, two, one):
            repository.run("read-tree", "HEAD", env=fresh_index(index))
    assert looks == [repository.top, repository.top]
