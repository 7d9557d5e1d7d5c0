"""Qwen Code, headless: claude's events without a cost. It reports an error of its service as a success."""

import time

from msgspec.structs import replace

from runner.agents import faults
from runner.agents.known.claude import ClaudeAgent
from runner.agents.known_agent import Endpoint, KnownAgent, SignIn
from runner.agents.protocol import AgentJob, Launch, Traits
from runner.core.agent_settings import AgentSettings
from runner.core.limits.agent_output import AgentUpdate

_ERROR = "[API Error"


class QwenAgent(KnownAgent):
    """Starts and reads `qwen`."""

    name = "qwen"
    package = "@qwen-code/qwen-code"
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
        return Launch(
            argv=(*argv, *self._settings.args), env=self._settings.env, conversation=job.conversation
        )

    def parse(self, line: bytes) -> AgentUpdate | None:
        """Read one event."""
        # Only the words of such a result show that the service failed.
        seen = self._events.parse(line)
        if seen is None or seen.final is None or not seen.final.message.startswith(_ERROR):
            return seen
        return replace(seen, final=faults.failed(seen.final.message, at=time.time()))
