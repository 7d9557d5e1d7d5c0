"""Where an agent and its surroundings get in each other's way: said before anything starts, with the way out.

Nothing is switched off to make them fit. Only a person does that.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from isolation.claims import globs as claims
from isolation.claims.owners import folders_around
from isolation.git.repository import Repository
from isolation.model import IsolationMode, Means
from runner.agents.protocol import Agent
from runner.core.model import Story, StoryId
from runner.core.settings import Settings


class Friction(Struct, frozen=True, kw_only=True):
    """What will go wrong with an agent here, and what to do about it."""

    agent: str
    detail: str
    hint: str

    @property
    def line(self) -> str:
        """Say it in one line."""
        return f"{self.agent}: {self.detail}; {self.hint}"


def frictions(agents: Iterable[Agent], repository: Repository, means: Means | None) -> tuple[Friction, ...]:
    """Find what will go wrong with these agents in a repository whose sessions are confined by `means`."""
    by_name = {agent.name: agent for agent in agents}
    found = []
    for name, agent in by_name.items():
        if agent.traits.own_sandbox and means is Means.LANDLOCK:
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


def crowding(
    stories: Iterable[Story], agents: Mapping[StoryId, Agent], settings: Settings
) -> tuple[Friction, ...]:
    """Find agents whose sandboxes would get in each other's way at the top of a shared tree."""
    if settings.bg_isolation != IsolationMode.NONE or settings.max_stories == 1:
        return ()
    strewn = Counter(
        agents[story.id].name
        for story in stories
        if story.id in agents
        and agents[story.id].traits.own_sandbox
        and not folders_around(claims.compile(story.owns))
    )
    return tuple(
        Friction(
            agent=name,
            detail=f"{count} of its stories may own paths all over the tree, so that its sandboxes mark the "
            "top of it and take each other's marks for used; those that stay will fail stories",
            hint=f'begin their globs with a folder, run one at a time, or `permissions = "bypass"` under '
            f"[agents.{name}]",
        )
        for name, count in strewn.items()
        if count > 1
    )
