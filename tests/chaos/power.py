"""A disk that loses its power: what was not yet synced is gone, and what is left is mounted again.

The disk is a file with ext4 in it. `FS_IOC_SHUTDOWN` ends all its traffic at one moment without writing the
journal of the file system, as a power cut does; from then on every access is an I/O error. A copy of the file
is what the next boot finds.
"""

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = 2
_SIZE = "128M"


class Disk:
    """A small disk of its own, mounted at `place`."""

    def __init__(self, place: Path, image: Path) -> None:
        self.place = place
        self._image = image
        self._cuts = 0

    def cut(self) -> None:
        """Lose the power: nothing that is not on the disk by now will ever be."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def boot(self) -> None:
        """Mount what is left; the file system replays its journal."""
        self._cuts += 1
        left = self._image.with_suffix(f".{self._cuts}")
        subprocess.run(["cp", "--sparse=always", self._image, left], check=True)
        # Whoever copied the mounts of this machine meanwhile keeps the old disk, which writes nothing more.
        subprocess.run(["umount", "--lazy", self.place], check=True)
        self._image.unlink()
        self._image = left
        _mount(left, self.place)


@contextmanager
def own_disk(place: Path) -> Iterator[Disk]:
    """Have a folder on such a disk; the test is skipped where none can be made."""
    image = place.with_name(f"{place.name}.image.0")
    place.mkdir(parents=True)
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("a disk can be mounted by root only, with the tools of ext4")
    with image.open("wb"):
        subprocess.run(["truncate", "--size", _SIZE, image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    try:
        _mount(image, place)
    except subprocess.CalledProcessError:
        pytest.skip("no loop device can be mounted here")
    try:
        yield Disk(place, image)
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def _mount(image: Path, place: Path) -> None:
    subprocess.run(["mount", "-o", "loop", image, place], check=True, capture_output=True)
