"""A session sees its own tree under the repository's path: what leads to the checkout leads to the story."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance.people import USERS, Person, somebody
from tests.isolation.guard.guard_scenes import require

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
for n in $(seq {times}); do
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


@pytest.mark.parametrize("times", [15, pytest.param(150, marks=pytest.mark.chaos)])
def test_an_editable_install_leads_into_the_story(person: Person, times: int) -> None:
    """A story that breaks its package fails, one that changes it is judged by that; git is right."""
    root = person.repository({PACKAGE: "value = 1\n", ".gitignore": ".venv/\nnode_modules/\n"})
    (root / "node_modules").mkdir()
    (root / "node_modules" / "app").symlink_to("../src/app")
    person.hand_over(root / "node_modules")
    (root / "autopilot-multi.toml").write_text('symlink-directories = ["node_modules"]\n')
    somebody_active = activated(person, root)
    person.git(root, "worktree", "add", "-q", ".claude/worktrees/mine")  # where another program keeps its own
    tree = f"{root}.worktrees/git"
    verify = ['python -c "import app; assert app.value"']
    person.story(root, "broken", f"echo 'raise SystemExit(1)' > {PACKAGE}", verify=verify)
    changed = ['python -c "import app; assert app.value == 2"', "grep 2 node_modules/app/__init__.py"]
    person.story(
        root,
        "changed",
        f"echo 'value = 2' > {root}/{PACKAGE}",
        verify=[*changed, '! touch .venv/x && test "$UV_PROJECT_ENVIRONMENT" = .venv-story'],
    )
    person.story(root, "git", BEHAVED.format(main=root, tree=tree, times=times), verify=[f"grep x{times} n"])
    ran = somebody_active.run(root, "run", "--json")
    found = {story["id"]: story["status"] for story in ran.data["stories"]}
    logs = [path.read_text() for path in root.glob(".git/autopilot/runs/*/git/*.log")]
    assert found == {"broken": "failed", "changed": "done", "git": "done"}, logs
    assert (root / PACKAGE).read_text() == "value = 1\n"
    assert person.git(root, "status", "--porcelain") == "?? .claude/\n?? autopilot-multi.toml\n?? stories/\n"
    # The worktree that is kept can be used as it is.
    assert (Path(f"{root}.worktrees") / "broken" / "node_modules").readlink() == root / "node_modules"


def test_a_spare_and_hooks_lead_into_the_story(person: Person) -> None:
    """A tree of the pool stands at the checkout's path as a new one does, for hooks, work and verify."""
    root = person.repository({PACKAGE: "value = 1\n", ".gitignore": ".venv/\n"})
    told = f'test \\"$(pwd -P)\\" = {root} && python -c \\"import app; print(app.__file__)\\" > {{}}'
    hooks = [f'{name} = "{told.format(name)}"\n' for name in ("after_create", "before_run")]
    (root / "autopilot-multi.toml").write_text("pool = 1\nmax-attempts = 1\n[hooks]\n" + "".join(hooks))
    active = activated(person, root)
    where = "git rev-parse --git-dir > where"
    person.story(root, "first", "echo x > x")
    assert active.run(root, "run", "--json").story("first")["status"] == "done"
    (spare,) = Path(f"{root}.worktrees").glob("_spare-*")
    kept = Path((spare / ".git").read_text().strip()).name
    verify = ['python -c "import app; assert app.value == 2"']
    person.story(root, "fine", f"echo 'value = 2' > {PACKAGE}; {where}", verify=verify)
    fine = active.run(root, "run", "fine", "--json")
    assert fine.story("fine")["status"] == "done", fine.err
    assert Path(person.git(root, "show", "autopilot/fine:where").strip()).name == kept
    for name in ("after_create", "before_run"):
        assert person.git(root, "show", f"autopilot/fine:{name}").strip() == f"{root}/{PACKAGE}"
    person.story(root, "broken", f"echo 'raise SystemExit(1)' > {PACKAGE}", verify=["python -c 'import app'"])
    assert active.run(root, "run", "broken", "--json").story("broken")["status"] == "failed"


def test_a_run_from_a_linked_worktree_stands_in_for_both_checkouts() -> None:
    """A session starts where the run was started; that checkout and the main one lead to its own tree."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    with somebody("me") as person:
        root = person.repository({"README.md": "hello\n", ".gitignore": ".venv/\n"})
        person.git(root, "worktree", "add", "-q", "../linked")
        linked = root.parent / "linked"
        makes = "mkdir -p .venv && echo own > .venv/made"
        (linked / "autopilot-multi.toml").write_text(f'hooks.after_create = "{makes}"\n')
        (linked / ".venv").mkdir()
        (linked / ".venv" / "pyvenv.cfg").touch()
        active = replace(person, environment={**person.environment, "VIRTUAL_ENV": f"{linked}/.venv"})
        told = f"pwd -P > where && echo mine >> {root}/README.md && cat {linked}/README.md > copy"
        own = "ls .venv/made && ! ls .venv/pyvenv.cfg"
        person.story(linked, "a", told, verify=["git status && grep mine copy", own])
        ran = active.run(linked, "run", "--json")
        assert ran.story("a")["status"] == "done", ran.err
        assert person.git(root, "show", "autopilot/a:where") == f"{linked}\n"
        assert (root / "README.md").read_text() == (linked / "README.md").read_text() == "hello\n"


def test_a_run_from_a_worktree_inside_the_checkout_stands_in_for_both(person: Person) -> None:
    """Where other programs keep their worktrees, too, all paths of both checkouts lead into the story."""
    root = person.repository({"README.md": "hello\n"})
    for name in ("mine", "other"):
        person.git(root, "worktree", "add", "-q", f".claude/worktrees/{name}")
    inner = root / ".claude" / "worktrees" / "mine"
    (inner / ".venv").mkdir()
    (inner / ".venv" / "pyvenv.cfg").touch()
    (inner / ".venv" / ".gitignore").write_text("*\n")
    person.hand_over(inner / ".venv")
    active = replace(person, environment={**person.environment, "VIRTUAL_ENV": f"{inner}/.venv"})
    script = f"""set -e
test "$(pwd -P)" = "{inner}" && test "$(git rev-parse --show-toplevel)" = "{inner}"
ls {inner}/.venv/pyvenv.cfg && ! ls {root}/.claude/worktrees/other
echo mine > {root}/README.md && test "$(cat README.md)" = mine
test "$(git -C {root} rev-parse --show-toplevel)" = "{root}"
test "$(git status --porcelain)" = " M README.md"
test "$(git -C {root} status --porcelain)" = " M README.md"
git -C {root} add -A && git commit -qm mine"""
    person.story(inner, "a", script, verify=[f"grep mine {root}/README.md {inner}/README.md"])
    planned = active.run(inner, "plan", "--json")
    ran = active.run(inner, "run", "--json")
    logs = [path.read_text() for path in root.glob(".git/autopilot/runs/*/a/*.log")]
    assert ran.story("a")["status"] == "done", (planned.out, ran.err, logs)
    assert person.git(root, "show", "--name-only", "--format=", "autopilot/a") == "README.md\n"
    outside = [each for each in root.rglob("README.md") if ".git" not in each.parts]
    assert {each.read_text() for each in outside} == {"hello\n"}
    assert not Path(f"{root}.worktrees").exists()
