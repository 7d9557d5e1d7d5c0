"""Where a bug's traceback goes: a log whose path is printed, never the terminal."""

import tempfile
import time
import traceback
from pathlib import Path


def write_crash_log(error: BaseException, folder: Path | None = None) -> Path:
    """Write the traceback to a new file, in `folder` or among the temporary files, and return its path."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w",
        prefix=f"autopilot-multi-crash-{time.strftime('%Y%m%d-%H%M%S')}-",
        suffix=".log",
        dir=folder,
        delete=False,
        encoding="utf-8",
        errors="backslashreplace",
    ) as log:
        log.write("".join(traceback.format_exception(error)))
    return Path(log.name)
