"""The embedded agent: a story's own `command`, and agents that a user describes by an argv template."""

from collections.abc import Mapping

from isolation.patterns import pattern
from runner.agents.json_line import at, last_line, load, number, text, whole
from runner.agents.protocol import AgentJob, Launch, Traits
from runner.core.agent_settings import AgentSettings
from runner.core.errors import AgentError
from runner.core.limits.agent_output import AgentUpdate
from runner.core.model import Usage

_SESSION = "{session}"
_PLACEHOLDER = pattern(r"\{(?:id|title|workspace|session|model)\}")


class CommandAgent:
    """Runs the story's `command` as it is."""

    name = "command"
    traits = Traits()

    def launch(self, job: AgentJob) -> Launch:
        """Start the story's own command."""
        if job.story.command is None:
            raise AgentError(f"story {job.story.id} has no command", hint="add `command:` to the story.")
        return Launch(argv=job.story.command)

    def parse(self, line: bytes) -> AgentUpdate | None:  # noqa: ARG002  a command's output is its own
        """Return None: its output is not interpreted."""
        return None


class TemplateAgent:
    """Runs the user's argv with its placeholders filled in; `events` says what its JSON lines hold."""

    def __init__(self, name: str, settings: AgentSettings) -> None:
        self._name = name
        self._settings = settings
        paths = {key: path for key, path in settings.events.items() if key != "usage"}
        self._events = {key: tuple(path.split(".")) for key, path in paths.items()}
        self.traits = Traits(
            streams=bool(paths), sums=settings.events.get("usage") == "sum", reports_cost="cost" in paths
        )

    @property
    def name(self) -> str:
        """The name under `[agents.NAME]`."""
        return self._name

    @property
    def takes_model(self) -> bool:
        """Whether its command names the model."""
        return any("{model}" in part for part in (*self._settings.argv, *self._settings.args))

    @property
    def arguments(self) -> tuple[str, ...]:
        """The words of its command, with placeholders."""
        return (*self._settings.argv, *self._settings.args)

    @property
    def environment(self) -> Mapping[str, str]:
        """The user's own variables for it."""
        return self._settings.env

    def launch(self, job: AgentJob) -> Launch:
        """Fill in the placeholders of the template; other braces stay as they are."""
        settings = self._settings
        resumes = bool(job.conversation and settings.resume)
        conversation = job.conversation if resumes else self._chosen(job)
        values = {
            "{id}": job.story.id,
            "{title}": job.story.title,
            "{workspace}": str(job.workspace),
            _SESSION: conversation if resumes else job.session_id,
            "{model}": job.model,
        }
        template = (*(settings.resume if resumes else settings.argv), *settings.args)
        # Not `str.format`: an argv may contain JSON or shell braces of its own.
        filled = (_PLACEHOLDER.sub(lambda found: values[found[0]], part) for part in template)
        return Launch(argv=tuple(filled), env=settings.env, conversation=conversation)

    def _chosen(self, job: AgentJob) -> str:
        """Return the id of the conversation, where the program lets us choose it."""
        named = any(_SESSION in part for part in self._settings.argv)
        return job.session_id if named and self._settings.resume else ""

    def parse(self, line: bytes) -> AgentUpdate | None:
        """Read the keys that the user has mapped."""
        event = load(line) if self._events else None
        if event is None:
            return None
        found = {key: at(event, *path) for key, path in self._events.items()}
        usage = Usage(
            input_tokens=whole(found, "input-tokens"),
            output_tokens=whole(found, "output-tokens"),
            cost_usd=number(found, "cost"),
        )
        return AgentUpdate(
            conversation=text(found, "session"),
            message=last_line(text(found, "message")),
            usage=None if usage == Usage() else usage,
        )
