"""Where a bug's traceback goes: a log whose path is printed, never the terminal."""

import tempfile
import time
import traceback
from pathlib import Path


def write_crash_log(error: BaseException) -> Path:
    """Write the traceback to a new file and give its path."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    with tempfile.NamedTemporaryFile(
        "w", prefix=f"autopilot-multi-crash-{stamp}-", suffix=".log", delete=False, encoding="utf-8"
    ) as log:
        log.write("".join(traceback.format_exception(error)))
    return Path(log.name)
