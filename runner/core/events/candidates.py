"""Events about candidates for the best of N, and about the review of a story's work."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from runner.core.model import StoryId


class CandidateEnded(Struct, frozen=True, kw_only=True):
    """Intent: a candidate has its verdict, and either wins or is about to be set aside.

    `hidden` is how the hidden verify commands judged it, empty if none did. `weak`: it has passed no gate
    that says something. `final`: no further candidate could do better. `next` and `kill_switch` are those of
    its result.
    """

    story_id: StoryId
    number: int
    agent: str
    verdict: str
    reason: str
    branch: str
    commit: str = ""
    commits: int = 0
    files: int = 0
    lines: int = 0
    hidden: str = ""
    weak: bool = False
    final: bool = False
    next: str = ""
    kill_switch: Mapping[str, str] | None = None
    cost_usd: float | None = None
    tokens: int | None = None


class CandidateStarted(Struct, frozen=True, kw_only=True):
    """Done: the candidate before was set aside on branch `kept`, and this one begins at the base."""

    story_id: StoryId
    number: int
    kept: str


class CandidateChosen(Struct, frozen=True, kw_only=True):
    """Done: the story's branch holds this candidate; the last one is on branch `kept` if that is another."""

    story_id: StoryId
    number: int
    kept: str = ""


class ReviewGiven(Struct, frozen=True, kw_only=True):
    """What the reviewer said of verified work: `accept`, `again`, or nothing that could be read (`none`).

    With `counts` the attempt failed because of it.
    """

    story_id: StoryId
    by: str
    verdict: str
    because: str = ""
    counts: bool = False


CandidateBody: TypeAlias = CandidateEnded | CandidateStarted | CandidateChosen | ReviewGiven

# As in `events.py`: a class may be renamed, its kind in the journal may not.
KINDS: dict[str, Any] = {
    "CandidateEnded": CandidateEnded,
    "CandidateStarted": CandidateStarted,
    "CandidateChosen": CandidateChosen,
    "ReviewGiven": ReviewGiven,
}
