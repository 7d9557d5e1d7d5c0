"""What three busy agents cost the coordinator: its own processor time while they print, as a share of a core.

Each prints ten recorded turns a second, two tools with their results and a message: more than real ones do.
The agents are small programs named `codex`; the program that reads them is the real one.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.acceptance.program import command, write_story
from tests.bench import record
from tests.bench.bench_streams import turns
from tests.conftest import git

AGENTS, SECONDS, TURNS_A_SECOND = 3, 8.0, 10
GATE = 0.10
_TICKS = os.sysconf("SC_CLK_TCK")
_AGENT = f"""#!{sys.executable} -S
import sys, time
turn = open({{stream!r}}, "rb").read()
sys.stdin.read()
for _ in range({int(SECONDS * TURNS_A_SECOND)}):
    sys.stdout.buffer.write(turn)
    sys.stdout.buffer.flush()
    time.sleep({1 / TURNS_A_SECOND})
open("made", "w").write("x")
print('{{{{"type": "turn.completed", "usage": {{{{"input_tokens": 1, "output_tokens": 1}}}}}}}}')
"""


def main() -> bool:
    """Measure and print; False when the gate is missed."""
    with tempfile.TemporaryDirectory() as folder:
        share = _share(Path(folder))
    record.compare("busy", "three agents, coordinator / one core", [share], GATE)
    verdict = "ok" if share <= GATE else "too much"
    sys.stdout.write(
        f"three busy agents cost the coordinator {share:.1%} of a core, at most {GATE:.0%}: {verdict}\n"
    )
    return share <= GATE


def _share(folder: Path) -> float:
    root, stream, agent = folder / "repo", folder / "stream", folder / "bin" / "codex"
    for made in (root, agent.parent):
        made.mkdir()
    stream.write_bytes(turns("codex"))
    agent.write_text(_AGENT.format(stream=str(stream)))
    agent.chmod(0o755)
    git(root, "init", "-q", "-b", "main")
    for name, value in (("user.name", "Bench"), ("user.email", "bench@example.com")):
        git(root, "config", name, value)
    for number in range(AGENTS):
        write_story(root, f"s{number}", agent="codex")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    program = subprocess.Popen(
        command(f"--max-stories={AGENTS}", "--json"),
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PATH": f"{agent.parent}:{os.environ['PATH']}"},
    )
    try:
        time.sleep(2.0)  # past the start, which has a benchmark of its own
        began, before = time.perf_counter(), _processor_time(program.pid)
        time.sleep(SECONDS - 3.0)
        share = (_processor_time(program.pid) - before) / (time.perf_counter() - began)
        answer, _ = program.communicate(timeout=60)
    finally:
        program.kill()
    assert program.returncode == 0, answer
    return share


def _processor_time(pid: int) -> float:
    """Return the seconds that a process has used, its children left out."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
