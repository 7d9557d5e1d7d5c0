"""GitHub's expressions, as far as the shipped workflows use them; anything else is an error."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

Contexts: TypeAlias = Mapping[str, Any]
Functions: TypeAlias = Mapping[str, Callable[..., Any]]

_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>\d+(?:\.\d+)?)|(?P<sign>&&|\|\||==|!=|<=|>=|[<>!()\[\],.])"
    r"|(?P<name>[A-Za-z_][\w-]*))"
)
_TEMPLATE = re.compile(r"\$\{\{(.*?)\}\}", re.DOTALL)


def render(text: Any, contexts: Contexts, functions: Functions) -> Any:
    """Replace the expressions in a value of a workflow. A text that is one expression becomes its value."""
    if isinstance(text, Mapping):
        return {name: render(value, contexts, functions) for name, value in text.items()}
    if isinstance(text, list):
        return [render(value, contexts, functions) for value in text]
    if not isinstance(text, str):
        return text
    whole = _TEMPLATE.fullmatch(text.strip())
    if whole and "${{" not in whole[1]:
        return evaluate(whole[1], contexts, functions)
    return _TEMPLATE.sub(lambda found: as_text(evaluate(found[1], contexts, functions)), text)


def evaluate(source: str, contexts: Contexts, functions: Functions) -> Any:
    """Return the value of an expression."""
    parser = _Parser(source, contexts, functions)
    value = parser.either()
    assert parser.at_end, f"cannot read the expression {source!r}"
    return value


def has_status_check(condition: str) -> bool:
    """Whether a condition asks for a status itself; all others are true only after success."""
    return re.search(r"\b(always|cancelled|success|failure)\(\)", condition) is not None


def as_text(value: object) -> str:
    """Return a value as GitHub puts it into a text."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def truth(value: object) -> bool:
    """Whether a value counts as true."""
    return value not in (None, False, 0, "")


def standard_functions(status: str, *, cancelled: bool) -> Functions:
    """Return the functions of an expression, for the status of what came before."""
    return {
        "always": lambda: True,
        "cancelled": lambda: cancelled,
        "success": lambda: status == "success" and not cancelled,
        "failure": lambda: status == "failure",
        "fromJSON": json.loads,
        "format": lambda text, *values: text.format(*map(as_text, values)),
        "join": lambda values, between=",": between.join(as_text(one) for one in values or []),
    }


class _Parser:
    def __init__(self, source: str, contexts: Contexts, functions: Functions) -> None:
        self._tokens: list[tuple[str, str]] = []
        at, source = 0, source.strip()
        while at < len(source):
            found = _TOKEN.match(source, at)
            assert found is not None, f"cannot read the expression {source!r}"
            assert found.lastgroup is not None
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        self._contexts = contexts
        self._functions = functions

    @property
    def at_end(self) -> bool:
        return not self._tokens

    def _take(self, *signs: str) -> str:
        if self._tokens and self._tokens[0] in [("sign", sign) for sign in signs]:
            return self._tokens.pop(0)[1]
        return ""

    def either(self) -> Any:
        value = self._both()
        while self._take("||"):
            other = self._both()
            value = value if truth(value) else other
        return value

    def _both(self) -> Any:
        value = self._compared()
        while self._take("&&"):
            other = self._compared()
            value = other if truth(value) else value
        return value

    def _compared(self) -> Any:
        value = self._single()
        while sign := self._take("==", "!=", "<=", ">=", "<", ">"):
            value = _compare(sign, value, self._single())
        return value

    def _single(self) -> Any:
        if self._take("!"):
            return not truth(self._single())
        if self._take("("):
            value = self.either()
            assert self._take(")")
            return value
        kind, text = self._tokens.pop(0)
        if kind == "text":
            return text[1:-1].replace("''", "'")
        if kind == "number":
            return float(text)
        assert kind == "name", text
        if text in {"true", "false", "null"}:
            return {"true": True, "false": False, "null": None}[text]
        return self._call(text) if self._take("(") else self._path(text)

    def _call(self, name: str) -> Any:
        arguments = []
        while not self._take(")"):
            arguments.append(self.either())
            self._take(",")
        value = self._functions[name](*arguments)
        return self._members(value)

    def _path(self, name: str) -> Any:
        assert name in self._contexts, f"there is no context {name} here"
        return self._members(self._contexts[name])

    def _members(self, value: Any) -> Any:
        while sign := self._take(".", "["):
            if sign == ".":
                name = self._tokens.pop(0)[1]
                value = value.get(name) if isinstance(value, Mapping) else None
                continue
            index = self.either()
            assert self._take("]")
            fits = isinstance(value, Sequence) and int(index) < len(value)
            value = value[int(index)] if fits else None
        return value


def _compare(sign: str, left: object, right: object) -> bool:
    if isinstance(left, str) and isinstance(right, str):
        one: Any = left.lower()
        other: Any = right.lower()
    else:
        one, other = _number(left), _number(right)
    compared = {
        "==": one == other,
        "!=": one != other,
        "<": one < other,
        "<=": one <= other,
        ">": one > other,
        ">=": one >= other,
    }
    return bool(compared[sign])


def _number(value: object) -> float:
    if value is None or value == "":
        return 0.0
    try:
        return float(value)  # type: ignore[arg-type]  # what is no number is none for GitHub, too
    except (TypeError, ValueError):
        return float("nan")
