"""The MCP servers that are configured: by files of the repository, and by the user's own.

Files of the repository are read from a commit, never from a tree that sessions can write to: what they name
is started as a command, once the user has agreed to it.
"""

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from isolation.files.plain import read_plain
from isolation.git.repository import Repository
from isolation.patterns import pattern
from runner.core.text.names import one_line
from runner.core.trust import Demand
from runner.core.work_items.tracker import Tracker

REPOSITORY_FILES = (".mcp.json", ".cursor/mcp.json", ".vscode/mcp.json", "mcp.json")
USER_FILES = (
    "~/.claude.json",
    "~/.cursor/mcp.json",
    "~/.config/Code/User/mcp.json",
    "~/.gemini/settings.json",
)
OWN_FILE = "autopilot-multi/mcp.json"
"""Below the user's folder for configuration: servers for this program alone."""
SETTING = "the setting tracker-server"

_KEYS = ("mcpServers", "servers")
_MOST = 1 << 20
_MOST_OF_CLAUDE = 64 << 20
"""The user's file of one agent holds the history of its conversations, too."""
_VARIABLE = pattern(r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_ASKED = pattern(r"\$\{(?:input|command):[^}]*\}")
_NAMES: Mapping[str, Tracker] = {
    "jira-mcp-server": Tracker.JIRA,
    "azuredevops": Tracker.ADO,
}
"""Names of MCP servers, in lower case; a user-defined one has the prefix `user-`."""
_HINTS: Mapping[str, Tracker] = {
    "atlassian": Tracker.JIRA,
    "jira": Tracker.JIRA,
    "azure-devops": Tracker.ADO,
    "azuredevops": Tracker.ADO,
    "dev.azure.com": Tracker.ADO,
}
"""Words in a name, a command or an address that suggest a tracker; its tools decide."""


class McpServer(Struct, frozen=True, kw_only=True):
    """One configured server: a `command` to start, or a `url`; `problem` says why it cannot be used.

    `environment` and `headers` may hold secrets: they are never shown, and removed from whatever is.
    """

    name: str
    where: str
    of_repository: bool = False
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""

    @property
    def shown(self) -> str:
        """Its name, and where that is written."""
        return f"{one_line(self.name)} ({self.where})"

    @property
    def named(self) -> Tracker | None:
        """The tracker that its name stands for; None if its name alone does not say."""
        return _NAMES.get(self.name.lower().removeprefix("user-"))

    @property
    def hinted(self) -> Tracker | None:
        """The tracker that its name, its command or its address suggests."""
        words = " ".join((self.name, *self.command, self.url)).lower()
        return self.named or next((name for hint, name in _HINTS.items() if hint in words), None)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be shown anywhere."""
        values = (*self.environment.values(), *self.headers.values())
        return (*values, *(value.partition(" ")[2] for value in self.headers.values()))


class Servers(Struct, frozen=True, kw_only=True):
    """The configured servers, the ones that are named first before others; `notes` name unreadable files."""

    servers: tuple[McpServer, ...] = ()
    notes: tuple[str, ...] = ()

    def for_tracker(self, tracker: Tracker | None = None) -> tuple[McpServer, ...]:
        """Return those that may lead to a tracker: what names it first, what names another not at all."""
        likely = [one for one in self.servers if one.hinted and tracker in {None, one.hinted}]
        return (*likely, *(one for one in self.servers if one.hinted is None))


def load_servers(repository: Repository, base: str, *, setting: str, environ: Mapping[str, str]) -> Servers:
    """Read every configured server; `setting` is the name of one, a command or an address. Blocks."""
    notes: list[str] = []
    found = [
        *user_servers(repository.top, environ, notes),
        *_of_repository(repository, base, environ, notes),
    ]
    unique = tuple({(one.name, one.where): one for one in found}.values())
    if setting:
        named = tuple(one for one in unique if one.name == setting.strip())
        return Servers(servers=named[:1] or (_of_setting(setting, environ),), notes=tuple(notes))
    return Servers(servers=unique, notes=tuple(notes))


def server_demands(repository: Repository, base: str, *, only: str = "") -> Iterator[Demand]:
    """Return what the files of the repository would start or send to, or `only` one server of them. Blocks.

    Variables are not expanded: their values are the user's own.
    """
    for server in _of_repository(repository, base, None, []):
        if only and server.name != only.strip():
            continue
        content = json.dumps([server.environment, server.headers], sort_keys=True)
        extra = f" (variables {hashlib.sha256(content.encode()).hexdigest()[:12]})"
        words = shlex.join(server.command) or server.url
        if words:
            yield Demand(
                what=f"tracker: MCP server {one_line(server.name)}",
                value=words + extra * bool(server.environment or server.headers),
                where=server.where,
            )


def _of_setting(setting: str, environ: Mapping[str, str]) -> McpServer:
    """Return the server that the user describes by its address or its command."""
    text = _VARIABLE.sub(lambda match: environ.get(match[1], match[2] or ""), setting.strip())
    if text.startswith(("http://", "https://")):
        return McpServer(name=SETTING, where="settings", url=text)
    try:
        command = tuple(shlex.split(text))
    except ValueError as error:
        return McpServer(name=SETTING, where="settings", problem=f"its command cannot be read: {error}")
    return McpServer(name=SETTING, where="settings", command=command)


def user_servers(top: Path, environ: Mapping[str, str], notes: list[str]) -> Iterator[McpServer]:
    """Return the servers of the user's own files; `notes` gets what cannot be read. Blocks."""
    home = environ.get("HOME") or str(Path("~").expanduser())
    folder = environ.get("XDG_CONFIG_HOME", "")
    config = folder if folder.startswith("/") else f"{home}/.config"
    paths = [f"{config}/{OWN_FILE}", *(name.replace("~", home, 1) for name in USER_FILES)]
    for name in paths:
        data = _loaded(Path(name), name, notes)
        if isinstance(data, dict):
            own = data.get("projects")
            project = own.get(str(top)) if isinstance(own, dict) else None
            for table in (project, data):
                yield from _servers(table, name, environ, of_repository=False)


def _loaded(path: Path, name: str, notes: list[str]) -> Any:
    try:
        return json.loads(read_plain(path, _MOST_OF_CLAUDE))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{name} cannot be read, so no tracker was found in it: {_reason(error)}")
        return None


def _of_repository(
    repository: Repository, base: str, environ: Mapping[str, str] | None, notes: list[str]
) -> Iterator[McpServer]:
    listing = repository.run("ls-tree", "-z", "-l", "--full-tree", base, "--", *REPOSITORY_FILES, check=False)
    found: dict[str, tuple[str, int]] = {}
    for line in listing.fields():
        words, _, path = line.partition("\t")
        mode, kind, blob, size = words.split()
        if kind == "blob" and mode.startswith("100"):
            found[path] = (blob, int(size))
    for path in REPOSITORY_FILES:
        name, length = found.get(path, ("", 0))
        if not name:
            continue
        try:
            text = repository.run("cat-file", "blob", name).stdout if length <= _MOST else ""
            yield from _servers(json.loads(text), path, environ, of_repository=True)
        except (ValueError, RecursionError) as error:
            notes.append(f"{path} cannot be read, so no tracker was found in it: {_reason(error)}")


def _reason(error: Exception) -> str:
    return one_line(getattr(error, "strerror", None) or str(error))


def _servers(
    data: Any, where: str, environ: Mapping[str, str] | None, *, of_repository: bool
) -> Iterator[McpServer]:
    tables = [data.get(key) for key in _KEYS] if isinstance(data, dict) else []
    for table in tables:
        for name, entry in table.items() if isinstance(table, dict) else ():
            yield _server(str(name), entry, where, environ, of_repository=of_repository)


def _server(
    name: str, entry: Any, where: str, environ: Mapping[str, str] | None, *, of_repository: bool
) -> McpServer:
    """Read one entry; with an environment, its variables are expanded."""
    entry = entry if isinstance(entry, dict) else {}
    missing: list[str] = []

    def expanded(text: Any) -> str:
        return _expanded(str(text), environ, missing)

    program, url = entry.get("command"), entry.get("url") or entry.get("serverUrl")
    words = entry.get("args")
    arguments = words if isinstance(words, list) else []
    command = tuple(expanded(word) for word in (program, *arguments)) if isinstance(program, str) else ()
    problem = "" if command or isinstance(url, str) else "it has neither a command nor a url"
    if missing:
        problem = f"it needs {', '.join(dict.fromkeys(missing))}"
    if entry.get("type") == "sse":
        problem = "its type is sse; only stdio and http are supported"
    return McpServer(
        name=name,
        where=where,
        of_repository=of_repository,
        command=command,
        environment=_texts(entry.get("env"), expanded),
        url=expanded(url) if isinstance(url, str) and not command else "",
        headers=_texts(entry.get("headers"), expanded),
        problem=problem,
    )


def _texts(table: Any, expanded: Any) -> dict[str, str]:
    return {str(name): expanded(value) for name, value in table.items()} if isinstance(table, dict) else {}


def _expanded(text: str, environ: Mapping[str, str] | None, missing: list[str]) -> str:
    if environ is None:
        return text
    known = environ

    def value(match: Any) -> str:
        if match[1] not in known and match[2] is None:
            missing.append(f"the variable {match[1]}")
        return known.get(match[1], match[2] or "")

    missing.extend(
        f"an answer for {match[0]}, which only an editor asks for" for match in _ASKED.finditer(text)
    )
    return _VARIABLE.sub(value, text)
