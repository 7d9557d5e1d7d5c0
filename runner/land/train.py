"""The train: stories on the tip of the target, one on top of the other, made without a checkout."""

from collections.abc import Mapping
from enum import StrEnum
from functools import partial

from msgspec import Struct

from isolation.git.landing.merges import Joined, brought_paths, conflicting, join, with_trailers
from isolation.git.landing.replay import replay
from isolation.git.repository import Repository
from runner.core.landing import message
from runner.core.landing.search import Stories
from runner.core.model import StoryId
from runner.core.text.names import one_line
from runner.land.candidates import Candidate, Candidates


class Style(StrEnum):
    """What a landed story leaves in the history of the target: a merge, one commit, or its commits again."""

    MERGE = "merge"
    SQUASH = "squash"
    REBASE = "rebase"


class Manner(Struct, frozen=True, kw_only=True):
    """How the commits of a landing are made; an empty `template` is that of the style."""

    style: Style = Style.MERGE
    template: str = ""


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
    """The commits of one landing on one tip; the same sequence of stories is always the same commit.

    Where a story does not merge, its entry in `resolutions` is merged instead. Only the train that lands is
    `signed`: each signature may ask for a passphrase, and a search builds many.
    """

    def __init__(
        self,
        repository: Repository,
        candidates: Candidates,
        *,
        tip: str,
        landing_id: str,
        onto: str,
        date: float,
        manner: Manner,
        signed: bool = False,
        resolutions: Mapping[StoryId, Resolution] | None = None,
    ) -> None:
        self.repository = repository
        self._resolutions = resolutions or {}
        self.candidates = candidates
        self.tip = tip
        self.landing_id = landing_id
        self._onto = onto
        self._date = date
        self._manner = manner
        self._signed = signed
        self._messages: dict[tuple[StoryId, str], str] = {}
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

    @property
    def style(self) -> Style:
        """What each story leaves in the history of the target."""
        return self._manner.style

    def _join(self, onto: str, one: Candidate) -> Joined:
        joined, resolution = self._joined(onto, one), self._resolutions.get(one.id)
        if not joined.conflicts or resolution is None:
            return joined
        again = join(
            *(self.repository, onto, resolution.commit, self._message(one), self._date),
            base=resolution.onto,
            single=self.style is not Style.MERGE,
            parent=one.tip,
            sign=self._signed,
        )
        return again if again.commit else joined

    def _joined(self, onto: str, one: Candidate) -> Joined:
        repository, date, sign = self.repository, self._date, self._signed
        if self.style is Style.REBASE:
            reword = partial(self._with_trailers, one)
            return replay(repository, onto, one.tip, date, fork=one.fork, sign=sign, reword=reword)
        single = self.style is Style.SQUASH
        # What landed as another commit is still in the branches of its dependents; only what they changed
        # since counts, or a file that they deleted would come back.
        base = one.fork if single or one.replayed else ""
        return join(repository, onto, one.tip, self._message(one), date, base=base, single=single, sign=sign)

    def _message(self, one: Candidate) -> str:
        usual = message.MERGED if self.style is Style.MERGE else message.ONE_COMMIT
        values = {
            "id": one.id,
            "title": one_line(one.story.title),
            "onto": self._onto,
            "run": one.run_id,
            "branch": one.branch,
            "landing": self.landing_id,
            "style": str(self.style),
        }
        return self._with_trailers(one, message.filled(self._manner.template or usual, values))

    def _with_trailers(self, one: Candidate, text: str) -> str:
        known = self._messages
        if (one.id, text) not in known:  # a search asks for the same ones many times
            trailers = {"Autopilot-Landing": self.landing_id, "Autopilot-Story": one.id}
            known[one.id, text] = with_trailers(self.repository, text, trailers)
        return known[one.id, text]

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
