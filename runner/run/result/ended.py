"""What a run comes to, also one that has nothing to do.

This module must not import trio: a run with nothing to do needs none.
"""

import secrets
import time

from msgspec import Struct

from runner.core.events import events as ev
from runner.core.events.fold import exit_code, fold
from runner.core.model import RunId, RunSnapshot, Tier
from runner.plan.guard import WriteGuard
from runner.plan.plan import Plan
from runner.run.first_events import beginning


class Ended(Struct, frozen=True, kw_only=True):
    """The result of a run: its last snapshot and the program's exit code.

    `idle` means that no story was left to carry. `events` are those of a run that left none in the journal.
    """

    run: RunSnapshot
    exit_code: int
    idle: bool = False
    events: tuple[ev.Event, ...] = ()


def new_run_id() -> RunId:
    """Return an id that sorts by time and never repeats."""
    return RunId(time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + f"-{secrets.token_hex(4)}")


def nothing_to_do(plan: Plan) -> Ended:
    """Return the result of a backlog that earlier runs have finished; writes nothing."""
    run_id, at = new_run_id(), time.time()
    first = beginning(plan, Tier.UNKNOWN, WriteGuard().enforcement)
    events = [ev.Event(run_id=run_id, at=at, body=body) for body in first]
    code = exit_code(fold(run_id, events))
    events.append(ev.Event(run_id=run_id, at=at, body=ev.RunEnded(exit_code=code)))
    run = fold(run_id, events)
    return Ended(run=run, exit_code=code, idle=True, events=tuple(events))
