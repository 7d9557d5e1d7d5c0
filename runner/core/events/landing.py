"""Events of landings: branches of done stories become one commit on a target branch, or that is undone.

A landing can take stories of several runs. Each of these runs has its own copy of the events, which names its
own stories only unless it says otherwise. They follow the rule intent, act, done: `LandingVerified` is
durable before the target moves, `LandingUndoPlanned` before it moves back, `StoryRestackPlanned` before the
branch of a story moves.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from runner.core.model import StoryId


class LandingPlanned(Struct, frozen=True, kw_only=True):
    """These stories are about to be verified together on the tip of the target.

    `train` are those of all runs, in the order in which they are tried.
    """

    landing_id: str
    onto: str
    tip: str
    stories: tuple[str, ...]
    style: str = "merge"
    train: tuple[str, ...] = ()


class BatchStarted(Struct, frozen=True, kw_only=True):
    """The commands begin on a sequence of stories, of all runs; without any, on the target as it is."""

    landing_id: str
    number: int
    stories: tuple[str, ...]


class BatchEnded(Struct, frozen=True, kw_only=True):
    """The outcome of a sequence: `green`, `red` with the command that failed, or `stopped`.

    `verify_runs` is for how many trees commands have run in this landing up to now.
    """

    landing_id: str
    number: int
    stories: tuple[str, ...]
    outcome: str
    command: str = ""
    detail: str = ""
    verify_runs: int = 0


class MergeConflicted(Struct, frozen=True, kw_only=True):
    """A story does not merge onto what is green so far; it is tried again with what follows."""

    landing_id: str
    story: str
    onto: tuple[str, ...] = ()


class TrainRebuilt(Struct, frozen=True, kw_only=True):
    """The target has moved to `tip` meanwhile, so the train is verified again; for the `number`th time."""

    landing_id: str
    tip: str
    number: int


class LandingVerified(Struct, frozen=True, kw_only=True):
    """Intent: the target is about to move from `before` to `commit`, whose `tree` was verified."""

    landing_id: str
    onto: str
    before: str
    commit: str
    tree: str
    stories: tuple[str, ...]
    verify_runs: int = 0
    style: str = "merge"


class Landed(Struct, frozen=True, kw_only=True):
    """Done: the target has moved, and its checkouts have followed."""

    landing_id: str
    onto: str
    commit: str
    stories: tuple[str, ...]


class LandingEnded(Struct, frozen=True, kw_only=True):
    """What the whole landing came to, over all runs; `left` are stories with `why`, `reason` and `with`.

    Without an `after` the target has not moved; `red_target` is the command that fails there without any
    story.
    """

    landing_id: str
    landed: tuple[str, ...] = ()
    left: tuple[Mapping[str, Any], ...] = ()
    after: str = ""
    verify_runs: int = 0
    rebuilds: int = 0
    red_target: str = ""


class StoryNotLanded(Struct, frozen=True, kw_only=True):
    """A story was left out of a landing; the fields are those of `LeftOut`."""

    story_id: StoryId
    landing_id: str
    reason: str
    output: tuple[str, ...] = ()
    onto: str = ""
    tip: str = ""
    why: str = ""
    files: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    command: str = ""
    log: str = ""
    fork: str = ""


class LandingRetryPlanned(Struct, frozen=True, kw_only=True):
    """Intent: a story that was left out starts again, and its branch is about to move; see `Retry`."""

    story_id: StoryId
    landing_id: str
    onto: str
    base: str
    old: str
    commit: str
    files: tuple[str, ...] = ()
    fresh: bool = False


class LandingAbandoned(Struct, frozen=True, kw_only=True):
    """The landing, or its undoing, has ended without effect."""

    landing_id: str
    reason: str


class LandingUndoPlanned(Struct, frozen=True, kw_only=True):
    """Intent: the target is about to move from `before` to `commit`, which holds no landed work any more."""

    landing_id: str
    onto: str
    before: str
    commit: str
    stories: tuple[str, ...]


class LandingUndone(Struct, frozen=True, kw_only=True):
    """Done: the target is without the landed work; `reverted`: by a commit on top of it."""

    landing_id: str
    stories: tuple[str, ...]
    reverted: bool = False


class ConflictsForeseen(Struct, frozen=True, kw_only=True):
    """Which stories would conflict if they landed now, and the best order; replaces what was foreseen before.

    A clash has `stories`, `files` and `reason`. With many of them, `more` are left out. `repo` is the
    repository in which they are, empty for that of the run.
    """

    clashes: tuple[Mapping[str, Any], ...] = ()
    order: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    uncommitted: tuple[str, ...] = ()
    onto: str = ""
    more: int = 0
    repo: str = ""


class StoryRestackPlanned(Struct, frozen=True, kw_only=True):
    """Intent: the branch of a story is about to move from `before` to `commit`, which begins at `base`.

    What its history had of other stories is in `onto` as other commits. `kept` is the ref of the old tip.
    """

    story_id: StoryId
    onto: str
    branch: str
    before: str
    commit: str
    base: str
    kept: str
    commits: int = 0


class StoryRestacked(Struct, frozen=True, kw_only=True):
    """Done: the branch of a story has moved; its own work begins at `base` from now on."""

    story_id: StoryId
    onto: str
    commit: str
    base: str
    kept: str
    commits: int = 0
    before: str = ""


class StoryNotRestacked(Struct, frozen=True, kw_only=True):
    """A planned restack was given up; the branch is as it was."""

    story_id: StoryId
    onto: str
    reason: str


LandingBody: TypeAlias = (
    LandingPlanned
    | BatchStarted
    | BatchEnded
    | MergeConflicted
    | TrainRebuilt
    | LandingVerified
    | Landed
    | LandingEnded
    | StoryNotLanded
    | LandingRetryPlanned
    | LandingAbandoned
    | LandingUndoPlanned
    | LandingUndone
    | ConflictsForeseen
    | StoryRestackPlanned
    | StoryRestacked
    | StoryNotRestacked
)

# As in `events.py`: a class may be renamed, its kind in the journal may not.
KINDS: dict[str, Any] = {
    "LandingPlanned": LandingPlanned,
    "LandingBatchStarted": BatchStarted,
    "LandingBatchEnded": BatchEnded,
    "LandingMergeConflicted": MergeConflicted,
    "LandingTrainRebuilt": TrainRebuilt,
    "LandingVerified": LandingVerified,
    "Landed": Landed,
    "LandingEnded": LandingEnded,
    "StoryNotLanded": StoryNotLanded,
    "LandingRetryPlanned": LandingRetryPlanned,
    "LandingAbandoned": LandingAbandoned,
    "LandingUndoPlanned": LandingUndoPlanned,
    "LandingUndone": LandingUndone,
    "ConflictsForeseen": ConflictsForeseen,
    "StoryRestackPlanned": StoryRestackPlanned,
    "StoryRestacked": StoryRestacked,
    "StoryNotRestacked": StoryNotRestacked,
}
