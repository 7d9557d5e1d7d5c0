"""The open cases of enforcement, each by its number: the real program, as root and as an ordinary user."""

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance.people import GROUNDS, NO_MOUNTS, NOTHING, USERS, Ground, Person, somebody
from tests.acceptance.program import Ran, processes_with
from tests.isolation.guard.guard_scenes import require

SHARED = ("--bg-isolation", "none", "--deconflict-paths", "packages/{id}/**")
FILES = {"root.txt": "root\n", ".gitignore": "/ignored\n"} | {f"packages/{name}/x": name for name in "ab"}
DAEMON = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() or os.setsid() is None and os.fork():
    os._exit(0)
os.close(1)
while True:
    try:
        with open("root.txt", "a") as file:
            file.write("daemon")
    except OSError:
        pass
    time.sleep(0.01)
"""


@pytest.fixture(params=USERS)
def who(request: pytest.FixtureRequest) -> str:
    """Name every user that the tests can be."""
    name: str = request.param
    return name


@pytest.fixture(params=GROUNDS)
def ground(request: pytest.FixtureRequest) -> Ground:
    """Return every level of a shared tree, by every means, if this machine has it."""
    found = GROUNDS[request.param]
    found.require()
    return found


@pytest.fixture
def person(who: str) -> Iterator[Person]:
    """Return somebody on this machine as it is."""
    with somebody(who) as found:
        yield found


def _everything(root: Path) -> dict[str, bytes]:
    """Read all files of a repository and of the folders beside it, the program's own traces included."""
    found = {}
    for place in sorted(root.parent.rglob("*")):
        if "tmp" not in place.relative_to(root.parent).parts[:1]:
            found[str(place)] = place.read_bytes() if place.is_file() and not place.is_symlink() else b""
    return found


def _refused(person: Person, root: Path, *args: str) -> str:
    """Have something refused: exit 1, one error with a hint on one line, and not a byte changed."""
    before = _everything(root)
    ran = person.run(root, *args, "--json")
    assert ran.code == 1, ran.out
    error = ran.document["error"]
    assert error["hint"]
    message: str = error["message"]
    assert message.isprintable()
    assert len(message) < 400
    assert _everything(root) == before
    return message


def _first(ran: Ran) -> str:
    return f"{ran.story('a')['status']}: {ran.story('a')['reason']}"


def test_a_daemon_is_dead_before_its_story_is_judged(who: str, ground: Ground) -> None:
    """Open cases 5, 11 and 12: forked twice, in a session of its own, deaf to TERM, without environment."""
    marker = f"marker-{uuid.uuid4().hex}"
    with somebody(who, landlocks=ground.landlocks) as person:
        root = person.repository(FILES)
        (person.folder / "daemon.py").write_text(DAEMON)
        start = f"env -i {person.python} {person.folder}/daemon.py {marker} & wait; sleep 0.2"
        person.story(root, "a", f"echo new > packages/a/x; {start}")
        flags = ("--enforce", ground.level, "--max-sessions", "1", "--grace-seconds", "0")
        ran = person.run(root, "run", *SHARED, *flags, "--json")
        assert not processes_with(marker)
        assert (root / "root.txt").read_text() == "root\n"
        kept = person.run(root, "quarantine", "--json").data["quarantines"]
        wrote = [[change["path"] for change in one["changes"]] for one in kept]
        denied = ground.level is EnforcementLevel.DENY
        assert wrote == ([] if denied else [["root.txt"]]), "it was alive, and what it wrote is kept"
        assert "outside its claim: root.txt" in ran.err
        assert ran.story("a")["status"] != "done", _first(ran)


@pytest.mark.parametrize("means", list(Means))
def test_a_daemon_does_not_outlive_its_worktree(who: str, means: Means) -> None:
    """Open cases 5, 11 and 12 in a worktree: it writes into the main checkout, in vain, and is dead."""
    require(EnforcementLevel.DENY, means)
    landlocks = NO_MOUNTS if means is Means.LANDLOCK else 0
    marker = f"marker-{uuid.uuid4().hex}"
    with somebody(who, landlocks=landlocks) as person:
        root = person.repository(FILES)
        (person.folder / "daemon.py").write_text(DAEMON)
        start = f"cd {root} && env -i {person.python} {person.folder}/daemon.py {marker} & wait; sleep 0.2"
        person.story(root, "a", f"echo new > x; {start}")
        ran = person.run(root, "run", "--grace-seconds", "0", "--json")
        assert (ran.code, ran.data["enforcement"]) == (0, "deny"), ran.err
        assert not processes_with(marker)
        assert (root / "root.txt").read_text() == "root\n"


def test_a_session_cannot_commit(who: str, ground: Ground) -> None:
    """Open case 10: git fails cleanly and leaves no lock; refs and index stay; the coordinator commits."""
    with somebody(who, landlocks=ground.landlocks) as person:
        root = person.repository(FILES)
        before = (person.git(root, "ls-files", "--stage"), person.git(root, "rev-parse", "HEAD"))
        tries = (
            "git commit -qam mine || echo no-commit; git stash || echo no-stash; git branch b || echo no-b"
        )
        person.story(root, "a", f"echo new > packages/a/x; {tries}; git status --short")
        ran = person.run(root, "run", *SHARED, "--enforce", ground.level, "--json")
        assert (ran.code, ran.story("a")["commits"]) == (0, 1), _first(ran)
        logged = person.run(root, "logs", "a", "--all").out.split()
        assert {"no-commit", "no-stash", "no-b", "packages/a/x"} <= set(logged)
        assert (person.git(root, "ls-files", "--stage"), person.git(root, "rev-parse", "HEAD")) == before
        refs = person.git(root, "for-each-ref", "--format=%(refname)").split()
        assert refs == ["refs/heads/autopilot/a", "refs/heads/main"]
        assert not list((root / ".git").rglob("*.lock")) or all(
            path.parent.name == "autopilot" for path in (root / ".git").rglob("*.lock")
        )


@pytest.mark.parametrize("name", ["divert", "detect"])
def test_a_foreign_write_fails_its_story_to_the_end(who: str, name: str) -> None:
    """Acceptance 18, open case 9: a story that never learns fails, and says which paths it changed."""
    GROUNDS[name].require()
    with somebody(who) as person:
        root = person.repository(FILES)
        (root / "ignored").write_text("the user's\n")
        person.hand_over(root)
        person.story(root, "a", "echo new > packages/a/x; echo x > ignored; rm packages/b/x")
        ran = person.run(root, "run", *SHARED, "--enforce", name, "--json")
        assert ran.code == 3, ran.err
        assert "changed outside its claim: ignored, packages/b/x; kept as refs/autopilot/" in _first(ran)
        assert ((root / "ignored").read_text(), (root / "packages/b/x").read_text()) == ("the user's\n", "b")


def test_a_claim_holds_in_a_worktree(person: Person) -> None:
    """Acceptance 19: a change outside of the claim fails the story, and the path is named."""
    root = person.repository(FILES)
    person.story(root, "a", "echo new > packages/a/x; echo stray > stray.txt", owns=["packages/a/**"])
    ran = person.run(root, "run", "--json")
    assert ran.story("a")["status"] == "failed"
    assert "stray.txt" in ran.story("a")["reason"]


def test_one_tree_needs_claims_that_are_proven(person: Person) -> None:
    """Acceptance 16 and 17, open cases 6 and 7: refused before anything starts, with a witness path."""
    root = person.repository(FILES)
    for name in "ab":
        person.story(root, name, "true")
    assert "needs --deconflict-paths" in _refused(person, root, "run", "--bg-isolation", "none")
    for verb in ("plan", "run"):
        overlap = _refused(
            person, root, verb, *SHARED, "--deconflict-paths", "b=packages/*/x", "--bg-isolation", "none"
        )
        assert "stories a and b both own packages/a/x" in overlap
    named = ("--bg-isolation", "none", "--deconflict-paths", "a=Docs/**", "--deconflict-paths", "b=docs/x")
    assert person.run(root, "plan", *named, "--json").code == 0
    (root / ".GIT").symlink_to(".git")  # as on a disk that takes both names for one
    assert "both own docs/x" in _refused(person, root, "run", *named)


@pytest.mark.parametrize(
    ("glob", "words"),
    [
        ("../x", "has the component '..'"),
        ("a/../b", "has the component '..'"),
        ("/etc/**", "is absolute"),
        ("", "is empty"),
        ("a/[b", "'['"),
    ],
)
def test_a_glob_that_cannot_be_meant_is_refused(person: Person, glob: str, words: str) -> None:
    """Open case 8: from the command line and from a story, before anything starts."""
    root = person.repository(FILES)
    person.story(root, "a", "true")
    flag = _refused(person, root, "run", "--bg-isolation", "none", "--deconflict-paths", f"a={glob}")
    person.story(root, "a", "true", owns=[glob])
    owned = _refused(person, root, "run")
    assert all(words in message for message in (flag, owned)), (flag, owned)


def test_a_glob_with_a_nul_is_refused(person: Person) -> None:
    """Open case 8: no command line can hold one, but a story file and a settings file can."""
    root = person.repository(FILES)
    person.story(root, "a", "true", owns=["a\0b"])
    assert "NUL" in _refused(person, root, "run")
    person.story(root, "a", "true")
    (root / "autopilot-multi.toml").write_text('deconflict-paths = ["a\\u0000b"]\n')
    assert "NUL" in _refused(person, root, "run")


BAD_IDS = ("../x", "-rf", "a\nb", "x" * 300, ".git")
BAD_BRANCHES = ("-d", "a.lock", "@", "a.", "a..b", "story/a", "a\x1b[31m")


def test_an_id_that_cannot_be_one_is_refused(person: Person) -> None:
    """Open cases 25 and 26: in a story file or a list file, before any act."""
    root = person.repository(FILES)
    for name in (*BAD_IDS, *BAD_BRANCHES):
        person.story(root, "a", "true", id=name)
        assert "cannot be an id" in _refused(person, root, "run"), name
    for name in BAD_IDS:
        (root / "list.json").write_text(json.dumps({"stories": [{"id": name, "command": "true"}]}))
        assert "cannot be an id" in _refused(person, root, "run", "list.json"), name


def test_an_id_that_cannot_be_one_is_refused_on_the_command_line(person: Person) -> None:
    """Open case 25: wherever an id can be named, before any act."""
    root = person.repository(FILES)
    person.story(root, "a", "true")
    for name in BAD_IDS:
        assert "no story" in _refused(person, root, "run", f"--only={name}"), name
        if not any(character.isspace() for character in name):  # that is a prompt
            _refused(person, root, "run", name)


def test_a_prompt_with_a_newline_gets_a_safe_id(person: Person) -> None:
    """Open case 25: words on the command line become an id that can be one."""
    root = person.repository(FILES)
    (root / "autopilot-multi.toml").write_text('agent = "x"\n[agents.x]\nargv = ["true"]\n')
    ran = person.run(root, "plan", "../x -rf\n.git", "--json")
    assert [story["id"] for story in ran.data["stories"]] == ["x-rf-git"], ran.err


@pytest.mark.parametrize(("taken", "name"), [("autopilot", "a"), ("autopilot/a/b", "a")])
def test_a_branch_in_the_way_is_named(person: Person, taken: str, name: str) -> None:
    """Open case 26: git keeps `story` and `story/a` in one place; the story fails, and nothing is made."""
    root = person.repository(FILES)
    person.git(root, "branch", taken)
    person.story(root, name, "true")
    for flags in ((), (*SHARED, "--enforce", "detect")):
        ran = person.run(root, "run", *flags, "--json")
        assert f"cannot be created while branch {taken} exists" in ran.story(name)["reason"]
        assert person.git(root, "branch", "--format=%(refname:short)").split() == sorted(["main", taken])
        assert len(person.git(root, "worktree", "list").splitlines()) == 1


def test_a_machine_without_any_means_says_so(who: str) -> None:
    """Open case 27: without namespaces and Landlock there is detection alone, which is never silent."""
    require(EnforcementLevel.DENY, Means.LANDLOCK)
    with somebody(who, landlocks=NOTHING) as person:
        root = person.repository(FILES)
        for name in "ab":
            person.story(root, name, f"echo new > packages/{name}/x")
        for verb in ("plan", "run"):
            message = _refused(person, root, verb, *SHARED)
            assert "such writes can only be found afterwards (divert: " in message
            assert "Landlock: " in message
        assert "is not available on this machine" in _refused(
            person, root, "run", *SHARED, "--enforce", "deny"
        )
        for verb, flags in (("plan", ("--max-stories", "1")), ("run", ("--enforce", "detect"))):
            ran = person.run(root, verb, *SHARED, *flags, "--json")
            assert (ran.code, ran.data["enforcement"]) == (0, "detect"), ran.err
            assert "outside a story's claim is not prevented, only found" in ran.err
        for verb in ("plan", "run"):
            ran = person.run(root, verb, "--again", "--json")
            assert (ran.code, ran.data["enforcement"]) == (0, "none"), ran.err
            assert "no write guard is available here" in ran.err
        checks = person.run(root, "doctor", "--json").data["checks"]
        assert {check["name"]: check["level"] for check in checks}["guard"] == "warn"


@pytest.mark.skipif("nobody" not in USERS, reason="only root can give files away")
def test_a_tree_of_another_group_is_not_worked_on_in_layers() -> None:
    """Acceptance 18: an ordinary user's layer cannot take such files over, so the next level is chosen."""
    require(EnforcementLevel.DIVERT, Means.MOUNTS)
    with somebody("nobody") as person:
        root = person.repository({**FILES, "src/x.py": "x\n"})
        for place in (root, *root.rglob("*")):
            os.chown(place, -1, 12345, follow_symlinks=False)
        person.story(root, "a", "echo new > src/x.py; echo new > src/y.py")
        claim = ("--bg-isolation", "none", "--deconflict-paths", "a=src/*.py")
        no = _refused(person, root, "run", *claim, "--enforce", "divert")
        assert "belongs to another group" in no
        ran = person.run(root, "run", *claim, "--json")
        assert (ran.code, ran.data["enforcement"]) == (0, "deny"), ran.err
        assert person.git(root, "diff", "--name-only", "main", "autopilot/a").split() == [
            "src/x.py",
            "src/y.py",
        ]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can take the namespaces away")
def test_without_namespaces_landlock_takes_their_place(who: str) -> None:
    """Open case 27 in part, acceptance 18: the next level is taken, and why the first is missing is said."""
    require(EnforcementLevel.DENY, Means.LANDLOCK)
    with somebody(who, namespaces=False) as person:
        root = person.repository(FILES)
        for name in "ab":
            once = "test $AUTOPILOT_ATTEMPT = 2 || echo x > root.txt"
            person.story(root, name, f"echo new > packages/{name}/x; mktemp; {once}; true")
        no = _refused(person, root, "run", *SHARED, "--enforce", "divert")
        assert "make a user namespace: the limit of namespaces is reached" in no
        ran = person.run(root, "run", *SHARED, "--json")
        assert (ran.data["enforcement"], (root / "root.txt").read_text()) == ("deny", "root\n"), ran.err
        assert "root.txt: Permission denied" in person.run(root, "logs", "a", "--all").out
        for name in "ab":
            assert person.git(root, "show", f"autopilot/{name}:packages/{name}/x") == "new\n"
