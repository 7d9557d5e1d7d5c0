"""Answers the questions of a search by verify runs, several at once: what it asks, and what it may ask next.

The question of the search always has a slot; the others get what is left of the window. A run whose answer
is no longer needed is canceled, which ends its processes.
"""

from collections.abc import Awaitable, Callable

import trio
from trio import to_thread

from runner.core.landing.search import Answer, Merge, Question, Search, Stories, Verify
from runner.core.landing.speculation import Ahead, Known, look_ahead
from runner.land.verification.verifier import StoppedError
from runner.story.context.error_groups import unwrapped

AHEAD = 1
"""How many more questions than slots are looked at: a run that is among them is not canceled."""


class Answers:
    """Carries one search to its end.

    `known` blocks and is called in a thread. `verify` runs what `known` then knows; it also learns whether
    the search waits for it. `conflict` hears of each sequence that does not merge, perhaps repeatedly.
    `slots` is how many may run now.
    """

    def __init__(
        self,
        *,
        begin: Callable[[], Search],
        known: Known,
        verify: Callable[[Verify, bool], Awaitable[None]],
        conflict: Callable[[Stories], Awaitable[None]],
        slots: Callable[[], int],
    ) -> None:
        self._begin = begin
        self._known = known
        self._verify = verify
        self._conflict = conflict
        self._slots = slots
        self._running: dict[Verify, trio.CancelScope] = {}
        self._news = trio.Event()
        self._stopped = False

    async def end(self) -> Ahead:
        """Return the end of the search; nothing runs then."""
        with unwrapped():
            async with trio.open_nursery() as nursery:
                while not self._stopped:
                    self._news = trio.Event()
                    ahead = await to_thread.run_sync(look_ahead, self._begin, self._known, 1)
                    for stories in ahead.conflicts:
                        await self._conflict(stories)
                    if ahead.found is not None:
                        nursery.cancel_scope.cancel()
                        return ahead
                    self._ask(ahead.questions[0], nursery)
                    await self._speculate(ahead.questions[0], nursery)
                    await self._news.wait()
        raise StoppedError

    def _ask(self, question: Verify, nursery: trio.Nursery) -> None:
        """Run what the search waits for; if no slot is free, instead of what was started last."""
        if question in self._running:
            return
        while self._running and len(self._running) >= self._slots():
            self._cancel(next(reversed(self._running)))
        self._start(question, nursery, waited=True)

    async def _speculate(self, asked: Verify, nursery: trio.Nursery) -> None:
        """Fill the free slots with what may be asked next; cancel what will not be."""
        slots = self._slots()
        if slots == 1 and len(self._running) == 1:
            return
        ahead = await to_thread.run_sync(look_ahead, self._begin, self._unless_news, slots + AHEAD)
        if self._news.is_set():  # something is known by now, and other questions may be likely
            return
        for question in [each for each in self._running if each not in {asked, *ahead.questions}]:
            self._cancel(question)
        for question in ahead.questions[:slots]:
            if question not in self._running and len(self._running) < slots:
                self._start(question, nursery, waited=False)

    def _unless_news(self, question: Question) -> Answer | None:
        """Return what is known; nothing that takes time once there is an answer to react to."""
        if isinstance(question, Merge) and self._news.is_set():
            return None
        return self._known(question)

    def _start(self, question: Verify, nursery: trio.Nursery, *, waited: bool) -> None:
        self._running[question] = trio.CancelScope()
        nursery.start_soon(self._run, question, self._running[question], waited)

    def _cancel(self, question: Verify) -> None:
        self._running.pop(question).cancel()

    async def _run(self, question: Verify, scope: trio.CancelScope, waited: bool) -> None:  # noqa: FBT001  start_soon passes no keywords
        with scope:
            try:
                await self._verify(question, waited)
            except StoppedError:
                self._stopped = True
            self._running.pop(question, None)
            self._news.set()
