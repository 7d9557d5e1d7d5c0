"""The probe: what cannot be read is unknown, what is there is plausible, peers are looked up seldom."""

import ctypes
import math
import os
import tempfile
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import astuple

from runner.agents.catalog import PROGRAMS
from runner.core.limits.agent_sessions import AgentProgram
from runner.core.schedule.resources import ResourceSample
from runner.machine import probe
from tests.machine.machine_files import MachineFiles, deny_psutil, stalled

OF_PSUTIL = ("virtual_memory", "swap_memory", "process_iter")
FILES = (
    "proc/self/cgroup",
    "proc/self/mountinfo",
    "proc/pressure/memory",
    "proc/pressure/cpu",
    "proc/pressure/io",
    "proc/1/stat",
    "proc/1/cmdline",
    *(f"cgroup/{name}" for name in ("memory.max", "memory.high", "memory.current", "memory.stat")),
    *(f"cgroup/{name}" for name in ("memory.swap.max", "memory.swap.current", "cpu.max")),
    *(f"cgroup/{name}" for name in ("memory.pressure", "cpu.pressure", "io.pressure")),
    *(f"cgroup/memory/memory.{name}" for name in ("limit_in_bytes", "usage_in_bytes", "stat")),
    "cgroup/memory/memory.memsw.limit_in_bytes",
    "cgroup/cpu,cpuacct/cpu.cfs_quota_us",
    "cgroup/cpu,cpuacct/cpu.cfs_period_us",
)


def deny_the_system(patch: pytest.MonkeyPatch) -> None:
    """Let every call fail that would tell something without a file."""

    def fail(*_args: object) -> None:
        raise OSError

    deny_psutil(patch, *OF_PSUTIL)
    patch.setattr(os, "getloadavg", fail)
    patch.setattr(os, "statvfs", fail)


def test_every_failure_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acceptance 43: on a machine that reports nothing every signal is None, and nothing is raised."""
    deny_the_system(monkeypatch)
    assert probe.Probe(PROGRAMS, proc=tmp_path / "gone")(tmp_path) == ResourceSample()


def test_unreadable_files_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acceptance 43: files that are there but cannot be read are as good as none."""
    deny_the_system(monkeypatch)
    machine = MachineFiles(tmp_path)
    for name in FILES:
        (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / name).mkdir(parents=True)
    assert machine.sample() == ResourceSample()


@settings(max_examples=200)
@given(
    st.dictionaries(st.sampled_from(FILES), st.binary(max_size=60).filter(lambda text: not has_digit(text)))
)
def test_garbage_is_unknown(garbage: dict[str, bytes]) -> None:
    """Acceptance 43: whatever bytes a file holds, a sample is taken, and what they do not say is None."""
    assert sample_of(garbage, sound=False) == ResourceSample()


def has_digit(text: bytes) -> bool:
    return any(character in b"0123456789" for character in text)


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(FILES), st.binary(max_size=60) | st.from_regex(rb"[0-9 .\n-]{0,30}")))
def test_no_content_makes_a_figure_absurd(garbage: dict[str, bytes]) -> None:
    """Broken files among sound ones never raise, and give no negative, endless or undefined figure."""
    for value in astuple(sample_of(garbage, sound=True)):
        assert value is None or (math.isfinite(value) and value >= 0)


def sample_of(files: dict[str, bytes], *, sound: bool) -> ResourceSample:
    """Sample a machine that has these files, among sound ones or alone."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        deny_the_system(patch)
        folder = Path(name)
        machine = MachineFiles(folder)
        machine.belongs("4:memory:/", "5:cpu,cpuacct:/", "0::/")
        if sound:
            patch.setattr(os, "getloadavg", lambda: (1.0, 1.0, 1.0))
            machine.put("", memory__max=9, memory__current=1, memory__swap__max=9, memory__swap__current=1)
            machine.put("", cpu__max="1 2", memory__pressure=stalled("1.00"), memory__stat="inactive_file 1")
        for path, text in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text)
        return machine.sample()


def test_this_machine_can_be_sampled(tmp_path: Path) -> None:
    """On a real machine the figures are there, and plausible."""
    sample = probe.sample(tmp_path, PROGRAMS)
    assert sample.memory_available is not None
    assert 0 < sample.memory_available <= psutil.virtual_memory().total
    assert sample.disk_free is not None
    assert sample.disk_free > 0
    assert sample.load_per_cpu is not None
    assert sample.load_per_cpu >= 0
    assert sample.peers is not None
    assert sample.peers >= 0


@pytest.mark.skipif(not Path("/proc/pressure/memory").exists(), reason="this kernel has no pressure figures")
def test_this_machine_tells_its_stalls(tmp_path: Path) -> None:
    """The real files of the kernel are understood."""
    sample = probe.sample(tmp_path, PROGRAMS)
    for percent in (sample.memory_stall, sample.cpu_stall, sample.io_stall):
        assert percent is not None
        assert 0 <= percent <= 100


@pytest.mark.parametrize(
    "text",
    ["", "full avg10=5.00 avg60=0", "some avg10=", "some avg10=nan avg60=1", "some avg10=101.00 avg60=1"],
)
def test_a_pressure_file_without_the_figure_is_unknown(tmp_path: Path, text: str) -> None:
    """Only the line and the figure that are meant count."""
    machine = MachineFiles(tmp_path)
    machine.press("io", text)
    assert machine.sample().io_stall is None


def test_the_disk_of_a_folder_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The nearest parent that exists decides the disk; a file in the way is not a parent."""
    (tmp_path / "file").touch()
    asked = []
    real = os.statvfs

    def seen(path: Path) -> os.statvfs_result:
        found = real(path)
        asked.append(path)
        return found

    monkeypatch.setattr(os, "statvfs", seen)
    there = probe.sample(tmp_path / "not" / "yet" / "there", PROGRAMS)
    assert there.disk_free is not None
    assert there.inodes_free is not None
    probe.sample(tmp_path / "file" / "below", PROGRAMS)
    assert asked == [tmp_path, tmp_path / "file"]


def _file_system(*, files: int) -> os.statvfs_result:
    # Block sizes; blocks in all, free, for us; inodes in all, free, for us; flags, longest name.
    return os.statvfs_result((4096, 1024, 1000, 500, 300, files, files // 2, files // 4, 0, 255))


@pytest.mark.parametrize(("files", "free"), [(1000, 250), (0, None)])
def test_free_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int, free: int | None) -> None:
    """What an ordinary user may take counts; a file system without inodes, such as btrfs, is unknown."""
    monkeypatch.setattr(os, "statvfs", lambda _path: _file_system(files=files))
    sample = probe.sample(tmp_path, PROGRAMS)
    assert (sample.disk_free, sample.inodes_free) == (300 * 1024, free)


class Libc:
    """A C library whose `sysctlbyname` answers with one number."""

    def __init__(self, level: int, code: int = 0) -> None:
        self.level, self.code = level, code
        self.asked = b""

    def sysctlbyname(self, name: bytes, old: object, size: object, new: object, _length: object) -> int:
        """Put the number where the caller wants it."""
        assert new is None, "nothing is set, only asked"
        assert size._obj.value == 4  # type: ignore[attr-defined]  # what `byref` points to
        self.asked = name
        old._obj.value = self.level  # type: ignore[attr-defined]  # as above
        return self.code


@pytest.mark.parametrize(
    ("libc", "percent"),
    [(Libc(42), 42.0), (Libc(42, code=-1), None), (Libc(400), None), (Libc(-3), None), (object(), None)],
)
def test_macos_tells_its_free_memory(
    monkeypatch: pytest.MonkeyPatch, libc: object, percent: float | None
) -> None:
    """The free percentage is asked of the kernel itself; no answer, or an absurd one, is unknown."""
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: libc)
    assert probe.ask_macos() == percent
    if isinstance(libc, Libc):
        assert libc.asked == b"kern.memorystatus_level"


@pytest.mark.parametrize(("platform", "percent"), [("darwin", 42.0), ("linux", None)])
def test_only_macos_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, platform: str, percent: float | None
) -> None:
    """Elsewhere the signal is unknown."""
    monkeypatch.setattr(probe, "ask_macos", lambda: 42.0)
    monkeypatch.setattr("sys.platform", platform)
    assert MachineFiles(tmp_path).sample().pressure_free_percent == percent


def test_peers_are_looked_up_every_five_seconds(tmp_path: Path) -> None:
    """Between two looks the last count holds; every other signal is read each time."""
    machine, now = MachineFiles(tmp_path), [100.0]
    sampler = probe.Probe([AgentProgram(name="ai", package="ai")], proc=machine.proc, clock=lambda: now[0])

    def start(pid: int) -> None:
        (machine.proc / str(pid)).mkdir()
        (machine.proc / str(pid) / "stat").write_text(f"{pid} (ai) S 1 1 1 0 -1 0 0 0\n")
        (machine.proc / str(pid) / "cmdline").write_text("/usr/bin/ai\0--flag\0")

    start(7)
    machine.press("memory", stalled("1.00"))
    assert (sampler(tmp_path).peers, sampler(tmp_path).memory_stall) == (1, 1)
    start(8)
    machine.press("memory", stalled("2.00"))
    now[0] = 104.9
    assert (sampler(tmp_path).peers, sampler(tmp_path).memory_stall) == (1, 2)
    now[0] = 105.0
    assert sampler(tmp_path).peers == 2
