"""Several git commands on a story's tree in a row: what confines them is found out once for all of them.

To find it out takes longer than a short git command: dozens of looks at files that a session could have
changed. During a visit no session of the story is alive, so nothing changes in between. A visit without any
command finds out nothing.

Invariants:

- A visit belongs to one thread. Commands of other threads, and on other trees, know nothing of it. In
  a shared tree a visit is to one private index: the files there are those of several stories.
- What the commands made is taken over when the visit ends, also by an error, and before the same thread asks
  git about anything outside of the tree. So no branch is visible without its objects.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from msgspec import Struct

from isolation.git.contained.concealment import concealed
from isolation.keeper.confined import Key, key_of
from isolation.model import Confinement

_current = threading.local()


class Confined(Struct, frozen=True, kw_only=True):
    """What confines the commands of a visit, and the environment of the user that they see."""

    confinement: Confinement
    user: Mapping[str, str]
    key: Key


class Visit:
    """A visit to one tree.

    `confine` finds out what confines its commands, and `settle` takes over what they made.
    """

    def __init__(
        self,
        tree: Path,
        index: Path | None,
        confine: Callable[[], Confinement | None],
        user: Callable[[], Mapping[str, str]],
        settle: Callable[[str], None],
    ) -> None:
        self.place = (tree, index)
        self._confine = confine
        self._user = user
        self._settle = settle
        self._pending = False

    @cached_property
    def means(self) -> "Confined | None":
        """What confines its commands; None if nothing does."""
        confinement = self._confine()
        if confinement is None:
            return None
        inside, user = concealed(confinement, self._user())
        return Confined(confinement=inside, user=user, key=key_of(inside))

    def note(self) -> None:
        """Note that a command ran."""
        self._pending = True

    def settle(self) -> None:
        """Take over what was made since the last time."""
        if self._pending and self.means and self.means.confinement.store:
            self._pending = False
            self._settle(self.means.confinement.store)


def visit_at(tree: Path, index: Path | None) -> Visit | None:
    """Return the visit that this thread makes to a tree or a private index; settle one to another place."""
    visit: Visit | None = getattr(_current, "visit", None)
    if visit is None or visit.place == (tree, index):
        return visit
    visit.settle()
    return None


def settle_visit() -> None:
    """Take over what the visit of this thread has made so far, for a question that needs no command."""
    visit: Visit | None = getattr(_current, "visit", None)
    if visit is not None:
        visit.settle()


@contextmanager
def visiting(visit: Visit | None) -> Iterator[None]:
    """Make a visit in this thread; one within another is part of that."""
    if visit is None or getattr(_current, "visit", None) is not None:
        yield
        return
    _current.visit = visit
    try:
        yield
    finally:
        _current.visit = None
        visit.settle()
