"""What the runner needs from an agent: how to start it, how to resume it, and what its output means.

`parse` never raises, whatever it is given. All agents are stopped in the same way, by their keeper: it
reaches their tools too, and their conversation is on disk by then.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from msgspec import Struct, field

from runner.core.limits.agent_output import AgentUpdate
from runner.core.limits.budget import USUAL_COST, USUAL_TOKENS
from runner.core.model import Story


class AgentJob(Struct, frozen=True, kw_only=True):
    """One session to start: what an agent needs to build its command.

    `conversation` is the one to resume, empty for a new one. `git_dirs` are what a commit writes to besides
    the workspace. `folders` are those that the story may write to when it shares the workspace with others;
    they exist. `verify` are the commands that will judge the work, `cost` is what it may spend in dollars.
    `program` is how the session calls this program to save where it is; empty if the story has no state file.
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
    program: str = ""
    cost: float | None = None


class Launch(Struct, frozen=True, kw_only=True):
    """A program to start, and what to add to its environment.

    `conversation` is the id under which this session can be resumed, where it is known beforehand. `files`
    are written next to the prompt before it starts, by name.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    conversation: str = ""


class Traits(Struct, frozen=True, kw_only=True):
    """How to interpret an agent's output and behavior.

    `streams`: its lines carry information. `says_end`: a session that exits without a final result has
    failed. `sums`: each usage is added to those before. `whole_thread`: usage covers the whole conversation,
    earlier sessions included. `quiet_seconds`: how long it may be silent while it works. `litter`: what it
    leaves in its folder that is not work, as patterns for git to ignore. `own_sandbox`: it runs its commands
    in a sandbox that needs mounts. `obeys`: files and folders of a repository that can make it run something
    or talk to another service. `names_user`: it writes a user into git's configuration if that has none.
    `reports_cost`: it says itself what it costs. `books`: its own files say more exactly than its output what
    it has used. `usual_cost` and `usual_tokens`: what a session is expected
    to spend while none is known.
    """

    streams: bool = False
    says_end: bool = False
    sums: bool = False
    whole_thread: bool = False
    quiet_seconds: float = 0.0
    litter: tuple[str, ...] = ()
    own_sandbox: bool = False
    obeys: tuple[str, ...] = ()
    names_user: bool = False
    reports_cost: bool = False
    books: bool = False
    usual_cost: float = USUAL_COST
    usual_tokens: float = USUAL_TOKENS


class Agent(Protocol):
    """A program that does a story's work; it gets its prompt on standard input."""

    @property
    def name(self) -> str:
        """The name that settings and people use."""

    @property
    def traits(self) -> Traits:
        """How to interpret its output."""

    def launch(self, job: AgentJob) -> Launch:
        """Return how to start it for this job, or how to resume its conversation."""

    def parse(self, line: bytes) -> AgentUpdate | None:
        """Read one line of its output; None when the line says nothing that matters."""
