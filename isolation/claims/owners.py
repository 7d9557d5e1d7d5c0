"""Which of many claims owns a path, found without asking each of them. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from isolation.claims.globs import AnyDepth, Claim, Glob, Name


def roots(claim: Claim) -> tuple[str, ...]:
    """Return the folders or files that hold everything a claim can own; none if that is the whole tree."""
    if claim.folding:
        return ()
    found = ["/".join(_plain(glob)) for glob in claim.globs if not glob.negated]
    return tuple(dict.fromkeys(found)) if all(found) else ()


def _plain(glob: Glob) -> Iterable[str]:
    for component in glob.components:
        if not isinstance(component, Name) or component.literal is None:
            return
        yield component.literal


ANYBODY = "*"
"""The owner of what is open to all stories."""


def whole_folders(claim: Claim) -> tuple[str, ...]:
    """Return the folders that a claim owns with everything in them."""
    if claim.folding or any(glob.negated for glob in claim.globs):
        return ()
    found = []
    for glob in claim.globs:
        *names, last = glob.components
        plain = list(_plain(glob))
        if isinstance(last, AnyDepth) and plain and len(plain) == len(names):
            found.append("/".join(plain))
    return tuple(dict.fromkeys(found))


def folders_around(claim: Claim) -> tuple[str, ...]:
    """Return the folders that hold everything a claim can own; none if that is the whole tree."""
    whole = set(whole_folders(claim))
    found = []
    for glob in claim.globs:
        plain = list(_plain(glob))
        if not glob.negated and len(plain) == len(glob.components):
            plain.pop()  # a file: it is replaced, so its folder must be open
        if not glob.negated:
            found.append("/".join(plain))
    return tuple(sorted({*found} | whole)) if all(found) and not claim.folding else ()


def lies_in(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of the folders or inside one."""
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


class Owners:
    """The claims of a run; they are disjoint, so a path has one owner or none.

    Only where one story works at a time may they overlap. A path then belongs to the one that works. What is
    open to all, by the claim of `ANYBODY`, is so inside the claims of stories, too: a test that imports a
    package of another story has Python write its cache there. A story that joins the run later is `put`
    beside the others, while other threads ask.
    """

    def __init__(self, claims: Mapping[str, Claim]) -> None:
        self._claims: Final[dict[str, Claim]] = {}
        self._anywhere: Final[list[str]] = []
        self._rooted: Final[dict[str, list[str]]] = {}
        self._above: Final[set[str]] = set()
        for story_id, claim in claims.items():
            self.put(story_id, claim)

    def put(self, story_id: str, claim: Claim) -> None:
        """Add the claim of a story, or replace the one that it had."""
        before = self._claims.get(story_id)
        if before is not None:
            for place in (self._anywhere, *(self._rooted[root] for root in roots(before))):
                if story_id in place:
                    place.remove(story_id)
        self._claims[story_id] = claim
        if not roots(claim):
            self._anywhere.append(story_id)
        for root in roots(claim):
            self._rooted.setdefault(root, []).append(story_id)
            self._above.update(ancestors(root))

    def of(self, path: str, *, working: str) -> str | None:
        """Return the story that owns a path, before others the one that is `working`; None if none does."""
        if working in self._claims and self._claims[working].owns(path):
            return working
        if ANYBODY in self._claims and self._claims[ANYBODY].owns(path):
            return ANYBODY
        rooted = (
            story_id for prefix in (path, *ancestors(path)) for story_id in self._rooted.get(prefix, ())
        )
        # Claims are disjoint, so the first match is the only one.
        asked = (*rooted, *self._anywhere)
        return next((story_id for story_id in asked if self._claims[story_id].owns(path)), None)

    def leads_to_owned(self, folder: str) -> bool:
        """Return whether a folder lies above paths that some claim owns."""
        return folder in self._above


def ancestors(path: str) -> Iterable[str]:
    """Yield the folders above a path, the nearest first."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
