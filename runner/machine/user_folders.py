"""Where the files of the user's own are, by the XDG specification."""

from collections.abc import Mapping
from pathlib import Path


def data_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder for the user's data; programs have folders of their own in it."""
    folder = environ.get("XDG_DATA_HOME", "")
    if folder.startswith("/"):  # the specification says to ignore a relative one
        return Path(folder)
    return Path(environ.get("HOME") or "~").expanduser() / ".local/share"
