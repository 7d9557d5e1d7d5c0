"""How a setting is declared, and what everything else derives from the declaration.

A setting is one field of a settings class, annotated with a `Setting`:

    max_stories: Annotated[int, Setting(help="…", bounds=Bounds(low=1, high=50), flag="--max-stories N")] = 3

The field has the name, the type and the default; the `Setting` says the rest. From both derive the checks and
their messages, the flags, the environment variables, the file that `init` writes and
`docs/reference/settings.md`. Everything here is plain data, so that `--help` stays instant.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from math import inf
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from msgspec import Struct

ENVIRONMENT_PREFIX = "AUTOPILOT_MULTI_"


class Bounds(Struct, frozen=True, kw_only=True):
    """The range of a number. A number outside is set to the nearest bound, or refused if not `clamped`."""

    low: float
    high: float = inf
    unit: str = ""
    clamped: bool = True


class Setting(Struct, frozen=True, kw_only=True):
    """What the field of a setting cannot say by itself.

    `help` is a phrase for the terminal, `details` are Markdown sentences that only the documentation adds.
    `flag` is written as in the help, such as `--max-stories N`; `flag_help` replaces `help` there for a flag
    that says the opposite, such as `--no-guard`; `flag_value` is what a flag without a value of its own sets.
    `expects` completes "must be …" where type, bounds and
    choices do not. `empty` says what an empty value means. What is `filled` must not be empty when given.
    `absent` is the word for a number that is not set, where it can be unset.

    A list with a `separator` can also be given as a single text; in an environment variable the separator
    splits it. `inside` means paths within the repository, `anywhere` paths from `~` or `/` on, `hosts` what
    can be reached in a network. What a file of the repository sets is used only after the user has agreed if
    it `asks`, and never if it is the user's `own` to say. `table` is the class that declares the keys of a
    table where the type does not. `short` is the key of an entry that a text in the place of the entry sets.
    `key` is the name in files if that is not the field's, with hyphens.
    """

    help: str
    details: str = ""
    flag: str = ""
    flag_help: str = ""
    flag_value: str = ""
    bounds: Bounds | None = None
    choices: tuple[str, ...] = ()
    expects: str = ""
    example: str = ""
    empty: str = ""
    absent: str = "off"
    filled: bool = False
    required: bool = False
    separator: str = ""
    inside: bool = False
    anywhere: bool = False
    hosts: bool = False
    asks: bool = False
    own: bool = False
    table: type | None = None
    short: str = ""
    key: str = ""


class Declared(Struct, frozen=True, kw_only=True):
    """One declared setting: its field together with its `Setting`; `default` is `...` where it has none."""

    field: str
    value_type: Any
    default: Any
    setting: Setting

    @property
    def key(self) -> str:
        """The name in files."""
        return self.setting.key or key_of(self.field)

    @property
    def variable(self) -> str:
        """The name of its environment variable."""
        return ENVIRONMENT_PREFIX + self.key.upper().replace("-", "_")

    @property
    def heading(self) -> str:
        """Its help as the beginning of a sentence."""
        return self.setting.help[:1].upper() + self.setting.help[1:]

    @property
    def option(self) -> str:
        """Its flag without the metavariable; empty when it has none."""
        return self.setting.flag.partition(" ")[0]

    @property
    def metavar(self) -> str:
        """The placeholder of the value in the help of its flag; empty for a switch."""
        return self.setting.flag.partition(" ")[2]

    @property
    def is_number(self) -> bool:
        """Whether it is a number, which may be optional."""
        return bool({int, float} & self._types)

    @property
    def is_whole(self) -> bool:
        """Whether it is a whole number."""
        return int in self._types

    @property
    def is_optional(self) -> bool:
        """Whether it can be unset, by its word for that."""
        return NoneType in self._types

    @property
    def is_switch(self) -> bool:
        """Whether it is either true or false."""
        return self.value_type is bool

    @property
    def is_list(self) -> bool:
        """Whether it is a list of texts."""
        return get_origin(self.value_type) is tuple

    @property
    def is_table(self) -> bool:
        """Whether it has keys of its own, so that only files can set it."""
        return self.table is not None or self.has_named_entries

    @property
    def has_named_entries(self) -> bool:
        """Whether it is a table whose keys the user chooses."""
        return self.setting.table is None and get_origin(self.value_type) is Mapping

    @property
    def table(self) -> type | None:
        """The class that declares the keys of the table or of its entries; None for a plain value."""
        if self.setting.table is not None:
            return self.setting.table
        # A table's type is the class of its keys, or a mapping to the class of its entries.
        inner = get_args(self.value_type)[1] if self.has_named_entries else self.value_type
        return inner if isinstance(inner, type) and declared_in(inner) else None

    @property
    def choices(self) -> tuple[str, ...]:
        """The values that it can have, as they are written; empty when they cannot be listed."""
        if self.is_switch:
            return ("true", "false")
        if isinstance(self.value_type, type) and issubclass(self.value_type, Enum):
            return tuple(str(member.value) for member in self.value_type)
        return self.setting.choices

    @property
    def allowed(self) -> str:
        """What a value must be, for messages."""
        bounds, kind = self.setting.bounds, "a whole number" if self.is_whole else "a number"
        if self.setting.expects:
            return self.setting.expects
        if self.is_table:
            return "a table"
        if self.choices:
            return " or ".join(f'"{choice}"' for choice in self.choices)
        unset = f", or {self.setting.absent}" if self.is_optional else ""
        if bounds is not None:
            within = f", {bounds.low:g} or more" if bounds.high == inf else f" from {self.range}"
            return f"{kind}{within}{unset}"
        if self.is_optional:
            return f"{kind} above 0{unset}"
        return "text that is not empty" if self.setting.filled else "text"

    @property
    def range(self) -> str:
        """The bounds of a number, in words; empty when it has none."""
        bounds = self.setting.bounds
        return "" if bounds is None else f"{bounds.low:g} to {bounds.high:g}"

    @property
    def alternatives(self) -> str:
        """The choices in a sentence; empty for a switch, which needs no explanation."""
        *others, last = self.choices or ("",)
        return "" if self.is_switch else f"{', '.join(others)} or {last}" if others else last

    @property
    def sample(self) -> str:
        """A value to show to the user: the example, or else the default."""
        return self.setting.example or self.shown(self.default)

    def shown(self, value: object) -> str:
        """Write a value of this setting as the user would."""
        return self.setting.absent if value is None else shown_value(value)

    @property
    def _types(self) -> set[Any]:
        return {self.value_type, *get_args(self.value_type)}


def key_of(field_name: str) -> str:
    """Return the key of a field: `continue_` is `continue`, `max_stories` is `max-stories`."""
    return field_name.rstrip("_").replace("_", "-")


def declared_in(cls: type, defaults: object = None) -> tuple[Declared, ...]:
    """Return the settings that a class declares, in its order; `defaults` is an instance of it."""
    return tuple(
        Declared(field=name, value_type=value_type, default=getattr(defaults, name, ...), setting=setting)
        for name, value_type, setting in _annotated(cls)
    )


@cache
def _annotated(cls: type) -> tuple[tuple[str, Any, Setting], ...]:
    """Return the fields of a class that are settings, each with its type; asked many times for each class."""
    found = []
    for name, hint in get_type_hints(cls, include_extras=True).items():
        settings = [item for item in get_args(hint)[1:] if isinstance(item, Setting)]
        if get_origin(hint) is Annotated and settings:
            found.append((name, get_args(hint)[0], settings[0]))
    return tuple(found)


def find(keys: Iterable[str], declared: Iterable[Declared]) -> tuple[Declared | None, tuple[Declared, ...]]:
    """Find what the dotted `keys` name among `declared`, and everything that is declared beside it.

    Keys that end at the name of an entry, such as an agent, name its table; keys inside a plain value name
    the value.
    """
    found, beside = None, tuple(declared)
    inner, skip = beside, False
    for key in keys:
        if skip:  # the user's own name of an entry
            skip = False
            continue
        if not inner:
            break
        beside = inner
        found = next((item for item in beside if item.key == key), None)
        if found is None:
            break
        inner = declared_in(found.table) if found.table else ()
        skip = found.has_named_entries
    return found, beside


def shown_value(value: object) -> str:
    """Write a value as the user would; one that is not set has a word of its own in each setting."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ", ".join(value)
    return f"{value:g}" if isinstance(value, int | float) else str(value)
