"""Repositories with submodules: a session sees its own tree, with git right in it and outside."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from runner.core.limits.kill_switches import Switch
from tests.acceptance.people import USERS, Person, somebody
from tests.acceptance.program import started, wait_until
from tests.isolation.guard.guard_scenes import require

HOOK = "git submodule update --init --recursive"
WORK = """
set -e
test "$(git rev-parse --show-toplevel)" = "{main}" && test -z "$(git status --porcelain)"
test "$(git -C libs/a rev-parse --show-toplevel)" = "{main}/libs/a"
test "$(git -C libs/a rev-parse --show-superproject-working-tree)" = "{main}"
test "$(git -C {tree}/libs/a rev-parse --show-toplevel)" = "{tree}/libs/a"
git submodule status --recursive > seen && ! grep -v '^ ' seen && test "$(grep -c . seen)" = 2 && rm seen
echo two > {main}/libs/a/code && git -C libs/a commit -qam two
echo deep > libs/a/inner/code && git -C libs/a/inner commit -qam deep
git -C libs/a add inner && git -C libs/a commit -qm inner
test "$(git status --porcelain)" = " M libs/a"
git add libs/a && git commit -qm moved
git checkout -qb autopilot/aside HEAD~1 && echo x > x && git add x && git commit -qm x
git checkout -q autopilot/sub && git rebase -q autopilot/aside && git submodule update --recursive
git mv libs/a libs/b && git -C libs/b rev-parse HEAD && git mv libs/b libs/a && git status
! echo x > {main}.worktrees/.repository/modules/lib/HEAD
! git -C {main}.worktrees/.repository/modules/lib update-ref refs/heads/evil HEAD
"""
VERIFY = 'test "$(cat {main}/libs/a/code)" = two && test "$(cat libs/a/inner/code)" = deep'


@pytest.fixture(params=USERS)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    """Return whoever runs the tests, and an ordinary user if that is root."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    with somebody(request.param) as found:
        yield found


def with_submodules(person: Person) -> Path:
    """Make a repository with a submodule that has one itself, both filled in the checkout."""
    inner = person.repository({"code": "one\n"}).rename(person.folder / "inner")
    library = person.repository({"code": "one\n"}).rename(person.folder / "library")
    person.git(library, "submodule", "--quiet", "add", str(inner), "inner")
    person.git(library, "commit", "-q", "-m", "inner")
    root = person.repository({"README.md": "hello\n", "linked": "[core]\n"})
    (root / "linked").write_text(f"[core]\n\tworktree = {root}/libs/a\n")
    person.git(root, "add", "linked")
    person.git(root, "submodule", "--quiet", "add", "--name", "lib", str(library), "libs/a")
    person.git(root, "submodule", "--quiet", "update", "--init", "--recursive")
    person.git(root, "commit", "-q", "-m", "library")
    (root / "autopilot-multi.toml").write_text(f'hooks.after_create = "{HOOK}"\n')
    return root


def state(person: Person, root: Path) -> list[str]:
    """Return what a story must not change of the checkout's submodule."""
    modules = root / ".git" / "modules" / "lib"
    files = [
        root / "linked",
        root / "libs" / "a" / ".git",
        modules / "config",
        modules / "modules" / "inner" / "config",
    ]
    looks = (("status", "--porcelain"), ("rev-parse", "HEAD"), ("for-each-ref",))
    return [
        *(file.read_text() for file in files),
        *(person.git(root / "libs" / "a", *each) for each in looks),
    ]


def test_submodules_belong_to_the_story(person: Person) -> None:
    """In the session and outside git finds each submodule where it is; the checkout's own is not touched."""
    root = with_submodules(person)
    tree = Path(f"{root}.worktrees/sub")
    before = state(person, root)
    person.story(root, "sub", WORK.format(main=root, tree=tree), verify=[VERIFY.format(main=root)])
    verify = f'test "$(cat {root}/libs/a/code)" = one'
    person.story(root, "lies", "cd libs/a && echo broken > code && git commit -qam broken", verify=[verify])
    # A configuration that is a link leads outside to a file of the checkout, which must not be rewritten.
    config = f"{root}.worktrees/.repository/worktrees/link/modules/lib/config"
    person.story(root, "link", f"ln -sf {root}/linked {config} && git -C libs/a status")
    ran = person.run(root, "run", "--json", "--max-attempts", "1")
    logs = [path.read_text() for path in root.glob(".git/autopilot/runs/*/*/*.log")]
    found = {each["id"]: each["status"] for each in ran.data["stories"]}
    assert (found["sub"], found["lies"]) == ("done", "failed"), (ran.err, logs)
    assert state(person, root) == before
    assert person.git(tree, "status", "--porcelain") == ""
    assert person.git(tree / "libs" / "a", "rev-parse", "--show-toplevel") == f"{tree}/libs/a\n"
    assert person.git(tree / "libs" / "a" / "inner", "log", "--format=%s", "-1") == "deep\n"
    person.git(tree, "submodule", "update", "--init", "--recursive")


def test_nothing_is_left_of_a_base_that_is_not_ready() -> None:
    """The worktree in which the base was asked goes with its submodules, and so does all around it."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    with somebody("me") as person:
        root = with_submodules(person)
        (root / "autopilot-multi.toml").write_text(
            f'verify = "cat libs/a/inner/code && false"\nhooks.after_create = "{HOOK}"\n'
        )
        person.story(root, "a", "true")
        assert person.run(root, "run", "--json").data["kill_switch"]["name"] == Switch.BASE
        assert not Path(f"{root}.worktrees").exists()


def test_a_killed_run_leaves_submodules_that_a_resume_repairs() -> None:
    """A run that is killed while a session has just filled them goes on; the checkout is as it was."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    with somebody("me") as person:
        root = with_submodules(person)
        (root / "autopilot-multi.toml").unlink()
        before = state(person, root)
        tree = Path(f"{root}.worktrees/sub")
        fills = f"test -e {person.folder}/again && echo done > done && git -C libs/a status && exit; {HOOK}"
        person.story(
            root, "sub", f"{fills} && touch {person.folder}/again && sleep 600", verify=["git status"]
        )
        with started(root, "run", env=person.environment) as running:
            wait_until((person.folder / "again").exists, what="the session that has filled its submodules")
            running.send(signal.SIGKILL)
            running.finish()
        assert person.run(root, "resume", "--json").story("sub")["status"] == "done"
        assert person.git(tree, "status", "--porcelain") == ""
        assert person.git(tree / "libs" / "a", "rev-parse", "--show-toplevel") == f"{tree}/libs/a\n"
        assert state(person, root) == before
