"""A machine made of files: a procfs and control groups that say what a test wants."""

from pathlib import Path

import psutil
import pytest

from runner.agents.catalog import PROGRAMS
from runner.core.schedule.resources import ResourceSample
from runner.machine.probe import Probe

GB = 1024**3


class MachineFiles:
    """Files for everything that a probe reads; what a test does not write is missing."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "pressure").mkdir()
        self.groups = folder / "cgroup"
        self.groups.mkdir()
        self.disk = folder
        self.mount(self.groups, kind="cgroup2")
        self.mount(self.groups / "memory", kind="cgroup", options="rw,memory")
        self.mount(self.groups / "cpu,cpuacct", kind="cgroup", options="rw,cpu,cpuacct")

    def mount(self, place: Path, *, kind: str, options: str = "rw", root: str = "/") -> None:
        """Mount a hierarchy of control groups, as the kernel would write it down."""
        where = str(place).replace(" ", "\\040")
        with (self.proc / "self" / "mountinfo").open("a") as file:
            file.write(f"32 31 0:29 {root} {where} rw,relatime shared:9 - {kind} {kind} {options}\n")

    def unmount_all(self) -> None:
        """Forget every mount."""
        (self.proc / "self" / "mountinfo").write_text("")

    def belongs(self, *lines: str) -> None:
        """Write which groups the process belongs to."""
        (self.proc / "self" / "cgroup").write_text("".join(f"{line}\n" for line in lines))

    def put(self, group: str, **files: object) -> None:
        """Write files into a group; `__` stands for the dot."""
        folder = self.groups / group
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name.replace("__", ".")).write_text(f"{text}\n")

    def press(self, resource: str, text: str) -> None:
        """Write the host's pressure file of a resource."""
        (self.proc / "pressure" / resource).write_text(text)

    def sample(self) -> ResourceSample:
        """Sample this machine."""
        return Probe(PROGRAMS, proc=self.proc)(self.disk)


def stalled(percent: object) -> str:
    """Return a pressure file as the kernel writes it."""
    return (
        f"some avg10={percent} avg60=1.00 avg300=2.00 total=26532219\n"
        "full avg10=99.00 avg60=0.00 avg300=0.00 total=0\n"
    )


def deny_psutil(patch: pytest.MonkeyPatch, *names: str) -> None:
    """Let these functions of psutil fail."""

    def fail(*_args: object, **_options: object) -> None:
        raise psutil.AccessDenied

    for name in names:
        patch.setattr(psutil, name, fail)
