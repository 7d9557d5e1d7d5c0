"""How fast an agent's output is read: streams as the real programs print them, split, parsed and added up.

Beside it stands what nobody can do without: splitting the same bytes and reading each line as JSON.
"""

import json
import sys
import time
from collections.abc import Callable

from runner.agents.catalogue import KNOWN
from runner.agents.hearing import Hearing
from runner.core.settings import AgentSettings

LEAST_MB = 20.0
CHUNK = 1 << 16
ROUNDS = 5
TURNS = 1500
_WORDS = "The test passes now; the retry is bounded and the timeout is honoured in both clients. "


def claude_stream() -> bytes:
    """Give turns of a tool, its result and a message, in the form and about the size that claude prints."""
    lines: list[object] = [{"type": "system", "subtype": "init", "session_id": "s", "tools": ["Bash"] * 40}]
    for number in range(TURNS):
        use = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {"command": "make test"}}
        usage = {"input_tokens": 19187, "cache_read_input_tokens": 0, "output_tokens": 1}
        message = {"id": f"m{number}", "role": "assistant", "content": [use], "usage": usage}
        lines.append({"type": "assistant", "message": message, "session_id": "s", "parent_tool_use_id": None})
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": _WORDS * 20}
        lines.append({"type": "user", "message": {"role": "user", "content": [result]}, "session_id": "s"})
        said = {"content": [{"type": "text", "text": _WORDS * 3}], "usage": usage}
        lines.append({"type": "assistant", "message": said, "session_id": "s"})
    return b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"


def codex_stream() -> bytes:
    """Give turns of a command and a message, as codex prints them."""
    lines: list[object] = [{"type": "thread.started", "thread_id": "t"}]
    for number in range(TURNS):
        item = {"id": f"i{number}", "type": "command_execution", "command": "bash -lc 'make test'"}
        lines.append({"type": "item.started", "item": {**item, "aggregated_output": "", "exit_code": None}})
        done = {**item, "aggregated_output": _WORDS * 20, "exit_code": 0, "status": "completed"}
        lines.append({"type": "item.completed", "item": done})
        said = {"id": f"m{number}", "type": "agent_message", "text": _WORDS * 3}
        lines.append({"type": "item.completed", "item": said})
    return b"\n".join(json.dumps(line).encode() for line in lines) + b"\n"


def hear(name: str, stream: bytes) -> int:
    """Let a session be heard, chunk by chunk as its pipe gives them."""
    hearing = Hearing(KNOWN[name](AgentSettings()))
    for start in range(0, len(stream), CHUNK):
        hearing.feed(stream[start : start + CHUNK], 0.0)
    return hearing.tally.uses


def split(stream: bytes) -> int:
    """Split the stream and read each line as JSON."""
    return sum(1 for line in stream.splitlines() if json.loads(line))


def _best(once: Callable[[], int]) -> float:
    times = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        assert once() >= TURNS
        times.append(time.perf_counter() - begun)
    return min(times)


def main() -> bool:
    """Print the speed of each stream; tell whether all are fast enough."""
    enough = True
    for name, stream in (("claude", claude_stream()), ("codex", codex_stream())):
        size = len(stream) / 1e6
        heard = _best(lambda name=name, stream=stream: hear(name, stream))  # type: ignore[misc]  # bound early
        plain = _best(lambda stream=stream: split(stream))  # type: ignore[misc]  # bound early
        speed = size / heard
        enough &= speed >= LEAST_MB
        verdict = "ok" if speed >= LEAST_MB else "too slow"
        sys.stdout.write(
            f"{name:8}{size:6.1f} MB heard at {speed:6.0f} MB/s, at least {LEAST_MB:g}: {verdict}; "
            f"ratio to plain JSON {heard / plain:.2f}\n"
        )
    return enough


if __name__ == "__main__":
    main()
