"""Commands of the program itself: how their end is waited for."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from isolation.keeper import unconfined
from isolation.keeper.unconfined import run_unconfined


def test_the_end_of_a_command_is_awaited_without_looking_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of one that has closed its output before: whatever it waits for is freed."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    freed: list[bool] = []

    def free() -> None:
        freed.append(True)
        with suppress(OSError):  # the command has not come that far
            os.close(os.open(fifo, os.O_WRONLY | os.O_NONBLOCK))

    def poll(_: float) -> None:
        raise AssertionError("the command was looked for now and then")

    monkeypatch.setattr("time.sleep", poll)
    monkeypatch.setattr(unconfined, "_LOOK_SECONDS", 0.1)
    command = f"cat; exec >&- 2>&-; read line < {fifo}; exit 3"
    ended = run_unconfined(["sh", "-c", command], env=os.environ, stdin=b"given", waiting=free)
    assert (ended.returncode, ended.stdout) == (3, b"given")
    assert freed
