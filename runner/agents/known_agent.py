"""What one file in `known/` declares: all that the runner knows about an agent that needs no description.

Settings, `auto`, the doctor and the search for other sessions read these declarations through
`catalog.KNOWN`; no other table names an agent.
"""

from abc import ABC, abstractmethod
from enum import StrEnum
from typing import ClassVar

from msgspec import Struct

from runner.agents.protocol import AgentJob, Launch, Traits
from runner.core.agent_settings import AgentSettings
from runner.core.limits.agent_output import AgentUpdate


class Permissions(StrEnum):
    """What an agent may do without asking.

    `edit` lets it change files and run the verify commands; `bypass` lets it do everything that the user can,
    and only the user's own settings grant it.
    """

    EDIT = "edit"
    BYPASS = "bypass"


class SignIn(Struct, frozen=True, kw_only=True):
    """Where an agent's credentials may be: in variables, or in files below the home folder."""

    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


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
