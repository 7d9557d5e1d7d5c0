"""What the runner asks of an agent: how to start it, how to go on, and what its output says.

One file an agent implements this. Whatever `parse` is given, it never raises. All agents are stopped alike,
by their keeper: it reaches their tools too, and their conversation is on disk by then.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Protocol

from isolation.frozen import frozen
from runner.core.limits.agent_output import AgentUpdate
from runner.core.model import Story


@frozen
class AgentJob:
    """One session to be: what an agent needs to build its command.

    `conversation` is the one to go on with, empty for a new one. `git_dirs` are what a commit writes to
    besides the workspace. `folders` are those that the story may write to where it shares the workspace with
    others; they are there. `verify` are the commands that will judge the work, `cost` what it may spend in
    dollars.
    """

    story: Story
    workspace: Path
    session_id: str
    model: str
    prompt: Path
    conversation: str = ""
    git_dirs: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()
    verify: tuple[str, ...] = ()
    cost: float | None = None


@frozen
class Launch:
    """A program to start, and what to add to its environment.

    `conversation` is the name under which this session can be resumed, as far as it is known beforehand.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    conversation: str = ""


@frozen
class Traits:
    """How an agent's output is to be taken.

    `streams`: its lines say something. `says_end`: one that ends without a last word has failed.
    `sums`: each usage is one more part. `whole_thread`: usage is that of the conversation, earlier sessions
    included. `quiet_seconds`: for so long it may be silent in good health. `litter`: what it leaves in its
    folder and is nobody's work, as patterns for git to ignore. `own_sandbox`: it puts its commands into one,
    which takes mounts. `names_user`: where git's configuration names no user, it writes one.
    """

    streams: bool = False
    says_end: bool = False
    sums: bool = False
    whole_thread: bool = False
    quiet_seconds: float = 0.0
    litter: tuple[str, ...] = ()
    own_sandbox: bool = False
    names_user: bool = False


class Agent(Protocol):
    """A program that does a story's work; it gets its prompt on standard input."""

    @property
    def name(self) -> str:
        """Give the name that people know it by."""

    @property
    def traits(self) -> Traits:
        """Say how its output is to be taken."""

    def launch(self, job: AgentJob) -> Launch:
        """Say how to start it for this job, or how to go on with a conversation."""

    def parse(self, line: bytes) -> AgentUpdate | None:
        """Read one line of its output; None when it says nothing that matters."""
