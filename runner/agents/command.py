"""The embedded agent: a story's own `command`, and agents that a user describes by an argv template."""

from runner.agents.protocol import Job, Launch
from runner.core.errors import AgentError
from runner.core.settings import AgentSettings


class CommandAgent:
    """Runs the story's `command` as it is."""

    name = "command"

    def launch(self, job: Job) -> Launch:
        """Start the story's own command."""
        if job.story.command is None:
            raise AgentError(f"story {job.story.id} has no command", hint="add `command:` to the story.")
        return Launch(argv=job.story.command)


class TemplateAgent:
    """Runs an argv of the user's with placeholders filled in."""

    def __init__(self, name: str, settings: AgentSettings) -> None:
        self._name = name
        self._settings = settings

    @property
    def name(self) -> str:
        """Give the name under `[agents.NAME]`."""
        return self._name

    def launch(self, job: Job) -> Launch:
        """Fill the placeholders of the template; braces that are none stay as they are."""
        values = {
            "{id}": job.story.id,
            "{title}": job.story.title,
            "{workspace}": str(job.workspace),
            "{session}": job.session_id,
            "{model}": job.model,
        }
        return Launch(
            argv=tuple(_filled(part, values) for part in self._settings.argv), env=self._settings.env
        )


def _filled(part: str, values: dict[str, str]) -> str:
    for placeholder, value in values.items():
        part = part.replace(placeholder, value)
    return part
