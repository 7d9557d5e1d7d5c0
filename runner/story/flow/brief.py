"""What a session gets to know about its step, put together by `steps.py`."""

from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from runner.core.model import SessionKind, SessionRecord, Step, StorySnapshot
from runner.records.history import Past
from runner.story.session.contract import StateFacts


class Brief(Struct, frozen=True, kw_only=True):
    """What a session gets to know about its step.

    `last` is the session of this step before this one, also of an earlier run. `facts` are what the state
    file says, None in `quick`. With `whole` the session reads this and nothing else, in a conversation of its
    own: it reviews the work.
    """

    step: Step
    prompt: str
    command: tuple[str, ...] | None
    state_file: str
    docs: str
    answers: tuple[str, ...]
    verified: bool
    last: SessionRecord | None = None
    facts: StateFacts | None = None
    artifacts: Callable[[], tuple[Path, ...]] | None = None
    whole: str = ""


def last_session(now: StorySnapshot, past: Past) -> SessionRecord | None:
    """Return the work session of the current step before the next one; a verify command is none."""
    worked = [one for one in now.own_sessions if one.kind is SessionKind.WORK]
    before = past.session if now.candidate == 1 else None
    last = worked[-1] if worked else before
    return last if last is not None and last.step.number == now.place.number else None
