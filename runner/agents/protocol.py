"""What the runner asks of an agent: how to start it. One file an agent implements this."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from runner.core.model import Story


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One session to be: what an agent needs to build its command."""

    story: Story
    workspace: Path
    session_id: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program to start, and what to add to its environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


class Agent(Protocol):
    """A program that does a story's work; it gets its prompt on standard input."""

    @property
    def name(self) -> str:
        """Give the name that people know it by."""

    def launch(self, job: Job) -> Launch:
        """Say how to start it for this job."""
