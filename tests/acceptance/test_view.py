"""A session sees its own tree under the repository's path: what leads to the checkout leads to the story."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance.people import USERS, Person, somebody
from tests.isolation.guard_scenes import require

PACKAGE = "src/app/__init__.py"
BEHAVED = """
set -e
test "$(pwd -P)" = "{main}" && test "$PWD" = "{main}"
test "$(git rev-parse --show-toplevel)" = "{main}"
test "$(git rev-parse --abbrev-ref HEAD)" = autopilot/git
test -z "$(git status --porcelain)"
git worktree list --porcelain | grep -qx "worktree {main}"
echo one > one && git add one && git commit -qm one
git checkout -qb autopilot/aside HEAD~1 && echo two > two && git add two && git commit -qm two
git checkout -q autopilot/git && git rebase -q autopilot/aside
test "$(git log --format=%s -2 | tr '\\n' ' ')" = "one two "
test "$(cat {tree}/one)" = one && echo three > {tree}/three && test "$(cat three)" = three
! echo x > {main}.worktrees/.repository/config && ! git tag evil && ! git branch evil
! rm .git && ! mv .git elsewhere && git status
for n in $(seq 150); do
  echo $n > n.tmp && mv n.tmp n && git add n
  test "$(git show :n)" = $n && test "$(cat {tree}/n)" = $n
  echo x$n > n.tmp && mv n.tmp n
  test "$(git status --porcelain n)" = "AM n"
done
git add n
"""


@pytest.fixture(params=USERS)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    """Return whoever runs the tests, and an ordinary user if that is root."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    with somebody(request.param) as found:
        yield found


def activated(person: Person, root: Path) -> Person:
    """Make a virtual environment in the checkout, with the package installed in place, and activate it."""
    venv = root / ".venv"
    assert person.call(person.python, "-m", "venv", "--without-pip", str(venv), cwd=root).returncode == 0
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "__editable__.app.pth").write_text(f"{root}/src\n")
    person.hand_over(venv)
    path = f"{venv}/bin:{os.environ['PATH']}"
    return replace(person, environment={**person.environment, "VIRTUAL_ENV": str(venv), "PATH": path})


def test_an_editable_install_leads_into_the_story(person: Person) -> None:
    """A story that breaks its package fails, one that changes it is judged by its own change."""
    root = person.repository({PACKAGE: "value = 1\n", ".gitignore": ".venv/\nnode_modules/\n"})
    (root / "node_modules").mkdir()
    (root / "node_modules" / "app").symlink_to("../src/app")
    person.hand_over(root / "node_modules")
    (root / "autopilot-multi.toml").write_text('symlink-directories = ["node_modules"]\n')
    somebody_active = activated(person, root)
    tree = f"{root}.worktrees/git"
    verify = ['python -c "import app; assert app.value"']
    person.story(root, "broken", f"echo 'raise SystemExit(1)' > {PACKAGE}", verify=verify)
    changed = ['python -c "import app; assert app.value == 2"', "grep 2 node_modules/app/__init__.py"]
    person.story(
        root, "changed", f"echo 'value = 2' > {root}/{PACKAGE}", verify=[*changed, "! touch .venv/x"]
    )
    person.story(root, "git", BEHAVED.format(main=root, tree=tree), verify=[f"grep x150 {root}/n"])
    ran = somebody_active.run(root, "run", "--json")
    found = {story["id"]: story["status"] for story in ran.data["stories"]}
    logs = [path.read_text() for path in root.glob(".git/autopilot/runs/*/git/*.log")]
    assert found == {"broken": "failed", "changed": "done", "git": "done"}, logs
    assert (root / PACKAGE).read_text() == "value = 1\n"
    assert person.git(root, "status", "--porcelain") == "?? autopilot-multi.toml\n?? stories/\n"
    # The worktree that is kept can be used as it is.
    assert (Path(f"{root}.worktrees") / "broken" / "node_modules").readlink() == root / "node_modules"


def test_a_registration_that_git_would_renew_stays_as_it_is(person: Person) -> None:
    """Git notes where it found a worktree once its last note is a day old; a resumed story is that old."""
    root = person.repository({"README.md": "hello\n"})
    person.story(root, "a", "git status", verify=["git status && false"])
    assert person.run(root, "run", "--json").story("a")["status"] == "failed"
    note = root / ".git" / "worktrees" / "a" / "gitdir"
    registered, old = note.read_text(), time.time() - 3 * 86400
    assert registered == f"{root}.worktrees/a/.git\n"
    for path in note.parent.iterdir():
        os.utime(path, (old, old))
    person.story(root, "a", "git status && git commit --allow-empty -qm x", verify=["git status && false"])
    ran = person.run(root, "run", "--json")
    assert "verify `git status && false`" in ran.story("a")["reason"]
    assert note.read_text() == registered
