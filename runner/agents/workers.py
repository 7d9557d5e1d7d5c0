"""Who does which attempt of a story: its own agent first, and after failures those that it escalates to."""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from runner.agents.protocol import Agent
from runner.core.model import StoryId


class Worker(Struct, frozen=True, kw_only=True):
    """An agent, and the model that it is asked to use; without one, it uses its own."""

    agent: Agent
    model: str = ""

    @property
    def name(self) -> str:
        """How settings and people write it: `agent`, or `agent:model`."""
        return f"{self.agent.name}:{self.model}" if self.model else self.agent.name


class Workers(Struct, frozen=True, kw_only=True):
    """The workers of one story: `first` does the first attempt, each further one the next of `later`.

    `others` can take the place of `first`, in this order, when it cannot work. The `reviewer` reads what they
    made; None if there is none.
    """

    first: Worker
    later: tuple[Worker, ...] = ()
    others: tuple[Worker, ...] = ()
    reviewer: Worker | None = None

    def at(self, attempt: int, handed_to: str = "") -> Worker:
        """Return the worker of an attempt: the agent that it was handed to, else by the attempt's number.

        The last of `later` does all attempts that follow.
        """
        handed = next((worker for worker in self.order if worker.agent.name == handed_to), None)
        if handed is not None:
            return handed
        if attempt <= 1 or not self.later:
            return self.first
        return self.later[min(attempt - 2, len(self.later) - 1)]

    @property
    def order(self) -> tuple[Worker, ...]:
        """The story's own agents in order of preference."""
        return (self.first, *self.others)

    @property
    def everybody(self) -> tuple[Worker, ...]:
        """All who may have a session of the story."""
        return (*self.order, *self.later, *((self.reviewer,) if self.reviewer else ()))

    @property
    def agents(self) -> tuple[Agent, ...]:
        """Every agent that may have a session of the story, each once."""
        found = {worker.agent.name: worker.agent for worker in self.everybody}
        return tuple(found.values())


def agents_of(workers: Mapping[StoryId, Workers]) -> Iterable[Agent]:
    """Return the agents that may work on any of the stories."""
    return [agent for each in workers.values() for agent in each.agents]
