"""What becomes of writes that a session tried outside its claim, and that the system refused.

Nothing was written, so nothing is kept or undone; the attempt is named, and it fails the session as a
write that went through would. Not every attempt counts. Paths that are open to all, and what belongs to
git, are nobody's. A path that git ignores is a by-product of some tool, and a file that was merely opened
for reading and writing has most likely been read: both are told, and fail nobody.
"""

from collections.abc import Sequence

from isolation.claims.owners import ANYBODY, Owners
from isolation.frozen import frozen
from isolation.git.commits import named
from isolation.git.repository import Repository
from isolation.kernel.syscall_effects import CREATE, PROBE
from isolation.model import Attempts


@frozen
class Refusals:
    """Paths outside its claim that a session tried to change, those that it may be forgiven, and more."""

    foreign: tuple[str, ...] = ()
    forgiven: tuple[str, ...] = ()
    unnamed: int = 0

    @property
    def words(self) -> str:
        """Say in one line what fails the session; empty when nothing does."""
        if not self.foreign:
            return ""
        more = f"; and {self.unnamed} more attempts, too many to be named" if self.unnamed else ""
        return f"tried to change outside its claim: {named(self.foreign)} (refused){more}"

    @property
    def note(self) -> str:
        """Say in one line what is worth knowing and fails nobody."""
        if not self.forgiven:
            return ""
        return f"refused outside its claim, but ignored by git or only opened: {named(self.forgiven)}"


def judge(repository: Repository, owners: Owners, story_id: str, attempts: Attempts) -> Refusals:
    """Tell a story's foreign attempts from those that may be forgiven; blocking."""
    counted = [
        attempt
        for attempt in attempts.named
        if ".git" not in attempt.path.split("/") and owners.of(attempt.path) not in {story_id, ANYBODY}
    ]
    changes = [attempt for attempt in counted if attempt.operation != PROBE]
    # A folder is known as one by its slash, where it could not be made.
    asked = {attempt.path for attempt in changes}
    asked |= {f"{attempt.path}/" for attempt in changes if attempt.operation == CREATE}
    ignored = _ignored(repository, sorted(asked))
    foreign = {attempt.path for attempt in changes if not {attempt.path, f"{attempt.path}/"} & ignored}
    others = {attempt.path for attempt in counted} - foreign
    return Refusals(foreign=tuple(sorted(foreign)), forgiven=tuple(sorted(others)), unnamed=attempts.unnamed)


def _ignored(repository: Repository, paths: Sequence[str]) -> frozenset[str]:
    """Give those that git ignores; none when git has no answer, as for a path in a submodule."""
    if not paths:
        return frozenset()
    listed = "\0".join(paths).encode(errors="surrogateescape")
    return frozenset(repository.run("check-ignore", "-z", "--stdin", stdin=listed, check=False).fields())
