"""Other sessions: real processes that register themselves, as another program would."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

OTHER = """
import sys, time
from pathlib import Path
from isolation.paths import find_repository
from runner.machine.registry import Registry
registry = Registry(find_repository(Path(sys.argv[1])).common_dir)
entry = registry.entry(sys.argv[2], mode=sys.argv[3], now=time.time())
registry.write(entry)
print("here", flush=True)
sys.stdin.read()
registry.withdraw(entry)
"""


@contextmanager
def another_session(where: Path, mode: str, *, name: str = "cleanup-1") -> Iterator["subprocess.Popen[str]"]:
    """Let another process be registered until the block ends."""
    args = [sys.executable, "-c", OTHER, str(where), name, mode]
    with subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(10)
