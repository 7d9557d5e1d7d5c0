"""Agents that speak the Agent Client Protocol: started by `driver.py`, whose JSON lines are read here."""

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.agents import faults
from runner.agents.acp import driver
from runner.agents.json_line import at, last_line, load, number, text, whole
from runner.agents.known_agent import Permissions
from runner.agents.protocol import AgentJob, Launch, Traits
from runner.agents.tool_calls import files_read, tool_result
from runner.core.agent_settings import AgentSettings
from runner.core.conversation.entry import Entry, Kind
from runner.core.conversation.entry import result as result_entry
from runner.core.conversation.tool_call import tool as tool_entry
from runner.core.limits.agent_output import AgentUpdate, Fault, Final
from runner.core.model import Usage

_MODEL = "{model}"
_STATE = ("sub-step", "show", "check")
"""What a session asks of this program; other actions of `state` change the repository or write elsewhere."""
_QUIET = 600.0
"""A tool is silent while it runs, and some agents say nothing of the retries of their service."""
_STOPPED = {
    "max_tokens": "it stopped because its model had reached its limit of tokens",
    "max_turn_requests": "it stopped because it had made as many requests as it may in one turn",
    "refusal": "it refused to continue",
    "cancelled": "it was cancelled",
}


class AcpAgent:
    """Starts and reads an agent that the user describes by the command that speaks the protocol."""

    def __init__(self, name: str, settings: AgentSettings, *, obeys: tuple[str, ...] = ()) -> None:
        self._name = name
        self.traits = Traits(streams=True, says_end=True, quiet_seconds=_QUIET, obeys=obeys)
        self._settings = settings

    @property
    def name(self) -> str:
        """The name under `[agents.NAME]`."""
        return self._name

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words of its command, with placeholders."""
        return (*self._settings.acp, *self._settings.args)

    @property
    def environment(self) -> Mapping[str, str]:
        """The user's own variables for it."""
        return self._settings.env

    def launch(self, job: AgentJob) -> Launch:
        """Start the driver, which starts the agent and begins or resumes a conversation."""
        named = any(_MODEL in word for word in self.arguments)
        orders = {
            "resume": job.conversation,
            "model": "" if named else job.model,
            "bypass": self._settings.permissions == Permissions.BYPASS,
            "commands": job.verify,
            "prefixes": [f"{job.program} state {action}" for action in _STATE if job.program],
        }
        # By its path and isolated: the workspace may contain modules of any name.
        program = (sys.executable, "-I", "-X", "utf8", str(Path(driver.__file__)), json.dumps(orders))
        command = (word.replace(_MODEL, job.model) for word in self.arguments)
        return Launch(argv=(*program, *command), env=self._settings.env, conversation=job.conversation)

    def parse(self, line: bytes) -> AgentUpdate | None:  # noqa: PLR0911  one return per event
        """Read one event of the driver."""
        event = load(line)
        if event is None:
            return None
        match event.get("type"):
            case "session":
                # Without a way to resume it, the next session begins a conversation of its own.
                return AgentUpdate(conversation=text(event, "id") if event.get("resumable") is True else "")
            case "progress":
                return AgentUpdate(message=text(event, "text"))
            case "message":
                said = text(event, "text")
                return AgentUpdate(message=last_line(said), said=said)
            case "tool":
                return AgentUpdate(begun=(text(event, "id"),), reads=_reads(event), message=_line(event))
            case "ended":
                return _ended(event)
            case "denied":
                return AgentUpdate(message=f"denied: {text(event, 'what')}")
            case "usage":
                return AgentUpdate(usage=_usage(event))
            case "result":
                return _result(event)
            case _:
                return None


def render(line: bytes) -> tuple[Entry, ...] | None:  # noqa: PLR0911  one return per event
    """Return what one event of the driver shows to people; None for a line that is none."""
    event = load(line)
    if event is None or event.get("via") != driver.VIA:
        return None
    match event.get("type"):
        case "message":
            return (Entry(kind=Kind.MESSAGE, text=text(event, "text")),)
        case "tool":
            return (_shown_tool(event),)
        case "ended":
            output, failed = text(event, "output"), event.get("failed") is True
            return (result_entry(output, failed=failed),) if output.strip() or failed else ()
        case "denied":
            return (Entry(kind=Kind.ERROR, text=f"denied: {text(event, 'what')}"),)
        case "result" if event.get("ok") is not True:
            return (Entry(kind=Kind.ERROR, text=_reason(event)),)
        case _:
            return ()


def _shown_tool(event: dict[str, Any]) -> Entry:
    """Return a tool call: the command, else the title, which names files in most agents."""
    command = text(event, "input", "command")
    return tool_entry(text(event, "kind"), command or text(event, "title"))


def _reason(event: dict[str, Any]) -> str:
    stop = text(event, "stop")
    return text(event, "message") or _STOPPED.get(stop, f"it stopped: {stop or 'no reason'}")


def _ended(event: dict[str, Any]) -> AgentUpdate:
    name = text(event, "id")
    result = tool_result(name, at(event, "output"), failed=event.get("failed") is True)
    return AgentUpdate(ended=(name,), reads=_reads(event), results=(result,), message=_line(event))


def _reads(event: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    name = text(event, "id")
    if text(event, "kind") == "execute":
        return tuple((name, path) for path in files_read("shell", at(event, "input")))
    paths = at(event, "paths") if text(event, "kind") == "read" else None
    return tuple((name, path) for path in paths or () if isinstance(path, str))


def _line(event: dict[str, Any]) -> str:
    return text(event, "title") or text(event, "kind")


def _usage(event: dict[str, Any]) -> Usage:
    return Usage(
        input_tokens=whole(event, "input"),
        output_tokens=whole(event, "output"),
        cached_tokens=whole(event, "cached"),
        cost_usd=number(event, "cost"),
    )


def _result(event: dict[str, Any]) -> AgentUpdate:
    listed = at(event, "denied")
    denied = (
        tuple(sorted({word for word in listed if isinstance(word, str)})) if isinstance(listed, list) else ()
    )
    if event.get("ok") is True:
        return AgentUpdate(final=Final(ok=True, denied=denied))
    stop = text(event, "stop")
    words = _reason(event)
    found = faults.failed(words, at=time.time())
    fault = found.fault
    if stop == "refusal" or _code(event) == driver.NOT_FOUND:
        fault = Fault.LOST
    elif fault is None and _code(event) == driver.AUTH_REQUIRED:
        fault = Fault.PERMANENT
    final = Final(ok=False, message=found.message, fault=fault, until=found.until, denied=denied)
    return AgentUpdate(message=last_line(words), final=final)


def _code(event: dict[str, Any]) -> int | None:
    """Return the number of an error, which is negative in this protocol."""
    code = at(event, "code")
    return code if isinstance(code, int) else None
