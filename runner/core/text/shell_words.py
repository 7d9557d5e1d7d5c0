"""Which programs a shell command is certain to start, as far as that can be seen without a shell."""

import shlex
from collections.abc import Iterator

from isolation.patterns import pattern

_BUILTIN = pattern(
    r"[.:\[]|alias|bg|break|cd|command|continue|echo|eval|exec|exit|export|false|fg|getopts|hash|jobs|kill"
    r"|printf|pwd|read|readonly|return|set|shift|test|times|trap|true|type|ulimit|umask|unalias|unset|wait"
)
_RESERVED = pattern(r"[!{}]|case|do|done|elif|else|esac|fi|for|function|if|in|then|until|while")
_CHANGES_WHERE = frozenset({".", "cd", "eval", "exec", "alias", "hash", "export"})
"""Builtins after which a program may be found somewhere else."""
_ASSIGNMENT = pattern(r"[A-Za-z_][A-Za-z_0-9]*=")
_PLAIN = pattern(r"[A-Za-z0-9_./+@:%~-]+")
_OR = "||"
_ENDS = frozenset({"&&", ";", "|", _OR})


def programs_of(command: str) -> Iterator[str]:
    """Yield the first word of every simple command that runs in any case, without those of the shell itself.

    What is behind `||`, in a compound command or made by an expansion is uncertain, and left out.
    """
    for words, end in _simple_commands(command):
        name = next((word for word in words if not _ASSIGNMENT.match(word)), "")
        if end == _OR or _RESERVED.fullmatch(name) or name in _CHANGES_WHERE:
            return
        if _BUILTIN.fullmatch(name):
            continue
        if not _PLAIN.fullmatch(name) or name.startswith("~") or (words[0] != name and "PATH" in words[0]):
            return
        yield name


def _simple_commands(command: str) -> Iterator[tuple[list[str], str]]:
    """Yield the words of each simple command with the operator behind it; stop at what is not one."""
    # A script of several lines may have functions and documents in it; its first line is what can be judged.
    lexer = shlex.shlex(command.strip().partition("\n")[0], posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words: list[str] = []
    try:
        for token in lexer:
            if token in _ENDS:
                yield words, token
                words = []
            elif set(token) <= set("();<>|&"):
                # A redirection is one more word; anything else begins a subshell, a function or an expansion.
                if not set(token) <= set("<>&"):
                    if words and words[-1].endswith("$"):
                        yield words, ""
                    return
                words.append(token)
            else:
                words.append(token)
    except ValueError:
        return  # an open quote: the shell will say so
    yield words, ""
