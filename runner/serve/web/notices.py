"""What an action has to say, shown once on the page that follows it."""

import secrets
from collections import OrderedDict

from msgspec import Struct

MOST = 100


class Notice(Struct, frozen=True, kw_only=True):
    """One message; `bad` if nothing was done."""

    text: str
    hint: str = ""
    bad: bool = False


class Notices:
    """Keeps messages by a name that goes into the address; the text itself never does."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Notice] = OrderedDict()

    def keep(self, notice: Notice) -> str:
        """Keep a message for one page; return its name."""
        name = secrets.token_urlsafe(8)
        self._kept[name] = notice
        while len(self._kept) > MOST:
            self._kept.popitem(last=False)
        return name

    def take(self, name: str) -> Notice | None:
        """Return a message, once."""
        return self._kept.pop(name, None)
