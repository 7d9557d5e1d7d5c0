"""The registry of live sessions: who counts, who does not any more, and what is never touched."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from isolation.paths import find_repository, sessions_dir
from runner.machine.registry import PEER_SECONDS, SWEEP_SECONDS, Registry, SessionEntry, file_name
from tests.conftest import git
from tests.machine.registering import another_session

NOW = 1_800_000_000.0
MINUTE = 60.0


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    (tmp_path / "common").mkdir()
    return Registry(tmp_path / "common")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the registry's folder, made by the first session."""
    path = sessions_dir(tmp_path / "common")
    path.mkdir(parents=True)
    return path


def _foreign(name: str = "theirs", **fields: Any) -> SessionEntry:
    """Describe a session on another host, of which only the heartbeat is known."""
    values: dict[str, Any] = {"mode": "feature", "heartbeat": NOW, "host": "elsewhere", "pid": 1}
    return SessionEntry(session_id=name, **{**values, **fields})


def _names(registry: Registry, now: float = NOW) -> list[str]:
    return [entry.session_id for entry in registry.active(now)]


def _aged(path: Path, content: bytes, modified: float) -> None:
    path.write_bytes(content)
    os.utime(path, (modified, modified))


def test_an_entry_says_who_it_is(registry: Registry, folder: Path) -> None:
    """Every field is written and read again; the heartbeat is an instant that people can read."""
    entry = registry.entry(
        "run/story/01", mode="deep", now=NOW, run_id="run", story_id="story", branch="autopilot/story"
    )
    registry.write(entry)
    (file,) = folder.iterdir()
    values = json.loads(file.read_text())
    assert values["heartbeat"] == "2027-01-15T08:00:00.000Z"
    assert values["pid"] == os.getpid()
    assert values["start_ticks"] > 0
    assert values["boot_id"]
    assert len(values["repository"]) == 16
    assert registry.active(NOW) == (entry,)
    process = f"pid {os.getpid()} on {entry.host}"
    assert (
        entry.description == f"deep session run/story/01 of story story ({process}, branch autopilot/story)"
    )


def test_a_peer_is_young_and_the_long_dead_are_swept(registry: Registry, folder: Path) -> None:
    """To 15 minutes it is a peer, to 60 it stays, then it goes; looking alone removes nothing."""
    registry.write(_foreign())
    assert _names(registry, NOW + PEER_SECONDS) == ["theirs"]
    assert _names(registry, NOW + PEER_SECONDS + 1) == []
    registry.sweep(NOW + SWEEP_SECONDS)
    assert len(list(folder.iterdir())) == 1
    assert _names(registry, NOW + SWEEP_SECONDS + 1) == []
    assert len(list(folder.iterdir())) == 1
    registry.sweep(NOW + SWEEP_SECONDS + 1)
    assert list(folder.iterdir()) == []


def test_the_numbers_are_those_of_the_contract() -> None:
    """15 and 60 minutes."""
    assert (PEER_SECONDS, SWEEP_SECONDS) == (15 * MINUTE, 60 * MINUTE)


def test_a_process_that_ended_does_not_count(repo: Path) -> None:
    """Killed before it could withdraw, its entry is no peer, however young."""
    common = find_repository(repo).common_dir
    with another_session(repo, "housekeeping") as other:
        assert [entry.pid for entry in Registry(common).active(time.time())] == [other.pid]
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert list(sessions_dir(common).iterdir())
        assert Registry(common).active(time.time()) == (), "not even before it is reaped"
        other.wait(10)
        assert Registry(common).active(time.time()) == ()


def test_a_reused_pid_does_not_count(registry: Registry) -> None:
    """The process with that pid started at another time: it is somebody else."""
    entry = registry.entry("gone", mode="housekeeping", now=NOW)
    registry.write(replace(entry, start_ticks=entry.start_ticks + 1))
    assert registry.active(NOW) == ()


@pytest.mark.parametrize("elsewhere", [{"host": "elsewhere"}, {"boot_id": "another"}])
def test_of_other_hosts_and_boots_the_heartbeat_tells(registry: Registry, elsewhere: dict[str, Any]) -> None:
    """A pid means nothing there, so it neither frees nor holds."""
    entry = registry.entry("far", mode="deep", now=NOW)
    registry.write(replace(entry, start_ticks=1, **elsewhere))
    assert _names(registry) == ["far"]
    assert _names(registry, NOW + PEER_SECONDS + 1) == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        b"[" * 60_000,
        b'{"session_id": "x", "mode": "housekeeping"}',
        b'{"session_id": "x", "mode": 7, "heartbeat": "2027-01-15T08:00:00Z"}',
        b'{"session_id": "x", "mode": "housekeeping", "heartbeat": "soon"}',
        b'{"session_id": "x", "mode": "housekeeping", "heartbeat": 1800000000}',
        b'{"session_id": "x", "mode": "housekeeping", "heartbeat": "9999-12-31T23:59:59Z"}',
        b'{"session_id": "x", "padding": "' + b"x" * 70_000 + b'"}',
    ],
)
def test_what_cannot_be_read_counts_by_its_file_and_not_for_ever(
    registry: Registry, folder: Path, content: bytes
) -> None:
    """Recent, it is a session of unknown mode, with a warning; old, it does not count; then it is swept."""
    _aged(folder / "odd%2Fone.json", content, NOW)
    (entry,) = registry.active(NOW + PEER_SECONDS)
    assert (entry.session_id, entry.mode) == ("odd/one", "unknown")
    assert "odd%2Fone.json cannot be read (" in entry.flaw
    assert _names(registry, NOW + PEER_SECONDS + 1) == []
    registry.sweep(NOW + SWEEP_SECONDS)
    assert (folder / "odd%2Fone.json").exists()
    registry.sweep(NOW + SWEEP_SECONDS + 1)
    assert not (folder / "odd%2Fone.json").exists()


def test_a_file_from_the_future_does_not_block_until_then(registry: Registry, folder: Path) -> None:
    """A clock that was years ahead leaves nothing that blocks for years."""
    _aged(folder / "odd.json", b"{", NOW + 1e8)
    assert _names(registry) == []
    registry.sweep(NOW)
    assert list(folder.iterdir()) == []


def test_clocks_that_differ_a_little_are_no_matter(registry: Registry) -> None:
    """A heartbeat of a host that is two minutes ahead is a heartbeat."""
    registry.write(_foreign(heartbeat=NOW + 2 * MINUTE))
    (entry,) = registry.active(NOW)
    assert not entry.flaw


def test_only_plain_files_are_entries(registry: Registry, folder: Path, tmp_path: Path) -> None:
    """A pipe is not waited for, a link not followed, a folder not entered; nothing of them is removed."""
    os.mkfifo(folder / "pipe.json")
    (tmp_path / "elsewhere").write_text(json.dumps({"session_id": "x", "mode": "deep"}))
    (folder / "link.json").symlink_to(tmp_path / "elsewhere")
    (folder / "folder.json").mkdir()
    (folder / "README").write_text("not ours")
    assert _names(registry, time.time()) == []
    registry.sweep(time.time() + 1e9)
    assert len(list(folder.iterdir())) == 4


def test_unknown_fields_stay_when_an_entry_is_renewed(registry: Registry, folder: Path) -> None:
    """What another writer added to an entry is still there after a beat."""
    entry = registry.entry("mine", mode="deep", now=NOW, run_id="run")
    registry.write(entry)
    (file,) = folder.iterdir()
    file.write_text(json.dumps(json.loads(file.read_text()) | {"color": ["red"], "mode": "plan"}))
    registry.write(replace(entry, heartbeat=NOW + MINUTE))
    values = json.loads(file.read_text())
    assert values["color"] == ["red"]
    assert (values["mode"], values["heartbeat"]) == ("deep", "2027-01-15T08:01:00.000Z")


def test_a_file_of_another_program_is_left_as_it_is(registry: Registry, folder: Path) -> None:
    """Under the same name, but of another session: neither renewed nor withdrawn."""
    theirs = json.dumps({"session_id": "mine", "run_id": "theirs", "secret": 1}).encode()
    (folder / "mine.json").write_bytes(theirs)
    entry = registry.entry("mine", mode="deep", now=NOW, run_id="run")
    with pytest.raises(FileExistsError, match="belongs to another session"):
        registry.write(entry)
    registry.withdraw(entry)
    assert (folder / "mine.json").read_bytes() == theirs
    assert len(list(folder.iterdir())) == 1


def test_the_entry_of_a_killed_run_is_its_own_again(registry: Registry, folder: Path) -> None:
    """A resumed run takes over what it left itself, torn or whole, under another pid."""
    entry = registry.entry("run", mode="multi-story", now=NOW, run_id="run")
    registry.write(replace(entry, pid=1, start_ticks=1))
    registry.write(entry)
    assert registry.active(NOW) == (entry,)
    (folder / "run.json").write_bytes(b"")
    registry.write(entry)
    assert registry.active(NOW) == (entry,)
    registry.withdraw(entry)
    registry.withdraw(entry)
    assert list(folder.iterdir()) == []


def test_a_killed_writer_leaves_nothing_that_counts(registry: Registry, folder: Path) -> None:
    """What was not renamed yet is no entry, and goes with the sweep."""
    _aged(folder / ".run.json.7-ab.tmp", b'{"session', NOW)
    assert _names(registry) == []
    registry.sweep(NOW + SWEEP_SECONDS + 1)
    assert list(folder.iterdir()) == []


def test_words_of_others_cannot_speak_to_the_terminal(registry: Registry, folder: Path) -> None:
    """Escapes are gone, and a novel is cut."""
    entry = _foreign(mode="\x1b[31mred\nalert", branch="b" * 5000)
    registry.write(entry)
    (found,) = registry.active(NOW)
    assert "\x1b" not in found.description
    assert "\n" not in found.description
    assert len(found.description) < 400
    assert folder.is_dir()


@given(st.text(max_size=400))
def test_a_file_name_never_leaves_the_folder(session_id: str) -> None:
    """Whatever the id holds, its file is one part of a path, not hidden, and short enough for a disk."""
    name = file_name(session_id)
    assert Path("folder", name).parent == Path("folder")
    assert "/" not in name
    assert "\0" not in name
    assert name not in {".", ".."}
    assert name.endswith(".json")
    assert len(os.fsencode(name)) < 220


@given(st.text(max_size=300), st.text(max_size=300))
def test_two_sessions_never_share_a_file(one: str, other: str) -> None:
    """Different ids have different names, also where they are cut."""
    assert (file_name(one) == file_name(other)) == (one == other)
    long = "x" * 300
    assert file_name(long + one) != file_name(long + one + "y")


def test_ids_that_try_to_escape_stay_inside(registry: Registry, folder: Path, tmp_path: Path) -> None:
    """`..` and absolute paths are names like any other."""
    ids = ["..", ".", "", "../../evil", "/etc/evil", "a/b/c", "\0", "..\\evil", "\udcff"]
    for name in ids:
        registry.write(_foreign(name))
    assert len(list(folder.iterdir())) == len(ids)
    assert not list(tmp_path.rglob("evil"))
    assert {path.parent for path in tmp_path.rglob("*.json")} == {folder}


def test_every_worktree_sees_the_same_sessions(repo: Path) -> None:
    """The family shares one registry, and looking creates nothing."""
    common = find_repository(repo).common_dir
    assert Registry(common).active(time.time()) == ()
    assert not sessions_dir(common).exists()
    git(repo, "worktree", "add", "-q", "--detach", "../linked")
    with another_session(repo.parent / "linked", "deep"):
        assert _names(Registry(common), time.time()) == ["cleanup-1"]
    assert Registry(common).active(time.time()) == ()


WRITER = """
import sys, time
from pathlib import Path
from runner.machine.registry import Registry
registry = Registry(Path(sys.argv[1]))
for number in range(25):
    entry = registry.entry(f"{sys.argv[2]}/{number}", mode="deep", now=time.time())
    for _ in range(4):
        registry.write(entry)
    if number % 5:
        registry.withdraw(entry)
print("written", flush=True)
sys.stdin.read()
"""


def test_many_writers_at_once(registry: Registry, tmp_path: Path) -> None:
    """Readers meanwhile see whole entries only, and in the end exactly those that stayed."""
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "common"), f"w{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for number in range(4)
    ]
    try:
        for writer in writers:
            assert not [entry.flaw for entry in registry.active(time.time()) if entry.flaw]
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"written\n"
        expected = [f"w{writer}/{number}" for writer in range(4) for number in range(0, 25, 5)]
        assert _names(registry, time.time()) == sorted(expected)
    finally:
        for writer in writers:
            writer.communicate(timeout=10)
    assert _names(registry, time.time()) == [], "their processes have ended"


def test_the_entry_of_a_killed_process_goes_with_the_next_sweep(repo: Path) -> None:
    """At once, not after an hour; the entry of a living one stays."""
    registry = Registry(find_repository(repo).common_dir)
    with another_session(repo, "deep", name="living"), another_session(repo, "deep", name="dead") as dead:
        dead.kill()
        dead.wait()
        registry.sweep(time.time())
        assert [entry.session_id for entry in registry.active(time.time())] == ["living"]
        assert [path.name for path in sessions_dir(find_repository(repo).common_dir).iterdir()] == [
            "living.json"
        ]
