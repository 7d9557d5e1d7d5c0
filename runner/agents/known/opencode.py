"""OpenCode, headless: `opencode run --format json`. Every step reports its own tokens and cost.

Those of helper agents are in its database alone. A tool is reported only when it has ended, so a long one
looks like silence. While it retries its service it reports nothing; its log says so, on standard error.
"""

import os
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from isolation.patterns import pattern
from runner.agents import faults
from runner.agents.json_line import at, last_line, load, number, text, tool_line, whole
from runner.agents.known_agent import Endpoint, KnownAgent, SignIn
from runner.agents.protocol import AgentJob, Launch, Traits
from runner.agents.tool_calls import files_read, tool_result, words_of
from runner.core.conversation.entry import Entry, Kind
from runner.core.conversation.entry import result as result_entry
from runner.core.conversation.tool_call import tool as tool_entry
from runner.core.limits.agent_output import AgentUpdate, Fault, Final
from runner.core.model import Usage

_QUIET = 600.0
_TITLE = "--title"
_LOG = ("--print-logs", "--log-level")
_REFUSED = pattern(
    r'^timestamp=\S+ level=ERROR [^"]{0,500}message="stream error" .{0,2000}?'
    r'error\.error="(?:AI_APICallError: )?((?:[^"\\]|\\.){0,2000})'
)
"""A line of its log about a request that failed; it retries most of them, without end and without a word."""
_BUSY, _IS_BUSY = b"Failed query:", "its database was busy; at its first start it makes one"
"""Of several that start for the first time at once, one may find that another has made half of the tables."""
_LONGEST_LINE = 10_000
_SUMS = """
    WITH RECURSIVE talks(id) AS (
        VALUES (?) UNION SELECT session.id FROM session JOIN talks ON session.parent_id = talks.id
    )
    SELECT sum(tokens_input), sum(tokens_output), sum(tokens_reasoning), sum(tokens_cache_read),
        sum(tokens_cache_write), sum(cost)
    FROM session WHERE id IN (SELECT id FROM talks)
"""


class OpencodeAgent(KnownAgent):
    """Starts and reads `opencode`."""

    name = "opencode"
    continued_by = ("--session",)
    package = "opencode-ai"
    tried = ("1.18.33",)
    sign_in = SignIn(
        variables=("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"),
        files=(".local/share/opencode/auth.json",),
        passes=("OPENCODE_*",),
        naming=r"\{env:(\w+)\}",
        named_in=(".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"),
    )
    endpoint = Endpoint(
        hosts=("opencode.ai", "models.dev", "api.anthropic.com", "api.openai.com", "openrouter.ai"),
        providers=True,
        variables=("OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"),
        naming=r"[\"']baseURL[\"']\s*:\s*[\"']([^\"']+)",
        named_in=(".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"),
        named_by=("OPENCODE_CONFIG_CONTENT",),
    )
    traits = Traits(
        streams=True,
        reports_cost=True,
        says_end=True,
        sums=True,
        books=True,
        quiet_seconds=_QUIET,
        obeys=("opencode.json", "opencode.jsonc", ".opencode"),
    )

    def launch(self, job: AgentJob) -> Launch:
        """Start a session, or resume one; its own settings say what it may do, except for `bypass`."""
        argv = ["opencode", "run", "--format", "json"]
        argv += ["--auto"] if self._bypass else []
        argv += [] if self._has(*_LOG) else [*_LOG, "ERROR"]
        argv += ["--model", job.model] if job.model else []
        argv += ["--session", job.conversation] if job.conversation else self._title(job)
        env = {"OPENCODE_DISABLE_AUTOUPDATE": "1", **self._settings.env}
        return Launch(argv=(*argv, *self._settings.args), env=env, conversation=job.conversation)

    def _title(self, job: AgentJob) -> list[str]:
        """Name a new conversation; without a name it pays a model for one, and reports that nowhere."""
        return [] if self._has(_TITLE) else [f"{_TITLE}={job.story.id}"]

    def _has(self, *options: str) -> bool:
        """Whether the user's own arguments have one of these options."""
        return any(word.partition("=")[0] in options for word in self._settings.args)

    def recorded(self, conversation: str, prompt: Path, reported: Usage) -> AgentUpdate | None:  # noqa: ARG002
        """Read what a conversation and those of its helpers have used."""
        # Imported here: no other agent needs it.
        import sqlite3

        file = _database({**os.environ, **self._settings.env})
        try:
            # Without a moment of patience a writer would make the answer an error.
            with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=5.0)) as books:
                sums = books.execute(_SUMS, (conversation,)).fetchone()
        except (OSError, ValueError, sqlite3.Error):
            return None
        used = dict(zip(("input", "output", "reasoning", "read", "write", "cost"), sums, strict=True))
        fresh, output, thought, read, write = (whole(used, name) for name in tuple(used)[:-1])
        if fresh is None or output is None:
            return None
        usage = Usage(
            input_tokens=fresh + (read or 0) + (write or 0),
            output_tokens=output + (thought or 0),
            cached_tokens=read,
            cost_usd=number(used, "cost"),
        )
        return AgentUpdate(usage=usage, whole_thread=True)

    def parse(self, line: bytes) -> AgentUpdate | None:  # noqa: PLR0911  one return per event
        """Read one event."""
        event = load(line)
        if event is None and line.startswith(_BUSY):
            return AgentUpdate(
                message=_IS_BUSY, final=Final(ok=False, message=_IS_BUSY, fault=Fault.TRANSIENT)
            )
        if event is None:
            return _retried(_refusal(line))
        conversation, part = text(event, "sessionID"), at(event, "part")
        match event.get("type"):
            case "tool_use":
                return _tool(conversation, part)
            case "text":
                said = text(part, "text")
                return AgentUpdate(conversation=conversation, message=last_line(said), said=said)
            case "step_start":
                return AgentUpdate(conversation=conversation)
            case "step_finish":
                usage = _usage(part)
                # Other reasons, such as a tool call, end a step but not the session.
                final = Final(ok=True) if text(part, "reason") == "stop" else None
                return AgentUpdate(conversation=conversation, usage=usage, final=final)
            case "error":
                error, words = at(event, "error"), _complaint(event)
                status = whole(error, "data", "statusCode") or whole(error, "statusCode")
                return AgentUpdate(
                    conversation=conversation,
                    message=last_line(words),
                    final=faults.failed(words, at=time.time(), status=status),
                )
            case _:
                return None

    def render(self, line: bytes) -> tuple[Entry, ...] | None:
        """Return what one event shows; a tool call comes with its result."""
        event = load(line)
        if event is None or "sessionID" not in event:
            refusal = _refusal(line)
            return (Entry(kind=Kind.ERROR, text=refusal),) if refusal else None
        part = at(event, "part")
        match event.get("type"):
            case "tool_use":
                return _shown_tool(part)
            case "text" | "reasoning" as kind:
                words = text(part, "text")
                shown = Kind.MESSAGE if kind == "text" else Kind.THOUGHT
                return (Entry(kind=shown, text=words),) if words.strip() else ()
            case "step_start" | "step_finish":
                return ()
            case "error":
                return (Entry(kind=Kind.ERROR, text=_complaint(event)),)
            case _:
                return None


def _database(environ: Mapping[str, str]) -> Path:
    data = environ.get("XDG_DATA_HOME") or f"{environ.get('HOME', '')}/.local/share"
    return Path(data, "opencode", environ.get("OPENCODE_DB") or "opencode.db")


def _refusal(line: bytes) -> str:
    """Return why a request failed, if a line of its log says so."""
    found = _REFUSED.search(line[:_LONGEST_LINE].decode("utf-8", "replace"))
    return found[1].replace('\\"', '"') if found else ""


def _retried(refusal: str) -> AgentUpdate | None:
    """Wait with it for its service, unless no retry can help."""
    if not refusal:
        return None
    hopeless = faults.fault_of(refusal) is Fault.PERMANENT
    final = faults.failed(refusal, at=time.time()) if hopeless else None
    return AgentUpdate(message=last_line(refusal), retry_seconds=_QUIET, final=final)


def _shown_tool(part: Any) -> tuple[Entry, ...]:
    state = at(part, "state")
    failed = text(state, "status") == "error"
    output = words_of(at(state, "output")) or text(state, "error")
    call = tool_entry(text(part, "tool"), at(state, "input"))
    return (call, result_entry(output, failed=failed)) if output.strip() or failed else (call,)


def _complaint(event: dict[str, Any]) -> str:
    error = at(event, "error")
    return text(error, "data", "message") or text(error, "message") or text(error, "name")


def _tool(conversation: str, part: Any) -> AgentUpdate:
    name, tool, state = text(part, "id"), text(part, "tool"), at(part, "state")
    arguments = at(state, "input")
    result = tool_result(
        name,
        at(state, "output"),
        failed=text(state, "status") == "error",
        truncated=at(state, "metadata", "truncated") is True,
    )
    return AgentUpdate(
        conversation=conversation,
        ended=(name,),
        reads=tuple((name, path) for path in files_read(tool, arguments)),
        results=(result,),
        message=tool_line(tool, arguments),
    )


def _usage(part: Any) -> Usage:
    """Return what a step has used; it counts input from a cache, and what the model thought, separately."""
    counts = at(part, "tokens")
    kept = [whole(counts, "cache", name) for name in ("read", "write")]
    fresh, written, total = (whole(counts, name) for name in ("input", "output", "total"))
    read = None if fresh is None else fresh + sum(count or 0 for count in kept)
    if read is not None and written is not None and total is not None:
        written = max(written, total - read)
    cost = number(part, "cost")
    return Usage(input_tokens=read, output_tokens=written, cached_tokens=kept[0], cost_usd=cost)
