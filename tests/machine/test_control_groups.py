"""Control groups: every limit above the process counts, in both versions, and on the real machine."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from tests.machine.machine_files import GB, MachineFiles, deny_psutil, stalled

MB = 1024**2
UNLIMITED = 9223372036854771712


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MachineFiles:
    """Return a machine of files with 16 GB free, 1 GB of swap in use, 8 processors and load 2."""

    class Memory:
        available = 16 * GB

    class Swap:
        used = 1 * GB

    monkeypatch.setattr(psutil, "virtual_memory", Memory)
    monkeypatch.setattr(psutil, "swap_memory", Swap)
    monkeypatch.setattr("runner.machine.probe.available", lambda: frozenset(range(8)))
    monkeypatch.setattr(os, "getloadavg", lambda: (2.0, 9.0, 9.0))
    return MachineFiles(tmp_path)


def test_a_group_limit_below_the_hosts_memory_counts(machine: MachineFiles) -> None:
    """Acceptance 44: the limit, less what is used, is what is available."""
    machine.belongs("0::/app")
    machine.put("app", memory__max=4 * GB, memory__high="max", memory__current=1 * GB)
    assert machine.sample().memory_available == 3 * GB


def test_the_tightest_ancestor_counts(machine: MachineFiles) -> None:
    """Acceptance 44: a limit anywhere above the process holds for it."""
    machine.belongs("0::/slice/app")
    machine.put("slice/app", memory__max=8 * GB, memory__current=0)
    machine.put("slice", memory__max=5 * GB, memory__current=3 * GB)
    machine.put("", memory__max="max", memory__current=9 * GB)
    assert machine.sample().memory_available == 2 * GB


def test_a_sibling_does_not_count(machine: MachineFiles) -> None:
    """Acceptance 44: limits of groups that the process is not in are none of its business."""
    machine.belongs("0::/slice/app")
    machine.put("slice/other", memory__max=GB, memory__current=0)
    assert machine.sample().memory_available == 16 * GB


def test_memory_high_is_a_limit_too(machine: MachineFiles) -> None:
    """Beyond `memory.high` the kernel throttles, so it counts like a limit."""
    machine.belongs("0::/app")
    machine.put("app", memory__max=8 * GB, memory__high=2 * GB, memory__current=GB)
    assert machine.sample().memory_available == GB


def test_cache_that_can_be_given_back_is_available(machine: MachineFiles) -> None:
    """Inactive file pages do not count as used."""
    machine.belongs("0::/app")
    stat = f"anon {GB}\ninactive_file {2 * GB}"
    machine.put("app", memory__max=4 * GB, memory__current=3 * GB, memory__stat=stat)
    assert machine.sample().memory_available == 3 * GB


def test_a_group_over_its_limit_has_nothing_left(machine: MachineFiles) -> None:
    """Available memory is never negative."""
    machine.belongs("0::/app")
    machine.put("app", memory__high=GB, memory__current=3 * GB)
    assert machine.sample().memory_available == 0


def test_the_older_hierarchy_counts(machine: MachineFiles) -> None:
    """Acceptance 44: version 1 groups have other names for the same."""
    machine.belongs("5:cpu,cpuacct:/x", "3:memory:/docker/abc")
    machine.put(
        "memory/docker/abc",
        memory__limit_in_bytes=3 * GB,
        memory__usage_in_bytes=2 * GB,
        memory__stat=f"inactive_file 5\ntotal_inactive_file {GB}",
    )
    machine.put("memory", memory__limit_in_bytes=UNLIMITED, memory__usage_in_bytes=GB)
    assert machine.sample().memory_available == 2 * GB


def test_both_versions_side_by_side(machine: MachineFiles) -> None:
    """Acceptance 44: where a system mounts both, the tighter limit counts."""
    machine.unmount_all()
    machine.mount(machine.groups / "unified", kind="cgroup2")
    machine.mount(machine.groups / "memory", kind="cgroup", options="rw,memory")
    machine.belongs("4:memory:/a", "0::/b")
    machine.put("memory/a", memory__limit_in_bytes=9 * GB, memory__usage_in_bytes=0)
    machine.put("unified/b", memory__max=5 * GB, memory__current=0)
    assert machine.sample().memory_available == 5 * GB


def test_a_mount_that_begins_at_the_containers_group(machine: MachineFiles) -> None:
    """Acceptance 44: the names in a container are longer than the folders that it sees."""
    machine.unmount_all()
    mount = machine.groups / "with a blank"
    machine.mount(mount, kind="cgroup", options="rw,memory", root="/docker/abc")
    machine.belongs("4:memory:/docker/abc/inner")
    machine.put("with a blank/inner", memory__limit_in_bytes=2 * GB, memory__usage_in_bytes=0)
    machine.put("with a blank", memory__limit_in_bytes=3 * GB, memory__usage_in_bytes=0)
    assert machine.sample().memory_available == 2 * GB


def test_a_mount_of_somebody_elses_group_says_nothing(machine: MachineFiles) -> None:
    """A folder that shows another part of the hierarchy is not above this process."""
    machine.unmount_all()
    machine.mount(machine.groups, kind="cgroup2", root="/other")
    machine.belongs("0::/app")
    machine.put("", memory__max=GB, memory__current=0)
    assert machine.sample().memory_available == 16 * GB


@pytest.mark.parametrize(
    "place", ["0::/gone", "0::/", "0::/../../other", "", "garbage", "0::", "0:/x", "0::/a\0b"]
)
def test_without_a_limit_the_host_counts(machine: MachineFiles, place: str) -> None:
    """A place that cannot be found, or that is not limited, restricts nothing."""
    machine.belongs(place)
    assert machine.sample().memory_available == 16 * GB


@pytest.mark.parametrize(("name", "root"), [("/../../docker/abc", "/"), ("/", "/../..")])
def test_a_limit_at_the_mount_holds_for_a_name_from_another_namespace(
    machine: MachineFiles, name: str, root: str
) -> None:
    """In a container the own group, or one above it, may be all that can be seen."""
    machine.unmount_all()
    machine.mount(machine.groups, kind="cgroup2", root=root)
    machine.belongs(f"0::{name}")
    machine.put("", memory__max=2 * GB, memory__current=GB)
    assert machine.sample().memory_available == GB


@pytest.mark.parametrize("stat", ["nonsense", "inactive_file much"])
def test_unreadable_figures_are_left_out(machine: MachineFiles, stat: str) -> None:
    """Nonsense in a file is no reason to guess, nor to fail."""
    machine.belongs("0::/app")
    machine.put("app", memory__max=4 * GB, memory__high="lots", memory__current=GB, memory__stat=stat)
    assert machine.sample().memory_available == 3 * GB


@pytest.mark.parametrize("limit", ["max", "-1", "1_000", "9" * 5000, UNLIMITED, "", "4 GB"])
def test_what_is_no_limit_does_not_pass_for_one(
    machine: MachineFiles, limit: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where nothing else is known either, memory stays unknown."""
    deny_psutil(monkeypatch, "virtual_memory")
    machine.belongs("4:memory:/app", "0::/app")
    machine.put("app", memory__max=limit, memory__current=GB)
    machine.put("memory/app", memory__limit_in_bytes=limit, memory__usage_in_bytes=GB)
    assert machine.sample().memory_available is None


def test_a_limit_counts_though_the_host_is_unknown(
    machine: MachineFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One unknown signal does not hide another that is known."""
    deny_psutil(monkeypatch, "virtual_memory")
    machine.belongs("0::/app")
    machine.put("app", memory__max=4 * GB, memory__current=GB)
    assert machine.sample().memory_available == 3 * GB


def test_the_most_swap_in_use_counts(machine: MachineFiles) -> None:
    """A group with a limit of its own counts beside the host, and so does every one above it."""
    machine.belongs("0::/slice/app")
    machine.put("slice/app", memory__swap__max=4 * GB, memory__swap__current=2 * GB)
    machine.put("slice", memory__swap__max=8 * GB, memory__swap__current=3 * GB)
    machine.put("", memory__swap__max="max", memory__swap__current=5 * GB)
    assert machine.sample().swap_used == 3 * GB


def test_swap_of_the_older_hierarchy(machine: MachineFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 1 limits memory and swap together, and reports them separately."""
    deny_psutil(monkeypatch, "swap_memory")
    machine.belongs("3:memory:/a")
    machine.put("memory/a", memory__stat=f"swap 1\ntotal_swap {2 * GB}")
    assert machine.sample().swap_used is None
    machine.put("memory/a", memory__memsw__limit_in_bytes=4 * GB)
    assert machine.sample().swap_used == 2 * GB


def test_a_processor_quota_counts(machine: MachineFiles) -> None:
    """Half a processor is half a processor; the least of all groups and of the affinity counts."""
    machine.belongs("0::/slice/app")
    assert machine.sample().load_per_cpu == 2 / 8
    machine.put("slice/app", cpu__max="max 100000")
    assert machine.sample().load_per_cpu == 2 / 8
    machine.put("slice", cpu__max="1600000 100000")
    assert machine.sample().load_per_cpu == 2 / 8
    machine.put("slice/app", cpu__max="200000 100000")
    assert machine.sample().load_per_cpu == 2 / 2
    machine.put("slice", cpu__max="50000 100000")
    assert machine.sample().load_per_cpu == 2 / 0.5


def test_a_processor_quota_of_the_older_hierarchy(machine: MachineFiles) -> None:
    """Version 1 has quota and period in two files, and -1 for no quota."""
    machine.belongs("5:cpu,cpuacct:/a/b")
    machine.put("cpu,cpuacct/a/b", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100000)
    assert machine.sample().load_per_cpu == 2 / 8
    machine.put("cpu,cpuacct/a", cpu__cfs_quota_us=150000, cpu__cfs_period_us=100000)
    assert machine.sample().load_per_cpu == 2 / 1.5


@pytest.mark.parametrize("quota", ["", "0 100000", "5 0", "many few", "1 2 3", "5", "-1 100000"])
def test_a_quota_that_is_none_restricts_nothing(machine: MachineFiles, quota: str) -> None:
    """What cannot be a quota is left out."""
    machine.belongs("0::/app")
    machine.put("app", cpu__max=quota)
    assert machine.sample().load_per_cpu == 2 / 8


def test_the_worst_stall_counts(machine: MachineFiles) -> None:
    """The host's figure, the group's own and those above it: the highest is the one that is felt."""
    machine.belongs("0::/slice/app")
    machine.press("memory", stalled("5.00"))
    assert machine.sample().memory_stall == 5
    machine.put("slice/app", memory__pressure=stalled("12.50"), cpu__pressure=stalled("3.25"))
    machine.put("slice", memory__pressure=stalled("7.00"), io__pressure=stalled("0.50"))
    sample = machine.sample()
    assert (sample.memory_stall, sample.cpu_stall, sample.io_stall) == (12.5, 3.25, 0.5)


# ---- real control groups -------------------------------------------------------------------------

CHILD = """
import json, os, sys
from pathlib import Path
for folder in sys.argv[2:]:
    Path(folder, "cgroup.procs").write_text(str(os.getpid()))
from runner.machine import probe
from runner.machine.control_groups import load_control_groups
samples = [probe.sample(Path.cwd(), ()).memory_available]
ballast = bytearray(os.urandom(1)) * int(sys.argv[1])
samples.append(probe.sample(Path.cwd(), ()).memory_available)
groups = load_control_groups(Path("/proc"))
print(json.dumps([samples, groups.load_processors(), groups.load_stall("memory"), str(groups.unified[0])]))
"""


@pytest.fixture
def hierarchy() -> Iterator["Hierarchy"]:
    """Provide real control groups to a test, and remove them after it."""
    with ExitStack() as stack:
        yield Hierarchy(stack)


class Hierarchy:
    """Makes control groups in what is mounted here, or skips the test."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._name = f"probe-test-{uuid.uuid4().hex}"

    def make(self, mount: str, *inner: str, **files: object) -> Path:
        """Make a group (or one inside of it) with limits; `__` stands for the dot."""
        folder = Path(mount, self._name, *inner)
        if not Path(mount, "cgroup.procs").exists():
            pytest.skip(f"no control groups are mounted at {mount}")
        try:
            folder.mkdir()
            self._stack.callback(folder.rmdir)
            for name, value in files.items():
                (folder / name.replace("__", ".")).write_text(str(value))
        except OSError as error:
            pytest.skip(f"no control group can be made in {mount}: {error.strerror}")
        return folder


def sampled_in(*groups: Path, ballast: int = 0) -> tuple[list[int], float | None, float | None, str]:
    """Sample from within groups, before and after taking memory; give also quota, stall and place."""
    argv = [sys.executable, "-c", CHILD, str(ballast), *map(str, groups)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True)
    memory, processors, stall, place = json.loads(done.stdout)
    return memory, processors, stall, place


MEMORY_FILES = [
    ("/sys/fs/cgroup/memory", "memory__limit_in_bytes"),
    ("/sys/fs/cgroup", "memory__max"),
]


@pytest.mark.parametrize(("mount", "limit"), MEMORY_FILES)
def test_a_real_memory_limit_counts(hierarchy: Hierarchy, mount: str, limit: str) -> None:
    """Acceptance 44: in a group of 256 MB no more than that is available, and what is taken is missing."""
    group = hierarchy.make(mount, **{limit: 256 * MB})
    before, after = sampled_in(group, ballast=100 * MB)[0]
    assert 0 < before <= 256 * MB
    assert 80 * MB < before - after < 120 * MB


@pytest.mark.parametrize(("mount", "limit"), MEMORY_FILES)
def test_a_real_limit_of_an_ancestor_counts(hierarchy: Hierarchy, mount: str, limit: str) -> None:
    """Acceptance 44: the outer group of 128 MB holds, though the inner one would allow more."""
    hierarchy.make(mount, **{limit: 128 * MB})
    inner = hierarchy.make(mount, "inner", **{limit: 512 * MB})
    assert 0 < sampled_in(inner)[0][0] <= 128 * MB


def test_a_real_processor_quota_counts(hierarchy: Hierarchy) -> None:
    """A quota set by the kernel's own files is found where it is mounted."""
    period, quota = {"cpu__cfs_period_us": 100000}, {"cpu__cfs_quota_us": 50000}
    outer = hierarchy.make("/sys/fs/cgroup/cpu", **period, **quota)
    inner = hierarchy.make("/sys/fs/cgroup/cpu", "inner", **period)
    assert sampled_in(outer)[1] == 0.5
    assert sampled_in(inner)[1] == 0.5


@pytest.mark.parametrize("mount", ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"])
def test_a_real_group_of_version_2_tells_its_stalls(hierarchy: Hierarchy, mount: str) -> None:
    """The group's own pressure file is found and understood."""
    group = hierarchy.make(mount)
    if not (group / "memory.pressure").exists():
        pytest.skip(f"no pressure figures in {mount}")
    _, _, stall, place = sampled_in(group)
    assert place == str(group)
    assert stall is not None
