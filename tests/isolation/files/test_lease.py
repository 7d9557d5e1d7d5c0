"""One coordinator per repository, with real processes on the other side."""

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isolation import paths as layout
from isolation.errors import LeaseHeldError
from isolation.files import lease
from isolation.files.disk import LockFile

HOLDER = """
import sys
from pathlib import Path
from isolation import paths as layout
from isolation.files import lease
held = lease.acquire(layout.find_repository(Path(sys.argv[1])).common_dir, sys.argv[2])
print("held", flush=True)
sys.stdin.read()
held.release()
print("released", flush=True)
"""


_WHOLE = {"boot_id": "b", "pid": 1, "start_ticks": 1, "host": "h", "run_id": "r", "since": 1.0}
PID, SINCE = (json.dumps(_WHOLE | odd).encode() for odd in ({"pid": "1"}, {"since": 1e300}))
"""Files that say everything, one thing of it in a way that cannot be."""


@pytest.fixture
def common(repo: Path) -> Path:
    return repo / ".git"


@contextmanager
def other_coordinator(where: Path, run_id: str) -> Iterator["subprocess.Popen[str]"]:
    """Hold the lease in another process until the block ends."""
    args = [sys.executable, "-c", HOLDER, str(where), run_id]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.stdin.close()
        process.wait(10)


def test_a_second_coordinator_is_refused_and_told_by_whom(repo: Path, common: Path) -> None:
    """Acceptance 69: the holder is named and goes on; afterwards the lease is free."""
    with other_coordinator(repo, "run-1") as other:
        with pytest.raises(LeaseHeldError) as caught:
            lease.acquire(common, "run-2")
        assert f"run run-1 (pid {other.pid} on " in caught.value.message
        assert "status" in caught.value.hint
        assert lease.holder_is_alive(common)
        holder = lease.read_holder(common)
        assert holder is not None
        assert (holder.run_id, holder.pid) == ("run-1", other.pid)
        assert other.poll() is None
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdin.close()
        assert other.stdout.readline() == "released\n"
    assert not lease.holder_is_alive(common)
    assert lease.read_holder(common) is None
    with lease.acquire(common, "run-2") as held:
        assert held.notes == ()


def test_a_symlink_and_a_linked_worktree_lead_to_the_same_lease(repo: Path, tmp_path: Path) -> None:
    """Acceptance 69: there is one lease, however the repository is reached."""
    subprocess.run(["git", "worktree", "add", "-q", "--detach", "../linked"], cwd=repo, check=True)
    (tmp_path / "link").symlink_to(repo)
    with other_coordinator(tmp_path / "link", "run-1"):
        for way in (repo, tmp_path / "linked", tmp_path / "link"):
            with pytest.raises(LeaseHeldError, match="run-1"):
                lease.acquire(layout.find_repository(way).common_dir, "run-2")


def test_a_killed_holder_is_taken_over(repo: Path, common: Path) -> None:
    """Acceptance 68, 70: SIGKILL frees the lease, and the successor says whom it followed."""
    with other_coordinator(repo, "run-1") as other:
        other.send_signal(signal.SIGKILL)
        other.wait(10)
        assert not lease.holder_is_alive(common)
        with lease.acquire(common, "run-2") as held:
            assert held.notes == (
                f"took over from run run-1 (pid {other.pid} on {held.holder.host}), which was killed",
            )


def test_a_stale_lease_with_a_reused_pid_is_taken_over(common: Path) -> None:
    """Acceptance 70: the process that has the pid by now is unharmed."""
    with lease.acquire(common, "run-1"):
        record = json.loads(layout.lease_path(common).read_text())
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as bystander:
        layout.lease_path(common).write_text(json.dumps(record | {"pid": bystander.pid}))
        with lease.acquire(common, "run-2") as held:
            assert held.holder.run_id == "run-2"
        assert bystander.poll() is None


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"\xff\xfe", b'{"pid": "x"}', b'{"since": 1e400}', PID, SINCE]
)
def test_a_corrupt_lease_file_is_set_aside_and_reported(common: Path, content: bytes) -> None:
    """Acceptance 71: never active for ever, never silently emptied."""
    layout.autopilot_dir(common).mkdir()
    (layout.autopilot_dir(common) / "lease.json.corrupt-1").write_text("an older one")
    layout.lease_path(common).write_bytes(content)
    assert lease.read_holder(common) is None
    with lease.acquire(common, "run-1") as held:
        assert "lease.json.corrupt-2" in held.notes[0]
        assert lease.read_holder(common) == held.holder
    assert (layout.autopilot_dir(common) / "lease.json.corrupt-2").read_bytes() == content


def test_a_corrupt_file_does_not_free_a_held_lease(repo: Path, common: Path) -> None:
    """Acceptance 71: while the lock is held the answer is no, whatever the file says."""
    with other_coordinator(repo, "run-1"):
        layout.lease_path(common).write_text("garbage")
        with pytest.raises(LeaseHeldError, match="which one is unknown"):
            lease.acquire(common, "run-2")
        assert layout.lease_path(common).read_text() == "garbage"


def test_looking_creates_nothing(common: Path) -> None:
    """Acceptance 5: `status` in a repository without a run leaves it as it was."""
    assert not lease.holder_is_alive(common)
    assert lease.read_holder(common) is None
    assert not layout.autopilot_dir(common).exists()
    layout.autopilot_dir(common).mkdir()
    assert not lease.holder_is_alive(common)
    assert list(layout.autopilot_dir(common).iterdir()) == []


def test_a_look_is_not_taken_for_a_coordinator_by_another(common: Path) -> None:
    """Two users ask for the status at the same time, and no run is active."""
    layout.autopilot_dir(common).mkdir()
    with LockFile.attempt(layout.lease_lock_path(common), shared=True) or pytest.fail("not locked"):
        assert not lease.holder_is_alive(common)


@pytest.mark.parametrize("stale", [{"boot_id": "an earlier one"}, {"start_ticks": 1}])
def test_a_look_at_a_killed_run_does_not_make_it_the_holder(
    common: Path, monkeypatch: pytest.MonkeyPatch, stale: dict[str, object]
) -> None:
    """Acceptance 70: `status` reads while the file still names a killed holder whose pid is in use again."""
    with lease.acquire(common, "run-1"):
        record = json.loads(layout.lease_path(common).read_text())
    layout.lease_path(common).write_text(json.dumps(record | stale))
    look = LockFile.attempt(layout.lease_lock_path(common), shared=True)
    assert look is not None
    monkeypatch.setattr("isolation.files.lease.time.sleep", lambda _seconds: look.release())
    with lease.acquire(common, "run-2") as held:
        assert "took over from run run-1" in held.notes[0]


def test_a_lease_that_cannot_be_written_down_is_given_back(
    common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acceptance 72: a full disk refuses this run, and keeps no later one out."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(lease, "replace_file", full)
        with pytest.raises(OSError, match="No space left"):
            lease.acquire(common, "run-1")
    lease.acquire(common, "run-2").release()


def test_the_name_goes_before_the_lock(common: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next holder may write its name the moment the lock is free; it must not be the one that goes."""
    held, release = lease.acquire(common, "run-1"), LockFile.release
    seen: list[bool] = []

    def watched(lock: LockFile) -> None:
        seen.append(layout.lease_path(common).exists())
        release(lock)

    monkeypatch.setattr(LockFile, "release", watched)
    held.release()
    assert seen == [False]


def test_a_look_never_costs_a_coordinator_its_lease(common: Path) -> None:
    """While `status` looks all the time, the lease can still be taken."""
    layout.autopilot_dir(common).mkdir()
    layout.lease_lock_path(common).touch()
    code = (
        "import sys; from pathlib import Path; from isolation.files import lease\n"
        "print('looking', flush=True)\n"
        "while True: lease.holder_is_alive(Path(sys.argv[1]))\n"
    )
    args = [sys.executable, "-c", code, str(common)]
    with subprocess.Popen(args, stdout=subprocess.PIPE, text=True) as looker:
        try:
            assert looker.stdout is not None
            assert looker.stdout.readline() == "looking\n"
            for _ in range(50):
                lease.acquire(common, "run-1").release()
        finally:
            looker.kill()


def test_children_do_not_inherit_the_lease(common: Path) -> None:
    """A child that outlives the coordinator, by exec or by fork, does not keep the lease."""
    held = lease.acquire(common, "run-1")
    reading, writing = os.pipe()
    told, telling = os.pipe()
    child = os.fork()
    if child == 0:  # the child's own process: gives its copy back, says so, then lives on
        os.close(writing)
        held.release()
        os.write(telling, b"x")
        os.read(reading, 1)
        os._exit(0)
    os.read(told, 1)
    os.close(told)
    os.close(telling)
    try:
        with subprocess.Popen(["cat"], stdin=subprocess.PIPE, close_fds=False):
            assert lease.holder_is_alive(common)
            assert lease.read_holder(common) == held.holder
            held.release()
            assert not lease.holder_is_alive(common)
            lease.acquire(common, "run-2").release()
    finally:
        os.close(writing)
        os.close(reading)
        assert os.waitpid(child, 0)[1] == 0
