"""Aider, headless: plain text, and no conversation to resume.

It exits with 0 whatever its service did, so its errors are read from its lines. A reply may quote such a
line; the token count that follows every reply overrides it. That count is rounded: the exact one is in the
log of its analytics, a file next to the prompt that is sent nowhere.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isolation.files.plain import read_plain
from isolation.patterns import pattern
from runner.agents import faults
from runner.agents.json_line import at, last_line, load, number, text, whole
from runner.agents.known_agent import Endpoint, KnownAgent, SignIn
from runner.agents.protocol import AgentJob, Launch, Traits
from runner.core.conversation.entry import Entry, Kind
from runner.core.limits.agent_output import AgentUpdate, Final
from runner.core.limits.stall import announced_wait
from runner.core.model import Usage
from runner.core.text.amounts import amount, whole_amount

# A number begins where none is before it: otherwise a long one would be tried from each of its digits.
_TOKENS = pattern(
    rb"Tokens: ([\d.,]++)(k|M)? sent(?:.*?(?<![\d.,]))([\d.,]++)(k|M)? received"
    rb"(?:.*?\$([\d.]++) message)?"
)
_LONGEST_LINE = 1000
_MOST_READ = 16 << 20
_SCALE = {b"k": 1e3, b"M": 1e6}
_ERROR = pattern(r"litellm\.(?:\w+\.)*(\w+(?:Error|Timeout)|Timeout)\b")
_STATUS: Mapping[str, int] = {
    "AuthenticationError": 401,
    "PermissionDeniedError": 403,
    "NotFoundError": 404,
    "BadRequestError": 400,
    "RateLimitError": 429,
    "Timeout": 408,
}
"""The status that each of its errors stands for; all others are temporary."""
_TEMPORARY = 500
_ACTS = ("Applied edit to ", "Commit ", "Added ", "Running ", "Creating empty file ")
_QUIET = 600.0
"""It prints nothing while the model thinks."""


class AiderAgent(KnownAgent):
    """Starts and reads `aider`."""

    name = "aider"
    package = "aider"
    distribution = "aider_chat"
    tried = ("0.86.2",)
    sign_in = SignIn(
        variables=("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY", "GEMINI_API_KEY"),
        passes=("AIDER_*",),
    )
    endpoint = Endpoint(
        hosts=("api.openai.com", "api.anthropic.com", "openrouter.ai", "generativelanguage.googleapis.com"),
        variables=("OPENAI_API_BASE", "ANTHROPIC_API_BASE", "OLLAMA_API_BASE"),
        providers=True,
        quiet={"AIDER_ANALYTICS_DISABLE": "true", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    )
    traits = Traits(
        streams=True,
        reports_cost=True,
        sums=True,
        books=True,
        quiet_seconds=_QUIET,
        litter=("/.aider.tags.cache.v*/",),
        obeys=(".aider.conf.yml", ".aider.model.settings.yml", ".env"),
        names_user=True,
    )

    def launch(self, job: AgentJob) -> Launch:
        """Start a session; it reads its message from a file, since it asks questions on standard input.

        All of its questions are answered with yes; shell commands it neither suggests nor runs.
        """
        argv = ["aider", "--yes-always", "--no-pretty", "--no-stream", "--no-gitignore", "--no-check-update"]
        argv += ["--no-analytics", "--analytics-log", str(_books(job.prompt))]
        # For the message of a commit it asks a model, and reports that nowhere; the runner commits its work.
        argv += ["--no-auto-commits", "--no-show-release-notes", "--disable-playwright"]
        argv += ["--no-suggest-shell-commands", "--message-file", str(job.prompt)]
        # In the worktree these would count as work.
        argv += ["--chat-history-file", str(job.prompt.with_name("aider.chat.history.md"))]
        argv += ["--input-history-file", str(job.prompt.with_name("aider.input.history"))]
        argv += ["--model", job.model] if job.model else []
        return Launch(argv=(*argv, *self._settings.args), env=self._settings.env)

    def parse(self, line: bytes) -> AgentUpdate | None:
        """Read one line of text; some report what a message has used, or what went wrong."""
        found = _TOKENS.search(line[:_LONGEST_LINE])
        if found is None:
            return _words(last_line(line[:4096].decode("utf-8", "replace")))
        usage = Usage(
            input_tokens=_count(found[1], found[2]),
            output_tokens=_count(found[3], found[4]),
            cost_usd=amount(_read(found[5])) if found[5] else None,
        )
        return AgentUpdate(usage=usage, final=Final(ok=True))

    def recorded(self, conversation: str, prompt: Path, reported: Usage) -> AgentUpdate | None:  # noqa: ARG002
        """Add up what its log says about each reply."""
        try:
            lines = read_plain(_books(prompt), _MOST_READ, follow=False).splitlines()
        except OSError:
            return None
        used = Usage()
        for event in filter(None, map(load, lines)):
            if text(event, "event") == "message_send":
                used += _exact(at(event, "properties"))
        return AgentUpdate(usage=used) if used != Usage() else None

    def render(self, line: bytes) -> tuple[Entry, ...] | None:
        """Return what a line shows: all is text but for errors and what it did."""
        words = line[:_LONGEST_LINE].decode("utf-8", "replace").strip()
        if _ERROR.match(words):
            return (Entry(kind=Kind.ERROR, text=line.decode("utf-8", "replace")),)
        if words.startswith(_ACTS):
            return (Entry(kind=Kind.TOOL, text=words),)
        if _TOKENS.search(line[:_LONGEST_LINE]) or words.startswith("Retrying in "):
            return (Entry(kind=Kind.NOTE, text=words),)
        return None


def _books(prompt: Path) -> Path:
    return prompt.with_suffix(".aider.jsonl")


def _exact(reply: Any) -> Usage:
    return Usage(
        input_tokens=whole(reply, "prompt_tokens"),
        output_tokens=whole(reply, "completion_tokens"),
        cost_usd=number(reply, "cost") or None,  # 0 is what it says of a model whose price it does not know
    )


def _words(shown: str) -> AgentUpdate | None:
    error = _ERROR.match(shown)
    if error is not None:
        status = _STATUS.get(error[1], _TEMPORARY)
        return AgentUpdate(message=shown, final=faults.failed(shown, at=time.time(), status=status))
    waits = announced_wait(shown) if shown.startswith("Retrying in ") else None
    return AgentUpdate(message=shown, retry_seconds=waits) if shown else None


def _count(digits: bytes, unit: bytes | None) -> int | None:
    return whole_amount(_read(digits) * _SCALE.get(unit or b"", 1.0))


def _read(digits: bytes) -> float:
    try:
        return float(digits.replace(b",", b""))
    except ValueError:
        return 0.0
