"""A run on a cluster that is stopped at once: what its sessions had done comes to the user's repositories."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.program import Running, run, started, wait_until, write_story
from tests.conftest import git

Make = Callable[..., Path]


@pytest.fixture
def app(make_repository: Make, tmp_path: Path) -> Path:
    """Return the repository of the run; one called web is beside it."""
    (tmp_path / "both").mkdir()
    make_repository("both/web")
    return make_repository("both/app")


def _backlog(app: Path, tmp_path: Path, *, stubborn: bool) -> Path:
    """Write a story for each repository that leaves work and waits; return the file that lets them end.

    A stubborn one must be killed.
    """
    gate = tmp_path / "gate"
    for name, repo, more in (("a", ".", "echo line"), ("w", "../web", "seq 300000")):
        half = f"echo half > half-{name}; git add half-{name}; git commit -qm half"
        left = f"{more} > left-{name}; echo {name} >> {tmp_path / 'ledger'}; sleep 300"
        half = f"trap '' TERM; {half}" if stubborn else half
        done = f"test -f half-{name} && test -s left-{name} && echo made > done-{name}"
        write_story(app, name, command=f"if test -e {gate}; then {done}; else {half}; {left}; fi", repo=repo)
    return gate


def _stop(app: Path, running: Running, *, by_hand: bool) -> None:
    """Stop the run at once, by the command or by three Ctrl-C."""
    if not by_hand:
        assert run(app, "stop", "--now").code == 0
        return
    for _ in range(3):
        before = running.err
        running.send(signal.SIGINT)
        wait_until(lambda before=before: running.err != before, what="Ctrl-C is heard")  # type: ignore[misc]


@pytest.mark.parametrize(
    ("by_hand", "goes_on"),
    [
        pytest.param(False, ["resume"], id="command-there"),
        pytest.param(False, ["run", "--cluster="], id="command-here", marks=pytest.mark.slow),
        pytest.param(True, ["resume"], id="hand-there", marks=pytest.mark.slow),
    ],
)
def test_work_of_a_stopped_session_comes_back_and_is_continued(
    app: Path, tmp_path: Path, *, by_hand: bool, goes_on: list[str]
) -> None:
    """Commits are on the story's branch, the rest is kept beside it, and the story continues with both.

    That holds in each repository, for little work and much, and wherever the story continues.
    """
    gate, ledger = _backlog(app, tmp_path, stubborn=by_hand), tmp_path / "ledger"
    places = {"a": app, "w": app.parent / "web"}
    with started(app, "--cluster", "local:1") as running:
        wait_until(lambda: ledger.exists() and len(ledger.read_text().split()) == 2, what="both left work")
        _stop(app, running, by_hand=by_hand)
        said = running.finish().err
    for name, repo in places.items():
        assert git(repo, "show", f"autopilot/{name}:half-{name}") == "half\n"
        kept = git(repo, "show", f"refs/autopilot/uncommitted/{name}:left-{name}")
        assert len(kept) == (5 if name == "a" else 1988895)
        assert f"refs/autopilot/uncommitted/{name}" in said
        assert f"repo.worktrees/{name}" in said, "and where its worktree is"
    gate.touch()
    ran = run(app, *goes_on)
    assert ran.code == 0, ran.err
    for name, repo in places.items():
        assert git(repo, "show", f"autopilot/{name}:done-{name}") == "made\n"
        assert git(repo, "show", f"autopilot/{name}:left-{name}")
        assert git(repo, "for-each-ref", "refs/autopilot/uncommitted") == "", "its branch has it now"
