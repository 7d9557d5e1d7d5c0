"""Blocking functions in threads."""

import threading

import pytest
import trio

from isolation.files import threads


async def test_it_returns_what_the_function_returns_and_raises_what_it_raises() -> None:
    """The function runs in another thread."""
    assert await threads.run(divmod, 7, 4) == (1, 3)
    assert await threads.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 7, 0)


async def test_a_cancelled_caller_waits_for_the_end_and_starts_nothing_more() -> None:
    """What the function did is known to the caller, which learns of the cancellation at its next wait."""
    begun, go = threading.Event(), threading.Event()

    def work() -> str:
        begun.set()
        return "done" if go.wait(10) else "left alone"

    found = ""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                nonlocal found
                found = await threads.run(work)
                await threads.run(begun.clear)

            nursery.start_soon(call)
            await trio.to_thread.run_sync(begun.wait, 10)
            nursery.cancel_scope.cancel()
            go.set()
    assert found == "done"
    assert begun.is_set()


async def test_no_more_threads_work_at_once_than_trio_would_have() -> None:
    """All of them come to their end, and afterwards as many can work as before."""
    lock, here, most = threading.Lock(), 0, 0
    full = threading.Barrier(threads._MOST)

    def work() -> None:
        nonlocal here, most
        with lock:
            here += 1
            most = max(most, here)
        full.wait(10)
        with lock:
            here -= 1

    left_to_trio = trio.to_thread.current_default_thread_limiter().total_tokens
    for _ in range(2):
        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                for _ in range(3 * threads._MOST):
                    nursery.start_soon(threads.run, work)
        assert threads._MOST <= most <= threads._MOST + left_to_trio
