"""What stands in for hidden places: each worktree has its own, and the next one gets what is left of it."""

import threading
from pathlib import Path

import pytest

from isolation.git.contained.object_store import drop_store
from isolation.git.contained.stand_in_sets import own_stand_ins, release_stand_ins
from isolation.guard.private import Store
from isolation.guard.seal import Seal
from isolation.model import Confinement, EnforcementLevel, Means
from isolation.paths import autopilot_dir

KEYS = Store(what="keys", paths=("~/.keys", "~/.key", "~/.none"), shows=("known",))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home with a hidden folder, of which one name shows, and a hidden file."""
    (tmp_path / "home" / ".keys").mkdir(parents=True)
    (tmp_path / "home" / ".keys" / "known").write_text("known")
    (tmp_path / "home" / ".key").write_text("secret")
    return tmp_path / "home"


def stand_ins(seal: Path, home: Path, name: str) -> dict[str, int]:
    """Return the stand-ins of a worktree's next session by what they hide, each with its inode."""
    confinement = Confinement(
        level=EnforcementLevel.DENY, means=Means.MOUNTS, read_only={}, writable=(), store=name
    )
    sealed = Seal(folder=seal).around(confinement, [KEYS], {"HOME": str(home)})
    found = {place.name: Path(each.stand_in) for place, each in sealed.hidden.items()}
    assert found[".key"].read_bytes() == b""
    assert [each.name for each in found[".keys"].iterdir()] == ["known"]
    assert (found[".keys"] / "known").read_bytes() == b""
    return {name: path.stat().st_ino for name, path in found.items()}


def test_two_worktrees_share_none_and_the_next_one_uses_those_of_one_that_is_gone(
    home: Path, tmp_path: Path
) -> None:
    """Nothing is made for it, except for a place that is new."""
    common = tmp_path / "git"
    seal = autopilot_dir(common) / "seal"
    first, second = stand_ins(seal, home, "first"), stand_ins(seal, home, "second")
    assert set(first) == {".keys", ".key"}
    assert not set(first.values()) & set(second.values())
    assert stand_ins(seal, home, "first") == first, "all sessions of a worktree have the same"
    drop_store(common, "first")
    (home / ".none").write_text("new")
    third = stand_ins(seal, home, "third")
    assert third.items() > first.items()
    assert third[".none"] not in {*first.values(), *second.values()}


def test_what_is_spare_goes_to_one_of_many_at_once(tmp_path: Path) -> None:
    """Threads and runs take it at the same time; there is a bound of what is kept."""
    for number in range(20):
        (tmp_path / "own" / str(number)).mkdir(parents=True)
        (tmp_path / "own" / str(number) / "mark").write_text(str(number))
    for number in range(20):
        release_stand_ins(tmp_path, str(number))
    assert len(list((tmp_path / "spare").iterdir())) == 16
    assert not any((tmp_path / "own").iterdir())
    takers = [threading.Thread(target=own_stand_ins, args=(tmp_path, f"t{number}")) for number in range(40)]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join()
    marks = [mark.read_text() for mark in (tmp_path / "own").glob("*/mark")]
    assert len(marks) == len(set(marks)) == 16
    assert not any((tmp_path / "spare").iterdir())
    release_stand_ins(tmp_path, "unknown")
    assert not any((tmp_path / "spare").iterdir())
