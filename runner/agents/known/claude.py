"""Claude Code, headless: `claude -p` with a stream of JSON events.

Neither its exit code nor its `result` proves anything alone: an error of the service is a `success` with
`is_error`, and an interrupted session may exit with 0. Only a `result` without an error, together with exit
code 0, counts as success.
"""

import os
import re
import time
import uuid
from typing import Any

from msgspec.structs import replace

from runner.agents import faults
from runner.agents.json_line import at, last_line, load, number, objects, text, tool_line, whole
from runner.agents.known_agent import ConversationFiles, Endpoint, KnownAgent, SignIn, StartProblem
from runner.agents.protocol import AgentJob, Launch, Traits
from runner.agents.tool_calls import files_read, tool_result, words_of
from runner.core.conversation.entry import Entry, Kind
from runner.core.conversation.entry import result as result_entry
from runner.core.conversation.tool_call import tool
from runner.core.limits.agent_output import AgentUpdate, Fault, Final
from runner.core.model import Usage

_GIT = ("add", "commit", "status", "diff", "log", "show", "rm", "mv", "restore")
_STATE = ("sub-step", "show", "check")
"""What a session asks of this program; other actions of `state` change the repository or write elsewhere."""
_HOPELESS = frozenset({401, 403})
_LIMIT, _SPENT = "--max-budget-usd", "error_max_budget_usd"
_OWN_IDS = uuid.UUID("7d0c1f5e-5d0e-4a55-9a39-6a3f8f1c2b10")
_BY_MODEL = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheCreationInputTokens")
_BY_RESULT = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
"""Input that was in no cache, output, input from a cache, and input that was put into one."""
QUIET = 330.0
"""A stream that its service has stalled is silent for 300 s and then continues."""


class ClaudeAgent(KnownAgent):
    """Starts and reads `claude`."""

    name = "claude"
    continued_by = ("--resume",)
    package = "@anthropic-ai/claude-code"
    tried = ("2.1.197", "2.1.326", "2.1.327")
    acp_programs = ("claude-agent-acp", "claude-code-acp")
    sign_in = SignIn(
        variables=(
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CODE_USE_BEDROCK",
            "CLAUDE_CODE_USE_VERTEX",
        ),
        files=(".claude/.credentials.json",),
        passes=("ANTHROPIC_*", "CLAUDE_*"),
        moved_by="CLAUDE_CONFIG_DIR",
        services={
            "CLAUDE_CODE_USE_BEDROCK": SignIn(variables=("AWS_*",), files=(".aws",)),
            "CLAUDE_CODE_USE_VERTEX": SignIn(
                variables=("GOOGLE_APPLICATION_CREDENTIALS",), files=(".config/gcloud",)
            ),
        },
    )
    conversation_files = ConversationFiles(
        folder=".claude", files="projects/{workspace}/{id}.jsonl", moved_by="CLAUDE_CONFIG_DIR"
    )
    endpoint = Endpoint(
        hosts=("api.anthropic.com", "console.anthropic.com", "platform.claude.com", "claude.ai"),
        variables=("ANTHROPIC_BASE_URL",),
        naming=r"[\"']ANTHROPIC_BASE_URL[\"']\s*:\s*[\"']([^\"']+)",
        named_in=(".claude/settings.json",),
        moved_by="CLAUDE_CONFIG_DIR",
        services={
            "CLAUDE_CODE_USE_BEDROCK": Endpoint(
                hosts=("bedrock-runtime.{AWS_REGION}.amazonaws.com", "sts.{AWS_REGION}.amazonaws.com"),
                variables=("ANTHROPIC_BEDROCK_BASE_URL",),
            ),
            "CLAUDE_CODE_USE_VERTEX": Endpoint(
                hosts=(
                    "{CLOUD_ML_REGION}-aiplatform.googleapis.com",
                    "aiplatform.googleapis.com",
                    "oauth2.googleapis.com",
                ),
                variables=("ANTHROPIC_VERTEX_BASE_URL",),
            ),
        },
        quiet={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    )
    traits = Traits(
        streams=True,
        reports_cost=True,
        says_end=True,
        quiet_seconds=QUIET,
        obeys=(".claude/settings.json", ".claude/settings.local.json", ".mcp.json"),
    )

    def start_problem(self) -> StartProblem | None:
        """Return why it would not start: it refuses all permissions to root outside of a sandbox."""
        sandboxed = {**os.environ, **self._settings.env}.get("IS_SANDBOX") == "1"
        if not self._bypass or os.geteuid() != 0 or sandboxed:
            return None
        return StartProblem(
            detail='claude refuses permissions = "bypass" for root',
            hint="run as an ordinary user; or remove the line, which leaves it the edits and the verify "
            "commands; or, in a container that holds nothing else, set IS_SANDBOX=1 yourself.",
        )

    def launch(self, job: AgentJob) -> Launch:
        """Start a conversation under an id of our choice, or resume one; always with the same model."""
        conversation = job.conversation or str(uuid.uuid5(_OWN_IDS, job.session_id))
        argv = ["claude", "-p", "--output-format", "stream-json", "--verbose"]
        argv += ["--resume" if job.conversation else "--session-id", conversation]
        argv += ["--model", job.model] if job.model else []
        argv += [_LIMIT, f"{job.cost:.4f}"] if job.cost else []
        argv += self._permissions(job)
        # Worktrees share what claude remembers about a repository, and an unattended run needs no updates.
        env = {"DISABLE_AUTOUPDATER": "1", "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1", **self._settings.env}
        return Launch(argv=(*argv, *self._settings.args), env=env, conversation=conversation)

    def _permissions(self, job: AgentJob) -> list[str]:
        if self._bypass:
            return ["--permission-mode", "bypassPermissions"]
        allowed = [f"Bash(git {name}:*)" for name in _GIT]
        allowed += [f"Bash({job.program} state {action}:*)" for action in _STATE if _can_name(job.program)]
        allowed += [f"Bash({command})" for command in job.verify if _can_name(command)]
        return ["--permission-mode", "acceptEdits", "--allowedTools", ",".join(allowed)]

    def parse(self, line: bytes) -> AgentUpdate | None:  # noqa: PLR0911  one return per event
        """Read one event."""
        event = load(line)
        if event is None:
            return None
        match event.get("type"):
            case "assistant":
                return _assistant(event)
            case "user":
                return _user(event)
            case "system":
                return _system(event)
            case "rate_limit_event":
                rejected = text(event, "rate_limit_info", "status") == "rejected"
                resets = number(event, "rate_limit_info", "resetsAt") or 0.0
                return AgentUpdate(resets_at=resets) if rejected else None
            case "result":
                seen = result(event)
                # A limit of the user's own is one that the session has to keep.
                if text(event, "subtype") != _SPENT or any(_LIMIT in word for word in self._settings.args):
                    return seen
                words = seen.message or "it has spent what it was allowed to"
                return replace(seen, final=Final(ok=False, message=words, fault=Fault.SPENT))
            case _:
                return None

    def render(self, line: bytes) -> tuple[Entry, ...] | None:
        """Return what one event shows."""
        event = load(line)
        if event is None:
            return None
        kind = text(event, "type")
        if kind in {"assistant", "user"} and isinstance(at(event, "message"), dict):
            return _shown_blocks(event)
        if kind == "result" and "subtype" in event:
            return _shown_result(event)
        if kind == "system" and "subtype" in event:
            seen = _system(event)
            return (Entry(kind=Kind.NOTE, text=seen.message),) if seen is not None and seen.message else ()
        if kind == "rate_limit_event":
            rejected = text(event, "rate_limit_info", "status") == "rejected"
            return (
                (Entry(kind=Kind.ERROR, text="the service refuses: its rate limit is reached"),)
                if rejected
                else ()
            )
        # Parts of messages, which come whole afterwards.
        return () if kind == "stream_event" else None


def _shown_blocks(event: dict[str, Any]) -> tuple[Entry, ...]:
    """Return what the blocks of a message show; a text of the user is the prompt."""
    nested, said = _is_nested(event), event.get("type") == "assistant"
    entries = []
    for block in objects(event, "message", "content"):
        match block.get("type"):
            case "text" if said and text(block, "text").strip():
                kind = Kind.ERROR if text(event, "error") else Kind.MESSAGE
                entries.append(Entry(kind=kind, text=text(block, "text"), nested=nested))
            case "thinking" if text(block, "thinking").strip():
                entries.append(Entry(kind=Kind.THOUGHT, text=text(block, "thinking"), nested=nested))
            case "tool_use":
                entries.append(tool(text(block, "name"), at(block, "input"), nested=nested))
            case "tool_result":
                failed = block.get("is_error") is True
                entries.append(result_entry(words_of(block.get("content")), failed=failed, nested=nested))
            case _:
                pass
    return tuple(entries)


def _shown_result(event: dict[str, Any]) -> tuple[Entry, ...]:
    """Return what the last event adds to the messages before it: an error, and what was denied."""
    final = result(event).final
    denied = final.denied if final is not None else ()
    entries = [Entry(kind=Kind.ERROR, text=f"denied: {what}") for what in denied]
    if final is not None and not final.ok:
        entries.append(Entry(kind=Kind.ERROR, text=final.message))
    return tuple(entries)


def _can_name(command: str) -> bool:
    """Whether its rules can name a command; they cannot quote some characters."""
    return bool(command) and not re.search(r"[(),\n*]", command)


def _assistant(event: dict[str, Any]) -> AgentUpdate:
    blocks = objects(event, "message", "content")
    tools = [block for block in blocks if block.get("type") == "tool_use"]
    said = "\n".join(text(block, "text") for block in blocks if block.get("type") == "text")
    shown = tool_line(text(tools[-1], "name"), at(tools[-1], "input")) if tools else last_line(said)
    return AgentUpdate(
        begun=tuple(text(block, "id") for block in tools),
        reads=tuple(
            (text(block, "id"), path)
            for block in tools
            for path in files_read(text(block, "name"), at(block, "input"))
        ),
        nested=_is_nested(event),
        message=shown,
        said=said,
    )


def _user(event: dict[str, Any]) -> AgentUpdate | None:
    results = tuple(
        tool_result(text(block, "tool_use_id"), block.get("content"), failed=block.get("is_error") is True)
        for block in objects(event, "message", "content")
        if block.get("type") == "tool_result"
    )
    ended = tuple(one.id for one in results)
    return AgentUpdate(ended=ended, results=results, nested=_is_nested(event)) if ended else None


def _is_nested(event: dict[str, Any]) -> bool:
    """Whether a helper agent says this, which has a conversation of its own."""
    return bool(text(event, "parent_tool_use_id"))


def _system(event: dict[str, Any]) -> AgentUpdate | None:
    match event.get("subtype"):
        case "init":
            return AgentUpdate(conversation=text(event, "session_id"))
        case "api_retry":
            status, words = whole(event, "error_status"), text(event, "error") or "the service failed"
            seconds = (number(event, "retry_delay_ms") or 0.0) / 1000
            # It tries a refused key ten times; waiting for that is pointless once two attempts have failed.
            hopeless = status in _HOPELESS and (whole(event, "attempt") or 0) > 1
            final = Final(ok=False, message=f"{words} (status {status})", fault=Fault.PERMANENT)
            shown = f"retrying in {seconds:.0f} s: {words}" + (f" (status {status})" if status else "")
            return AgentUpdate(retry_seconds=seconds, message=shown, final=final if hopeless else None)
        case _:
            return None


def result(event: dict[str, Any]) -> AgentUpdate:
    """Read the last event of a session; other agents print the same."""
    words = text(event, "result") or _listed(at(event, "errors"))
    subtype = text(event, "subtype")
    if subtype == "success" and event.get("is_error") is False:
        refused = objects(event, "permission_denials")
        denied = tuple(
            sorted({tool_line(text(item, "tool_name"), at(item, "tool_input")) for item in refused})
        )
        final = Final(ok=True, message=last_line(words), denied=denied)
    else:
        reason = words or subtype.replace("_", " ")
        final = faults.failed(reason, at=time.time(), status=whole(event, "api_error_status"))
        if text(event, "stop_reason") == "refusal":
            final = replace(final, fault=Fault.LOST)
    return AgentUpdate(
        conversation=text(event, "session_id"),
        message=last_line(words),
        usage=_usage(event),
        # Versions that number their results report totals that include earlier sessions of the conversation.
        whole_thread="result_index" in event,
        final=final,
    )


def _listed(errors: Any) -> str:
    return " ".join(str(item) for item in errors) if isinstance(errors, list) else text({"": errors}, "")


def _usage(event: dict[str, Any]) -> Usage | None:
    """Return what all results of its process have used together, helpers and other models included.

    `usage` is only that of the last result, so it counts only where the totals by model are missing.
    """
    models = at(event, "modelUsage")
    totals = [one for one in models.values() if isinstance(one, dict)] if isinstance(models, dict) else []
    names = _BY_MODEL if totals else _BY_RESULT
    parts = totals or [at(event, "usage")]
    fresh, output, cached, made = ([whole(part, name) for part in parts] for name in names)
    if not any(count is not None for count in (*fresh, *output)):
        return None
    return Usage(
        input_tokens=sum(count or 0 for count in (*fresh, *cached, *made)),
        output_tokens=sum(count or 0 for count in output),
        cached_tokens=sum(count or 0 for count in cached) if any(cached) else cached[0],
        cost_usd=number(event, "total_cost_usd"),
    )
