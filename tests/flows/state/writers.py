"""Processes that write one state file at the same time: the runner, and agents of two manners.

`python -m tests.flows.state.writers MANNER PATH LOCK COUNT` writes COUNT times and says so at its end.
"""

import os
import re
import sys
import time
from pathlib import Path

from msgspec.structs import replace

from runner.flows.state.disk.files import load_state, save_state, save_sub_step
from runner.flows.state.model import Phase, StateFile
from runner.flows.state.transitions import fail_attempt, retry_by_user
from tests.flows.state.samples import AT


def runner(path: Path, lock: Path, count: int) -> StateFile:
    """Fail, retry and note again and again, each time from what was last written."""
    state = load_state(path)
    assert state is not None
    for number in range(1, count + 1):
        changed = fail_attempt(state, reason=f"attempt {number}", at=AT).state
        changed = retry_by_user(changed).state if changed.needs_decision else changed
        state = save_state(path, replace(changed, name=f"Round {number}"), state, lock=lock)
    return state


def polite_agent(path: Path, lock: Path, count: int) -> None:
    """Note progress through the program, under its lock."""
    for number in range(1, count + 1):
        phase = Phase(phase=number, name="batch-loop", detail=f"batch {number}")
        save_sub_step(path, phase, lock=lock, session="polite")


def rude_agent(path: Path, count: int, *, in_place: bool) -> None:
    """Note progress as agents do: read the file, change two lines, write it, ask nobody."""
    for number in range(1, count + 1):
        text = path.read_text()
        changed = re.sub(r"(?m)^  phase: .*$", f"  phase: {number}", text)
        changed = re.sub(r"(?m)^  detail: .*$", f'  detail: "batch {number}"', changed)
        if in_place:
            path.write_text(changed)
        else:
            beside = path.with_name("agent.tmp")
            beside.write_text(changed)
            beside.replace(path)
        time.sleep(0.003)


def endless(path: Path, lock: Path) -> None:
    """Rewrite the file for ever, long and short by turns, until killed; say its pid after the first time."""
    state = load_state(path)
    assert state is not None
    number = 0
    while True:
        number += 1
        detail = "x" * (20_000 if number % 2 else 10)
        assert state.sub_step is not None
        state = save_state(
            path, replace(state, sub_step=Phase(phase=number, name="loop", detail=detail)), state, lock=lock
        )
        if number == 1:
            sys.stdout.write(f"{os.getpid()}\n")
            sys.stdout.flush()


def mortals(path: Path, lock: Path) -> None:
    """Fork an endless writer for each line of the input, and wait until it was killed."""
    for _ in sys.stdin:
        pid = os.fork()
        if not pid:
            endless(path, lock)
        os.waitpid(pid, 0)


def main() -> None:
    """Write as the arguments say."""
    manner, path, lock, count = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4])
    match manner:
        case "polite":
            polite_agent(path, lock, count)
        case "in-place" | "replacing":
            rude_agent(path, count, in_place=manner == "in-place")
        case _:
            mortals(path, lock)
    sys.stdout.write("done\n")


if __name__ == "__main__":
    main()
