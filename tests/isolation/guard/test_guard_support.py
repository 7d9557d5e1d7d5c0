"""What the machine can do is found out by trying, said in words, and never assumed."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from isolation.guard import guard
from isolation.model import Confinement, EnforcementLevel, Means
from isolation.shared_tree import levels
from tests.isolation.guard.guard_scenes import require

POOR = """
import json, os, sys
sys.path.append(sys.argv[1])
from isolation.shared_tree import levels
from isolation.kernel import landlock, mounts
for _ in range(int(sys.argv[2])):
    landlock.restrict([b"/nowhere"], [])
print(json.dumps([[each.level, each.available, each.means, each.reason] for each in levels.probe()]))
"""
ALL_LANDLOCKS = 16
"""So many may be stacked; one more is refused, and within the first nothing can be mounted."""

CONFINEMENT = Confinement(
    level=EnforcementLevel.DENY,
    means=Means.MOUNTS,
    read_only={
        Path("/r"): "the main checkout",
        Path("/r/.git"): "the shared git directory",
        Path("/r.worktrees"): "the other worktrees",
    },
    writable=(Path("/r.worktrees/one"), Path("/r/.git/objects")),
)


def support_under(landlocks: int) -> dict[str, tuple[bool, str | None, str]]:
    root = Path(guard.__file__).parents[2]
    command = [sys.executable, "-c", POOR, str(root), str(landlocks)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {level: (available, means, reason) for level, available, means, reason in json.loads(done.stdout)}


def test_every_level_is_offered_or_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of the trials, and a second question starts none."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other programs try the guard out in /tmp
    supports = levels.probe()
    assert [support.level for support in supports] == list(EnforcementLevel)
    assert all(support.reason for support in supports)
    assert supports[-1].available
    assert levels.probe()[0] is supports[0]
    assert not list(tmp_path.glob("autopilot-guard-*"))


def test_a_fork_and_a_new_interpreter_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """By which way a trial runs makes no difference, for any means and what it lets a session reach."""
    found = []
    for threads in (1, 2):
        monkeypatch.setattr("isolation.keeper.trying.threading.active_count", lambda: threads)  # noqa: B023
        tried = [(each, means) for each in (guard.READ_ONLY, guard.OVERLAID) for means in each.means]
        found.append([guard._try(each, means, None) for each, means in tried])
    assert found[0] == found[1]


def test_landlock_takes_the_place_of_mounts() -> None:
    """Where nothing can be mounted, `deny` is had by Landlock, and `divert` not at all."""
    require(EnforcementLevel.DENY, Means.LANDLOCK)
    supports = support_under(1)
    assert supports["deny"][:2] == (True, "landlock")
    assert supports["divert"][0] is False
    assert "an overlay mount in a namespace of its own: " in supports["divert"][2]


def test_a_machine_that_can_do_nothing_says_so() -> None:
    """Open case 27: neither namespaces nor Landlock leaves detection, with the reasons of both."""
    require(EnforcementLevel.DENY, Means.LANDLOCK)
    supports = support_under(ALL_LANDLOCKS)
    assert [supports[level][0] for level in ("divert", "deny", "detect")] == [False, False, True]
    assert "Landlock: landlock: " in supports["deny"][2]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_guard_that_leaks_is_not_offered(monkeypatch: pytest.MonkeyPatch, threads: int) -> None:
    """What counts is what became of the folder: a process that was not confined is found out.

    A process with one thread forks for the trial, one with several starts an interpreter.
    """
    unconfined = "import sys; sys.path.append(sys.argv[1]); from isolation.keeper import trial as t; "
    unconfined += "t.confine = lambda texts: None; t.main()"
    monkeypatch.setattr("isolation.keeper.trying.threading.active_count", lambda: threads)
    monkeypatch.setattr("isolation.keeper.trying._TRIAL", unconfined)
    monkeypatch.setattr("isolation.keeper.trial.confine", lambda _texts: None)
    for protection in (guard.READ_ONLY, guard.OVERLAID):
        assert guard.attempt(protection, Means.MOUNTS) == "it lets a session create, delete, truncate, write"


def test_a_checkout_around_the_home_is_not_guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that could not write to its home would not work at all."""
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    support = guard.worktree_support(tmp_path, tmp_path.parent / "trees")
    assert (support.available, support.means) == (False, None)
    assert "holds your home folder" in support.reason
    shared = levels.LEVELS[EnforcementLevel.DENY].support_for(tmp_path)
    assert (shared.available, shared.reason) == (False, support.reason)
    assert levels.LEVELS[EnforcementLevel.DETECT].support_for(tmp_path).available


def test_landlock_is_not_taken_for_a_repository_among_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There it would prevent all temporary files."""
    found = guard.Support(
        level=EnforcementLevel.DENY, available=True, means=Means.LANDLOCK, reason="Landlock"
    )
    monkeypatch.setattr(guard, "supported", lambda _protection, _where=None: found)
    monkeypatch.setattr(levels, "supported", lambda _protection, _where=None: found)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    inside = guard.worktree_support(tmp_path / "repo", tmp_path / "repo.worktrees")
    outside = guard.worktree_support(Path("/srv/repo"), Path("/srv/repo.worktrees"))
    assert (inside.available, outside) == (False, found)
    assert str(tmp_path) in inside.reason
    assert levels.LEVELS[EnforcementLevel.DENY].support_for(tmp_path / "repo").reason == inside.reason
    assert levels.LEVELS[EnforcementLevel.DENY].support_for(Path("/srv/repo")) == found


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("sh: 1: cannot create /r/a.py: Read-only file system", "the main checkout: a.py"),
        ("OSError: [Errno 30] Read-only file system: '/r/x/b.py'", "the main checkout: x/b.py"),
        ("open('../../r/c'): Permission denied\nrm: ../../r/c: Permission denied", "the main checkout: c"),
        ("touch: '/r.worktrees/two/a': Permission denied", "the other worktrees: two/a"),
        (
            "fatal: cannot lock '/r/.git/refs/x.lock': Read-only file system",
            "the shared git directory: refs/x.lock",
        ),
        ("Error: EROFS: read-only file system, open '/r/d'", "the main checkout: d"),
        (
            "fatal: cannot lock ref 'refs/notes/x': unable to create directory for /r/.git/refs/notes/x",
            "the shared git directory: refs/notes/x",
        ),
        ("sh: cannot create /proc/self/root/r/a: Read-only file system", "the main checkout: a"),
        ("sh: cannot create /proc/thread-self/root/r/a: Read-only file system", "the main checkout: a"),
        ("mv: cannot move '/r/lib' to '/r/x': Device or resource busy", "the main checkout: lib, x"),
        ("Error: EBUSY: resource busy or locked, rename '/r/lib' -> '/r/x'", "the main checkout: lib, x"),
        ("ln: cannot link 'held' => '/r/lib/a': Invalid cross-device link", "the main checkout: lib/a"),
        ("rm: cannot remove '/r.worktrees/one/held': Device or resource busy", ""),
        ("Cannot save the current status", "the shared git directory: refs/stash"),
        ("/r/a.py: No such file or directory", ""),
        ("/root/a.py: Permission denied", ""),
        ("/r.worktrees/one/a.py: Permission denied", ""),
        ("/r/.git/objects/x: Permission denied", ""),
    ],
)
def test_a_refusal_is_read_from_what_was_printed(output: str, said: str) -> None:
    """Only paths that were closed count, and each is named as what it is."""
    words = guard.refused(f"one\n{output}\ntwo", CONFINEMENT, Path("/r.worktrees/one"))
    assert words == (f"it tried to write into {said}" if said else "")


@pytest.mark.parametrize(
    "line",
    [
        "sh: 1: cannot create leads: Read-only file system",
        "OSError: [Errno 30] Read-only file system: 'leads'",
        "Error: EROFS: read-only file system, open 'leads'",
    ],
)
def test_a_refusal_that_names_no_closed_path_is_quoted(line: str) -> None:
    """A link of its own may lead to what is closed, and then the session names the link alone."""
    words = guard.refused(f"one\n  {line}\n{line}\ntwo", CONFINEMENT, Path("/r.worktrees/one"))
    assert words == f"it could not write to what is read-only: {line}"


def test_files_of_other_processes_are_named_if_a_program_says_that_they_were_denied() -> None:
    """Nothing but what is printed tells of them."""
    output = "cat: /proc/1/environ: Permission denied\ncat: /proc/9/maps: No such process"
    words = guard.refused(output, CONFINEMENT, Path("/r.worktrees/one"))
    assert words == "it was denied the files of other processes: /proc/1/environ"
