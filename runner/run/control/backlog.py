"""The stories of a run while it is active: their order, and which agents carry them. Both may grow."""

from collections.abc import Mapping, Sequence

from runner.agents.workers import Workers
from runner.core.model import Story, StoryId
from runner.core.schedule.graph import ordered
from runner.core.schedule.relevant import Relevant


class RunningBacklog:
    """One per run. Every story in it is in the snapshot of the run, too, and has its workers."""

    def __init__(self, order: Sequence[Story], workers: Mapping[StoryId, Workers]) -> None:
        self.order = order
        self.by_id = {story.id: story for story in order}
        self.workers = dict(workers)
        self.relevant = Relevant(order)

    def take(self, stories: Sequence[Story], workers: Mapping[StoryId, Workers]) -> None:
        """Take stories in, or replace ones that have not started; the snapshot of the run has them."""
        self.by_id |= {story.id: story for story in stories}
        self.workers |= workers
        self.order = ordered(self.by_id.values())
        self.relevant = Relevant(self.order)

    def edit(self, story: Story) -> None:
        """Replace a story whose dependencies are the same; the order stays."""
        self.by_id[story.id] = story
        self.order = tuple(self.by_id[each.id] for each in self.order)
        self.relevant = Relevant(self.order)
