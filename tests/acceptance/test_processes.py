"""What a session can do to processes that are not its own: those of siblings, keepers and the coordinator."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance import process_intruder
from tests.acceptance.foreign_writes import FLAGS
from tests.acceptance.people import GROUNDS, USERS, Person, somebody
from tests.acceptance.program import Ran
from tests.isolation.guard.guard_scenes import landlock_version, require

SIGNAL_SCOPE = 6
WORKTREES = "worktrees"

pytestmark = pytest.mark.skipif(
    landlock_version() < SIGNAL_SCOPE, reason="this machine cannot keep the processes of sessions apart"
)


@pytest.fixture(params=USERS)
def who(request: pytest.FixtureRequest) -> str:
    """Name every user that the tests can be."""
    name: str = request.param
    return name


@pytest.fixture(params=[WORKTREES, "divert", "deny by mounts", "deny by Landlock"])
def ground(request: pytest.FixtureRequest) -> str:
    """Name every way in which sessions are kept apart, if this machine has it."""
    name: str = request.param
    if name == WORKTREES:
        require(EnforcementLevel.DENY, Means.MOUNTS)
    else:
        GROUNDS[name].require()
    return name


@pytest.fixture
def person(who: str, ground: str) -> Iterator[Person]:
    """Return somebody on that ground."""
    with somebody(who, landlocks=GROUNDS[ground].landlocks if ground in GROUNDS else 0) as found:
        yield found


def prepare(person: Person) -> tuple[Path, Path]:
    """Make a repository with an attacker and a victim, and return it with the folder where they meet."""
    root = person.repository({"packages/a/start": "a", "packages/b/start": "b"})
    program, meeting = shutil.copy(process_intruder.__file__, person.folder), person.folder / "home"
    for name, role in (("a", "attacker"), ("b", "victim")):
        person.story(root, name, f"{person.python} {program} {role} {meeting} packages/{name}")
    return root, meeting


def carry(person: Person, root: Path, ground: str) -> Ran:
    """Run both stories at the same time."""
    shared = () if ground == WORKTREES else (*FLAGS, "--enforce", GROUNDS[ground].level)
    return person.run(root, "run", *shared, "--max-stories", "2", "--json")


def test_a_session_reaches_no_process_but_its_own(person: Person, ground: str) -> None:
    """It can neither write through, trace, limit nor kill what is not below it; its own children it can."""
    root, meeting = prepare(person)
    ran = carry(person, root, ground)
    told = json.loads((meeting / "told.json").read_text())
    assert told.pop("own child") == dict.fromkeys(("environ", "ptrace", "signal", "getfd"), "through")
    through = {(who, act) for who, acts in told.items() for act, went in acts.items() if went == "through"}
    assert sorted(through) == []
    assert len(told["sibling"]) == len(process_intruder.ACTS)
    assert [story["status"] for story in ran.data["stories"]] == ["done", "done"], ran.err
    assert person.git(root, "show", "autopilot/b:packages/b/held") == "mine\n"
    assert "planted" not in person.git(root, "ls-tree", "-r", "--name-only", "autopilot/b")
    assert not list(root.rglob("planted-*"))


_WITHOUT_LANDLOCK = """
import errno, os, sys
from isolation.kernel.landlock import forbid_new_privileges
from isolation.kernel.seccomp import ALLOW, EQUAL, NUMBER_AT, REFUSE, answer, jump, load, set_filter
forbid_new_privileges()
set_filter(load(NUMBER_AT) + jump(EQUAL, 444, 0, 1) + answer(REFUSE | errno.ENOSYS) + answer(ALLOW))
os.execv(sys.executable, [sys.executable, "-m", "runner", *sys.argv[1:]])
"""


def test_a_machine_that_cannot_keep_processes_apart_says_so(who: str) -> None:
    """A kernel without Landlock: sessions still run under mounts, and plan, run and `doctor` name the gap."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    with somebody(who) as person:
        root = person.repository({"packages/a/start": "a"})
        person.story(root, "a", "echo x > packages/a/made")

        def run(*args: str) -> Ran:
            done = person.call(person.python, "-c", _WITHOUT_LANDLOCK, *args, cwd=root)
            return Ran(code=done.returncode, out=done.stdout, err=done.stderr)

        gap = "sessions are not kept from processes that are not theirs: one can "
        files = "write to the files of another session"
        for told in (run("plan", "--json"), run("plan", *FLAGS, "--json"), run("run", "--json")):
            assert (told.code, gap in told.err) == (0, True), told.err
            assert "end the processes of another session and end the run itself" in told.err
            # An ordinary user's sessions have a user namespace each, which keeps them from tracing others.
            assert (files in told.err) is (person.uid is None and os.getuid() == 0)
        checks = {check["name"]: check for check in json.loads(run("doctor", "--json").out)["data"]["checks"]}
        assert (checks["processes"]["level"], gap in checks["processes"]["detail"]) == ("warn", True)
        assert "Linux 6.12" in checks["processes"]["hint"]
        with_it = json.loads(person.run(root, "doctor", "--json").out)["data"]["checks"]
        assert next(check["level"] for check in with_it if check["name"] == "processes") == "ok"
        assert gap not in person.run(root, "plan", "--json").err
