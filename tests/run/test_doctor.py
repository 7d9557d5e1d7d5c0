"""What `doctor` says about the machine: every signal, including the unknown ones."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.core.schedule.resources import ResourceSample
from runner.machine import probe
from runner.run.doctor.check import Check, Severity
from runner.run.doctor.examination import examine

GB = 1024**3
PLENTY = ResourceSample(
    memory_available=8 * GB,
    swap_used=GB // 2,
    peers=1,
    pressure_free_percent=70.0,
    disk_free=50 * GB,
    inodes_free=1_234_567,
    memory_stall=0.0,
    cpu_stall=12.34,
    io_stall=1.0,
    load_per_cpu=0.5,
)


def found(repo: Path, patch: pytest.MonkeyPatch, sample: ResourceSample) -> dict[str, Check]:
    """Examine a repository on a machine that gives this sample."""
    patch.setattr(probe, "sample", lambda _path, _programs: sample)
    return {finding.name: finding for finding in examine(repo, dict(os.environ))}


def test_every_signal_is_shown(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a line of its own, with its unit."""
    findings = found(repo, monkeypatch, PLENTY)
    shown = {name: finding.detail for name, finding in findings.items()}
    assert shown["memory"] == "8.0 GB free"
    assert shown["swap"] == "0.5 GB in use"
    assert shown["pressure"] == "70 % free of pressure"
    assert shown["load"] == "0.50 per available processor, last minute"
    assert shown["waiting"] == "for memory 0.0 %, for processor 12.3 %, for disk 1.0 % of the last 10 seconds"
    assert shown["other agents"] == "1 session besides ours"
    assert shown["disk"] == f"50.0 GB free, room for 1,234,567 files, at {repo}.worktrees"
    assert findings["disk"].level is Severity.OK


def test_what_is_unknown_is_said_to_be(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acceptance 43: a machine that reports nothing is examined anyway; nothing counts against it."""
    findings = found(repo, monkeypatch, ResourceSample())
    names = ("machine", "memory", "swap", "pressure", "load", "waiting", "other agents", "disk")
    assert {findings[name].level for name in names} == {Severity.OK}
    assert findings["machine"].detail == "3 of 3 slots · tier unknown, no signal can be read"
    for name in ("memory", "swap", "load", "other agents"):
        assert findings[name].detail == "unknown"
    assert findings["pressure"].detail == "unknown (only macOS reports it)"
    assert findings["waiting"].detail.count("unknown") == 3
    assert findings["disk"].detail.startswith("unknown free space, unknown number of files, at ")


@pytest.mark.parametrize(
    ("free", "inodes", "level"),
    [
        (50 * GB, 99_999, Severity.WARN),
        (50 * GB, 999, Severity.FAIL),
        (4 * GB, 200_000, Severity.WARN),
        (GB // 4, 200_000, Severity.FAIL),
        (4 * GB, 999, Severity.FAIL),
    ],
)
def test_a_full_disk_is_bytes_or_files(
    repo: Path, monkeypatch: pytest.MonkeyPatch, free: int, inodes: int, level: Severity
) -> None:
    """Whichever runs out first decides."""
    sample = replace(PLENTY, disk_free=free, inodes_free=inodes)
    disk = found(repo, monkeypatch, sample)["disk"]
    assert disk.level is level
    assert "worktree-root" in disk.hint


@pytest.mark.parametrize("setting", ["", "elsewhere", "~/trees"])
def test_the_disk_of_the_worktrees_is_looked_at(
    repo: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    """The checkout's own disk does not matter, only that where the stories will work."""
    if setting:
        (repo / "autopilot-multi.toml").write_text(f'worktree-root = "{setting}"\n')
    asked: list[Path] = []

    def sample(path: Path, _programs: object) -> ResourceSample:
        asked.append(path)
        return PLENTY

    monkeypatch.setattr(probe, "sample", sample)
    list(examine(repo, dict(os.environ)))
    (place,) = asked
    home = Path(os.environ["HOME"])
    expected = {"": repo.parent, "elsewhere": repo / "elsewhere", "~/trees": home / "trees"}
    assert place.parent == expected[setting].resolve()
