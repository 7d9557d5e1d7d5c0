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
        for argv in (make, ["mount", "-o", "loop", str(image), str(folder)]):
            try:
                mounted = subprocess.run(argv, check=False, capture_output=True).returncode == 0
            except FileNotFoundError:
                mounted = False
            if not mounted:
                break
        try:
            yield folder
        finally:
            if mounted:
                subprocess.run(["umount", str(folder)], check=False)
