"""The seal of sessions: what is private to the user is out of their sight, by mounts of their own.

Something empty and read-only stands at each private place that exists when a session starts. Invariants:

- What a session needs in order to run (its tree, the git directory, the worktrees) is never hidden, not even
  inside a folder that is.
- Of two paths, one inside the other, the deeper decides.
"""

import hashlib
import os
import re
from collections.abc import Container, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from isolation.git.contained.stand_in_sets import own_stand_ins
from isolation.guard.private import STORES, LatestLook, Look, Store, expand, homes
from isolation.guard.sockets import doors
from isolation.kernel.noticed.reaching import CALL, NETWORK, PLACE, PROCESS
from isolation.model import Confinement, Exit, Hidden, Network
from isolation.patterns import pattern

_FOLDER, _FILE = "folder", "file"
_MOST_NAMED = 8
_REACHED = {
    NETWORK: "it tried to reach hosts without its proxy",
    PROCESS: "it reached for processes that are not its own",
    CALL: "it made calls that only the owner of the machine may make",
}
_MISSED = pattern(
    r"No such file|Directory nonexistent|no mount point|not mounted|not found|does not exist"
    r"|Permission denied|Read-only file system|ENOENT|EACCES|EROFS"
    r"|cannot (?:open|read|access|stat)|no identity|Connection refused|Error connecting"
)


class Seal(Struct, frozen=True, kw_only=True):
    """How the sessions of a run are sealed.

    `folder` is where stand-ins are kept; sessions cannot write there. `needed` are paths without which no
    session of the run works. `shows` are paths that the user does not want hidden. With a `network` a session
    has one of its own, and does not see the sockets of other programs. `look` is the newest at the machine.
    """

    folder: Path
    needed: tuple[Path, ...] = ()
    shows: tuple[str, ...] = ()
    network: Network | None = None
    look: LatestLook = field(default_factory=LatestLook)

    def around(
        self,
        confinement: Confinement,
        stores: Sequence[Store],
        environ: Mapping[str, str],
        shows: Sequence[str] = (),
        hosts: Sequence[str] = (),
    ) -> Confinement:
        """Return the confinement with these stores hidden, except for the paths in `shows`. Blocks.

        `hosts` can be reached besides those of the seal's own network.
        """
        network = self.network
        places = self.look.places(stores, environ)
        if network is not None:
            # Any program makes sockets at any time, a session too.
            places = places + Look(environ).places(doors())
            network = replace(network, allowed=tuple(dict.fromkeys((*network.allowed, *hosts))))
        spared = {os.path.realpath(path) for text in (*self.shows, *shows) for path in expand(text, environ)}
        found, kept = dict[str, tuple[Store, bool]](), set(spared)
        for store, place, is_folder in places:
            if spared and (place in spared or _nearest(place, spared)):
                continue
            found.setdefault(place, (store, is_folder))
            kept.update(os.path.realpath(f"{place}/{name}") for name in store.shows)
        kept.update(map(str, self.needed))
        # Only what no other session opens can tell whether this one has.
        own = bool(confinement.store) and not confinement.store.startswith(".")
        folder = own_stand_ins(self.folder, confinement.store) if own else self.folder
        ruled = kept | found.keys()
        shown = [path for path in kept if _nearest(path, ruled) in found and os.path.lexists(path)]
        stand_ins = _StandIns(folder, shown, own=own)
        return replace(
            confinement,
            hidden={
                _path(place): Hidden(
                    stand_in=stand_ins.at(place, is_folder=is_folder), what=store.what, signs=store.signs
                )
                for place, (store, is_folder) in sorted(found.items())
                if _nearest(place, ruled) not in found
            },
            shown=tuple(map(_path, sorted(shown))),
            network=network,
            noticed=own,
        )

    def private(self, environ: Mapping[str, str]) -> frozenset[Path]:
        """Return what is private on this machine now, apart from sign-ins of agents. Blocks."""
        return frozenset(Path(place) for _, place, _ in Look(environ).places(STORES))


class _StandIns:
    """What is mounted at hidden places: an empty file, or a folder with only the names that show.

    Places without such names can share one, unless each is to have its `own`. Only this program writes
    there, so what was made for an earlier session is as it was.
    """

    def __init__(self, folder: Path, shown: Sequence[str], *, own: bool) -> None:
        self._folder, self._shown, self._own = str(folder), shown, own
        try:
            self._made = set(os.listdir(folder))  # noqa: PTH208  names are enough
        except OSError:
            self._made = set()

    def at(self, place: str, *, is_folder: bool) -> str:
        """Return what is mounted at a place, which is made if it is not there."""
        folder = f"{place}/"
        inside = tuple(sorted(path for path in self._shown if path.startswith(folder)))
        name = _FOLDER if is_folder else _FILE
        if self._own or (inside and is_folder):
            name = _name_of(name, place, *inside)
        made = f"{self._folder}/{name}"  # not a path, of which there would be new ones for each worktree
        if name not in self._made:
            self._made.add(name)
            target = Path(made)
            target.parent.mkdir(parents=True, exist_ok=True)
            if is_folder:
                target.mkdir(exist_ok=True)
            else:
                target.touch()
        if is_folder:
            for path in inside:
                _show(Path(path), Path(made, path[len(folder) :]))
        return made


def _show(path: Path, target: Path) -> None:
    """Make the name on which something that shows is mounted."""
    if path.is_dir():
        target.mkdir(parents=True, exist_ok=True)
    elif not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()


@lru_cache(maxsize=4096)
def _name_of(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogateescape")).hexdigest()[:16]


@lru_cache(maxsize=4096)
def _path(text: str) -> Path:
    """Return a path, the same object for the same text: hundreds of them are needed for each session."""
    return Path(text)


def missed(output: str, confinement: Confinement, environ: Mapping[str, str]) -> str:
    """Describe the hidden things that a session's output says it missed; empty if it names none."""
    lines = "\n".join(line for line in output.splitlines() if _MISSED.search(line))
    found: dict[str, list[str]] = {}
    for path, hidden in confinement.hidden.items():
        short = _short(path, environ)
        pattern = rf"(?:{re.escape(str(path))}|{re.escape(short)})((?:/[^\s'\"`:,;()\[\]]+)?)"
        named = dict.fromkeys(short + match[1] for match in re.finditer(pattern, lines))
        if not named and hidden.signs and re.search(hidden.signs, output):
            named = {short: None}
        found.setdefault(hidden.what, []).extend(list(named)[:_MOST_NAMED])
    return "; ".join(
        f"it may have missed {what}, which sessions do not see ({', '.join(paths)}): `seal-shows` shows them"
        for what, paths in found.items()
        if paths
    )


def reached_words(ended: Exit, confinement: Confinement, environ: Mapping[str, str]) -> str:
    """Describe what a session reached for in spite of its seal; empty if nothing was noticed."""
    named: dict[str, list[str]] = {}
    for kind, name in ended.reached:
        if kind != PLACE:
            named.setdefault(_REACHED[kind], []).append(name)
            continue
        hidden = confinement.hidden.get(Path(name))
        what = hidden.what if hidden else "what is hidden"
        named.setdefault(f"it opened {what}, which it sees empty", []).append(_short(Path(name), environ))
    return "; ".join(f"{words}: {', '.join(names)}" for words, names in named.items())


def _short(path: Path, environ: Mapping[str, str]) -> str:
    for home in homes(environ):
        if path.is_relative_to(home):
            return f"~/{path.relative_to(home)}"
    return str(path)


def _nearest(path: str, ruled: Container[str]) -> str:
    """Return the deepest of the paths that lies above a path; empty if none does."""
    while path not in {"", "/"}:
        path = path[: path.rindex("/")] or "/"
        if path in ruled:
            return path
    return ""
