"""An answer of a service over HTTP, from the output of `gh api --include` and its kin."""

import json
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from isolation.patterns import pattern

_STATUS = pattern(rb"HTTP/[0-9.]+ ([1-5][0-9]{2})")
_NEXT = pattern(r'<([^<>]*)>\s*;[^,]*\brel="?next"?')
_OK = range(200, 300)


class Answer(Struct, frozen=True, kw_only=True):
    """Status, headers with lower-case names, and the body."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the service did what was asked."""
        return self.status in _OK

    def json(self) -> Any:
        """Return the body as a JSON value, None if it is empty; raises ValueError if it is anything else."""
        return json.loads(self.body) if self.body.strip() else None

    @property
    def is_whole(self) -> bool:
        """Whether there is a body, and nothing of it is missing."""
        try:
            return self.json() is not None
        except (ValueError, RecursionError):
            return False

    @property
    def next_url(self) -> str:
        """The address of the next page; empty on the last one."""
        found = _NEXT.search(self.headers.get("link", ""))
        return found.group(1) if found else ""

    @property
    def reason(self) -> str:
        """The reason that a refusal gives, empty if it gives none."""
        try:
            given = self.json()
        except (ValueError, RecursionError):
            return ""
        if not isinstance(given, dict):
            return ""
        message = given.get("message") or given.get("error") or ""
        details = given.get("errors")
        listed = [_detail(one) for one in details] if isinstance(details, list) else []
        return ": ".join(part for part in (str(message), "; ".join(filter(None, listed))) if part)


def _detail(error: Any) -> str:
    if not isinstance(error, dict):
        return str(error)
    if error.get("message"):
        return str(error["message"])
    return " ".join(str(error[key]) for key in ("field", "code") if key in error)


def read_answer(output: bytes) -> Answer | None:
    """Return the answer that a program printed with its headers; None if there is none."""
    head, _, body = output.replace(b"\r\n\r\n", b"\n\n", 1).partition(b"\n\n")
    lines = head.splitlines()
    status = _STATUS.match(lines[0]) if lines else None
    if status is None:
        return None
    pairs = (line.decode("utf-8", "replace").partition(":") for line in lines[1:])
    headers = {name.strip().lower(): value.strip() for name, colon, value in pairs if colon}
    return Answer(status=int(status.group(1)), headers=headers, body=body)
