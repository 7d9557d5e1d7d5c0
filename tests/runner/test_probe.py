"""The probe: control groups count, cache that can be given back does not, failures are unknown."""

from pathlib import Path

import psutil
import pytest

from runner import probe
from runner.core.model import ResourceSample

GB = 1024**3


class Groups:
    """A tree of control groups and the process's place in it, as files."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "cgroup"
        self.root.mkdir()
        self.place = folder / "self-cgroup"
        self.disk = folder

    def put(self, group: str, **files: object) -> None:
        """Write files into a group; `__` stands for the dot."""
        folder = self.root / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(f"{text}\n")

    def sample(self) -> ResourceSample:
        """Sample with these groups instead of the machine's."""
        return probe.sample(self.disk, cgroup_root=self.root, proc_cgroup=self.place)


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Groups:
    """Give control groups on a machine that has 16 GB available."""

    class Memory:
        available = 16 * GB

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    return Groups(tmp_path)


def test_a_group_limit_below_the_hosts_memory_counts(groups: Groups) -> None:
    """Acceptance 44: the limit, less what is used, is what is available."""
    groups.place.write_text("0::/app\n")
    groups.put("app", memory__max=4 * GB, memory__high="max", memory__current=1 * GB)
    assert groups.sample().memory_available == 3 * GB


def test_the_tightest_ancestor_counts(groups: Groups) -> None:
    """Acceptance 44: a limit anywhere above the process holds for it."""
    groups.place.write_text("0::/slice/app\n")
    groups.put("slice/app", memory__max=8 * GB, memory__current=0)
    groups.put("slice", memory__max=5 * GB, memory__current=3 * GB)
    groups.put("", memory__max="max", memory__current=9 * GB)
    assert groups.sample().memory_available == 2 * GB


def test_memory_high_is_a_limit_too(groups: Groups) -> None:
    """Beyond `memory.high` the kernel throttles, so it counts like a limit."""
    groups.place.write_text("0::/app\n")
    groups.put("app", memory__max=8 * GB, memory__high=2 * GB, memory__current=GB)
    assert groups.sample().memory_available == GB


def test_cache_that_can_be_given_back_is_available(groups: Groups) -> None:
    """Inactive file pages do not count as used."""
    groups.place.write_text("0::/app\n")
    stat = f"anon {GB}\ninactive_file {2 * GB}"
    groups.put("app", memory__max=4 * GB, memory__current=3 * GB, memory__stat=stat)
    assert groups.sample().memory_available == 3 * GB


def test_a_group_over_its_limit_has_nothing_left(groups: Groups) -> None:
    """Available memory is never negative."""
    groups.place.write_text("0::/app\n")
    groups.put("app", memory__high=GB, memory__current=3 * GB)
    assert groups.sample().memory_available == 0


def test_the_older_hierarchy_counts(groups: Groups) -> None:
    """Acceptance 44: version 1 groups have other names for the same."""
    groups.place.write_text("5:cpu,cpuacct:/x\n3:memory:/docker/abc\n")
    stat = f"total_inactive_file {GB}"
    groups.put(
        "memory/docker/abc",
        memory__limit_in_bytes=3 * GB,
        memory__usage_in_bytes=2 * GB,
        memory__stat=stat,
    )
    groups.put("memory", memory__limit_in_bytes=9223372036854771712, memory__usage_in_bytes=GB)
    assert groups.sample().memory_available == 2 * GB


@pytest.mark.parametrize("place", ["0::/gone\n", "0::/\n", "0::/../../other\n", "", "garbage\n", "0::\n"])
def test_without_a_limit_the_host_counts(groups: Groups, place: str) -> None:
    """A place that cannot be found, or that is not limited, restricts nothing."""
    groups.place.write_text(place)
    assert groups.sample().memory_available == 16 * GB


def test_a_limit_at_the_root_holds_for_a_name_from_another_namespace(groups: Groups) -> None:
    """In a container the own group may be shown as the root."""
    groups.place.write_text("0::/../../docker/abc\n")
    groups.put("", memory__max=2 * GB, memory__current=GB)
    assert groups.sample().memory_available == GB


@pytest.mark.parametrize("stat", ["nonsense", "inactive_file much"])
def test_unreadable_figures_are_left_out(groups: Groups, stat: str) -> None:
    """Nonsense in a file is no reason to guess, nor to fail."""
    groups.place.write_text("0::/app\n")
    groups.put("app", memory__max=4 * GB, memory__high="lots", memory__current=GB, memory__stat=stat)
    assert groups.sample().memory_available == 3 * GB


def test_a_machine_without_control_groups(groups: Groups) -> None:
    """Where there is no such file, the host's memory counts."""
    assert groups.sample().memory_available == 16 * GB


def test_every_failure_is_unknown(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """Acceptance 43: a signal that cannot be read is None, and nothing is raised."""

    def fail() -> None:
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil, "virtual_memory", fail)
    monkeypatch.setattr(psutil, "swap_memory", fail)
    groups.disk = groups.disk / "gone"
    assert groups.sample() == ResourceSample()


def test_a_limit_counts_though_the_host_is_unknown(groups: Groups, monkeypatch: pytest.MonkeyPatch) -> None:
    """One unknown signal does not hide another that is known."""

    def fail() -> None:
        raise OSError

    monkeypatch.setattr(psutil, "virtual_memory", fail)
    groups.place.write_text("0::/app\n")
    groups.put("app", memory__max=4 * GB, memory__current=GB)
    assert groups.sample().memory_available == 3 * GB


def test_this_machine_can_be_sampled(tmp_path: Path) -> None:
    """On a real machine the figures are there, and plausible."""
    sample = probe.sample(tmp_path)
    assert sample.memory_available is not None
    assert 0 < sample.memory_available <= psutil.virtual_memory().total
    assert sample.disk_free is not None
    assert sample.disk_free > 0
    assert sample.peers is None
