"""Blocking functions in threads, for what every story does a dozen times.

`trio.to_thread.run_sync` takes twice as long as the switch to a thread and back: it names the thread, copies
the context, and keeps what a function needs in order to call back into trio.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

import trio
from msgspec import Struct
from trio import lowlevel

if TYPE_CHECKING:
    from outcome import Outcome

Ts = TypeVarTuple("Ts")
T = TypeVar("T")

_MOST = 40
"""How many threads work at once, as with trio; what comes then is left to trio, which lets it wait."""


class _Busy(Struct):
    """How many threads work for one run of trio."""

    threads: int = 0


_busy: lowlevel.RunVar[_Busy] = lowlevel.RunVar("busy")


@lowlevel.enable_ki_protection
async def run(function: Callable[[*Ts], T], *args: *Ts, limiter: trio.CapacityLimiter | None = None) -> T:
    """Run a blocking function in a thread; a cancelled caller still waits for its end.

    The function cannot call back into trio.
    """
    busy = _busy_now()
    if limiter is not None or busy.threads >= _MOST:
        return await trio.to_thread.run_sync(function, *args, limiter=limiter)
    await lowlevel.checkpoint_if_cancelled()
    task, token = lowlevel.current_task(), lowlevel.current_trio_token()

    def deliver(result: "Outcome[T]") -> None:
        token.run_sync_soon(lowlevel.reschedule, task, result)

    busy.threads += 1
    try:
        lowlevel.start_thread_soon(partial(function, *args), deliver)
        return await lowlevel.wait_task_rescheduled(_to_its_end)  # type: ignore[no-any-return]  # by trio
    finally:
        busy.threads -= 1


def _busy_now() -> _Busy:
    try:
        return _busy.get()
    except LookupError:
        _busy.set(_Busy())
        return _busy.get()


def _to_its_end(_cancel: object) -> lowlevel.Abort:
    return lowlevel.Abort.FAILED
