"""Where a bug's traceback goes: a log whose path is printed, never the terminal."""

import os
import tempfile
import time
import traceback
from pathlib import Path

from runner.core.text.redaction import Redactor


def write_crash_log(error: BaseException, folder: Path | None = None) -> Path:
    """Write the traceback, without secrets, to a new file in `folder` or a temporary one; return its path.

    With nowhere to write, that is the null device: a full disk must not turn one story's error into the
    end of the run.
    """
    text = Redactor(os.environ).text("".join(traceback.format_exception(error)))
    for place in (folder, None):
        try:
            return _write(text, place)
        except OSError:
            continue
    return Path(os.devnull)


def _write(text: str, folder: Path | None) -> Path:
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
        log.write(text)
    return Path(log.name)
