"""Where the benchmarks that make and remove many files work: on a journaled file system of their own.

Without a journal, as some machines have it, ext4 takes up to forty times as long to create a file soon after
many were deleted: that would measure the disk, and whoever comes second.
"""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IMAGE_GB, BYTES_PER_FILE = 40, 4096


@contextmanager
def journaled() -> Iterator[Path]:
    """Yield a folder on a journaled file system in a loop device; where none can be mounted, any folder."""
    with tempfile.TemporaryDirectory(prefix="bench-disk-") as name:
        folder, image = Path(name) / "fs", Path(name) / "image"
        folder.mkdir()
        image.touch()
        os.truncate(image, IMAGE_GB << 30)
        make = ["mkfs.ext4", "-q", "-F", "-i", str(BYTES_PER_FILE), str(image)]
        # A new file is all zeros: nothing need be written beside what is measured. Since e2fsprogs 1.47.
        made = _succeeds(*make, "-E", "assume_storage_prezeroed=1") or _succeeds(
            *make
        )  # since e2fsprogs 1.47
        mounted = made and _succeeds("mount", "-o", "loop", str(image), str(folder))
        try:
            yield folder
        finally:
            if mounted:
                subprocess.run(["umount", str(folder)], check=False)


def _succeeds(*argv: str) -> bool:
    try:
        return subprocess.run(argv, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False
