"""Worktrees as layers over one checkout: stories end as in worktrees, nothing stays mounted or is lost."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance.people import USERS, Person, somebody
from tests.acceptance.program import LIMIT, wait_until
from tests.isolation.guard.guard_scenes import require

FILES = {
    ".gitignore": "*.o\nbuild/\n",
    "src/a.py": "a = 1\n",
    "src/deep/b.py": "b = 1\n",
    "src/deep/c.py": "c = 1\n",
    "lib/d.txt": "d\n",
    "run.sh": "exit 0\n",
}
BUSY = """
set -e
echo a = 2 > src/a.py; rm src/deep/b.py; mkdir -p build; echo x > build/x.o; echo y > src/y.o
mv lib lib2; chmod +x run.sh; ln -s src link; git add -A; git commit -qm mine; echo later > src/later.py
test "$(git status --porcelain)" = "?? src/later.py"
"""
WORKSPACES = ("worktree", "overlay")


@pytest.fixture(params=USERS)
def person(request: pytest.FixtureRequest) -> Iterator[Person]:
    """Return whoever runs the tests, and an ordinary user if that is root."""
    require(EnforcementLevel.DIVERT, Means.MOUNTS)
    with somebody(request.param) as found:
        yield found


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] * (name != "me")) for name in USERS])
def anybody(request: pytest.FixtureRequest) -> Iterator[Person]:
    """Return the same, an ordinary user only in the suite of what is slow."""
    require(EnforcementLevel.DIVERT, Means.MOUNTS)
    with somebody(request.param) as found:
        yield found


@contextmanager
def beside(person: Person, root: Path, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run the program beside the test; it is gone afterwards."""
    process = subprocess.Popen(
        person.command(*args),
        cwd=root,
        env={**os.environ, **person.environment},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        user=person.uid,
        group=person.uid,
        extra_groups=None if person.uid is None else [],
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=LIMIT)


def committed(person: Person, root: Path) -> None:
    """Commit the stories."""
    person.git(root, "add", "-A")
    person.git(root, "commit", "-q", "-m", "stories")


def overlays(folder: Path) -> list[str]:
    """Return what the machine itself has mounted below a folder."""
    return [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line]


def test_stories_end_as_in_worktrees(person: Person) -> None:
    """Commits, kept trees, dependencies, verify and land are the same; gc removes what is below."""
    root = person.repository(FILES)
    person.story(root, "busy", BUSY, verify=["test ! -e build && test -x run.sh && test -d lib2"])
    person.story(root, "next", "cat src/later.py > after.txt", depends_on=["busy"])
    person.story(root, "fails", "echo left > left.txt; echo z > z.o; exit 1", max_attempts=1)
    person.story(root, "wrong", "echo w > w.txt", verify=["test -e nowhere"], max_attempts=1)
    committed(person, root)
    clones = {name: person.folder / name / "repo" for name in WORKSPACES}
    seen = {}
    for name, clone in clones.items():
        person.git(person.folder, "clone", "-q", str(root), str(clone))
        ran = person.run(clone, "run", f"--workspace={name}", "--json")
        statuses = {story["id"]: story["status"] for story in ran.data["stories"]}
        trees = person.git(clone, "for-each-ref", "--format=%(refname) %(tree)", "refs/heads/autopilot")
        kept = {
            story: person.git(Path(f"{clone}.worktrees") / story, "status", "--porcelain", "--ignored")
            for story in ("fails", "wrong")
        }
        landed = person.run(clone, "land", "--trust")
        seen[name] = (ran.code, statuses, trees, kept, landed.code, person.git(clone, "ls-files", "-s"))
    assert seen["overlay"] == seen["worktree"]
    assert seen["overlay"][1] == {"busy": "done", "next": "done", "fails": "failed", "wrong": "failed"}
    assert "left.txt" in seen["overlay"][3]["fails"]
    clone = clones["overlay"]
    folder = Path(f"{clone}.worktrees")
    assert [path.name[:6] for path in folder.glob("_*")] == ["_base-"]
    assert not (folder / ".layers").exists()
    assert not overlays(person.folder)
    removed = person.run(clone, "gc", "--apply", "--json").data["worktrees"]
    assert [row["verdict"] for row in removed if "_base-" in row["path"]] == ["removed"]
    assert not list(folder.glob("_base-*"))


def test_a_killed_run_leaves_a_layer_that_resume_continues(person: Person) -> None:
    """Others see into it during the run, after the kill and not by plain paths; what was written is there."""
    root = person.repository(FILES)
    flag = person.folder / "tmp" / "ready"
    script = f"test -e half.txt && exit 0; echo half > half.txt; rm lib/d.txt; touch {flag}; sleep 600"
    person.story(root, "one", script)
    committed(person, root)
    place = Path(f"{root}.worktrees") / "one"
    with beside(person, root, "run", "--workspace=overlay") as process:
        wait_until(flag.exists, what="the session writes")
        assert [path.name for path in place.iterdir()] == ["READ-ME-FIRST.txt"]
        assert "+half" in person.run(root, "diff", "one", "--no-pager").out
        refused = person.run(root, "open", "one")
        assert "--shell" in refused.err
        assert refused.code == 1
        process.kill()
    assert not overlays(person.folder)
    assert [path.name for path in place.iterdir()] == ["READ-ME-FIRST.txt"]
    assert "+half" in person.run(root, "diff", "one", "--no-pager").out
    rows = person.run(root, "gc", "--apply", "--json").data["worktrees"]
    assert {row["verdict"] for row in rows} == {"kept"}, rows
    ended = person.run(root, "resume", "--json")
    assert ended.story("one")["status"] == "done", ended.err
    assert "half.txt" in person.git(root, "ls-tree", "-r", "--name-only", "autopilot/one")
    assert "lib/d.txt" not in person.git(root, "ls-tree", "-r", "--name-only", "autopilot/one")
    assert not place.exists()
    assert not (place.parent / ".layers").exists()


def test_open_makes_an_ordinary_worktree_of_what_a_kill_left(anybody: Person) -> None:
    """Once no run is active the files are at the path for everybody, and the story continues there."""
    root = anybody.repository(FILES)
    flag = anybody.folder / "tmp" / "ready"
    script = f"test -e half.txt && exit 0; echo half > half.txt; echo i > i.o; touch {flag}; sleep 600"
    anybody.story(root, "one", script)
    committed(anybody, root)
    with beside(anybody, root, "run", "--workspace=overlay") as process:
        wait_until(flag.exists, what="the session writes")
        process.kill()
    place = Path(anybody.run(root, "open", "one").out.strip())
    assert (place / "half.txt").read_text() == "half\n"
    assert (
        anybody.git(place, "status", "--porcelain", "--ignored") == "?? half.txt\n!! .orchestrator/\n!! i.o\n"
    )
    assert not (place.parent / ".layers").exists()
    assert anybody.run(root, "resume", "--json").story("one")["status"] == "done"


def test_a_checkout_that_was_changed_is_not_used_again(anybody: Person) -> None:
    """The next run looks at every file below; what somebody wrote there reaches no story."""
    root = anybody.repository(FILES)
    anybody.story(root, "one", "cat src/a.py > one.txt")
    anybody.story(root, "two", "cat src/a.py > two.txt; ls > list.txt")
    committed(anybody, root)
    assert anybody.run(root, "run", "one", "--workspace=overlay").code == 0
    (below,) = Path(f"{root}.worktrees").glob("_base-*")
    before = (below / "src" / "a.py").stat()
    (below / "src" / "a.py").write_text("a = 9\n")
    os.utime(below / "src" / "a.py", ns=(before.st_atime_ns, before.st_mtime_ns))
    (below / "planted.txt").write_text("x\n")
    assert anybody.run(root, "run", "two", "--workspace=overlay").code == 0
    assert anybody.git(root, "show", "autopilot/two:two.txt") == "a = 1\n"
    assert "planted" not in anybody.git(root, "show", "autopilot/two:list.txt")
    # Where nothing was changed, the same checkout serves again, brought to the commit of the day.
    (kept,) = Path(f"{root}.worktrees").glob("_base-*")
    anybody.story(root, "three", "git log -1 --format=%s > three.txt; cat stories/three.md")
    committed(anybody, root)
    assert anybody.run(root, "run", "three", "--workspace=overlay").code == 0
    assert list(Path(f"{root}.worktrees").glob("_base-*")) == [kept]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--no-guard",), "without the write guard a session could change the checkout"),
        (("--bg-isolation=none", "--max-stories=1"), "with bg-isolation 'none' stories have no worktrees"),
    ],
)
def test_what_rules_overlays_out_is_said(flags: tuple[str, ...], words: str) -> None:
    """Asked for by name the run does not start; `auto` says why stories get worktrees."""
    with somebody("me") as person:
        root = person.repository({"a": "a\n"})
        person.story(root, "one", "echo x > x")
        committed(person, root)
        refused = person.run(root, "run", "--workspace=overlay", *flags)
        assert refused.code == 1, refused.err
        assert words in refused.err, refused.err
        ran = person.run(root, "run", "--workspace=auto", *flags)
        assert ran.code == 0, ran.err
        assert words in ran.err, ran.err


def test_a_machine_without_namespaces_says_so() -> None:
    """The kernel refuses; only with consent by setting do stories get worktrees."""
    if os.getuid() != 0:
        pytest.skip("only root can take namespaces away")
    with somebody("me", namespaces=False) as person:
        root = person.repository({"a": "a\n"})
        person.story(root, "one", "echo x > x")
        committed(person, root)
        refused = person.run(root, "run", "--workspace=overlay")
        assert refused.code == 1, refused.err
        assert "workspace 'overlay' is not available here" in refused.err, refused.err
        ran = person.run(root, "run", "--workspace=auto")
        assert ran.code == 0, ran.err
        assert "stories get ordinary worktrees" in ran.err, ran.err
        assert not list(Path(f"{root}.worktrees").glob("_base-*"))
