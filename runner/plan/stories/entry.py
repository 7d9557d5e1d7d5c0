"""From a raw entry to a story: every value is checked, and every error says where it is and what to do."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from isolation.claims import globs as claims
from isolation.errors import ClaimError
from isolation.patterns import pattern
from runner.core.errors import BacklogError
from runner.core.model import MULTI_STORY, Story, StoryId
from runner.core.settings import SETTINGS
from runner.core.text.names import did_you_mean, id_problem, one_line, shown, slug
from runner.core.text.unknown_keys import UnknownKey, message_and_hint
from runner.plan.stories.files import Entry
from runner.plan.stories.keys import KEYS, Fields, needs_of, plain_fields

_DIALECTS = SETTINGS["dialect"].choices

_TEXT = "text"
_MINUTES = "a number of minutes above 0"
_WANTED = {
    "id": _TEXT,
    "title": _TEXT,
    "prompt": _TEXT,
    "priority": "a whole number",
    "estimate": _MINUTES,
    "depends_on": "a story's id or a list of ids",
    "owns": "a glob or a list of globs",
    "flow": _TEXT,
    "agent": "an agent, or a list of agents in order of preference",
    "escalate": "an agent, agent:model or :model, or a list of these",
    "command": "a shell command, or a list: the program and its arguments",
    "verify": "a command or a list of commands",
    "verify_minutes": _MINUTES,
    "max_attempts": "a whole number from 1 to 50",
    "story_minutes": _MINUTES,
    "dialect": _TEXT,
    "mode": _TEXT,
    "allow_no_change": "true or false",
    "ports": "a whole number from 0 to 32",
    "best_of": "a whole number from 1 to 10",
    "review": "an agent, agent:model, or off",
    "labels": "a label or a list of labels",
    "origin": _TEXT,
    "origin_digest": _TEXT,
    "needs": "a table of what a worker must have, such as {gpu: 1, label: linux}",
    "repo": "the path, the URL or the name of a repository",
}
_NOT_TEXT = frozenset(
    {
        "priority",
        "estimate",
        "verify_minutes",
        "max_attempts",
        "story_minutes",
        "allow_no_change",
        "ports",
        "best_of",
        "needs",
    }
)
_HEADING = pattern(r" {0,3}#{1,6}[ \t]+(.*)")
_CODE = pattern(r" {0,3}(`{3,}|~{3,})")


def stories_of(entries: Iterable[Entry]) -> list[Story]:
    """Check entries and turn them into stories; unknown keys of all of them are one error."""
    found = list(entries)
    known = tuple(KEYS)
    unknown = [
        UnknownKey(where=_where(entry, (key,)), key=str(key), known=known)
        for entry in found
        for key in entry.data
        if key not in KEYS
    ]
    if unknown:
        message, hint = message_and_hint(unknown, listed="known keys")
        raise BacklogError(message, hint=hint)
    return [_story_of(entry) for entry in found]


def _story_of(entry: Entry) -> Story:
    if entry.body is not None and "prompt" in entry.data:
        _refuse(entry, ("prompt",), "'prompt' is a key of list files", "write the prompt under the '---'.")
    # An empty value (`verify:` with nothing after it) means the same as no key at all.
    given = {key: value for key, value in entry.data.items() if value is not None or key == "command"}
    fields = plain_fields(given) or _checked(entry, given)
    story_id = _story_id(entry, fields.id)
    _check(entry, fields)
    prompt = _prompt(entry, fields)
    title = one_line(fields.title or "") or _heading(prompt) or story_id
    return Story(
        id=story_id,
        title=title,
        prompt=prompt,
        priority=fields.priority or 0,
        estimate=fields.estimate,
        depends_on=tuple(StoryId(name) for name in dict.fromkeys(fields.depends_on or ())),
        owns=tuple(fields.owns or ()),
        flow=fields.flow or "quick",
        agent=",".join(fields.agent) if fields.agent is not None else None,
        escalate=tuple(fields.escalate) if fields.escalate is not None else None,
        command=tuple(fields.command) if fields.command is not None else None,
        verify=tuple(fields.verify or ()),
        dialect=fields.dialect,
        mode=one_line(fields.mode or "") or MULTI_STORY,
        source=entry.source,
        max_attempts=fields.max_attempts,
        story_minutes=fields.story_minutes,
        verify_minutes=fields.verify_minutes,
        allow_no_change=fields.allow_no_change or False,
        ports=fields.ports,
        best_of=fields.best_of,
        review=fields.review,
        labels=tuple(fields.labels or ()),
        origin=one_line(fields.origin or ""),
        needs=needs_of(fields.needs or {}),
        repo=(fields.repo or "").strip(),
    )


def _checked(entry: Entry, given: Mapping[str, Any]) -> Fields:
    """Let pydantic look at values that are not plainly right; it knows what is wrong with them."""
    from pydantic import ValidationError

    from runner.plan.stories.model import MODEL

    try:
        return Fields(**MODEL.model_validate(given).model_dump())
    except ValidationError as error:
        _refuse_first(entry, error.errors(include_url=False)[0])


def _story_id(entry: Entry, given: str | None) -> StoryId:
    if given is not None:
        if problem := id_problem(given):
            hint = f"for example 'id: {slug(given)}'."
            _refuse(entry, ("id",), f"{shown(given)} cannot be an id: {problem}", hint)
        return StoryId(given)
    if entry.stem is None:
        _refuse(entry, (), "an entry of a list needs an 'id'", "for example 'id: checkout-17'.")
    stem = entry.stem.lower()
    if problem := id_problem(stem):
        message = f"the file's name {shown(entry.stem)} cannot be the id: {problem}"
        where = "the front matter" if entry.data else "front matter (between two lines '---' at the top)"
        _refuse(entry, (), message, f"rename the file, or write 'id: {slug(stem)}' into {where}.")
    return StoryId(stem)


def _check(entry: Entry, fields: Fields) -> None:
    """Check what involves more than the type of one value."""
    if fields.command is not None and fields.agent is not None:
        message = "a story has either a 'command' or an 'agent', not both"
        _refuse(entry, ("command",), message, "remove one of them.")
    if fields.command is not None and fields.escalate is not None:
        message = "a story with a 'command' has no agent that could be replaced, so 'escalate' has no meaning"
        _refuse(entry, ("escalate",), message, "remove one of them.")
    for number, name in enumerate(fields.depends_on or ()):
        # Other invalid ids are reported by the graph, which can suggest the story that was meant.
        if len(parts := re.split(r"[,\s]+", name.strip())) > 1 and not any(map(id_problem, parts)):
            message = f"'depends_on' names {shown(name)}, which cannot be an id"
            _refuse(entry, ("depends_on", number), message, "several ids are a list: [api-3, api-4].")
    if fields.dialect is not None and fields.dialect not in _DIALECTS:
        hint = f"{did_you_mean(fields.dialect, _DIALECTS)} known dialects: {', '.join(_DIALECTS)}.".strip()
        _refuse(entry, ("dialect",), f"unknown dialect '{fields.dialect}'", hint)
    try:
        claims.compile(fields.owns or ())
    except ClaimError as error:
        _refuse(entry, ("owns",), f"'owns': {error.message}", error.hint)


def _prompt(entry: Entry, fields: Fields) -> str:
    text = entry.body if entry.body is not None else fields.prompt or ""
    prompt = re.sub(r"\A(?:[ \t]*\n)+", "", text.replace("\r\n", "\n")).rstrip()
    if not prompt and fields.command is None:
        where = "under the front matter" if entry.body is not None else "under the key 'prompt'"
        _refuse(entry, (), "the story has neither a prompt nor a command", f"write what to do {where}.")
    return prompt


def _heading(prompt: str) -> str:
    fence = ""
    for line in prompt.split("\n"):
        mark = _CODE.match(line)
        if fence:
            if mark and mark.group(1).startswith(fence):
                fence = ""
        elif mark:
            fence = mark.group(1)
        elif heading := _HEADING.fullmatch(line):
            return one_line(_without_closing(heading.group(1)))
    return ""


def _without_closing(heading: str) -> str:
    """Remove the marks that may close a heading, as in `# Title ##`."""
    words = heading.rstrip(" \t")
    bare = words.rstrip("#")
    return bare if not bare or bare.endswith((" ", "\t")) else words


def _refuse_first(entry: Entry, first: Mapping[str, Any]) -> NoReturn:
    """Turn pydantic's first error into one of ours."""
    keys = tuple(first["loc"])
    key, value = str(keys[0]), first["input"]
    if first["type"] == "value_error":
        _refuse(entry, keys, f"'{key}' {first['ctx']['error']}", f"it must be {_WANTED[key]}.")
    wanted = _WANTED[key]
    written = entry.position(keys).written
    if key not in _NOT_TEXT and written is not None and isinstance(value, bool | int | float):
        read = shown(value) if isinstance(value, bool) else f"the number {shown(value)}"
        message = f"'{key}' must be {wanted}, but YAML reads {written} as {read}"
        _refuse(entry, keys, message, f'put it in quotes: "{written}".')
    got = shown(value if written is None else written)
    _refuse(entry, keys, f"'{key}' must be {wanted}, not {got}", _quote_hint(key, written))


def _quote_hint(key: str, written: str | None) -> str:
    if written is not None and key not in _NOT_TEXT:
        return f'if you mean text, put it in quotes: "{written}".'
    return f"change the value of '{key}'."


def _refuse(entry: Entry, keys: tuple[str | int, ...], message: str, hint: str) -> NoReturn:
    raise BacklogError(f"{_where(entry, keys)}: {message}", hint=hint)


def _where(entry: Entry, keys: tuple[str | int, ...]) -> str:
    """Name the file of a value, with its line, and its story in a list."""
    line = entry.position(keys).line
    where = f"{entry.file}:{line}" if line is not None else entry.file
    name = entry.data.get("id")
    in_list = entry.stem is None and isinstance(name, str) and keys != ("id",)
    return f"{where}: story {name}" if in_list else where
