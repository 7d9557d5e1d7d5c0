"""What one file in `known/` declares: all that the runner knows about an agent that needs no description.

Settings, `auto`, the doctor and the search for other sessions read these declarations through
`catalog.KNOWN`; no other table names an agent.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path, PurePosixPath
from typing import ClassVar
from urllib.parse import urlsplit

from msgspec import Struct, field

from isolation.files.disk import replace_file
from isolation.patterns import pattern
from runner.agents.protocol import AgentJob, Launch, Traits
from runner.core.agent_settings import AgentSettings
from runner.core.conversation.entry import Entry, Kind
from runner.core.limits.agent_output import AgentUpdate
from runner.core.model import Usage

_MOST_READ = 1 << 20
_VARIABLE = pattern(r"\{(\w+)\}")
_CONVERSATION = pattern(r"[A-Za-z0-9][A-Za-z0-9_-]{7,99}")
_OTHER_SIGN = pattern(r"[^A-Za-z0-9]")
_MOST_KEY = 200
_MOST_KEPT = 64 << 20
_NO = frozenset({"", "0", "false"})


class Permissions(StrEnum):
    """What an agent may do without asking.

    `edit` lets it change files and run the verify commands; `bypass` lets it do everything that the user can,
    and only the user's own settings grant it.
    """

    EDIT = "edit"
    BYPASS = "bypass"


class SignIn(Struct, frozen=True, kw_only=True):
    """Where an agent's credentials may be: in variables, or in files below the home folder.

    Its sessions have these even when they are sealed. `passes` are patterns of more variables that may hold
    something secret among its settings. A variable can also be named where the pattern `naming` matches, in
    its arguments or in the files `named_in`. `moved_by` is a variable that names another folder for the first
    folder of all files. `services` says what else it needs if a variable selects another service.
    """

    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()
    naming: str = ""
    named_in: tuple[str, ...] = ()
    moved_by: str = ""
    services: Mapping[str, "SignIn"] = field(default_factory=dict)

    def names(self, environ: Mapping[str, str], arguments: Iterable[str] = ()) -> tuple[str, ...]:
        """Return the variables that may hold credentials, as patterns. Blocks."""
        named: list[str] = []
        if self.naming:
            home = environ.get("HOME", "")
            files = (place.replace("~", home, 1) for place in self._moved(self.named_in, environ))
            for text in (*arguments, *(_text(file) for file in files)):
                named += re.findall(self.naming, text)
        more = [name for service in self._more(environ) for name in service.names(environ)]
        return (*self.variables, *self.passes, *named, *more)

    def places(self, environ: Mapping[str, str]) -> tuple[str, ...]:
        """Return the paths that may hold credentials."""
        more = [place for service in self._more(environ) for place in service.places(environ)]
        return (*self._moved(self.files, environ), *more)

    def _moved(self, files: Iterable[str], environ: Mapping[str, str]) -> list[str]:
        """Return where files are, in the home folder and where a variable says."""
        found = [f"~/{file}" for file in files]
        folder = environ.get(self.moved_by, "") if self.moved_by else ""
        return found + ([f"{folder}/{file.partition('/')[2]}" for file in files] if folder[:1] == "/" else [])

    def _more(self, environ: Mapping[str, str]) -> list["SignIn"]:
        return [more for variable, more in self.services.items() if environ.get(variable, "") not in _NO]


class Endpoint(Struct, frozen=True, kw_only=True):
    """Which hosts an agent needs for its model: all that its sessions reach in a sealed network.

    `hosts` are the default; `{NAME}` in them is a variable, without which such a host is left out. A URL
    in one of the `variables` takes their place, or is added if the agent knows several `providers` at a
    time; so does what the pattern `naming` finds in its arguments, in the variables `named_by` and in the
    files `named_in`, whose first folder `moved_by` moves. `services` takes the place of all this if a
    variable selects another service. `quiet` are variables that keep the agent from asking other hosts.
    """

    hosts: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    providers: bool = False
    naming: str = ""
    named_by: tuple[str, ...] = ()
    named_in: tuple[str, ...] = ()
    moved_by: str = ""
    services: Mapping[str, "Endpoint"] = field(default_factory=dict)
    quiet: Mapping[str, str] = field(default_factory=dict)

    def entries(self, environ: Mapping[str, str], arguments: Iterable[str] = ()) -> tuple[str, ...]:
        """Return what a session may reach, as entries of an allow-list. Blocks."""
        for variable, service in self.services.items():
            if environ.get(variable, "") not in _NO:
                return service.entries(environ)
        texts = [environ.get(name, "") for name in self.variables]
        if self.naming:
            held = (environ.get(name, "") for name in self.named_by)
            given = (*arguments, *held, *(_text(file) for file in self._files(environ)))
            texts += [url for text in given for url in re.findall(self.naming, text)]
        moved = [entry for text in texts if (entry := _entry_of(text))]
        known = [_VARIABLE.sub(lambda found: environ.get(found[1], ""), host) for host in self.hosts]
        usual = [host for host in known if not re.search(r"^[.-]|\.\.", host)]
        return tuple(dict.fromkeys(moved + usual if self.providers or not moved else moved))

    def _files(self, environ: Mapping[str, str]) -> list[str]:
        home, folder = environ.get("HOME", ""), environ.get(self.moved_by, "") if self.moved_by else ""
        found = [f"{home}/{file}" for file in self.named_in]
        return found + ([f"{folder}/{file.partition('/')[2]}" for file in self.named_in] if folder else [])


def _entry_of(url: str) -> str:
    """Return host and port of a URL; empty if it has none."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port or {"https": 443, "http": 80, "wss": 443, "ws": 80}.get(parts.scheme)
    except ValueError:
        return ""
    host = parts.hostname or ""
    return f"[{host}]:{port}" if ":" in host and port else f"{host}:{port}" if host and port else ""


def _text(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_READ).decode("utf-8", "replace")
    except OSError:
        return ""


class ConversationFiles(Struct, frozen=True, kw_only=True):
    """Where an agent keeps a conversation that can be continued on another machine.

    `files` is a pattern below its `folder` in the home folder, which the variable `moved_by` moves. In it
    `{id}` is the conversation, and `{workspace}` the folder of its sessions with a `-` for each other sign.
    """

    folder: str
    files: str
    moved_by: str = ""

    def find(self, conversation: str, environ: Mapping[str, str]) -> dict[str, bytes]:
        """Return the newest file of a conversation by name; none without one, or a large one. Blocks."""
        if not _CONVERSATION.fullmatch(conversation):
            return {}
        top = self._top(environ)
        try:
            paths = top.glob(self.files.format(id=conversation, workspace="*"))
            newest = max(paths, key=lambda path: path.stat().st_mtime, default=None)
            if newest is None or newest.stat().st_size > _MOST_KEPT or _leads_out(newest, top):
                return {}
            return {newest.relative_to(top).as_posix(): newest.read_bytes()}
        except OSError:
            return {}

    def put(
        self, files: Mapping[str, bytes], conversation: str, workspace: Path, environ: Mapping[str, str]
    ) -> bool:
        """Put files where sessions in this workspace find the conversation; false if that fails. Blocks."""
        if not files or not _CONVERSATION.fullmatch(conversation):
            return False
        key = _OTHER_SIGN.sub("-", str(workspace.resolve()))
        if len(key) > _MOST_KEY:
            return False  # its name would be another one
        expected = self.files.format(id=conversation, workspace=key)
        try:
            for name, data in files.items():
                place = PurePosixPath(expected if "{workspace}" in self.files else name)
                if place.is_absolute() or ".." in place.parts or not place.match(expected):
                    return False
                path = self._top(environ) / place
                path.parent.mkdir(parents=True, exist_ok=True)
                if _leads_out(path, self._top(environ)):
                    return False
                replace_file(path, data, mode=0o600, durable=False)
        except OSError:
            return False
        return True

    def _top(self, environ: Mapping[str, str]) -> Path:
        moved = environ.get(self.moved_by, "") if self.moved_by else ""
        return Path(moved) if moved else Path(environ.get("HOME") or "/", self.folder)


def _leads_out(path: Path, top: Path) -> bool:
    """Whether a link that a session may have made leads to a file which its agent does not keep."""
    return path.is_symlink() or not path.resolve().is_relative_to(top.resolve())


class StartProblem(Struct, frozen=True, kw_only=True):
    """Why an agent would refuse to start with its settings, and what to do about it."""

    detail: str
    hint: str


class KnownAgent(ABC):
    """An agent with a file of its own; it implements `protocol.Agent`.

    `name` is also the name of its program. `package` is the package that holds its script; it identifies
    the agent's processes and its version, which a Python program has under the name of its `distribution`.
    `tried` are the versions that were run with this program.
    `acp_programs` are other programs that start it and speak the Agent Client Protocol for it.
    `continued_by` are the words before the id of a conversation that a person continues at a terminal; empty
    if it cannot continue one by its id. `conversation_files` says what to take along for that to another
    machine; None if that is not enough.
    """

    name: ClassVar[str]
    package: ClassVar[str]
    distribution: ClassVar[str] = ""
    tried: ClassVar[tuple[str, ...]] = ()
    acp_programs: ClassVar[tuple[str, ...]] = ()
    continued_by: ClassVar[tuple[str, ...]] = ()
    sign_in: ClassVar[SignIn]
    endpoint: ClassVar[Endpoint] = Endpoint()
    conversation_files: ClassVar[ConversationFiles | None] = None
    traits: Traits

    def __init__(self, settings: AgentSettings) -> None:
        self._settings = settings

    @property
    def arguments(self) -> tuple[str, ...]:
        """The user's own arguments for it."""
        return self._settings.args

    @property
    def environment(self) -> Mapping[str, str]:
        """The user's own variables for it."""
        return self._settings.env

    @property
    def _bypass(self) -> bool:
        return self._settings.permissions == Permissions.BYPASS

    @abstractmethod
    def launch(self, job: AgentJob) -> Launch:
        """Return how to start it for this job."""

    @abstractmethod
    def parse(self, line: bytes) -> AgentUpdate | None:
        """Read one line of its output."""

    def render(self, line: bytes) -> tuple[Entry, ...] | None:
        """Return what a line shows to people; None for a line of plain text, which is shown as it is.

        It never raises. An agent that says no more than its newest message needs no method of its own.
        """
        seen = self.parse(line) if line.startswith(b"{") else None
        if seen is None:
            return None
        kind = Kind.ERROR if seen.final is not None and not seen.final.ok else Kind.MESSAGE
        words = seen.said or seen.message or (seen.final.message if seen.final else "")
        return (Entry(kind=kind, text=words, continues=seen.continues),) if words else ()

    def interactive(self, conversation: str) -> tuple[str, ...]:
        """Return the command by which a person continues a conversation, or begins one."""
        # An id that its program would read as an option was not made by it.
        known = bool(self.continued_by) and bool(conversation) and not conversation.startswith("-")
        return (self.name, *self.continued_by, conversation) if known else (self.name,)

    def recorded(self, conversation: str, prompt: Path, reported: Usage) -> AgentUpdate | None:  # noqa: ARG002
        """Return the usage in its own files, if it keeps some: of a conversation, or next to the prompt.

        `reported` is what its output said. Blocks.
        """
        return None

    def start_problem(self) -> StartProblem | None:
        """Return why it would refuse to start with these settings; most agents never do."""
        return None
