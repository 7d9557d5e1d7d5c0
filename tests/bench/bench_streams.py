"""How fast an agent's output is read: streams that the real programs printed, split, parsed and added up.

Beside it stands what nobody can do without: splitting the same bytes and reading each line as JSON. Processor
time is measured, since nothing here waits.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial

from runner.agents.catalog import KNOWN
from runner.agents.listener import OutputListener
from runner.core.agent_settings import AgentSettings
from tests.agents.recordings.reading import FOLDER
from tests.bench import record

LEAST_MB = 20.0
CHUNK = 1 << 16
ROUNDS = 5
LEAST_BYTES = 4_000_000
STREAMED = ("claude", "codex", "opencode", "gemini", "qwen")


def turns(name: str) -> bytes:
    """Return what the real program printed between its first words and its last: tools, results, messages."""
    lines = (FOLDER / f"{name}-done.log").read_bytes().splitlines(keepends=True)
    events = [line for line in lines if line.startswith(b"{")]
    begun = next(
        number for number, line in enumerate(events) if b"tool_use" in line or b"item.started" in line
    )
    return b"".join(events[begun:-1])


def long_stream(name: str) -> bytes:
    """Return a long session: recorded turns, over and over."""
    turn = turns(name)
    return turn * (LEAST_BYTES // len(turn) + 1)


def hear(name: str, stream: bytes) -> int:
    """Let a session be heard, chunk by chunk as its pipe gives them."""
    hearing = OutputListener(KNOWN[name](AgentSettings()))
    for start in range(0, len(stream), CHUNK):
        hearing.feed(stream[start : start + CHUNK], 0.0)
    return hearing.tally.uses


def split(stream: bytes) -> int:
    """Split the stream and read each line as JSON."""
    return sum(1 for line in stream.splitlines() if json.loads(line))


def _best(once: Callable[[], int]) -> float:
    times = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        assert once()
        times.append(time.process_time() - begun)
    return min(times)


def main() -> bool:
    """Print the speed of each stream; tell whether all are fast enough."""
    enough = True
    for name in STREAMED:
        stream = long_stream(name)
        size = len(stream) / 1e6
        heard = _best(partial(hear, name, stream))
        plain = _best(partial(split, stream))
        speed = size / heard
        record.compare("streams", f"{name} / plain JSON", [heard / plain])
        enough &= speed >= LEAST_MB
        verdict = "ok" if speed >= LEAST_MB else "too slow"
        sys.stdout.write(
            f"{name:8}{size:6.1f} MB heard at {speed:6.0f} MB/s, at least {LEAST_MB:g}: {verdict}; "
            f"ratio to plain JSON {heard / plain:.2f}\n"
        )
    return enough


if __name__ == "__main__":
    main()
