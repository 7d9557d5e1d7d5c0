"""The train: merges of stories on the tip of the target, one on top of the other, made without a checkout."""

from collections.abc import Mapping
from enum import StrEnum
from functools import partial

from msgspec import Struct

from isolation.git.landing.merges import Joined, brought_paths, conflicting, join
from isolation.git.repository import Repository
from runner.core.landing.search import Stories
from runner.core.model import StoryId
from runner.core.text.names import one_line
from runner.land.candidates import Candidate, Candidates


class Style(StrEnum):
    """What a landed story leaves in the history of the target: its own commits, or one commit."""

    MERGE = "merge"
    SQUASH = "squash"


class Clash(Struct, frozen=True, kw_only=True):
    """Why a story does not merge: the files, and the stories that changed them; none means the target."""

    files: tuple[str, ...] = ()
    stories: Stories = ()
    obstacle: str = ""


class Resolution(Struct, frozen=True, kw_only=True):
    """How the conflict of a story was resolved: `commit` has its changes on top of `onto`."""

    onto: str
    commit: str


class Train:
    """The merges of one landing on one tip; the same sequence of stories is always the same commit.

    Where a story does not merge, its entry in `resolutions` is merged instead.
    """

    def __init__(
        self,
        repository: Repository,
        candidates: Candidates,
        *,
        tip: str,
        landing_id: str,
        date: float,
        style: Style = Style.MERGE,
        resolutions: Mapping[StoryId, Resolution] | None = None,
    ) -> None:
        self.repository = repository
        self._resolutions = resolutions or {}
        self.candidates = candidates
        self.tip = tip
        self.landing_id = landing_id
        self._date = date
        self.style = style
        self._brought: dict[StoryId, frozenset[str]] = {}
        (tree,) = repository.trees((tip,))
        self._built: dict[Stories, Joined] = {(): Joined(commit=tip, tree=tree)}

    def build(self, stories: Stories) -> Joined:
        """Return the merge of these, in this order; the first that does not merge ends it. Blocking."""
        known = len(stories)
        while stories[:known] not in self._built:
            known -= 1
        joined = self._built[stories[:known]]
        for end in range(known + 1, len(stories) + 1):
            if joined.commit:
                joined = self._join(joined.commit, self.candidates[stories[end - 1]])
            self._built[stories[:end]] = joined
        return joined

    def _join(self, onto: str, one: Candidate) -> Joined:
        single = self.style is Style.SQUASH
        # What landed as another commit is still in the branches of its dependents; only what they changed
        # since counts, or a file that they deleted would come back.
        base = one.fork if single or one.replayed else ""
        act = partial(join, self.repository, onto, message=self._message(one), date=self._date, single=single)
        joined, resolution = act(tip=one.tip, base=base), self._resolutions.get(one.id)
        if not joined.conflicts or resolution is None:
            return joined
        again = act(tip=resolution.commit, base=resolution.onto, parent=one.tip)
        return again if again.commit else joined

    def _message(self, one: Candidate) -> str:
        title = one_line(one.story.title)
        subject = title if self.style is Style.SQUASH else f"Merge story {one.id}: {title}"
        return f"{subject}\n\nAutopilot-Landing: {self.landing_id}\nAutopilot-Story: {one.id}\n"

    def clash(self, story_id: StoryId, landed: Stories) -> Clash:
        """Find out with which of the landed stories, and where, a story does not merge. Blocking."""
        one = self.candidates[story_id]
        joined = self.build((*landed, story_id))
        if joined.obstacle or not joined.conflicts:
            return Clash(obstacle=joined.obstacle)
        if self.build((story_id,)).conflicts:
            return Clash(files=self.build((story_id,)).conflicts)
        files = set(joined.conflicts)
        others = [self.candidates[each] for each in landed]
        near = [each for each in others if files & self._paths(each)]
        tips = set(conflicting(self.repository, one.tip, [each.tip for each in near]))
        stories = tuple(each.id for each in near if each.tip in tips) or tuple(each.id for each in near)
        return Clash(files=joined.conflicts, stories=stories)

    def _paths(self, one: Candidate) -> frozenset[str]:
        """Return what a story brings; asked once, since every story that conflicts wants to know."""
        if one.id not in self._brought:
            self._brought[one.id] = brought_paths(self.repository, self.tip, one.tip)
        return self._brought[one.id]
