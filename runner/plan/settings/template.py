"""The settings file that `init` writes: every setting with its help.

A setting is commented out unless its value was found in the project.
"""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from runner.core.declaration import Declared
from runner.core.settings import SETTINGS

_HEAD = """\
# Settings of autopilot-multi for this repository, each with its default or an example.
# Remove the "# " in front of a line to set it. `autopilot-multi config` shows every setting, its value and
# where it came from.
"""
_SET = frozenset({"max-stories"})
"""What is not commented out: the one number that everybody wants to find."""
_WIDTH = 108


class Suggestion(Struct, frozen=True, kw_only=True):
    """A value for a setting, and where it was found."""

    value: str
    found: str


def settings_template(suggested: Mapping[str, Sequence[Suggestion]] | None = None) -> str:
    """Return the text of the file; a setting with one suggestion is set, with several the user chooses."""
    # In TOML a key after the head of a table would belong to the table, so tables come last.
    # What only the user may say has no place in a file of the repository.
    suitable = (declared for declared in SETTINGS.values() if not declared.setting.own)
    ordered = sorted(suitable, key=lambda declared: declared.is_table)
    entries = (_entry(declared, (suggested or {}).get(declared.key, ())) for declared in ordered)
    return "\n".join([_HEAD, *(f"{text}\n" for text in entries)])


def setting_line(key: str, value: str) -> str:
    """Return the line of the file that sets a setting."""
    return f"{key} = {_toml(SETTINGS[key], value)}"


def _entry(declared: Declared, suggestions: Sequence[Suggestion]) -> str:
    comment = _comment(_sentence(declared))
    if suggestions:
        return "\n".join([*comment, *_suggested(declared.key, suggestions)])
    prefix = "" if declared.key in _SET else "# "
    return "\n".join([*comment, *(f"{prefix}{line}".rstrip() for line in _lines(declared))])


def _suggested(key: str, suggestions: Sequence[Suggestion]) -> Iterator[str]:
    if len(suggestions) == 1:
        yield from _comment(f"Found: {suggestions[0].found}.")
        yield setting_line(key, suggestions[0].value)
        return
    yield '# Several were found; remove the "# " in front of one of them.'
    for suggestion in suggestions:
        yield from _comment(f"Found: {suggestion.found}:")
        yield f"# {setting_line(key, suggestion.value)}"


def _comment(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def _sentence(declared: Declared) -> str:
    remarks = "; ".join(_remarks(declared))
    return f"{declared.heading} ({remarks})." if remarks else f"{declared.heading}."


def _remarks(declared: Declared) -> Iterator[str]:
    if declared.range:
        yield declared.range
    if declared.alternatives:
        yield declared.alternatives
    if declared.is_table:
        return
    if not declared.default and declared.setting.example:
        yield f"{declared.shown(declared.default) or declared.setting.empty or 'empty'} by default"


def _lines(declared: Declared) -> list[str]:
    setting, default = declared.setting, declared.default
    if declared.is_table:
        return setting.example.splitlines()
    value = setting.example if setting.example and not default else default
    return [f"{declared.key} = {_toml(declared, value)}"]


def _toml(declared: Declared, value: Any) -> str:
    if declared.is_list:
        return json.dumps([value] if isinstance(value, str) else list(value))
    if declared.is_number or declared.is_switch:
        return value if isinstance(value, str) else declared.shown(value)
    return json.dumps(str(value))
