"""An index that is as young as its files: git cannot tell by their times whether they have changed.

It compares times by the second. So each command reads every file that was written in the second in which the
index was, until the index is written again: after the checkout of 7,000 files that takes longer than all else
in a commit. The file system knows the times to the nanosecond, and so does the index. If it is still the one
that a checkout has left, both together tell which files have been written since. It is written again with a
newer time, and git has to read only those.
"""

import os
from contextlib import suppress
from pathlib import Path

from isolation.git.direct.index_file import distrust, identity_of, is_plain, load_index, touched

_LEAST = 50_000
"""How large an index is, in bytes, for which this is worthwhile: about 500 files."""


def settle_racy(git_dir: Path, tree: Path, left: tuple[int, ...], hash_size: int = 20) -> None:
    """Write an index again in which git would not trust the times, if it still is as a checkout `left` it.

    No session may be alive in the tree. What is not certain is left to git. Blocks.
    """
    if not left or left[1] < _LEAST:
        return
    index, lock = git_dir / "index", git_dir / "index.lock"
    with suppress(OSError, ValueError):
        if identity_of(index) != left:
            return
        data = load_index(git_dir)
        if not is_plain(data, hash_size):
            return
        settled = distrust(data, touched(index, tree, hash_size), hash_size)
        # As git does it; with the lock there, another command is writing the index.
        descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(settled)
            lock.replace(index)
        except BaseException:
            lock.unlink(missing_ok=True)
            raise
