"""Between trio, which runs the stories, and asyncio, which Dask needs: one thread for each, calls across.

A caller waits for the answer in its own loop; a cancelled caller does not wait, and its call is
cancelled on the other side.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import outcome
import trio

T = TypeVar("T")


async def call_asyncio(loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine in an asyncio loop of another thread, and wait for it in trio."""
    token, task = trio.lowlevel.current_trio_token(), trio.lowlevel.current_task()
    waiting = True

    def resume(done: "asyncio.Future[T]") -> None:
        def in_trio() -> None:
            nonlocal waiting
            if waiting:
                waiting = False
                trio.lowlevel.reschedule(task, outcome.capture(_result, done))

        try:
            token.run_sync_soon(in_trio)
        except trio.RunFinishedError:
            return

    future = asyncio.run_coroutine_threadsafe(work(), loop)
    future.add_done_callback(resume)  # type: ignore[arg-type]  # both kinds of futures have what it uses

    def abort(_: Callable[[], None]) -> trio.lowlevel.Abort:
        nonlocal waiting
        waiting = False
        future.cancel()
        return trio.lowlevel.Abort.SUCCEEDED

    answer: T = await trio.lowlevel.wait_task_rescheduled(abort)
    return answer


def _result(done: "asyncio.Future[T]") -> T:
    try:
        return done.result()
    except asyncio.CancelledError as error:
        raise ConnectionError("the connection to the cluster was closed") from error


async def call_trio(token: trio.lowlevel.TrioToken, work: Callable[[], Awaitable[T]]) -> T:
    """Run an async function in trio, of another thread, and wait for it in asyncio."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(result: outcome.Outcome[T]) -> None:
        if not future.done():
            if isinstance(result, outcome.Error):
                future.set_exception(result.error)
            else:
                future.set_result(result.unwrap())

    async def run() -> None:
        result = await outcome.acapture(work)
        with suppress(RuntimeError):  # the loop is closed: no caller waits any more
            loop.call_soon_threadsafe(settle, result)

    def begin() -> None:
        trio.lowlevel.spawn_system_task(run)

    token.run_sync_soon(begin)
    return await future
