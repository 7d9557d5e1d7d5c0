"""What must not leave the machine: the values of variables whose names say that they are secret.

A CI system hides them in what a job prints, and not in the files that the job keeps. Ours are written
through a veil. What an agent commits is beyond it.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

HIDDEN = "***"
_SECRET = re.compile(
    r"TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|_PAT$|_AUTH$",
    re.IGNORECASE,
)
_SHORTEST = 8
"""Shorter values are words that stand everywhere; hiding them would hide nothing and garble much."""


class Veil:
    """Replaces every secret of an environment in text, bytes and JSON values."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        found = _secrets(environ)
        # What JSON writes differently would slip through where a log holds JSON.
        forms = {form for secret in found for form in (secret, json.dumps(secret)[1:-1])}
        longest_first = sorted(forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if forms else None
        encoded = [re.escape(form.encode(errors="surrogateescape")) for form in longest_first]
        self._bytes = re.compile(b"|".join(encoded)) if forms else None

    def text(self, text: str) -> str:
        """Give the text without secrets."""
        return self._pattern.sub(HIDDEN, text) if self._pattern else text

    def data(self, data: bytes) -> bytes:
        """Give the bytes without secrets."""
        return self._bytes.sub(HIDDEN.encode(), data) if self._bytes else data

    def json(self, value: Any) -> Any:
        """Give a JSON value whose texts have no secrets; keys stay."""
        if self._pattern is None:
            return value
        match value:
            case str():
                return self.text(value)
            case dict():
                return {key: self.json(item) for key, item in value.items()}
            case list() | tuple():
                return [self.json(item) for item in value]
            case _:
                return value


def _secrets(environ: Mapping[str, str]) -> set[str]:
    found: set[str] = set()
    for name, value in environ.items():
        # A path tells where a secret lies, and is none.
        if _SECRET.search(name) and not value.startswith(("/", "~")):
            found.update(part.strip() for part in (value, *value.splitlines()))
    return {value for value in found if len(value) >= _SHORTEST}
