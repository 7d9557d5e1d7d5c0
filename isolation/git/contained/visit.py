"""Several git commands on a story's tree in a row: what confines them is found out once for all of them.

To find it out takes longer than a short git command: dozens of looks at files that a session could have
changed. During a visit no session of the story is alive, so nothing changes in between.

Invariants:

- A visit belongs to one thread. Commands of other threads, and on other trees, know nothing of it. In
  a shared tree a visit is to one private index: the files there are those of several stories.
- What the commands made is taken over when the visit ends, also by an error, and before the same thread asks
  git about anything outside of the tree. So no branch is visible without its objects.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from isolation.git.contained.concealment import concealed
from isolation.keeper.confined import Key, key_of
from isolation.model import Confinement

_current = threading.local()


class Visit:
    """A visit to one tree; `settle` takes over what its commands made."""

    def __init__(
        self,
        tree: Path,
        index: Path | None,
        confinement: Confinement,
        user: Mapping[str, str],
        settle: Callable[[str], None],
    ) -> None:
        self.place = (tree, index)
        self.confinement, self.user = concealed(confinement, user)
        self.key: Key = key_of(self.confinement)
        self._settle = settle
        self._pending = False

    def note(self) -> None:
        """Note that a command ran."""
        self._pending = True

    def settle(self) -> None:
        """Take over what was made since the last time."""
        if self._pending and self.confinement.store:
            self._pending = False
            self._settle(self.confinement.store)


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
