"""The commits of a story's branch, and which of them are checkpoints of which step.

A checkpoint names its story and its step in trailers, and a rollback names what it reverted. So the
branch alone shows what remains of each step.
"""

from collections.abc import Sequence

from msgspec import Struct

from isolation.git.repository import Repository
from runner.core.flow import DONE, Flow
from runner.core.model import StoryId

_KEYS = ("Autopilot-Story", "Autopilot-Step", "Autopilot-Rollback", "Autopilot-Reverts")
_UNIT, _RECORD = "\x1f", "\x1e"


class Commit(Struct, frozen=True, kw_only=True):
    """One commit of the story's branch.

    `place` is the index of its step in the flow, one past the last step for the end of the flow; None when
    the commit belongs to no step: it is a user's, or holds what the runner itself wrote (`own`).
    """

    id: str
    parent: str
    subject: str
    place: int | None
    rolled_back: bool = False
    own: bool = False


def load_history(repository: Repository, commits: str, story_id: StoryId, flow: Flow) -> list[Commit]:
    """Read the branch's own commits, oldest first; reverted checkpoints are left out."""
    trailers = [f"%(trailers:key={key},valueonly,unfold,separator=%x1f)" for key in _KEYS]
    form = "%x1e".join(["%H", "%P", *trailers, "%s"])
    args = ("log", "-z", "--first-parent", "--reverse", "--no-show-signature", f"--format={form}", commits)
    found: list[Commit] = []
    for record in repository.run(*args, "--").stdout.split("\0"):
        if not record:
            continue
        commit, parents, owner, step, rollback, reverts, subject = record.split(_RECORD, len(_KEYS) + 2)
        ours = story_id in owner.split(_UNIT)
        gone = set(reverts.split(_UNIT)) if ours else set()
        found = [one for one in found if one.id not in gone]
        place = _step_of(flow, rollback or step) if ours else None
        rolled_back = ours and bool(rollback)
        parent = parents.split(" ")[0]
        own = ours and not step and not rolled_back
        made = Commit(
            id=commit, parent=parent, subject=subject, place=place, rolled_back=rolled_back, own=own
        )
        found.append(made)
    return found


def _step_of(flow: Flow, trailer: str) -> int | None:
    """Find the step that a trailer names; after a conversion the name may have another number."""
    number, _, name = trailer.partition(" ")
    if number == DONE:
        return len(flow.steps)
    places = [place for place, one in enumerate(flow.steps) if one.name == name]
    exact = [place for place in places if flow.steps[place].number == number]
    return exact[0] if exact else places[0] if len(places) == 1 else None


def undone_by(commits: Sequence[Commit], place: int) -> tuple[Commit, ...]:
    """Return the checkpoints of a step and later ones, newest first, from the last pass through the flow."""
    undone: list[Commit] = []
    for commit in reversed(commits):
        if commit.place is None or commit.rolled_back:
            continue
        earlier_cycle = undone and commit.place > (undone[-1].place or 0)
        if commit.place < place or earlier_cycle:
            break
        undone.append(commit)
    return tuple(undone)


def others_since(commits: Sequence[Commit], first: Commit | None) -> tuple[Commit, ...]:
    """Return the commits since the first reverted one that the runner did not make."""
    ids = [commit.id for commit in commits]
    since = commits[ids.index(first.id) :] if first else []
    return tuple(commit for commit in since if commit.place is None and not commit.own)
