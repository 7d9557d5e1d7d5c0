"""A machine to attack: a home with secrets, a repository, a sibling at work, servers that listen."""

import hashlib
import json
import math
import os
import shutil
import socket
import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template
from typing import Any

from tests.acceptance.people import Person
from tests.acceptance.program import Ran
from tests.attacks.attack import Attack
from tests.attacks.families import git_data, reads, strange_files, texts, writes

_SCRIPTS = Path(__file__).parent / "scripts"
_TOGETHER = 8
_SIBLING = "victim"
_FUTURE = b"future\n"
_LIMIT = 900.0
_OVERDUE = "124"
_WAITING = (
    "{python} {scripts}/process_intruder.py victim {folder}/meet & "
    "until [ $(ls {folder}/meet | grep -c done-) -ge {sessions} ]; do sleep 0.05; done; "
    "touch {folder}/meet/done; wait; echo mine > mine; exit 0"
)


def sessions_of(attacks: Iterable[Attack]) -> dict[str, list[Attack]]:
    """Return which attacks share a session, by the id of its story.

    What is said of a session is said of all attacks in it. So those that would be named by the same words
    have sessions of their own: no attack counts as named because of another.
    """
    found: dict[str, list[Attack]] = {}
    for attack in attacks:
        key = attack.group or attack.family.replace(" ", "-").replace(",", "")
        if attack.alone:
            found[attack.name] = [attack]
            continue
        if attack.group:
            found.setdefault(key, []).append(attack)
            continue
        number = 1
        while not _has_room(found.get(f"{key}-{number}", ()), attack):
            number += 1
        found.setdefault(f"{key}-{number}", []).append(attack)
    return found


def _has_room(session: Collection[Attack], attack: Attack) -> bool:
    return len(session) < _TOGETHER and not any(
        _names_too(attack, other) or _names_too(other, attack) for other in session
    )


def _names_too(attack: Attack, other: Attack) -> bool:
    """Whether the words that name an attack might come from the other one."""
    return bool(attack.target) and not attack.silent and attack.target in f"{other.target}\n{other.script}"


@dataclass(slots=True, kw_only=True)
class Scene:
    """The machine, and what is known of it before and after."""

    person: Person
    sessions: Mapping[str, list[Attack]]
    heard: set[str] = field(default_factory=set)
    shown: dict[str, str] = field(default_factory=dict)
    stories: dict[str, dict[str, Any]] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    _before: dict[str, object] = field(default_factory=dict)
    _after: dict[str, object] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """The folder of it all."""
        return self.person.folder

    @property
    def repo(self) -> Path:
        """The repository's main checkout."""
        return self.folder / "repo"

    def loot(self, name: str) -> str:
        """Return what an attack's script printed."""
        path = self.folder / "loot" / f"{name}.out"
        return path.read_text(errors="replace") if path.exists() else ""

    def last_words(self, name: str) -> str:
        """Return the last line of the errors that an attack's script printed."""
        path = self.folder / "loot" / f"{name}.err"
        return (path.read_text(errors="replace").splitlines() or [""])[-1] if path.exists() else ""

    def worked(self, name: str) -> bool:
        """Return whether an attack's script ended well."""
        path = self.folder / "loot" / f"{name}.status"
        return path.exists() and path.read_text().strip() == "0"

    def changed(self, place: str) -> bool:
        """Return whether a place is not what it was before the run."""
        if place not in self._after:
            self._after[place] = self._look(place)
        return self._after[place] != self._before[place]

    def exists(self, place: str) -> bool:
        """Return whether there is something at a place now."""
        return os.path.lexists(self.folder / place)

    def tried(self, name: str) -> bool:
        """Return whether the attack was made at all."""
        return (self.folder / "loot" / f"{name}.status").exists()

    def named(self, attack: Attack) -> bool:
        """Return whether the program's own words about the session name what it refused."""
        story = next(story for story, attacks in self.sessions.items() if attack in attacks)
        target = Template(attack.target).safe_substitute(self.variables)
        return bool(target) and target in self.words[story]

    def overdue(self, name: str) -> bool:
        """Return whether an attack's script was ended because its time was over, so nothing answered it."""
        path = self.folder / "loot" / f"{name}.status"
        return path.exists() and path.read_text().strip() == _OVERDUE

    def in_vain(self, attack: Attack) -> bool:
        """Return whether it fails without a seal, too: nothing is there, or the user has no right to it."""
        test = ["test", "-r" if "rdonly" in attack.name or "proc-" in attack.name else "-w", attack.needs]
        return bool(attack.needs) and self.person.call(*test, cwd=self.folder).returncode != 0

    def prepare(self) -> None:
        """Make the home, the repository, the scripts and the stories."""
        home = self.folder / "home"
        leading = [f"{strange_files.KEPT}/{name}" for name in strange_files.NAMES]
        kept = {f"{place}/{name}": "kept\n" for place in leading for name in ("file", "code.py")}
        own = {f"home/{name}": text for name, text in reads.stores().items()}
        own |= {writes.place_of(name): "mine\n" for name in ("settings", "ssh")} | kept
        for name, text in own.items():
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name in ("loot", "meet", "scripts"):
            (self.folder / name).mkdir()
        self._make_repository()
        self._write_scripts()
        for place in (home, *(self.folder / name for name in ("loot", "meet", "scripts"))):
            self.person.hand_over(place)
        waiting = _WAITING.format(
            python=self.person.python,
            scripts=self.folder / "scripts",
            folder=self.folder,
            sessions=len(self.sessions),
        )
        self.person.story(self.repo, _SIBLING, waiting, priority=100)
        for story, attacks in self.sessions.items():
            end = "0" if attacks[0].group else "1"
            names = " ".join(attack.name for attack in attacks)
            script = f"export SCRIPTS={self.folder}/scripts; sh $SCRIPTS/drive.sh {end} {names}"
            self.person.story(self.repo, story, script)
        places = {writes.place_of(name) for name in writes.TARGETS} | set(leading)
        places |= {git_data.OBJECTS, git_data.REFS, git_data.SEEN, git_data.BRANCH}
        self._before = {place: self._look(place) for place in places}

    def run(self, *args: str) -> None:
        """Run all stories, and keep everything that the program shows."""
        person = replace(self.person, environment={**self.person.environment, **reads.VARIABLES})
        # One of them waits for the others, whatever else this machine does.
        flags = ("--max-attempts", "1", "--max-stories", "4", "--window", "fixed")
        ran = person.run(self.repo, "run", *flags, *args, limit=_LIMIT)
        self.shown["terminal run"] = ran.err + ran.out
        told = person.run(self.repo, "status", "--json")
        assert "stories" in told.data, ran.err
        self.stories = {story["id"]: story for story in told.data["stories"]}
        self.words = {story: self._words_about(story) for story in self.sessions}
        self.shown["terminal status"] = self._show(person, "status")
        for kind in ("html", "markdown", "github", "junit", "gitlab"):
            self.shown[kind] = self._show(person, "report", "--format", kind)
        for story in self.sessions:
            if story.startswith(("text-", "notes-")):
                self.shown[f"terminal logs {story}"] = self._show(person, "logs", story)
            if story.startswith("planted-thief-"):
                shown = self.person.call("git", "show", f"autopilot/{story}:x.dat", cwd=self.repo)
                self.shown[f"committed {story}"] = shown.stdout
        counted = [name for name in self.sessions if not _sane(self.stories.get(name))]
        self.shown["counted"] = "\n".join(f"{name} is counted" for name in counted)

    def _words_about(self, story: str) -> str:
        """Return what the program itself says about a session: in its reason, its log, and notes."""
        words = [str(self.stories.get(story, {}).get("reason", ""))]
        records = self.repo / ".git" / "autopilot"
        for log in records.glob(f"runs/*/{story}/*.log"):
            lines = log.read_text(errors="replace").splitlines()
            words += [line for line in lines if line.startswith("autopilot-multi: ")]
        with closing(sqlite3.connect(f"file:{records}/journal.db?mode=ro", uri=True)) as journal:
            noted = journal.execute("SELECT data FROM events WHERE kind = 'Noted'").fetchall()
        notes = [json.loads(row[0]) for row in noted]
        words += [note["message"] for note in notes if note.get("story_id") == story]
        return "\n".join(words)

    def _show(self, person: Person, *args: str) -> str:
        shown: Ran = person.run(self.repo, *args)
        return shown.out + shown.err

    def _make_repository(self) -> None:
        files = {"README.md": "hello\n", "lib/code.py": "code = 1\n", "tools/clean": "#!/bin/sh\ncat\n"}
        root = self.person.repository(files)
        for args in (
            ("gc", "-q"),
            ("tag", "kept"),
            ("config", "core.hooksPath", ".husky"),
            ("config", "filter.relative.clean", "tools/clean"),
            ("config", "extensions.worktreeConfig", "true"),
            ("commit", "-q", "--allow-empty", "-m", "second"),
            ("branch", "autopilot/finished"),
            ("worktree", "add", "-q", "-b", "linked", str(self.folder / "linked")),
        ):
            self.person.git(root, *args)
        for name in ("hooks/pre-commit", "autopilot/kept", "info/exclude"):
            path = root / ".git" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text("# mine\n/stories/\n.orchestrator/\n" if name.endswith("exclude") else "mine\n")
        (root / "autopilot-multi.toml").write_text(
            'seal-hides = ["~/Documents"]\npeer-abort = 1000\n'  # whatever else this machine does
        )
        self.person.hand_over(root)

    def _write_scripts(self) -> None:
        folder = self.folder / "scripts"
        for path in _SCRIPTS.iterdir():
            if path.is_file():
                shutil.copy(path, folder)
        shutil.copy(_SCRIPTS.parents[1] / "acceptance" / "process_intruder.py", folder)
        payloads = {name: payload for name, (payload, _) in texts.PAYLOADS.items()}
        (folder / "payloads.json").write_text(json.dumps(payloads))
        for attacks in self.sessions.values():
            for attack in attacks:
                (folder / f"{attack.name}.sh").write_text(attack.script + "\n")
        loose = self.person.git(self.repo, "rev-parse", "HEAD").strip()
        future = hashlib.sha1(b"blob %d\0%b" % (len(_FUTURE), _FUTURE)).hexdigest()  # noqa: S324  git's own
        variables = {
            "FOLDER": str(self.folder),
            "REPO": str(self.repo),
            "ROOT": f"{self.repo}.worktrees",
            "LOOT": str(self.folder / "loot"),
            "PYTHON": self.person.python,
            "LOOSE": f"{loose[:2]}/{loose[2:]}",
            "FALSE": f"{future[:2]}/{future[2:]}",
            **self.variables,
        }
        (folder / "env").write_text(
            "".join(f"export {name}='{value}'\n" for name, value in variables.items())
        )

    def _look(self, place: str) -> object:
        if not place.startswith("git:"):
            return _state(self.folder / place)
        objects = self.repo / ".git" / "objects"
        match place:
            case git_data.OBJECTS:
                known = self._before.get(place) or {
                    path: None for path in objects.rglob("*") if path.is_file()
                }
                assert isinstance(known, dict)
                return {path: _state(path) for path in known}
            case git_data.REFS:
                refs = self.person.git(self.repo, "for-each-ref").splitlines()
                head = (self.repo / ".git" / "HEAD").read_text()
                linked = (self.folder / "linked" / "README.md").exists()
                return [line for line in refs if "refs/heads/autopilot/" not in line], head, linked
            case git_data.SEEN:
                asked = ("log", "--format=%H %P", "-p", "main")
                writing = "printf 'future\\n' | git hash-object -w --stdin | xargs git cat-file -p"
                # Before the attacks it must not be there, or none of them could be in its place.
                written = (
                    self.person.call("sh", "-c", writing, cwd=self.repo).stdout
                    if place in self._before
                    else _FUTURE.decode()
                )
                return self.person.git(self.repo, *asked), written
            case _:
                asked = ("git", "rev-parse", "--verify", "refs/heads/autopilot/finished")
                return self.person.call(*asked, cwd=self.repo).stdout


def _state(path: Path) -> object:
    if path.is_dir() and not path.is_symlink():
        return {each.name: _state(each) for each in sorted(path.iterdir())}
    if not os.path.lexists(path):
        return None
    content = str(path.readlink()) if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
    return content, path.lstat().st_mode


def _sane(found: object) -> bool:
    """Whether all numbers are what a number of tokens, dollars or seconds can be, and the story is known."""
    match found:
        case bool() | str() | None:
            return found is not None or True
        case int() | float():
            return math.isfinite(found) and 0 <= found < 1e15
        case list():
            return all(map(_sane, found))
        case dict():
            return all(map(_sane, found.values()))
        case _:
            return False


@contextmanager
def scene_for(person: Person, attacks: Iterable[Attack]) -> Iterator[Scene]:
    """Provide the scene, with servers that write down who is heard from."""
    scene = Scene(person=person, sessions=sessions_of(attacks))
    with ExitStack() as stack:
        agent = socket.socket(socket.AF_UNIX)
        agent.bind(str(person.folder / "agent.sock"))
        person.hand_over(person.folder / "agent.sock")
        _serve(stack, scene, agent, stream=True, greeting=f"{reads.MARK}-agent;".encode())
        scene.variables["SSH_AUTH_SOCK_PATH"] = str(person.folder / "agent.sock")
        abstract = f"autopilot-attacks-{os.getpid()}-{person.folder.name}"
        scene.variables["ABSTRACT"] = abstract
        _call_back(stack, person.folder / "loot" / "listening")
        for name, family, kind, address in (
            ("TCP", socket.AF_INET, socket.SOCK_STREAM, ("0.0.0.0", 0)),  # noqa: S104  also other loopbacks
            ("TCP6", socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)),
            ("UDP", socket.AF_INET, socket.SOCK_DGRAM, ("0.0.0.0", 0)),  # noqa: S104
            ("UDP6", socket.AF_INET6, socket.SOCK_DGRAM, ("::1", 0)),
            ("", socket.AF_UNIX, socket.SOCK_STREAM, f"\0{abstract}"),
            ("", socket.AF_UNIX, socket.SOCK_DGRAM, f"\0{abstract}-d"),
        ):
            try:
                listening = socket.socket(family, kind)
                listening.bind(address)
            except OSError:
                scene.variables[name] = "9"
                continue
            if name:
                scene.variables[name] = str(listening.getsockname()[1])
            _serve(stack, scene, listening, stream=kind == socket.SOCK_STREAM)
        scene.person = replace(
            person,
            environment={
                **person.environment,
                "SSH_AUTH_SOCK": str(person.folder / "agent.sock"),
                "AUTOPILOT_MULTI_TRUST": "always",
            },
        )
        scene.prepare()
        yield scene


def _call_back(stack: ExitStack, port: Path) -> None:
    """Connect, from outside, to the port at which a session says that it listens."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.05):
            with (
                suppress(OSError, ValueError),
                socket.create_connection(("127.0.0.1", int(port.read_text()))),
            ):
                return

    threading.Thread(target=watch, daemon=True).start()
    stack.callback(ended.set)


def _serve(
    stack: ExitStack, scene: Scene, listening: socket.socket, *, stream: bool, greeting: bytes = b""
) -> None:
    names = {attack.name for attacks in scene.sessions.values() for attack in attacks}

    def listen() -> bytes:
        if not stream:
            return listening.recv(4096)
        peer, _ = listening.accept()
        with peer:
            peer.settimeout(2)
            peer.sendall(greeting)
            return b"" if greeting else peer.recv(4096)

    def serve() -> None:
        while listening.fileno() >= 0:
            with suppress(OSError):
                words = listen().decode(errors="replace").replace("/", " ").split()
                scene.heard.update(names.intersection(words))

    def end() -> None:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()

    if stream:
        listening.listen(64)
    threading.Thread(target=serve, daemon=True).start()
    stack.callback(end)
