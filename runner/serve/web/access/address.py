"""Where the page of a repository is served: kept in a file that only its owner can read.

`run --web` and the dashboard find the page by it. The token is in no command line, where other users of the
machine could read it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path

import msgspec
from msgspec import Struct

from isolation.decoding import from_json
from isolation.files.disk import replace_file
from isolation.paths import autopilot_dir

_MODE = 0o600


class Address(Struct, frozen=True, kw_only=True):
    """The page that a process serves."""

    pid: int
    url: str


def address_path(common_dir: Path) -> Path:
    """Return the file that says where the page is."""
    return autopilot_dir(common_dir) / "web.json"


def door_path(common_dir: Path, pid: int) -> Path:
    """Return the file that leads a browser to the page which a process serves."""
    return autopilot_dir(common_dir) / f"web-{pid}.html"


def read_address(common_dir: Path) -> Address | None:
    """Return where the page is served now; None if it is not."""
    try:
        found = from_json(address_path(common_dir).read_bytes(), Address)
        os.kill(found.pid, 0)
    except (OSError, msgspec.DecodeError):
        return None
    return found


@contextmanager
def published(common_dir: Path, url: str) -> Iterator[Path]:
    """Keep the address while the page is served; yields a file that leads a browser there."""
    mine = Address(pid=os.getpid(), url=url)
    path, door = address_path(common_dir), door_path(common_dir, mine.pid)
    path.parent.mkdir(parents=True, exist_ok=True)
    head = '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer">'
    leads = f'{head}<meta http-equiv="refresh" content="0; url={escape(url)}">'
    replace_file(door, leads.encode(), mode=_MODE, durable=False)
    replace_file(path, msgspec.json.encode(mine), mode=_MODE, durable=False)
    try:
        yield door
    finally:
        with suppress(OSError):
            door.unlink()
        if read_address(common_dir) == mine:  # another server may have come after this one
            with suppress(OSError):
                path.unlink()
