"""One session alone, or any number of others: the gate that all sessions of a run go through."""

from functools import partial

import trio
import trio.testing

from runner.story.context.exclusive import SessionGate


async def _session(
    gate: SessionGate, name: str, trace: list[str], *, alone: bool, seconds: float = 1
) -> None:
    async with gate.entered(alone=alone, unless=trio.sleep_forever):
        trace.append(f"+{name}")
        await trio.sleep(seconds)
        trace.append(f"-{name}")


async def test_one_that_is_alone_waits_for_the_others_and_they_for_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Nothing overtakes it, and two that are alone follow each other."""
    assert autojump_clock is not None
    gate, trace = SessionGate(), list[str]()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            for name in ("a", "b"):
                nursery.start_soon(partial(_session, gate, name, trace, alone=False))
            await trio.sleep(0.1)
            for name in ("X", "Y"):
                nursery.start_soon(partial(_session, gate, name, trace, alone=True))
            await trio.sleep(0.1)
            assert not gate.is_open(alone=False)
            nursery.start_soon(partial(_session, gate, "c", trace, alone=False))
    assert sorted(trace[:2]) == ["+a", "+b"]
    assert sorted(trace[2:4]) == ["-a", "-b"]
    pairs = [trace[4:6], trace[6:8], trace[8:]]
    assert sorted(pairs) == [["+X", "-X"], ["+Y", "-Y"], ["+c", "-c"]]
    assert pairs[2] == ["+c", "-c"], "who wants to be alone goes first"
    assert gate.is_open(alone=True)


async def test_an_abort_ends_the_wait_without_a_turn(autojump_clock: trio.testing.MockClock) -> None:
    """The others keep their turn, and the claim of the one that gave up is gone."""
    assert autojump_clock is not None
    gate, trace = SessionGate(), list[str]()
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(_session, gate, "a", trace, alone=False, seconds=10))
            await trio.sleep(1)
            async with gate.entered(alone=True, unless=partial(trio.sleep, 1)):
                assert trace == ["+a"]
            assert gate.is_open(alone=False)
            assert not gate.is_open(alone=True)
    assert gate.is_open(alone=True)
