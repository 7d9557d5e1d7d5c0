"""Removes keys and passwords from everything that is kept: by their form, and by the environment.

Every check begins with a plain search, so that text without secrets costs almost nothing.
"""

import json
import re
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, TypeVar

from msgspec import Struct, structs

from isolation.patterns import pattern

REDACTED = "[redacted]"
SHORTEST = 8
"""Shorter values of variables are not secrets, and would be found everywhere."""
LONGEST_LINE = 1 << 16

_NAMES = pattern(
    r"(?:^|_)(?:\w*KEY|\w*TOKEN|\w*SECRET|\w*PASSWORD|\w*PASSWD|\w*PASSPHRASE|CREDENTIALS?|PAT|AUTH)S?$"
)
_OURS = "AUTOPILOT_"
_T = TypeVar("_T")

_HEADER = r"(?i:\bauthorization)[\s\"'\\]*[:=][\s\"'\\]*(?i:basic|bearer|token)\s+[A-Za-z0-9+/=._~-]{8,}"
_USERS = ("", "x-access-token:", "oauth2:", "gitlab-ci-token:")
"""With which users a token is encoded when git sends it."""

_FORMS: tuple[tuple[str, str], ...] = (
    ("sk-", r"\bsk-[A-Za-z0-9_-]{16,}"),
    ("sk_", r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    ("ghp_", r"\bghp_[A-Za-z0-9]{20,}"),
    ("gho_", r"\bgho_[A-Za-z0-9]{20,}"),
    ("ghs_", r"\bghs_[A-Za-z0-9]{20,}"),
    ("ghu_", r"\bghu_[A-Za-z0-9]{20,}"),
    ("github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{20,}"),
    ("glpat-", r"\bglpat-[A-Za-z0-9_-]{16,}"),
    ("xox", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("AKIA", r"\bAKIA[A-Z0-9]{16}\b"),
    ("AIza", r"\bAIza[A-Za-z0-9_-]{30,}"),
    ("hf_", r"\bhf_[A-Za-z0-9]{30,}"),
    ("npm_", r"\bnpm_[A-Za-z0-9]{30,}"),
    ("eyJ", r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
    # As git sends them to a remote: `http.<url>.extraheader = AUTHORIZATION: basic …`.
    ("AUTHORIZATION", _HEADER),
    ("Authorization", _HEADER),
    ("authorization", _HEADER),
    ("PRIVATE KEY-----", r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:(?!-----END).)*"),
)
_TEXT = tuple((literal, pattern(form, re.DOTALL)) for literal, form in _FORMS)
_DATA = tuple((literal.encode(), pattern(form.encode(), re.DOTALL)) for literal, form in _FORMS)


_WORDLESS = frozenset((bool, int, float))
"""Types whose values have no text."""


def is_secret(name: str) -> bool:
    """Return whether a variable holds a secret, judged by its name."""
    return not name.startswith(_OURS) and _NAMES.search(name.upper()) is not None


def secret_variables(environ: Mapping[str, str], named: Collection[str] = ()) -> frozenset[str]:
    """Return the variables that hold a secret: those `named`, others by their name or the form of a value."""
    return _secret_variables(tuple(environ.items()), frozenset(named))


@lru_cache(maxsize=8)
def _secret_variables(environ: tuple[tuple[str, str], ...], named: frozenset[str]) -> frozenset[str]:
    """Do the same for an environment that is asked about for every session, and hardly ever changes."""
    return frozenset(name for name, value in environ if name in named or is_secret(name) or _has_form(value))


def _has_form(text: str) -> bool:
    return any(literal in text and form.search(text) for literal, form in _TEXT)


class Redactor:
    """Removes secrets of known forms, and the values of variables whose names mark them as secret.

    `named` are variables that are secret whatever their names look like, `also` are further secret values.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        named: Collection[str] = (),
        also: Iterable[str] = (),
    ) -> None:
        known = (value for name, value in (environ or {}).items() if is_secret(name) or name in named)
        values = {form for value in (*known, *also) for form in _forms(value)}
        self._values = sorted(values, key=len, reverse=True)
        self._data = [value.encode("utf-8", "surrogateescape") for value in self._values]

    def text(self, text: str) -> str:
        """Return the text without its secrets."""
        for value in self._values:
            if value in text:
                text = text.replace(value, REDACTED)
        for literal, form in _TEXT:
            if literal in text:
                text = form.sub(REDACTED, text)
        return text

    def data(self, data: bytes) -> bytes:
        """Return the bytes without their secrets."""
        for value in self._data:
            if value in data:
                data = data.replace(value, REDACTED.encode())
        for literal, form in _DATA:
            if literal in data:
                data = form.sub(REDACTED.encode(), data)
        return data

    def value(self, value: _T) -> _T:
        """Return a JSON value, or a dataclass of such, without the secrets in its texts."""
        return self._cleaned(value)  # type: ignore[no-any-return]  # it keeps its type

    def _cleaned(self, value: Any) -> Any:
        if type(value) is str:  # an enum's value is our own
            return self.text(value)
        if isinstance(value, tuple | list):
            return type(value)(self._cleaned(item) for item in value)
        if isinstance(value, Struct):
            changed = {}
            for name in value.__struct_fields__:
                old = getattr(value, name)
                if old and type(old) not in _WORDLESS and (clean := self._cleaned(old)) != old:
                    changed[name] = clean
            return structs.replace(value, **changed) if changed else value
        if isinstance(value, Mapping):  # last, since the first look at each class for it is slow
            return {name: self._cleaned(item) for name, item in value.items()}
        return value


class RedactedStream:
    """Removes secrets from a stream of bytes, even when chunks split them: it works on whole lines."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return what can be passed on so far."""
        data = self._held + chunk if self._held else chunk
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end and len(data) > LONGEST_LINE:
            end = len(data)  # no secret is that long, and memory must stay bounded
        self._held = data[end:]
        return self._redactor.data(data[:end]) if end else b""

    def rest(self) -> bytes:
        """Return what is left at the end."""
        held, self._held = self._held, b""
        return self._redactor.data(held)


def _forms(value: str) -> Iterator[str]:
    """Yield the ways in which a secret may be printed: each line plain, as JSON, and as git sends it.

    A path says where a secret is stored; it is not a secret itself.
    """
    for line in value.splitlines() if not value.startswith(("/", "~")) else ():
        if len(line.strip()) >= SHORTEST:
            yield line
            yield json.dumps(line)[1:-1]
            yield json.dumps(line, ensure_ascii=False)[1:-1]
            for user in _USERS:
                yield b64encode((user + line).encode("utf-8", "surrogateescape")).decode()
