"""Values of settings that are plainly right, which is most of them: they need no model.

To load pydantic takes longer than to make a plan. So it is asked only about a source with a value that is not
plainly right, or that is a table or a list with rules of its own; it knows what is wrong.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from runner.core.declaration import Declared
from runner.core.settings import SETTINGS

WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}
_UNSURE = object()


def plain_values(given: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values if every one is plainly right; None if one needs a closer look."""
    found: dict[str, Any] = {}
    for key, value in given.items():
        declared = SETTINGS.get(key)
        read = _UNSURE if declared is None else _plain(declared, value)
        if declared is None or read is _UNSURE:
            return None
        found[key] = of_type(declared, read)
    return found


def of_type(declared: Declared, value: Any) -> Any:
    """Return a checked value as the settings hold it."""
    if isinstance(declared.value_type, type) and issubclass(declared.value_type, Enum):
        return declared.value_type(value)
    return tuple(value) if isinstance(value, list) else value


def _plain(declared: Declared, value: Any) -> Any:
    setting = declared.setting
    if declared.is_table or declared.has_named_entries:
        return _UNSURE
    if declared.is_switch:
        read = WORDS.get(value.lower(), value) if isinstance(value, str) else value
        return read if isinstance(read, bool) else _UNSURE
    if declared.choices and not declared.is_list:
        return value if type(value) is str and value in declared.choices else _UNSURE
    if declared.is_list:
        ruled = setting.inside or setting.anywhere or setting.hosts or setting.choices
        listed = type(value) is list and bool(value) and all(map(_is_filled, value))
        return value if listed and not ruled else _UNSURE
    if declared.is_number:
        typed = type(value) is (int if declared.is_whole else float)
        bounds = setting.bounds
        return value if bounds and typed and bounds.low <= value <= bounds.high else _UNSURE
    return value if _is_filled(value) else _UNSURE


def _is_filled(value: Any) -> bool:
    return type(value) is str and bool(value.strip()) and "\0" not in value
