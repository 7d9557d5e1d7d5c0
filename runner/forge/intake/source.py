"""Where stories come from, as the user names it: `github:owner/repo?label=autopilot`, `jira:JQL`."""

from enum import StrEnum
from pathlib import Path
from urllib.parse import parse_qsl

from msgspec import Struct

from isolation.patterns import pattern
from runner.core.errors import UsageError
from runner.core.text.names import did_you_mean, shown

MOST_ISSUES = 1000
_LIMIT = 500
_EXAMPLES = (
    "for example `github:owner/repo?label=autopilot`, `gitlab:group/project`, `jira:project = SHOP`, "
    "`ado:Shared Queries/Autopilot` or `checklist:TODO.md`."
)
_PARAMETERS = ("label", "state", "limit")
_HOST = pattern(r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,250}[A-Za-z0-9])?(?::[0-9]{1,5})?")
_GITHUB = pattern(r"[A-Za-z0-9][\w.-]{0,99}/[\w.-]{1,100}")
_GITLAB = pattern(r"[\w.-]{1,255}(?:/[\w.-]{1,255}){1,20}")


class Service(StrEnum):
    """The services, as the first word of a source names them."""

    GITHUB = "github"
    GITLAB = "gitlab"
    JIRA = "jira"
    ADO = "ado"
    CHECKLIST = "checklist"


class Source(Struct, frozen=True, kw_only=True):
    """What to read: issues of a `project` with all of the `labels`, the result of a `query`, or a file."""

    service: Service
    text: str
    host: str = ""
    project: str = ""
    query: str = ""
    path: Path = Path()
    labels: tuple[str, ...] = ()
    state: str = "open"
    limit: int = _LIMIT

    def origin(self, number: object) -> str:
        """Return the name of an issue of this project that is unique among all services and hosts."""
        place = f"//{self.host}/{self.project}" if self.host else self.project
        return f"{self.service}:{place}#{number}"


def parse_source(text: str, *, cwd: Path) -> Source:
    """Return the source that a text names; raises UsageError, which says what is wrong with it."""
    word, colon, rest = text.strip().partition(":")
    if not colon or word not in list(Service):
        return _file(text.strip(), cwd, hint=f"{did_you_mean(word, list(Service))} {_EXAMPLES}".strip())
    service = Service(word)
    if not rest.strip():
        raise UsageError(f"the source '{text}' names nothing after '{word}:'", hint=_EXAMPLES)
    match service:
        case Service.CHECKLIST:
            return _file(rest.strip(), cwd, hint="a checklist is a Markdown file with lines `- [ ] …`.")
        case Service.JIRA | Service.ADO:
            return Source(service=service, text=text, query=rest.strip())
        case Service.GITHUB | Service.GITLAB:
            return _project(service, text, rest.strip())


def _file(name: str, cwd: Path, *, hint: str) -> Source:
    path = cwd / name
    try:
        found = path.is_file()
    except (OSError, ValueError):
        found = False
    if not found:
        raise UsageError(f"{shown(name)} is neither a source of stories nor a file", hint=hint)
    return Source(service=Service.CHECKLIST, text=name, path=path)


def _project(service: Service, text: str, rest: str) -> Source:
    name, _, query = rest.partition("?")
    host = ""
    if name.startswith("//"):
        host, _, name = name.removeprefix("//").partition("/")
        if not _HOST.fullmatch(host):
            raise UsageError(f"{shown(host)} in '{text}' is not the name of a host", hint=_EXAMPLES)
    name = name.strip("/")
    form, example = (_GITHUB, "owner/repo") if service is Service.GITHUB else (_GITLAB, "group/project")
    if not form.fullmatch(name) or ".." in name:
        raise UsageError(
            f"{shown(name)} in '{text}' is not a project",
            hint=f"for example `{service}:{example}`, or with a host `{service}://git.example.com/{example}`.",
        )
    given = parse_qsl(query, keep_blank_values=True)
    for key, value in given:
        if key not in _PARAMETERS or not value:
            wrong = f"unknown parameter '{key}'" if key not in _PARAMETERS else f"'{key}' is empty"
            hint = did_you_mean(key, _PARAMETERS) or f"known parameters: {', '.join(_PARAMETERS)}."
            raise UsageError(f"the source '{text}': {wrong}", hint=hint)
    return Source(
        service=service,
        text=text,
        host=host,
        project=name,
        labels=tuple(part for key, value in given if key == "label" for part in value.split(",") if part),
        state=_state(text, dict(given).get("state", "open")),
        limit=_limit(text, dict(given).get("limit", str(_LIMIT))),
    )


def _state(text: str, state: str) -> str:
    if state not in {"open", "closed", "all"}:
        raise UsageError(f"the source '{text}': state is open, closed or all, not {shown(state)}")
    return state


def _limit(text: str, number: str) -> int:
    if not number.isdecimal() or not 0 < int(number[:9]) <= MOST_ISSUES:
        raise UsageError(f"the source '{text}': limit is a number from 1 to {MOST_ISSUES}")
    return int(number)
