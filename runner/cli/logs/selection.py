"""Which sessions `logs` shows: those that were asked for, else the one that a person wants to see."""

import argparse
from typing import TYPE_CHECKING

from runner.core.errors import NotFoundError, UsageError
from runner.core.model import Outcome, SessionKind, SessionRecord, Status
from runner.core.text.words import count

if TYPE_CHECKING:
    from runner.core.model import StorySnapshot

_FAILED = frozenset({Outcome.FAILED, Outcome.STALLED, Outcome.STUCK})

Numbered = tuple[int, SessionRecord]


def chosen_sessions(story: "StorySnapshot", arguments: argparse.Namespace) -> list[Numbered]:
    """Return the sessions to show, with their numbers; raises where one was asked for that is not there."""
    sessions = list(enumerate(story.sessions, start=1))
    if arguments.session is not None:
        require_session(story, arguments)
        return [sessions[arguments.session - 1]]
    if arguments.attempt is not None:
        known = sorted({session.attempt for _, session in sessions})
        return _require(
            [one for one in sessions if one[1].attempt == arguments.attempt],
            f"story {story.id} has no attempt {arguments.attempt}",
            f"it has: {', '.join(map(str, known)) or 'none'}.",
        )
    if arguments.failed:
        return _require(
            _failing(sessions),
            f"no session of story {story.id} has failed",
            f"`autopilot-multi logs {story.id}` shows the newest one.",
        )
    if arguments.all or arguments.json:
        return sessions
    return (_failing(sessions) if story.status is Status.FAILED else []) or _newest(sessions)


def require_session(story: "StorySnapshot", arguments: argparse.Namespace, *, later: bool = False) -> None:
    """Raise where a session was asked for that is not there; with `later`, one that may come is fine."""
    number, there = arguments.session, len(story.sessions)
    if number is not None and (number < 1 or (number > there and not later)):
        raise NotFoundError(
            f"story {story.id} has no session {number}",
            hint=f"it has {count(there, 'session')}, counted from 1.",
        )


def is_failure(session: SessionRecord) -> bool:
    """Whether a session failed."""
    return session.outcome in _FAILED


def require_one_choice(arguments: argparse.Namespace) -> None:
    """Raise where several flags choose sessions."""
    flags = {
        "--session": arguments.session is not None,
        "--attempt": arguments.attempt is not None,
        "--failed": arguments.failed,
        "--all": arguments.all,
    }
    given = [flag for flag, is_given in flags.items() if is_given]
    if len(given) > 1:
        raise UsageError(
            f"{' and '.join(given)} choose different sessions", hint="use one of them; see `logs --help`."
        )


def _failing(sessions: list[Numbered]) -> list[Numbered]:
    """Return the newest session that failed."""
    return [one for one in sessions if is_failure(one[1])][-1:]


def _newest(sessions: list[Numbered]) -> list[Numbered]:
    """Return the newest session; a verification that passed says less than the work before it."""
    passed = {
        number
        for number, session in sessions
        if session.kind is SessionKind.VERIFY and session.outcome is Outcome.OK
    }
    return ([one for one in sessions if one[0] not in passed] or sessions)[-1:]


def _require(found: list[Numbered], problem: str, hint: str) -> list[Numbered]:
    if not found:
        raise NotFoundError(problem, hint=hint)
    return found
