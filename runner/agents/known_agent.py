"""What one file in `known/` declares: all that the runner knows about an agent that needs no description.

Settings, `auto`, the doctor and the search for other sessions read these declarations through
`catalog.KNOWN`; no other table names an agent.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct, field

from runner.agents.protocol import AgentJob, Launch, Traits
from runner.core.agent_settings import AgentSettings
from runner.core.limits.agent_output import AgentUpdate

_NO = frozenset({"", "0", "false"})


class Permissions(StrEnum):
    """What an agent may do without asking.

    `edit` lets it change files and run the verify commands; `bypass` lets it do everything that the user can,
    and only the user's own settings grant it.
    """

    EDIT = "edit"
    BYPASS = "bypass"


class SignIn(Struct, frozen=True, kw_only=True):
    """Where an agent's credentials may be: in variables, or in files below the home folder.

    Its sessions see these even when they are sealed. `moved_by` is a variable that names another folder for
    the first folder of `files`. `services` says which else it needs if a variable selects another service;
    their names may be patterns.
    """

    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    moved_by: str = ""
    services: Mapping[str, "SignIn"] = field(default_factory=dict)

    def names(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the variables that may hold credentials, as patterns."""
        return (*self.variables, *(name for more in self._more(environ) for name in more.variables))

    def places(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the paths that may hold credentials."""
        own = [f"~/{file}" for file in self.files]
        moved = environ.get(self.moved_by, "") if self.moved_by else ""
        if moved.startswith("/"):
            own += [f"{moved}/{file.partition('/')[2]}" for file in self.files]
        return (*own, *(place for more in self._more(environ) for place in more.places(environ)))

    def _more(self, environ: Mapping[str, str]) -> list["SignIn"]:
        return [more for variable, more in self.services.items() if environ.get(variable, "") not in _NO]


class StartProblem(Struct, frozen=True, kw_only=True):
    """Why an agent would refuse to start with its settings, and what to do about it."""

    detail: str
    hint: str


class KnownAgent(ABC):
    """An agent with a file of its own; it implements `protocol.Agent`.

    `name` is also the name of its program. `package` is the package that holds its script; it identifies
    the agent's processes and its version.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    sign_in: ClassVar[SignIn]
    traits: Traits

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings

    @property
    def _bypass(self) -> bool:
        return self._settings.permissions == Permissions.BYPASS

    @abstractmethod
    def launch(self, job: AgentJob) -> Launch:
        """Return how to start it for this job."""

    @abstractmethod
    def parse(self, line: bytes) -> AgentUpdate | None:
        """Read one line of its output."""

    def start_problem(self) -> StartProblem | None:
        """Return why it would refuse to start with these settings; most agents never do."""
        return None
