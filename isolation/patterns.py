"""Regular expressions that are compiled at their first use.

Compiling one takes longer than loading most modules, and a command uses few of those that it loads.
"""

import re
from typing import Any, AnyStr


def pattern(text: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return what `re.compile` would; it is compiled when one of its methods is first asked for."""
    return _Pattern(text, flags)  # type: ignore[return-value]  # it has all that a pattern has


class _Pattern:
    """Stands for a pattern; after the first use of a method it holds that of the compiled one."""

    def __init__(self, text: str | bytes, flags: int) -> None:
        self._source = (text, flags)

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(*self._source), name)  # type: ignore[type-var]  # `re` keeps what it compiled
        setattr(self, name, found)
        return found
