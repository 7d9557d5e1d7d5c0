"""Aider, headless: plain text, commits of its own, and no conversation to go on with."""

import re

from runner.agents.json_line import last_line
from runner.agents.permissions import Permissions
from runner.agents.protocol import Job, Launch, Traits
from runner.core.model import Usage
from runner.core.settings import AgentSettings
from runner.core.stream import Seen

_TOKENS = re.compile(rb"Tokens: ([\d.,]+)(k|M)? sent.*?([\d.,]+)(k|M)? received(?:.*?\$([\d.]+) message)?")
_SCALE = {b"k": 1e3, b"M": 1e6}


class AiderAgent:
    """Starts and reads `aider`."""

    name = "aider"
    traits = Traits(streams=True, sums=True)

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings

    def launch(self, job: Job) -> Launch:
        """Begin a session; it takes its message from a file, since it asks on standard input."""
        argv = ["aider", "--yes-always", "--no-pretty", "--no-stream", "--no-gitignore", "--no-check-update"]
        argv += ["--message-file", str(job.prompt)]
        argv += [] if self._settings.permissions == Permissions.BYPASS else ["--no-suggest-shell-commands"]
        argv += ["--model", job.model] if job.model else []
        return Launch(argv=(*argv, *self._settings.args), env=self._settings.env)

    def parse(self, line: bytes) -> Seen | None:
        """Read one line of text; some tell what a message has used."""
        found = _TOKENS.search(line[:4096])
        if found is None:
            shown = last_line(line[:4096].decode("utf-8", "replace"))
            return Seen(message=shown) if shown else None
        usage = Usage(
            input_tokens=_count(found[1], found[2]),
            output_tokens=_count(found[3], found[4]),
            cost_usd=_amount(found[5]) if found[5] else None,
        )
        return Seen(usage=usage)


def _count(digits: bytes, unit: bytes | None) -> int:
    return int(_amount(digits) * _SCALE.get(unit or b"", 1.0))


def _amount(digits: bytes) -> float:
    try:
        return float(digits.replace(b",", b""))
    except ValueError:
        return 0.0
