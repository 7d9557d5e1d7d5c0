"""Where an agent and its surroundings get in each other's way: said before anything starts, with the way out.

Nothing is switched off to make them fit. Only a person does that.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from isolation.guard import tree_offer
from isolation.model import IsolationMode, Means
from isolation.repository import Repository
from runner.agents.protocol import Agent
from runner.core.settings import Settings
from runner.guarding import guarding_of
from runner.sharing import require_level


@dataclass(frozen=True, slots=True, kw_only=True)
class Friction:
    """What will go wrong with an agent here, and what to do about it."""

    agent: str
    detail: str
    hint: str

    @property
    def line(self) -> str:
        """Say it in one line."""
        return f"{self.agent}: {self.detail}; {self.hint}"


def frictions(
    agents: Iterable[Agent], repository: Repository, settings: Settings, root: Path
) -> tuple[Friction, ...]:
    """Find what will go wrong with these agents in a run with these settings; blocks at the first call."""
    by_name = {agent.name: agent for agent in agents}
    found = []
    for name, agent in by_name.items():
        if agent.traits.own_sandbox and _means(repository, settings, root) is Means.LANDLOCK:
            found.append(
                Friction(
                    agent=name,
                    detail="its own sandbox cannot be set up under the Landlock guard, so every command that "
                    "it runs will fail",
                    hint=f'`permissions = "bypass"` under [agents.{name}] does without its sandbox and '
                    "leaves the guard; or name another agent",
                )
            )
        if agent.traits.names_user and not repository.names_user:
            found.append(
                Friction(
                    agent=name,
                    detail="git's configuration names no user, so it will write one there itself, which the "
                    "guard refuses",
                    hint="`git config --global user.name NAME`, and the same with user.email",
                )
            )
    return tuple(found)


def _means(repository: Repository, settings: Settings, root: Path) -> Means | None:
    """Tell by what sessions are confined."""
    if settings.bg_isolation != IsolationMode.NONE:
        return guarding_of(repository.common_dir, settings, root).means
    return tree_offer(require_level(settings, root, repository.top), repository.top).means
