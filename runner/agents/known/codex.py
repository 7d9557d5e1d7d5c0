"""Codex, headless: `codex exec --json`.

A completed turn says nothing about its commands: it completes even when all of them failed. Errors are plain
text. Tokens cover the whole thread, and it reports no cost. A turn that fails reports no tokens either; they
are in the file that it keeps about the thread.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from isolation.patterns import pattern
from runner.agents import faults
from runner.agents.json_line import at, last_line, load, objects, text, tool_line, whole
from runner.agents.known_agent import ConversationFiles, Endpoint, KnownAgent, SignIn
from runner.agents.protocol import AgentJob, Launch, Traits
from runner.agents.tool_calls import files_read, tool_result
from runner.core.agent_settings import AgentSettings
from runner.core.conversation.entry import Entry, Kind
from runner.core.conversation.entry import result as result_entry
from runner.core.conversation.tool_call import tool as tool_entry
from runner.core.limits.agent_output import AgentUpdate, Fault, Final
from runner.core.model import Usage

_TOOLS = frozenset({"command_execution", "file_change", "mcp_tool_call", "web_search"})
_WHOLE = frozenset({"file_change", "web_search"})
"""Tools that say only at their end what they did."""
_SHELL = pattern(r"^\S*/?(?:ba|z)?sh -l?c (?=['\"])")
_ID, _THREAD = 36, pattern(r"[0-9a-f-]{36}")
_LONGEST_HEAD = 1 << 20
_RECONNECTING = pattern(r"Reconnecting\.* *(\d{1,9})/")
RECONNECTING_SECONDS = 120.0
"""It does not say how long it waits before it retries."""
QUIET = 330.0
"""It waits 300 s for a stalled stream before it reports anything, unless its settings say otherwise."""


PROFILE = "autopilot"
"""The name of its permission profile in a shared tree, so that arguments can add to it."""


class CodexAgent(KnownAgent):
    """Starts and reads `codex`."""

    name = "codex"
    continued_by = ("resume",)
    package = "@openai/codex"
    tried = ("0.166.0", "0.169.0")
    acp_programs = ("codex-acp",)
    sign_in = SignIn(
        # OPENAI_API_KEY alone does not sign it in, unless a provider of the user's own reads it.
        variables=("CODEX_API_KEY",),
        files=(".codex/auth.json",),
        passes=("CODEX_*", "OPENAI_*"),
        # A provider of the user's own has its key in a variable of any name.
        naming=r"env_key\s*=\s*[\"'](\w+)",
        named_in=(".codex/config.toml",),
        moved_by="CODEX_HOME",
    )
    conversation_files = ConversationFiles(
        folder=".codex", files="sessions/*/*/*/rollout-*-{id}.jsonl", moved_by="CODEX_HOME"
    )
    endpoint = Endpoint(
        hosts=("api.openai.com", "chatgpt.com", "auth.openai.com"),
        variables=("OPENAI_BASE_URL",),
        providers=True,
        naming=r"base_url\s*=\s*[\"']([^\"']+)",
        named_in=(".codex/config.toml",),
        moved_by="CODEX_HOME",
    )

    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        free = self._bypass or any("danger" in word for word in settings.args)
        self.traits = Traits(
            streams=True,
            says_end=True,
            whole_thread=True,
            quiet_seconds=QUIET,
            books=True,
            own_sandbox=not free,
            obeys=(".codex",),
        )

    def launch(self, job: AgentJob) -> Launch:
        """Start a thread, or resume one; `resume` takes the sandbox options of the command before it."""
        argv = ["codex", "exec", "--json", *self._sandbox(job), *(["-m", job.model] if job.model else [])]
        argv += ["-c", "analytics.enabled=false", *self._trust(job), *self._settings.args]
        argv += ["resume", job.conversation, "-"] if job.conversation else ["-"]
        return Launch(argv=tuple(argv), env=self._settings.env, conversation=job.conversation)

    def _sandbox(self, job: AgentJob) -> list[str]:
        if self._bypass:
            return ["-s", "danger-full-access"]
        if job.folders:
            return _profile(job.folders)
        # A commit writes outside of the worktree. The whole git directory would not do: codex creates marker
        # files in each of its roots, which the write guard refuses.
        roots = json.dumps([str(folder) for folder in job.git_dirs], ensure_ascii=False)
        return [
            "-s",
            "workspace-write",
            "-c",
            f"sandbox_workspace_write.writable_roots={roots}",
            "-c",
            "sandbox_workspace_write.exclude_slash_tmp=true",
        ]

    def recorded(self, conversation: str, prompt: Path, reported: Usage) -> AgentUpdate | None:  # noqa: ARG002
        """Add what the threads of helpers have used, which only their files tell.

        A turn that failed reports nothing; then the file of the thread itself counts, too.
        """
        if not _THREAD.fullmatch(conversation):
            return None
        home = _home({**os.environ, **self._settings.env})
        known = reported != Usage()
        own = next(home.glob(f"sessions/*/*/*/rollout-*-{conversation}.jsonl"), None)
        if own is None:
            return None
        total = reported if known else _newest_total(own)
        for file in _helpers(own, conversation):
            total += _newest_total(file)
        return AgentUpdate(usage=total) if total != Usage() else None

    def _trust(self, job: AgentJob) -> list[str]:
        """Say for this session alone that it trusts the repository; it would write that down for good.

        A repository that the user does not trust stays so.
        """
        config = _configuration({**os.environ, **self._settings.env})
        projects = config.get("projects")
        distrusted = {
            Path(folder)
            for folder, about in (projects.items() if isinstance(projects, dict) else ())
            if text(about, "trust_level") == "untrusted"
        }
        folders = (job.workspace, *job.workspace.parents, *(at for one in job.git_dirs for at in one.parents))
        level = "untrusted" if distrusted.intersection(folders) else "trusted"
        return ["-c", f"projects={{{_quoted(str(job.workspace))} = {{trust_level = {_quoted(level)}}}}}"]

    def parse(self, line: bytes) -> AgentUpdate | None:  # noqa: PLR0911  one return per event
        """Read one event."""
        event = load(line)
        if event is None:
            return None
        match event.get("type"):
            case "thread.started":
                return AgentUpdate(conversation=text(event, "thread_id"))
            case "item.started":
                return _item(at(event, "item"), begins=True)
            case "item.completed":
                return _item(at(event, "item"), begins=False)
            case "turn.completed":
                return AgentUpdate(usage=_usage(event, "usage"), final=Final(ok=True))
            case "turn.failed":
                words = _plain(text(event, "error", "message"))
                return AgentUpdate(message=last_line(words), final=faults.failed(words, at=time.time()))
            case "error":
                return _error(_plain(text(event, "message")))
            case _:
                return None

    def render(self, line: bytes) -> tuple[Entry, ...] | None:
        """Return what one event shows."""
        event = load(line)
        kind = text(event, "type")
        match kind:
            case "item.started" | "item.completed":
                return _shown_item(at(event, "item"), begins=kind == "item.started")
            case "turn.failed":
                return (Entry(kind=Kind.ERROR, text=_plain(text(event, "error", "message"))),)
            case "error" if text(event, "message"):
                return (Entry(kind=Kind.ERROR, text=_plain(text(event, "message"))),)
            case "thread.started" | "turn.started" | "turn.completed" | "item.updated":
                return ()
            case _:
                return None


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("CODEX_HOME") or f"{environ.get('HOME', '')}/.codex")


def _helpers(own: Path, conversation: str) -> Iterator[Path]:
    """Yield the files of the threads that a thread has started; they are not older than its own file."""
    sessions, day = own.parents[3], own.parent
    for folder in sorted(sessions.glob("*/*/*")):
        # Names begin with the time, and the ids of threads do so, too.
        for file in sorted(folder.glob("rollout-*.jsonl")) if folder >= day else ():
            if file.stem[-_ID:] > conversation and _is_helper(file, conversation):
                yield file


def _is_helper(file: Path, conversation: str) -> bool:
    try:
        with file.open("rb") as lines:
            first = lines.readline(_LONGEST_HEAD)
    except OSError:
        return False
    return conversation.encode() in first and text(load(first), "payload", "session_id") == conversation


def _newest_total(file: Path) -> Usage:
    """Return the newest total in the file of a thread; none if there is no such file."""
    try:
        with file.open("rb") as lines:
            counts = [line for line in lines if b'"token_count"' in line]
    except OSError:
        return Usage()
    totals = (_usage(at(load(line), "payload", "info"), "total_token_usage") for line in reversed(counts))
    return next(filter(None, totals), Usage())


def _configuration(environ: Mapping[str, str]) -> dict[str, Any]:
    """Read the user's configuration of codex; what cannot be read, it will name itself."""
    import tomllib

    try:
        return tomllib.loads((_home(environ) / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def _profile(folders: Sequence[Path]) -> list[str]:
    """Let it write to these folders alone; its older settings always open the whole working folder.

    It creates marker files in each folder that it may write to. In a shared tree these would be foreign
    changes, or be refused, and then none of its commands would run.
    """
    rules = {":root": "read", ":tmpdir": "write", **{str(folder): "write" for folder in folders}}
    table = ", ".join(f"{_quoted(folder)} = {_quoted(access)}" for folder, access in rules.items())
    chosen = ["-c", f"default_permissions={_quoted(PROFILE)}"]
    return [*chosen, "-c", f"permissions.{PROFILE}.filesystem={{{table}}}"]


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _item(item: Any, *, begins: bool) -> AgentUpdate | None:
    kind, name = text(item, "type"), text(item, "id")
    if kind in _TOOLS:
        tool = kind.replace("_", " ")
        shown, reads = tool_line(tool, item), tuple((name, path) for path in files_read(tool, item))
        if begins:
            return AgentUpdate(begun=(name,), reads=reads, message=shown)
        failed = bool(whole(item, "exit_code")) or text(item, "status") == "failed"
        result = tool_result(name, at(item, "aggregated_output"), failed=failed)
        return AgentUpdate(ended=(name,), reads=reads, results=(result,), message=shown)
    if kind == "agent_message" and not begins:
        return AgentUpdate(message=last_line(text(item, "text")), said=text(item, "text"))
    return None


def _shown_item(item: Any, *, begins: bool) -> tuple[Entry, ...]:
    """Return what an item shows: a tool when it begins, its result and all else when it is complete."""
    kind = text(item, "type")
    if kind in _TOOLS and begins:
        return () if kind in _WHOLE else (_shown_tool(item),)
    if kind in _TOOLS:
        call = (_shown_tool(item),) if kind in _WHOLE else ()
        failed = bool(whole(item, "exit_code")) or text(item, "status") in {"failed", "declined"}
        output = text(item, "aggregated_output") or text(item, "error", "message")
        return (*call, result_entry(output, failed=failed)) if output.strip() or failed else call
    kinds = {"agent_message": Kind.MESSAGE, "reasoning": Kind.THOUGHT, "error": Kind.NOTE}
    words = text(item, "message" if kind == "error" else "text")
    return () if begins or kind not in kinds or not words.strip() else (Entry(kind=kinds[kind], text=words),)


def _shown_tool(item: Any) -> Entry:
    kind, name = text(item, "type"), text(item, "type").replace("_", " ")
    if kind == "file_change":
        paths = [text(change, "path") for change in objects(item, "changes")]
        return tool_entry(name, ", ".join(filter(None, paths)))
    if kind == "mcp_tool_call":
        return tool_entry(f"{text(item, 'server')} {text(item, 'tool')}".strip(), at(item, "arguments"))
    if kind == "command_execution":
        return tool_entry("shell", _SHELL.sub("", text(item, "command")).strip("'\""))
    return tool_entry(name, item)


def _plain(words: str) -> str:
    """Return the message of an error that it passes on as the JSON of its service, with the status."""
    answer = load(words.strip().encode())
    error = at(answer, "error")
    said = text(error, "message")
    if not said:
        return words
    status = whole(answer, "status") or whole(error, "code") or whole(error, "status")
    named = text(error, "code") or text(error, "type")
    return f"{said} ({', '.join(filter(None, (f'status {status}' if status else '', named)))})"


def _error(words: str) -> AgentUpdate:
    """Read an error that is not final, unless a refused key is tried a second time."""
    tries = _RECONNECTING.search(words)
    hopeless = tries and int(tries[1]) > 1 and faults.fault_of(words) is Fault.PERMANENT
    final = faults.failed(words, at=time.time()) if hopeless else None
    return AgentUpdate(
        message=last_line(words), retry_seconds=RECONNECTING_SECONDS if tries else None, final=final
    )


def _usage(event: Any, key: str) -> Usage | None:
    spent = at(event, key)
    tokens = whole(spent, "input_tokens")
    if tokens is None:
        return None
    return Usage(
        input_tokens=tokens,
        output_tokens=whole(spent, "output_tokens"),
        cached_tokens=whole(spent, "cached_input_tokens"),
    )
