"""Qwen Code, headless: claude's events without a cost. It reports an error of its service as a success."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from runner.agents import faults
from runner.agents.json_line import at, last_line, load, text, whole
from runner.agents.known.claude import ClaudeAgent
from runner.agents.known_agent import Endpoint, KnownAgent, SignIn
from runner.agents.protocol import AgentJob, Launch, Traits
from runner.core.agent_settings import AgentSettings
from runner.core.conversation.entry import Entry, Kind
from runner.core.limits.agent_output import AgentUpdate
from runner.core.model import Usage

_ERROR = "[API Error"
_DEFAULTS, _SETTINGS = "QWEN_CODE_SYSTEM_DEFAULTS_PATH", "QWEN_CODE_SYSTEM_SETTINGS_PATH"
_SYSTEM = ("/etc/qwen-code", "/Library/Application Support/QwenCode")
_PATIENCE = json.dumps({"model": {"generationConfig": {"maxRetries": 0}}}).encode()
"""What counts unless its user, or this machine, has settings about it.

By itself it asks again for half an hour when it is refused, without a word, also if no money is left. This
leaves it the retries of a minute and a half; then it says what was wrong, and the run waits for all stories.
"""


class QwenAgent(KnownAgent):
    """Starts and reads `qwen`."""

    name = "qwen"
    continued_by = ("--resume",)
    package = "@qwen-code/qwen-code"
    tried = ("0.15.10", "0.24.4")
    sign_in = SignIn(
        variables=("OPENAI_API_KEY", "DASHSCOPE_API_KEY"),
        files=(".qwen/oauth_creds.json",),
        passes=("QWEN_*", "OPENAI_*"),
    )
    endpoint = Endpoint(
        hosts=("portal.qwen.ai", "chat.qwen.ai", "dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"),
        variables=("OPENAI_BASE_URL",),
        providers=True,
    )
    traits = Traits(streams=True, says_end=True, whole_thread=True, obeys=(".qwen", ".env"))

    def __init__(self, settings: AgentSettings) -> None:
        super().__init__(settings)
        self._events = ClaudeAgent(settings)

    def launch(self, job: AgentJob) -> Launch:
        """Start a session, or resume one."""
        mode = "yolo" if self._bypass else "auto-edit"
        argv = ["qwen", "-o", "stream-json", "--approval-mode", mode]
        argv += ["-m", job.model] if job.model else []
        argv += ["--resume", job.conversation] if job.conversation else []
        env, files = self._settings.env, {}
        if not _has_defaults({**os.environ, **env}):
            defaults = job.prompt.with_suffix(".qwen.json")
            env, files = {_DEFAULTS: str(defaults), **env}, {defaults.name: _PATIENCE}
        return Launch(argv=(*argv, *self._settings.args), env=env, conversation=job.conversation, files=files)

    def parse(self, line: bytes) -> AgentUpdate | None:
        """Read one event."""
        seen = self._events.parse(line)
        if seen is None or seen.final is None:
            return seen
        event = load(line)
        if event is None or event.get("type") != "result":
            return seen
        seen = replace(seen, usage=_usage(event))
        # Newer versions admit an error, but name it in a place of its own. Advice may follow it in both.
        words = text(event, "error", "message") or text(event, "result")
        if at(event, "error") is None and not words.startswith(_ERROR):
            return seen
        return replace(seen, message=last_line(words), final=faults.failed(words, at=time.time()))

    def render(self, line: bytes) -> tuple[Entry, ...] | None:
        """Return what one event shows; an error of its service comes as a message."""
        shown = self._events.render(line)
        return shown and tuple(
            replace(entry, kind=Kind.ERROR) if entry.text.startswith(_ERROR) else entry for entry in shown
        )


def _has_defaults(environ: Mapping[str, str]) -> bool:
    """Whether somebody else says what holds on this machine for settings that its users do not have."""
    moved = environ.get(_SETTINGS, "")
    folders = (str(Path(moved).parent),) if moved else _SYSTEM
    return bool(environ.get(_DEFAULTS)) or any(Path(at, "system-defaults.json").exists() for at in folders)


def _usage(event: dict[str, Any]) -> Usage | None:
    """Return what the conversation has used; its input includes what came from a cache."""
    spent = at(event, "usage")
    tokens = whole(spent, "input_tokens")
    if tokens is None:
        return None
    return Usage(
        input_tokens=tokens,
        output_tokens=whole(spent, "output_tokens"),
        cached_tokens=whole(spent, "cache_read_input_tokens"),
    )
