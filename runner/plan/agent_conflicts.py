"""Conflicts of an agent with the run's enforcement or with git, reported before anything starts.

Nothing is switched off to avoid a conflict; the message says what the user can change.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from msgspec import Struct

from isolation.claims import globs as claims
from isolation.claims.owners import folders_around
from isolation.git.repository import Repository
from isolation.model import IsolationMode, Means
from runner.agents.protocol import Agent
from runner.agents.workers import Workers
from runner.core.model import Story, StoryId
from runner.core.settings import Settings


class AgentConflict(Struct, frozen=True, kw_only=True):
    """What will go wrong with an agent here, and what the user can do about it."""

    agent: str
    detail: str
    hint: str

    @property
    def line(self) -> str:
        """The conflict in one line."""
        return f"{self.agent}: {self.detail}; {self.hint}"


def agent_conflicts(
    agents: Iterable[Agent], repository: Repository, means: Means | None
) -> tuple[AgentConflict, ...]:
    """Find what will go wrong with these agents in a repository whose sessions are confined by `means`."""
    by_name = {agent.name: agent for agent in agents}
    found = []
    for name, agent in by_name.items():
        if agent.traits.own_sandbox and means is Means.LANDLOCK:
            found.append(
                AgentConflict(
                    agent=name,
                    detail="its own sandbox cannot be set up under the Landlock guard, so every command that "
                    "it runs will fail",
                    hint=f'`permissions = "bypass"` under [agents.{name}] turns its sandbox off '
                    "and keeps the guard; or use another agent",
                )
            )
        if agent.traits.names_user and not repository.names_user:
            found.append(
                AgentConflict(
                    agent=name,
                    detail="git's configuration names no user, so the agent will try to write one, which "
                    "the guard refuses",
                    hint="set one: `git config --global user.name NAME`, and the same with user.email",
                )
            )
    return tuple(found)


def sandbox_conflicts(
    stories: Iterable[Story], workers: Mapping[StoryId, Workers], settings: Settings
) -> tuple[AgentConflict, ...]:
    """Find agents whose sandboxes would conflict with each other at the top of a shared tree."""
    if settings.bg_isolation != IsolationMode.NONE or settings.max_stories == 1:
        return ()
    # A story whose claim has no folder of its own lets the sandbox work at the top of the tree.
    at_top = Counter(
        agent.name
        for story in stories
        for agent in (workers[story.id].agents if story.id in workers else ())
        if agent.traits.own_sandbox and not folders_around(claims.compile(story.owns))
    )
    return tuple(
        AgentConflict(
            agent=name,
            detail=f"{count} of its stories may own paths anywhere in the tree, so that its sandboxes put "
            "their marker files at the top and reuse each other's; a marker left behind fails a story",
            hint="start their globs with a folder, run one story at a time, or set "
            f'`permissions = "bypass"` under [agents.{name}]',
        )
        for name, count in at_top.items()
        if count > 1
    )
