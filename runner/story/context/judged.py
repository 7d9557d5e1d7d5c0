"""What is concluded from the end of a session, recorded so that it still holds when it is.

How a session that went in circles is judged depends on how many have, in all stories. Another one may be on
its way to the journal in the same moment.
"""

from collections.abc import Callable
from functools import partial

from runner.core.events import events as ev
from runner.core.model import KillSwitch
from runner.records.event_log import EventLog

_OUTDATED = KillSwitch(name="outdated", detail="another session went in circles meanwhile", hint="")
"""Keeps a conclusion from being recorded; it is recorded nowhere itself."""


async def record_judged(log: EventLog, judge: Callable[[], tuple[ev.Body, ...]], *before: ev.Body) -> None:
    """Record what `judge` concludes, in one transaction with what comes `before` it.

    It is asked again if another session has gone in circles by the time that this can be recorded.
    """
    refused: KillSwitch | None = _OUTDATED
    while refused is not None:
        spirals, bodies = log.snapshot.cohort_spirals, (*before, *judge())
        if not any(isinstance(body, ev.SpiralSeen) for body in bodies):
            await log.record(*bodies)  # with others in one transaction: nothing to wait for
            return
        refused = await log.record_unless(partial(_changed, log, spirals), *bodies, strict=True)


def _changed(log: EventLog, spirals: int) -> KillSwitch | None:
    return None if log.snapshot.cohort_spirals == spirals else _OUTDATED
