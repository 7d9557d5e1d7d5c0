"""The pydantic model that checks one source's values, built from the declarations of the settings."""

from collections.abc import Iterable
from functools import partial
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model

from isolation.network.presets import PRESETS
from isolation.network.rules import read_entry
from isolation.patterns import pattern
from runner.core.declaration import Bounds, Declared, declared_in
from runner.plan.settings.plain_values import WORDS

_VARIABLE = pattern(r"[A-Za-z_][A-Za-z0-9_]*")


def model_of(name: str, declared: Iterable[Declared]) -> type[BaseModel]:
    """Build the model of a table. Only the values that are given count; its defaults mean nothing."""
    fields: dict[str, Any] = {
        item.field: (
            _checked(item),
            Field(alias=item.key) if item.setting.required else Field(default=None, alias=item.key),
        )
        for item in declared
    }
    model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid", strict=True), **fields)
    return model


def _checked(declared: Declared) -> Any:  # noqa: PLR0911  one return for each form of value
    """Return the type that pydantic checks a value against."""
    if declared.table is not None:
        model: Any = model_of(declared.table.__name__, declared_in(declared.table))
        if declared.setting.short:
            model = Annotated[model, BeforeValidator(partial(_as_table, key=declared.setting.short))]
        return dict[Text, model] if declared.has_named_entries else model
    if declared.has_named_entries:
        return dict[Annotated[str, AfterValidator(_variable)], str]
    if declared.is_switch:
        return Annotated[bool, BeforeValidator(_switch)]
    if declared.is_list:
        return _list(declared)
    if declared.choices:
        # Where an empty text has a meaning of its own, it can be given.
        choices = (*declared.choices, *([""] if declared.setting.empty else []))
        return Annotated[str, AfterValidator(partial(_one_of, choices=choices))]
    if declared.is_number:
        return _number(declared)
    if declared.setting.separator:
        return Annotated[Text, BeforeValidator(partial(_joined, separator=declared.setting.separator))]
    return Text if declared.setting.filled else str


def _list(declared: Declared) -> Any:
    setting = declared.setting
    checks = {_inside: setting.inside, _anywhere: setting.anywhere, _host: setting.hosts}
    check = next((check for check, wanted in checks.items() if wanted), None)
    check = partial(_one_of, choices=declared.choices) if declared.choices else check
    entry: Any = Annotated[Text, AfterValidator(check)] if check else Text
    entries: Any = Annotated[list[entry], Field(min_length=1 if setting.filled else 0)]
    return Annotated[entries, BeforeValidator(_listed)] if setting.separator else entries


def _number(declared: Declared) -> Any:
    number: Any = int if declared.is_whole else Annotated[float, Field(allow_inf_nan=False)]
    bounds, unset = declared.setting.bounds, BeforeValidator(partial(_unset, word=declared.setting.absent))
    if bounds is None:
        return Annotated[number | None, unset, AfterValidator(_positive)]
    if declared.is_optional:
        return Annotated[number | None, unset]
    return number if bounds.clamped else Annotated[number, AfterValidator(partial(_within, bounds=bounds))]


# What the validators say is not shown: the message is made from the declaration.


def _filled(text: str) -> str:
    if not text.strip() or "\0" in text:
        raise ValueError("must not be empty")
    return text


def _variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("must be the name of a variable")
    return name


def _one_of(text: str, *, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise ValueError("must be one of the choices")
    return text


def _within(number: float, *, bounds: Bounds) -> float:
    if not bounds.low <= number <= bounds.high:
        raise ValueError("must be within the bounds")
    return number


def _positive(number: float | None) -> float | None:
    if number is not None and number <= 0:
        raise ValueError("must be above 0")
    return number


def _inside(path: str) -> str:
    parts = PurePosixPath(path).parts
    if path.startswith("/") or not parts or ".." in parts or parts[0] == ".git":
        raise ValueError("must name folders inside the repository")
    return path


def _anywhere(path: str) -> str:
    if not path.startswith(("~/", "/")) or ".." in PurePosixPath(path).parts:
        raise ValueError("must be a path that begins with ~/ or /")
    return path


def _host(text: str) -> str:
    if text not in PRESETS:
        read_entry(text)
    return text


def _joined(value: Any, separator: str) -> Any:
    """Return a list of texts as one text; the names in it cannot contain the separator."""
    several = isinstance(value, list) and value and all(isinstance(each, str) for each in value)
    return separator.join(value) if several else value


def _as_table(value: Any, *, key: str) -> Any:
    """Return an entry that is written as one text as the table that it stands for."""
    return {key: value} if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _unset(value: Any, *, word: str) -> Any:
    # YAML reads the word off as false.
    return None if value == word or (value is False and word == "off") else value


def _switch(value: Any) -> Any:
    """Read a switch as users write it in the environment and on the command line."""
    return WORDS.get(value.lower(), value) if isinstance(value, str) else value


Text = Annotated[str, AfterValidator(_filled)]
