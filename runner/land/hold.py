"""Keeps the target where it is while a train is verified, if others were faster again and again.

Compare-and-swap alone has no end if somebody commits more often than a verification takes. So after a few
lost races the checkouts of the target are held: `git commit` there fails until the target has moved, or until
the time of the setting `land-hold` is over. A push into the repository can still be faster.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import trio
from trio import to_thread

from isolation.errors import TargetError
from isolation.git.landing.held_index import HeldIndex
from isolation.git.landing.target import hold_checkouts
from isolation.git.repository import Repository
from runner.story.context.error_groups import unwrapped

LOST_BEFORE = 3
"""How many races are lost before others have to wait; most targets are quiet by then."""


class Hold:
    """The checkouts of the target that are held now; none if nothing is, or no longer."""

    def __init__(self) -> None:
        self._indexes: tuple[HeldIndex, ...] = ()
        self.expired = False

    def keep(self, indexes: tuple[HeldIndex, ...]) -> None:
        """Release these checkouts at the end, unless they are taken."""
        self._indexes = indexes

    def take(self) -> tuple[HeldIndex, ...]:
        """Hand the held checkouts to the caller, who releases them."""
        taken, self._indexes = self._indexes, ()
        return taken

    def release(self) -> None:
        """Let others commit again."""
        for index in self.take():
            index.release()

    async def expire(self, seconds: float) -> None:
        """Release the checkouts after a time."""
        await trio.sleep(seconds)
        self.expired = bool(self._indexes)
        self.release()


@asynccontextmanager
async def holding(
    repository: Repository, branch: str, *, lost: int, seconds: float, say: Callable[[str], None]
) -> AsyncIterator[Hold]:
    """Hold the checkouts of a branch in the block, for some seconds at most, once enough races were lost."""
    hold = Hold()
    with unwrapped():
        async with trio.open_nursery() as nursery:
            if lost >= LOST_BEFORE and seconds:
                try:
                    hold.keep(await to_thread.run_sync(hold_checkouts, repository, branch))
                    say(
                        f"{branch} has moved {lost} times; commits to it have to wait while the train is "
                        f"verified, for {seconds:g} s at most (setting land-hold)"
                    )
                except TargetError:
                    pass  # another git command holds a checkout for long; the race stays open
            nursery.start_soon(hold.expire, seconds)
            try:
                yield hold
            finally:
                hold.release()
                nursery.cancel_scope.cancel()
