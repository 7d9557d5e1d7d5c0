"""The agent's own interactive session for a story: how a person starts it, and the guard around it.

Within the guard it is as every session of the story: the same view, the same seal, so that the conversation
finds its files where it left them, and the checkout stays out of reach.
"""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.errors import GuardError
from isolation.git.repository import Repository
from isolation.model import IsolationMode, SessionSpec, Workspace
from runner.agents.catalog import KNOWN
from runner.agents.protocol import Agent
from runner.core.agent_settings import AgentSettings
from runner.core.errors import NotFoundError
from runner.core.model import SessionKind
from runner.core.settings import Settings
from runner.plan.guard import write_guard_of
from runner.plan.repositories.site import worktree_root_of
from runner.plan.settings.json_form import from_json as settings_from_json
from runner.run.control.story_view import StoryView, require_workspace
from runner.story.session.environment import passed_environment, seal_of

_UNGUARDED = "none"


class AgentConversation(Struct, frozen=True, kw_only=True):
    """The agent's own interactive session for a story: a command, and the folder to start it in.

    `guarded` if the sessions of the run were kept to the story's worktree.
    """

    agent: Agent
    argv: tuple[str, ...]
    folder: Path
    env: Mapping[str, str]
    settings: Settings
    guarded: bool

    @property
    def command(self) -> str:
        """The command as a user types it, outside of the guard."""
        return f"cd {shlex.quote(str(self.folder))} && {shlex.join(self.argv)}"

    def outside_words(self, top: Path) -> str:
        """Return what the user must know who starts it outside of the guard; empty if nothing."""
        if not self.guarded:
            return ""
        return (
            f"the guard kept the story's sessions out of {top}, but not this one; the conversation may name "
            f"files there, so tell the agent that the work is in {self.folder}"
        )


def conversation_of(view: StoryView, top: Path) -> AgentConversation:
    """Return how a person continues the conversation of a story, or begins one where it works."""
    worked = [one for one in view.story.sessions if one.kind is SessionKind.WORK]
    if not worked or worked[-1].agent not in KNOWN:
        raise NotFoundError(
            f"story {view.story.id} has had no session of an agent that can be continued by hand",
            hint=f"`autopilot-multi open {view.story.id}` prints the folder in which it works.",
        )
    newest = worked[-1]
    info = view.run.repos.get(view.story.repo) if view.story.repo else None
    settings = settings_from_json(info.settings if info else view.run.options, top=top)
    agent = KNOWN[newest.agent](settings.agents.get(newest.agent, AgentSettings()))
    return AgentConversation(
        agent=agent,
        argv=agent.interactive(newest.conversation),
        folder=require_workspace(view),
        env=agent.environment,
        settings=settings,
        guarded=view.own_worktree is not None and view.run.enforcement != _UNGUARDED,
    )


def in_guard(found: AgentConversation, view: StoryView, repository: Repository) -> SessionSpec:
    """Return the session with the confinement and the environment that the story's sessions have. Blocking.

    Raises GuardError where the machine cannot do what it did for the run.
    """
    # A story of a shared tree may have been moved to a worktree of its own.
    settings = replace(found.settings, bg_isolation=IsolationMode.WORKTREE.value)
    root = worktree_root_of(repository, settings)
    guard = write_guard_of(repository.paths, settings, root)
    workspace = Workspace(
        path=found.folder,
        branch=view.story.workspace.branch or "",
        base=view.base,
        head=view.story.workspace.commit or view.base,
        reattached=True,
    )
    confinement = guard.around(workspace, repository=repository, root=root, settings=settings)
    if confinement is None:
        raise GuardError(
            f"the session cannot be guarded as those of the run were: {guard.note}",
            hint="`--unguarded` starts it without a guard; it can then write wherever you can.",
        )
    cwd = guard.inside(found.folder, found.folder)
    spec = SessionSpec(
        argv=found.argv,
        cwd=cwd,
        env={
            **passed_environment(settings, found.agent, os.environ, sealed=guard.seal is not None),
            **guard.variables,
            **found.env,
            "PWD": str(cwd),
        },
        prompt=Path(os.devnull),
        confinement=replace(confinement, noticed=False),
    )
    seal = seal_of(guard.seal, settings, found.agent, dict(os.environ))
    return spec if seal is None else seal.around(spec)
