"""The write guard as a user meets it: what it refuses, what it says, and how to do without."""

import os
from pathlib import Path

import pytest

from tests.acceptance.people import NOTHING
from tests.acceptance.program import run, run_in, write_story
from tests.acceptance.written_runs import document
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount

guarded = pytest.mark.skipif(not can_mount(), reason="this machine cannot mount, and Landlock not in /tmp")


@guarded
def test_a_write_to_the_path_of_the_checkout_stays_in_the_story(repo: Path) -> None:
    """Acceptance 9: the main checkout stays as it is; what is refused elsewhere is told."""
    write_story(repo, "a", command=f"echo mine >> {repo}/README.md && echo evil > {repo}.worktrees/evil")
    write_story(repo, "b", command="echo x > b && git add b && git commit -qm b && mktemp && touch ~/b")
    write_story(repo, "c", command=f"echo mine >> {repo}/README.md")
    ran = run(repo, "--json")
    assert "it tried to write into the other worktrees: evil" in ran.story("a")["reason"]
    assert (repo / "README.md").read_text() == "hello\n"
    assert git(repo, "show", "autopilot/c:README.md") == "hello\nmine\n"
    assert ran.story("b")["status"] == "done"
    assert ran.data["enforcement"] == "deny"
    assert document(repo, "status")["data"]["enforcement"] == "deny"


@guarded
@pytest.mark.parametrize("how", ["separate", "link"])
def test_a_checkout_apart_from_its_git_directory_is_out_of_reach(
    repo: Path, tmp_path: Path, how: str
) -> None:
    """Acceptance 9: git itself does not know where such a checkout is; its ignored files are found, too."""
    store = tmp_path / "store"
    (repo / ".git").rename(store)
    if how == "link":
        (repo / ".git").symlink_to(store)
    else:
        (repo / ".git").write_text(f"gitdir: {store}\n")
    (store / "info" / "exclude").write_text(".env\n")
    (repo / ".env").write_text("key\n")
    (repo / ".worktreeinclude").write_text(".env\n")
    write_story(repo, "a", command=f"cp .env a && echo mine >> {repo}/README.md && pwd -P > b")
    ran = run(repo, "--json")
    assert ran.story("a")["status"] == "done"
    assert (repo / "README.md").read_text() == "hello\n"
    shown = [git(repo, "show", f"autopilot/a:{name}") for name in ("a", "b", "README.md")]
    assert shown == ["key\n", f"{repo}\n", "hello\nmine\n"]


@guarded
def test_hooks_and_verify_commands_are_guarded_too(repo: Path) -> None:
    """What judges a story cannot change the main checkout either, and sees the story's tree in its place."""
    (repo / "autopilot-multi.toml").write_text(f'[hooks]\nafter_run = "cp {repo}/a {repo}/hook"\n')
    forbidden = f"{repo}.worktrees/verify"
    write_story(repo, "a", command="echo x > a", verify=[f"cat {repo}/a > {forbidden}"])
    ran = run(repo, "--json")
    assert "it tried to write into the other worktrees: verify" in ran.story("a")["reason"]
    assert not (repo / "a").exists()
    assert not (repo / "hook").exists()
    assert (repo.parent / f"{repo.name}.worktrees" / "a" / "hook").read_text() == "x\n"


@guarded
def test_a_sibling_is_closed_while_it_works(repo: Path) -> None:
    """One story cannot write into the worktree of another that runs at the same time."""
    there = repo.parent / f"{repo.name}.worktrees" / "b"
    wait = f"until [ -e {there}/ready ]; do sleep 0.01; done"
    write_story(repo, "a", command=f"{wait}; echo evil > {there}/ready; echo x > $HOME/tried")
    write_story(repo, "b", command="echo fine > ready; until [ -e $HOME/tried ]; do sleep 0.01; done")
    ran = run(repo, "--json")
    assert ran.story("b")["status"] == "done"
    assert git(repo, "show", "autopilot/b:ready") == "fine\n"


@guarded
def test_marks_that_git_could_not_remove_do_not_stop_a_story(repo: Path) -> None:
    """A pick in a session is done, though the lock that git wants for its mark is out of reach."""
    pick = "git checkout -qb autopilot/aside && echo x > x && git add x && git commit -qm x"
    write_story(
        repo, "a", command=f"{pick} && git checkout -q autopilot/a && git cherry-pick autopilot/aside"
    )
    ran = run(repo, "--json")
    assert (ran.story("a")["status"], ran.story("a")["commits"]) == ("done", 1)


def test_without_the_guard_it_is_said_what_is_lost(repo: Path) -> None:
    """`--no-guard` lets the write through; plan and report say so."""
    write_story(repo, "a", command=f"echo x > a && echo x > {repo}/made")
    planned = run(repo, "plan", "--no-guard", "--json")
    ran = run(repo, "--no-guard", "--json")
    assert ran.story("a")["status"] == "done"
    assert (repo / "made").exists()
    assert (planned.data["enforcement"], ran.data["enforcement"]) == ("none", "none")
    for told in (planned.err, ran.err):
        assert "the write guard is switched off: sessions can write into the main checkout" in told


def test_a_setting_switches_it_off_too(repo: Path) -> None:
    """A file says it as the flag does; nonsense is refused with what is allowed."""
    write_story(repo, "a", command="true")
    (repo / "autopilot-multi.toml").write_text("guard = false\n")
    assert run(repo, "plan", "--json").data["enforcement"] == "none"
    found = {check["name"]: check for check in document(repo, "doctor")["data"]["checks"]}
    assert (found["guard"]["level"], "guard = true" in found["guard"]["hint"]) == ("warn", True)
    (repo / "autopilot-multi.toml").write_text('guard = "perhaps"\n')
    ran = run(repo, "plan")
    assert (ran.code, '"true" or "false"' in ran.err) == (1, True)


@guarded
def test_a_machine_without_any_means_runs_and_says_so(repo: Path) -> None:
    """Open case 27: no guard to be had is announced with the reasons, in plan and report, never silent."""
    write_story(repo, "a", command="echo x > a")
    for arguments in (["plan", "--json"], ["run", "--json"]):
        ran = run_in(repo, *arguments, environ=os.environ, landlocks=NOTHING)
        assert ran.code == 0, ran.err
        assert ran.data["enforcement"] == "none"
        assert "no write guard is available here, so sessions can write into the main checkout" in ran.err
        assert "Landlock: " in ran.err


@guarded
def test_doctor_tells_the_levels(repo: Path) -> None:
    """Each level that can be had is named with its means."""
    found = {check["name"]: check for check in document(repo, "doctor")["data"]["checks"]}
    assert "deny (" in found["sandbox"]["detail"]
    assert found["guard"]["detail"].startswith("deny: the main checkout and other worktrees are read-only")
