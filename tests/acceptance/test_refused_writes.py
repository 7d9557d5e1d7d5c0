"""At `deny` a write outside the claim is refused; the real program names it, and the story fails."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance.people import GROUNDS, USERS, somebody
from tests.acceptance.program import Ran, command, run, write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import require

DENY = ("--bg-isolation", "none", "--deconflict-paths", "packages/{id}/**", "--enforce", "deny")
FOREIGN = """
echo x > new.txt; echo x > README.md; rm notes.txt; mv root.txt moved.txt; ln -s x link; mkdir folder
ln -s ../../packages/b packages/a/way; echo x > packages/a/way/x; echo x >> packages/c/x; true
"""
FILES = {f"packages/{name}/x": f"{name}\n" for name in "abc"} | {"root.txt": "root\n", "README.md": "read\n"}
NAMED = [
    "README.md",
    "folder",
    "link",
    "moved.txt",
    "new.txt",
    "notes.txt",
    "packages/b/x",
    "packages/c/x",
    "root.txt",
]

# Somebody listens already, as a container engine may.
UNDER_A_LISTENER = """
import ctypes, os, struct, sys
code = struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
buffer = ctypes.create_string_buffer(code, len(code))
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl(38, 1, 0, 0, 0)
program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
call = {"x86_64": 317, "aarch64": 277}[os.uname().machine]
made = libc.syscall(call, 1, ctypes.c_uint(8), program)
assert made >= 0, os.strerror(ctypes.get_errno())
os.set_inheritable(made, True)
os.execv(sys.argv[1], sys.argv[1:])
"""


def run_unwitnessed(cwd: Path, *args: str) -> Ran:
    """Run the program where the kernel tells it nothing."""
    done = subprocess.run(
        [sys.executable, "-c", UNDER_A_LISTENER, *command(*args)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


@pytest.fixture
def batch(make_repository: Callable[..., Path]) -> Path:
    """Return packages that a story each may own, and things that nobody may touch."""
    python = {"packages/__init__.py": "", "packages/b/__init__.py": "", "packages/b/code.py": "value = 1\n"}
    return make_repository(files={**FILES, **python, ".gitignore": "*.log\ndist/\n"})


def _story(root: Path, name: str, script: str = "", **keys: object) -> None:
    write_story(root, name, body="Do it.", command=f"echo new > packages/{name}/x; {script}", **keys)


def _tree(root: Path) -> dict[str, str]:
    """Read everything that no story of these tests owns."""
    outside = (path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts)
    names = {path.relative_to(root).as_posix(): path for path in outside}
    own = ("packages/a/", ".orchestrator/", "stories/")
    return {name: path.read_text() for name, path in names.items() if not name.startswith(own)}


@pytest.mark.parametrize("who", sorted(USERS))
@pytest.mark.parametrize("name", ["deny by mounts", "deny by Landlock"])
def test_a_story_that_ignores_every_refusal_fails(who: str, name: str) -> None:
    """Acceptance 18 at `deny`: each write is named, nothing is changed, and there is nothing to be kept."""
    ground = GROUNDS[name]
    ground.require()
    with somebody(who, landlocks=ground.landlocks) as person:
        root = person.repository(FILES)
        (root / "notes.txt").write_text("untracked\n")
        person.hand_over(root)
        person.story(root, "a", f"echo new > packages/a/x; {FOREIGN}")
        before = _tree(root)
        ran = person.run(root, "run", *DENY, "--json")
        assert ran.story("a")["status"] == "failed", ran.err
        reason = ran.story("a")["reason"]
        assert "tried to change outside its claim: README.md, folder, link" in reason
        assert "(refused)" in reason
        said = "autopilot-multi: refused outside its claim: "
        lines = person.run(root, "logs", "a", "--all").out.splitlines()
        named = [line.removeprefix(said) for line in lines if line.startswith(said)]
        assert named[: len(NAMED)] == NAMED, "by the first of its attempts"
        assert _tree(root) == before
        assert person.run(root, "quarantine", "--json").data["quarantines"] == []


def test_only_the_guilty_fails(batch: Path) -> None:
    """A sibling that keeps to its claim is done, and what it did is in its commit."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    _story(batch, "a", "echo x > packages/b/new || true")
    _story(batch, "b", "git status; git add -A; mkdir -p packages/b/d; rm -f nothing.txt; true")
    ran = run(batch, "run", *DENY, "--json")
    assert [ran.story(name)["status"] for name in "ab"] == ["failed", "done"], ran.err
    assert "packages/b/new" in ran.story("a")["reason"]
    assert git(batch, "diff", "--name-only", "main", "autopilot/b").split() == ["packages/b/x"]


def test_a_story_that_learns_from_it_is_done(batch: Path, tmp_path: Path) -> None:
    """The next prompt names what was refused beside what it said itself; a better attempt passes."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    script = "test $AUTOPILOT_ATTEMPT = 2 || { echo x > root.txt; echo I failed; exit 1; }"
    _story(batch, "a", f"cat > {tmp_path}/prompt-$AUTOPILOT_ATTEMPT; {script}")
    ran = run(batch, "run", *DENY, "--json")
    assert ran.story("a")["status"] == "done", ran.err
    told = [line.strip() for line in (tmp_path / "prompt-2").read_text().splitlines()]
    refused = told.index("You tried to change these paths, which lie outside your claim; it was refused:")
    assert told[refused + 1] == "root.txt"
    assert "I failed" in told[refused:]


def test_by_products_of_tools_fail_nobody(batch: Path) -> None:
    """Importing a neighbour's package is no attempt; what git ignores and what is merely opened is a note."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    python = f"env -u PYTHONDONTWRITEBYTECODE {sys.executable}"
    script = f"{python} -c 'import packages.b.code'; {python} -c 'open(\"root.txt\", \"r+\")'; "
    script += "echo x > run.log; mkdir packages/c/dist; true"
    _story(batch, "a", script)
    ran = run(batch, "run", *DENY, "--json")
    assert ran.story("a")["status"] == "done", ran.err
    notes = [line for line in ran.err.splitlines() if "note:" in line and "a  " in line]
    assert len(notes) == 1
    assert "ignored by git or only opened: packages/c/dist, root.txt, run.log" in notes[0]


def test_a_verify_command_is_watched_too(batch: Path) -> None:
    """What a verify command tries outside the claim fails the attempt, whatever its exit code."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    _story(batch, "a", verify=["echo x > snapshot.txt || true"])
    ran = run(batch, "run", *DENY, "--json")
    assert ran.story("a")["status"] == "failed"
    assert "snapshot.txt (refused)" in ran.story("a")["reason"]


def test_without_a_witness_it_is_said_and_refused_all_the_same(batch: Path) -> None:
    """Where the kernel tells nobody, plan, run and doctor say so, and the write is still refused."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    _story(batch, "a", "echo x > root.txt || true")
    told = "writes that the guard refuses cannot be reported here"
    assert told in run_unwitnessed(batch, "plan", *DENY).err
    assert told in run_unwitnessed(batch, "doctor").out
    ran = run_unwitnessed(batch, "run", *DENY, "--json")
    assert told in ran.err
    assert ran.story("a")["status"] == "done"
    assert (batch / "root.txt").read_text() == "root\n"
    for command_ in (("plan", *DENY), ("doctor",)):
        ran = run(batch, *command_)
        assert told not in ran.err + ran.out
