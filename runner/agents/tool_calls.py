"""What an agent's tool calls say about its context: the files that they read, and how they ended.

Agents name their tools and cut their results in different ways; all of them are recognized here.
"""

import re
import shlex
from typing import Any

from isolation.patterns import pattern
from runner.agents.json_line import text
from runner.core.limits.context_zone import ToolResult

_READERS = frozenset({"read", "read_file", "read_many_files", "view", "notebookread"})
_SHELLS = frozenset({"bash", "shell", "run_shell_command", "command execution"})
_PATHS = ("file_path", "filePath", "absolute_path", "notebook_path", "path")
_PRINTS = frozenset({"cat", "head", "less", "more", "nl", "sed", "tail"})
_MAY_PRINT = pattern(rf"\b(?:{'|'.join(sorted(_PRINTS))})\b")
_OPERATORS = frozenset("();<>|&")
_UNITS = r"(?:lines?|characters?|chars?|bytes?|tokens?)"
_TRUNCATED = pattern(
    rf"\d[\d,]* {_UNITS} truncated"
    r"|[\[(<][^\])>\n]{0,80}\btruncated\b"
    r"|\.{3} ?truncated\b|\btruncated ?(?:\.{3}|…)"
    r"|\boutput (?:is |was )?too large\b|\boutput (?:was )?truncated\b"
    r"|\bexceeds maximum allowed tokens\b"
    rf"|\bomitted \d+ (?:of \d+ )?{_UNITS}",
    re.IGNORECASE,
)
_NOTICES = ("truncated", "too large", "exceeds maximum", "omitted")
"""What every notice has: most results have none of these, and finding that out is cheap."""
_REFUSED = pattern(r"requires approval|requested permissions? to|permission to use", re.IGNORECASE)
_EDGE = 4000
"""A notice is at the beginning or the end of a result, or between its halves; a quotation may be anywhere."""


def files_read(tool: str, arguments: Any) -> tuple[str, ...]:
    """Return the files that a tool call reads, as far as its arguments say so."""
    name = tool.lower()
    if name in _SHELLS:
        return _printed(text(arguments, "command"))
    if name not in _READERS or not isinstance(arguments, dict):
        return ()
    several = arguments.get("paths")
    if isinstance(several, list):
        return tuple(path for path in several if isinstance(path, str))
    return tuple(path for key in _PATHS if (path := text(arguments, key)))[:1]


def tool_result(tool_id: str, content: Any, *, failed: bool = False, truncated: bool = False) -> ToolResult:
    """Return how a tool call ended; a refused permission is not a failure of the tool."""
    words = words_of(content)
    return ToolResult(
        id=tool_id,
        size=len(words),
        truncated=truncated or _has_notice(words),
        failed=failed and not _REFUSED.search(words[:_EDGE]),
    )


def words_of(content: Any) -> str:
    """Return the text of a result: a text, or a list of blocks that may be texts."""
    if isinstance(content, list):
        return "\n".join(text(block, "text") for block in content)
    return content if isinstance(content, str) else ""


def _has_notice(words: str) -> bool:
    middle = len(words) // 2
    parts = [words]
    if len(words) > 2 * _EDGE:
        parts = [words[:_EDGE], words[-_EDGE:], words[middle - _EDGE : middle + _EDGE]]
    return any(_may_be_notice(part) and _TRUNCATED.search(part) for part in parts)


def _may_be_notice(words: str) -> bool:
    lower = words.lower()
    return any(notice in lower for notice in _NOTICES)


def _printed(command: str) -> tuple[str, ...]:
    """Return the files that a shell command prints with the usual programs."""
    if not _MAY_PRINT.search(command):
        return ()  # splitting it into words is slow
    lexer = shlex.shlex(command[:_EDGE], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[str] = []
    simple: list[str] = []
    try:
        for token in (*lexer, ";"):
            if not set(token) <= _OPERATORS:
                simple.append(token)
                continue
            found += _printed_by(simple)
            simple = []
    except ValueError:
        return ()  # an open quote
    return tuple(found)


def _printed_by(words: list[str]) -> tuple[str, ...]:
    program, *arguments = words or [""]
    program = program.rpartition("/")[2]
    if program in {"sh", "bash", "zsh"} and arguments[:1] in (["-c"], ["-lc"]):
        return _printed(" ".join(arguments[1:2]))
    if program not in _PRINTS:
        return ()
    plain = [word for word in arguments if not word.startswith("-") and not word.isdigit()]
    return tuple(plain[1:] if program == "sed" else plain)
