"""Gemini CLI, headless: `gemini -o stream-json`. It resumes by id, though its help names positions."""

import time
from typing import Any

from runner.agents import faults
from runner.agents.json_line import at, last_line, load, text, tool_line, whole
from runner.agents.known_agent import Endpoint, KnownAgent, SignIn
from runner.agents.protocol import AgentJob, Launch, Traits
from runner.agents.tool_calls import files_read, tool_result, words_of
from runner.core.conversation.entry import Entry, Kind
from runner.core.conversation.entry import result as result_entry
from runner.core.conversation.tool_call import tool as tool_entry
from runner.core.limits.agent_output import AgentUpdate, Final
from runner.core.model import Usage


class GeminiAgent(KnownAgent):
    """Starts and reads `gemini`."""

    name = "gemini"
    continued_by = ("--resume",)
    package = "@google/gemini-cli"
    tried = ("0.61.0",)
    sign_in = SignIn(
        variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        files=(".gemini/oauth_creds.json",),
        passes=("GEMINI_*",),
        services={
            "GOOGLE_GENAI_USE_VERTEXAI": SignIn(
                variables=("GOOGLE_APPLICATION_CREDENTIALS",), files=(".config/gcloud",)
            )
        },
    )
    endpoint = Endpoint(
        hosts=(
            "generativelanguage.googleapis.com",
            "cloudcode-pa.googleapis.com",
            "oauth2.googleapis.com",
        ),
        variables=("GOOGLE_GEMINI_BASE_URL",),
        services={
            "GOOGLE_GENAI_USE_VERTEXAI": Endpoint(
                hosts=(
                    "{GOOGLE_CLOUD_LOCATION}-aiplatform.googleapis.com",
                    "aiplatform.googleapis.com",
                    "oauth2.googleapis.com",
                ),
                variables=("GOOGLE_VERTEX_BASE_URL",),
            )
        },
    )
    traits = Traits(streams=True, says_end=True, obeys=(".gemini", ".env"))

    def launch(self, job: AgentJob) -> Launch:
        """Start a session, or resume one; its folder is trusted, since it is the user's own worktree."""
        mode = "yolo" if self._bypass else "auto_edit"
        argv = ["gemini", "-o", "stream-json", "--skip-trust", "--approval-mode", mode]
        argv += ["-m", job.model] if job.model else []
        argv += ["--resume", job.conversation] if job.conversation else []
        return Launch(
            argv=(*argv, *self._settings.args), env=self._settings.env, conversation=job.conversation
        )

    def parse(self, line: bytes) -> AgentUpdate | None:  # noqa: PLR0911  one return per event
        """Read one event."""
        event = load(line)
        if event is None:
            return None
        match event.get("type"):
            case "init":
                return AgentUpdate(conversation=text(event, "session_id"))
            # It echoes the prompt as a message of the user.
            case "message" if event.get("role") != "user":
                said, part = text(event, "content"), bool(event.get("delta"))
                return AgentUpdate(message=last_line(said), said=said, continues=part)
            case "tool_use":
                name, tool, parameters = (
                    text(event, "tool_id"),
                    text(event, "tool_name"),
                    at(event, "parameters"),
                )
                reads = tuple((name, path) for path in files_read(tool, parameters))
                return AgentUpdate(begun=(name,), reads=reads, message=tool_line(tool, parameters))
            case "tool_result":
                name, failed = text(event, "tool_id"), text(event, "status") == "error"
                result = tool_result(name, event.get("output"), failed=failed)
                return AgentUpdate(ended=(name,), results=(result,))
            case "error":
                return AgentUpdate(message=last_line(text(event, "message")))
            case "result":
                stats = at(event, "stats")
                usage = _usage(stats)
                words = text(event, "error", "message") or text(event, "status")
                ok = text(event, "status") == "success"
                return AgentUpdate(
                    usage=usage, final=Final(ok=True) if ok else faults.failed(words, at=time.time())
                )
            case _:
                return None

    def render(self, line: bytes) -> tuple[Entry, ...] | None:  # noqa: PLR0911  one return per event
        """Return what one event shows."""
        event = load(line)
        if event is None or "timestamp" not in event:
            return None
        match event.get("type"):
            case "message" if event.get("role") != "user":
                part = bool(event.get("delta"))
                return (Entry(kind=Kind.MESSAGE, text=text(event, "content"), continues=part),)
            case "init" | "message":
                return ()
            case "tool_use":
                return (tool_entry(text(event, "tool_name"), at(event, "parameters")),)
            case "tool_result":
                failed = text(event, "status") == "error"
                output = words_of(event.get("output")) or text(event, "error", "message")
                return (result_entry(output, failed=failed),) if output.strip() or failed else ()
            case "error":
                return (Entry(kind=Kind.ERROR, text=text(event, "message")),)
            case "result":
                words = text(event, "error", "message")
                return (Entry(kind=Kind.ERROR, text=words),) if words else ()
            case _:
                return None


def _usage(stats: Any) -> Usage:
    """Return what a session has used; what the model thought is paid as output, and is only in the total."""
    read, written, total = (whole(stats, f"{name}_tokens") for name in ("input", "output", "total"))
    if read is not None and written is not None and total is not None:
        written = max(written, total - read)
    return Usage(input_tokens=read, output_tokens=written, cached_tokens=whole(stats, "cached"))
