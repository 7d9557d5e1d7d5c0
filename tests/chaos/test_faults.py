"""`make chaos`: disks that are full or read only, low limits, locks of others, broken files, busy users."""

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.people import USERS, somebody
from tests.chaos import enduring, faults
from tests.chaos.checker import users
from tests.chaos.scenes import Scene, prepare

pytestmark = pytest.mark.chaos

PLACES = ("journal", "worktrees", "objects", "temporary files")
KINDS = {"space": (faults.no_space, "size=64m"), "inodes": (faults.no_inodes, "size=64m,nr_inodes=3000")}


def _scene(folder: Path, mode: str = "worktrees") -> Scene:
    return prepare(folder, mode)


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_full_disk_loses_nothing(tmp_path: Path, kind: str, place: str, after: int) -> None:
    """The run says so, keeps all work, and ends as usual when there is room again."""
    scene = _scene(tmp_path)
    fill, options = KINDS[kind]
    where = faults.places(scene)[place]
    with faults.own_disk(where, options=options):
        ran = enduring.troubled(scene, fill(where), after_sessions=after)
        new_runs = enduring.ends(scene, again=True)
        print(f"{kind} {place} {after}: exit code {ran.code}, {new_runs} new runs")  # noqa: T201  a figure
        assert not enduring.judge(scene, excused=excused(new_runs))


@pytest.mark.parametrize("place", PLACES)
def test_a_disk_that_is_read_only_loses_nothing(tmp_path: Path, place: str) -> None:
    """Killed, resumed on a disk that is read only, and resumed again when it can be written."""
    scene = _scene(tmp_path)
    where = faults.places(scene)[place]
    with faults.own_disk(where):
        enduring.interrupted(scene, after_sessions=2)
        with faults.read_only(where):
            ran = enduring.command(scene, "resume")
        new_runs = enduring.ends(scene, again=True)
        print(f"read only {place}: exit code {ran.code}, {new_runs} new runs")  # noqa: T201  a figure
        assert not enduring.judge(scene, excused=excused(new_runs))


@pytest.mark.parametrize("files", [12, 20, 28, 36, 48, 64])
def test_few_open_files(tmp_path: Path, files: int) -> None:
    """With too few descriptors a run says so; with more it ends as usual."""
    scene = _scene(tmp_path)
    ran = enduring.limited(scene, f"ulimit -n {files}", *scene.arguments)
    assert "internal error" not in ran.err
    new_runs = enduring.ends(scene, again=True)
    print(f"{files} open files: exit code {ran.code}, {new_runs} new runs: {ran.err[-300:]}")  # noqa: T201  a figure
    assert not enduring.judge(scene, excused=excused(new_runs))


@pytest.mark.parametrize("processes", [2, 4, 8, 16, 30])
def test_few_processes(processes: int) -> None:
    """An ordinary user who may have few processes is told so; with more, the same run ends."""
    with somebody("nobody" if "nobody" in USERS else "me") as person:
        root = person.repository({"README.md": "hello\n"})
        for name in "abc":
            person.story(root, name, f"echo {name} > {name}.txt")
        done = person.call("prlimit", f"--nproc={processes}", *person.command("run"), cwd=root)
        text = done.stdout + done.stderr
        print(f"{processes} processes: exit code {done.returncode}: {text[-200:]!r}")  # noqa: T201  a figure
        assert "Traceback" not in text
        assert "internal error" not in text
        person.run(root, "resume")
        ran = person.run(root, "run", "--again", "--json")
        assert ran.code == 0, ran.out + ran.err
        for name in "abc":
            assert person.git(root, "show", f"autopilot/{name}:{name}.txt") == f"{name}\n"


LOCKS = {
    "the index": (".git/index.lock",),
    "packed refs": (".git/packed-refs.lock",),
    "a branch": (".git/refs/heads/autopilot/base.lock",),
    "the configuration": (".git/config.lock",),
}


@pytest.mark.parametrize("mode", ["worktrees", "detect"])
@pytest.mark.parametrize("name", LOCKS)
def test_locks_of_others(tmp_path: Path, name: str, mode: str) -> None:
    """A lock that someone else holds is waited for or named, and never removed; then all ends as usual."""
    scene = _scene(tmp_path, mode)
    locks = [scene.repo / lock for lock in LOCKS[name]]
    with faults.held(*locks):
        ran = enduring.command(scene, *scene.arguments)
        assert all(lock.exists() for lock in locks), "a lock of somebody else was removed"
    new_runs = enduring.ends(scene, again=True)
    print(f"lock of {name}, {mode}: exit code {ran.code}, {new_runs} new runs")  # noqa: T201  a figure
    assert not enduring.judge(scene, excused=excused(new_runs))


@pytest.mark.parametrize("act", [faults.commit_by_user, faults.tidy_by_user, faults.rebase_by_user])
@pytest.mark.parametrize("mode", ["worktrees", "detect"])
def test_a_user_who_works_in_between(tmp_path: Path, mode: str, act: faults.Act) -> None:
    """After a kill the user commits, cleans up or rewrites a commit; the run is resumed to its usual end."""
    scene = _scene(tmp_path, mode)
    enduring.interrupted(scene, after_sessions=3)
    act(scene)
    scene.checker.before = users(scene.repo, tuple(scene.checker.before.files))
    new_runs = enduring.ends(scene, again=True)
    print(f"{act.__name__}, {mode}: {new_runs} new runs")  # noqa: T201  a figure
    assert not enduring.judge(scene, excused=excused(new_runs))


@pytest.mark.parametrize("act", [faults.remove_worktrees, faults.delete_branches])
def test_a_user_who_deletes_in_between(tmp_path: Path, act: faults.Act) -> None:
    """What the user deleted is gone; everything else ends as usual, and nothing breaks down."""
    scene = _scene(tmp_path)
    enduring.interrupted(scene, after_sessions=3)
    act(scene)
    new_runs = enduring.ends(scene, again=True)
    print(f"{act.__name__}: {new_runs} new runs")  # noqa: T201  a figure
    # A story may have been done before the kill, and its worktree gone: then git lets go of its branch.
    gone = ("its branch is at nothing",) if act is faults.delete_branches else ()
    findings = enduring.judge(scene, excused=(*excused(new_runs), "is lost", "started again", *gone))
    assert not findings


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("where", ["journal.db", "journal.db-wal"])
def test_bits_that_flip_in_the_journal(tmp_path: Path, where: str, seed: int) -> None:
    """A damaged journal is named and kept aside, or still tells the truth; branches and trees stay."""
    scene, chance = _scene(tmp_path), random.Random(seed)  # noqa: S311  a sample
    enduring.interrupted(scene, after_sessions=3)
    rows = scene.checker.rows()
    finished = {data["session_id"] for _, kind, data in rows if kind == "SessionEnded"}
    path = scene.repo / ".git" / "autopilot" / where
    if where == "journal.db":
        with closing(sqlite3.connect(path)) as journal:
            journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    faults.flip_bits(path, chance, count=chance.choice((1, 5, 50)))
    shown = [enduring.command(scene, *words) for words in (("status",), ("resume",), scene.arguments)]
    last = [(ran.err.strip().splitlines() or [""])[0][:90] for ran in shown if ran.code in {1, 2}]
    print(f"{where}, seed {seed}: {[ran.code for ran in shown]} {last}")  # noqa: T201  a figure
    assert not [ran.err for ran in shown if "internal error" in ran.err]
    assert finished
    assert not scene.checker.kept(finished)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("mode", ["worktrees", "detect"])
def test_a_torn_state_file_and_lease(tmp_path: Path, mode: str, seed: int) -> None:
    """Both are set right or set aside, with a word about it; the run ends as usual."""
    scene, chance = _scene(tmp_path, mode), random.Random(seed)  # noqa: S311  a sample
    enduring.interrupted(scene, after_sessions=7)
    torn = [*scene.repo.parent.glob("repo*/**/_autodev_state.md"), scene.repo / ".git/autopilot/lease.json"]
    for path in torn:
        faults.tear(path, chance)
    new_runs = enduring.ends(scene, again=True)
    print(f"{mode}, seed {seed}: {len(torn)} files torn, {new_runs} new runs")  # noqa: T201  a figure
    assert not enduring.judge(scene, excused=excused(new_runs))


def excused(new_runs: int) -> tuple[str, ...]:
    """With a second run the records are of two runs, and it asks before it repeats what failed."""
    asks = "story wrong would have been failed, and is parked"
    return ("runs were started", "autopilot.jsonl has", asks) if new_runs else ()
