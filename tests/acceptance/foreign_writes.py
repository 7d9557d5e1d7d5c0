"""Eight stories in one tree that write outside their claims, all at the same time, in every way there is.

Each act is planned here, so it is known beforehand what must be found of it; a small program does the acts
in a session and prints for each whether it went through. Every content names the story that wrote it. A
story does this in its first attempt only: in the second it behaves, and its own work must be whole.
"""

import hashlib
import json
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from tests.acceptance import intruder
from tests.acceptance.intruder import OWN_FILES
from tests.acceptance.people import Person
from tests.acceptance.program import Ran

NAMES = "abcdefgh"
KINDS = ("create", "edit", "delete", "rename", "link", "attribute")
FLAGS = ("--bg-isolation", "none", "--deconflict-paths", "packages/{id}/**", "--window", "fixed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """One write outside a claim. `found` is what a quarantine must say of it, `text` what was written."""

    kind: str
    path: str
    target: str = ""
    text: str = ""
    found: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)


def acts(name: str, count: int, *, siblings: bool = True) -> list[Act]:
    """Plan what one story does to others; without `siblings`, attributes in another's claim stay."""
    return list(islice(_acts(name, siblings=siblings), count))


def _acts(name: str, *, siblings: bool) -> Iterator[Act]:
    sibling = f"packages/{NAMES[(NAMES.index(name) + 1) % len(NAMES)]}"
    number = 0
    while True:
        for kind in KINDS:
            folders = ["lib/deep", "notes", "build", sibling if siblings or kind != "attribute" else "lib"]
            yield _act(kind, f"{folders[number % 4]}/{kind}-{number}", name, number)
        number += 1


def _act(kind: str, victim: str, name: str, number: int) -> Act:
    made, text = f"{victim}-by-{name}", f"{name} {kind} {number}\n"
    odd = number % 2 == 1
    plain = {
        "create": Act(kind=kind, path=made, text=text, found={made: "created"}, written={made: text}),
        "edit": Act(kind=kind, path=victim, text=text, found={victim: "changed"}, written={victim: text}),
        "delete": Act(kind=kind, path=victim, found={victim: "deleted"}),
        "rename": Act(
            kind=kind,
            path=victim,
            target=made,
            found={victim: "deleted", made: "created"},
            written={made: _content(victim)},
        ),
        "link": Act(kind="symlink", path=made, text=text, found={made: "created"}, written={made: text}),
        "attribute": Act(kind="mode", path=victim, found={victim: "mode changed"}),
    }
    others = {
        "link": Act(
            kind="hard link",
            path=victim,
            target=made,
            text=text,
            found={victim: "changed", made: "created"},
            written={victim: text, made: text},
        ),
        "attribute": Act(kind="time", path=victim, found={victim: "touched"}),
    }
    return others[kind] if odd and kind in others else plain[kind]


def _content(victim: str) -> str:
    return f"the content of {victim}\n"


def _routed(path: str, name: str, root: Path, number: int) -> str:
    """Reach a path from the top, by its full name, or through a link in the story's own folder."""
    return (path, str(root / path), f"packages/{name}/way/{path}")[number % 3] if path else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Battle:
    """A repository, and what each story is going to do to it."""

    person: Person
    root: Path
    plans: Mapping[str, list[Act]]

    def run(self, *flags: str, limit: float) -> Ran:
        """Run all stories at the same time."""
        return self.person.run(
            self.root, "run", *FLAGS, *flags, "--max-stories", str(len(self.plans)), "--json", limit=limit
        )

    def outcomes(self, name: str) -> Counter[tuple[str, str]]:
        """Count what a story's own log says of its acts, by kind and outcome."""
        lines = self.person.run(self.root, "logs", name, "--all").out.splitlines()
        told = [line.split() for line in lines if line.startswith("act ")]
        assert len({number for _, number, *_ in told}) == len(told), "each act is told once"
        return Counter((self.plans[name][int(words[1])].kind, words[2]) for words in told)

    def all_of(
        self, name: str, outcome: str, *, but: Mapping[str, str] | None = None
    ) -> Counter[tuple[str, str]]:
        """Say that all acts of a story had one outcome; kinds in `but` had another."""
        return Counter((act.kind, (but or {}).get(act.kind, outcome)) for act in self.plans[name])


def prepare(person: Person, names: str, total: int, *, siblings: bool = True) -> Battle:
    """Make a tree with tracked, untracked and ignored victims, some in another story's claim."""
    each = total // len(names)
    plans = {name: acts(name, each, siblings=siblings) for name in names}
    victims = {act.path for plan in plans.values() for act in plan if act.kind not in {"create", "symlink"}}
    files = {path: _content(path) for path in victims}
    files |= {f"packages/{name}/start": name for name in names} | {".gitignore": "/build/\n"}
    root = person.repository({path: text for path, text in files.items() if not path.startswith("notes/")})
    for folder in ("notes", "build", "lib/deep", *(f"packages/{name}" for name in NAMES)):
        (root / folder).mkdir(parents=True, exist_ok=True)
    for path in victims:
        (root / path).write_text(files[path])
    program = shutil.copy(intruder.__file__, person.folder)
    for name, plan in plans.items():
        told = person.folder / f"plan-{name}.json"
        steps = [
            (act.kind, *(_routed(path, name, root, number) for path in (act.path, act.target)), act.text)
            for number, act in enumerate(plan)
        ]
        told.write_text(json.dumps(steps))
        script = f"{person.python} {program} {name} {names} {told}"
        person.story(root, name, script)
    person.hand_over(root)
    return Battle(person=person, root=root, plans=plans)


Entry = tuple[int, int, int, int, str]


def digest(root: Path, *, folder_times: bool = True) -> dict[str, Entry]:
    """Look at everything: kind and mode, owner, names, time of change, and what is in it.

    The times of folders in which the program or an owner works are theirs to change; where foreign
    writes are undone, so are those of all folders.
    """
    found: dict[str, Entry] = {}
    for folder, folders, files in os.walk(root):
        inside = os.path.relpath(folder, root)
        if inside == ".":
            folders[:] = [name for name in folders if name not in {".git", ".orchestrator"}]
        for name in (*folders, *files):
            place = Path(folder, name)
            seen = place.lstat()
            path = os.path.normpath(f"{inside}/{name}")
            is_folder = stat.S_ISDIR(seen.st_mode)
            timeless = is_folder and (path.startswith("packages") or not folder_times)
            found[path] = (
                seen.st_mode,
                seen.st_uid,
                0 if is_folder else seen.st_nlink,
                0 if timeless else seen.st_mtime_ns,
                _content_of(place, seen.st_mode),
            )
    return found


def _content_of(place: Path, mode: int) -> str:
    if stat.S_ISLNK(mode):
        return str(place.readlink())
    return hashlib.sha256(place.read_bytes()).hexdigest() if stat.S_ISREG(mode) else ""


def check_tree(battle: Battle, before: Mapping[str, Entry], *, folder_times: bool = True) -> None:
    """Nothing is different but that every story's own files are there."""
    after = digest(battle.root, folder_times=folder_times)
    own = {f"packages/{name}/{file}" for name in battle.plans for file in _own_files()}
    assert after.keys() - before.keys() == own
    assert {path: entry for path, entry in after.items() if path not in own} == before
    for name in battle.plans:
        check_own(battle, name)


def _own_files() -> list[str]:
    return ["way", *(f"own-{number}" for number in range(OWN_FILES))]


def check_own(battle: Battle, name: str) -> None:
    """All that a story wrote in its claim is committed on its branch, and nothing else is."""
    person, root, branch = battle.person, battle.root, f"autopilot/{name}"
    changed = person.git(root, "diff", "--name-status", "main", branch).split()
    assert changed == [word for file in sorted(_own_files()) for word in ("A", f"packages/{name}/{file}")]
    files = [f"packages/{name}/own-{number}" for number in range(OWN_FILES)]
    committed = person.git(root, "show", *(f"{branch}:{file}" for file in files))
    assert committed == "".join((root / file).read_text() for file in files)
    assert [line.split()[:2] for line in committed.splitlines()] == [[name, f"{n}"] for n in range(OWN_FILES)]


def check_kept(battle: Battle) -> None:
    """Each write is in the quarantine of the story that made it, and comes out as that story wrote it."""
    listed = battle.person.run(battle.root, "quarantine", "list", "--json").data["quarantines"]
    assert sorted(one["story_ids"] for one in listed) == [[name] for name in battle.plans]
    last = listed[-1]
    assert battle.person.run(battle.root, "quarantine", "show", last["name"], "--json").data == last
    for one in listed:
        (name,) = one["story_ids"]
        expected = {path: what for act in battle.plans[name] for path, what in act.found.items()}
        assert {change["path"]: change["what"] for change in one["changes"]} == expected
        out = battle.person.folder / f"out-{name}"
        restored = battle.person.run(battle.root, "quarantine", "restore", one["name"], "--to", str(out))
        assert restored.code == 0, restored.err
        written = {path: text for act in battle.plans[name] for path, text in act.written.items()}
        assert _contents(out) == written


def _contents(folder: Path) -> dict[str, str]:
    found = {}
    for place in folder.rglob("*"):
        if place.is_symlink() or place.is_file():
            text = str(place.readlink()) if place.is_symlink() else place.read_text()
            found[place.relative_to(folder).as_posix()] = text
    return found
