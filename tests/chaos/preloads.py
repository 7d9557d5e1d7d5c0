"""Faults that come with a library loaded before libc: disks with errors, and a clock that somebody sets."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

DAY = 86_400


class BrokenDisk:
    """Input/output errors for all writes below a folder, for programs with its `environment`."""

    def __init__(self, below: Path, scratch: Path) -> None:
        self._flag = scratch / "io-errors"
        self.environment = {
            "LD_PRELOAD": str(_library("io_errors", scratch)),
            "IO_ERRORS_BELOW": str(below),
            "IO_ERRORS_WHILE": str(self._flag),
        }

    @contextmanager
    def broken(self) -> Iterator[None]:
        """Let the errors begin; afterwards the disk is well again."""
        self._flag.touch()
        try:
            yield
        finally:
            self._flag.unlink()


class SetClock:
    """A time of day that can be set while programs with its `environment` run."""

    def __init__(self, scratch: Path) -> None:
        self._offset = scratch / "offset"
        self.environment = {
            "LD_PRELOAD": str(_library("set_clock", scratch)),
            "SET_CLOCK": str(self._offset),
        }

    @contextmanager
    def set_by(self, days: int) -> Iterator[None]:
        """Set the clock ahead, or back; it stays so."""
        fresh = self._offset.with_suffix(".new")
        fresh.write_text(f"{days * DAY}\n")
        fresh.replace(self._offset)
        yield


def _library(name: str, scratch: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler is here, which makes the library with the fault")
    library = scratch / f"{name}.so"
    source = Path(__file__).with_name(f"{name}.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library
