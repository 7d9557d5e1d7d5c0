"""What a shell command says about itself: the files that it runs and names, and the program that was missing.

Only what is certain counts: a word with a variable or a pattern in it names no file, and nothing behind a
`cd` is relative to the workspace any more.
"""

import shlex
from collections.abc import Iterable

from msgspec import Struct

from isolation.patterns import pattern

CANNOT_START = frozenset({126, 127})
"""The exit codes of a shell for a program that it cannot run, and for one that it cannot find."""

_LAST_LINES = 30
_NOT_LITERAL = frozenset("$*?[]{}~`\\!=%")
_ASSIGNMENT = pattern(r"[A-Za-z_][A-Za-z0-9_]*=")
_OPERATOR = pattern(r"[();<>|&]+")
_WORDS_BEFORE_A_PROGRAM = frozenset(
    {"if", "then", "else", "elif", "do", "while", "until", "!", "{", "}", "time", "exec", "command", "nohup"}
    | {"nice", "env", "sudo"}
)
_INTERPRETERS = frozenset(
    {"sh", "bash", "dash", "zsh", "ksh", ".", "source", "python", "python3", "node", "ruby", "perl", "php"}
)
_MOVES = frozenset({"cd", "pushd"})

_QUOTES = "'\"\u2018\u2019"
_QUOTED = rf"[{_QUOTES}]?(?P<name>[^:{_QUOTES}]+)[{_QUOTES}]?"
_WHERE = r"^(?:\S[^:]*: )(?:line \d+: |\d+: )?"
_NAMED = tuple(
    pattern(form)
    for form in (
        r"command not found: (?P<name>\S+)$",
        rf"(?:env|nice|nohup|xargs): {_QUOTED}: (?:No such file or directory|Permission denied)",
        rf"failed to run command {_QUOTED}",
        _WHERE + r"(?P<name>[^:]+): (?:command )?not found$",
        _WHERE + r"(?P<name>[^:]+): (?:Permission denied|cannot execute.*|Exec format error)$",
        _WHERE + r"(?P<name>[^:]+): (?:Is a directory|No such file or directory)$",
        r": (?P<name>/[^:]+): bad interpreter",
    )
)


class CommandWords(Struct, frozen=True, kw_only=True):
    """The words of a command that may name files: `scripts` are those that it runs."""

    scripts: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


def missing_program(exit_code: int | None, output: str) -> str:
    """Return the program that a shell could not start, as its last lines name it; empty if there is none.

    A script may use the same exit codes for reasons of its own. It then prints no such line.
    """
    if exit_code not in CANNOT_START:
        return ""
    for line in reversed(output.splitlines()[-_LAST_LINES:]):
        for form in _NAMED:
            if found := form.search(line.strip()):
                return found["name"].strip()
    return ""


def is_of_the_machine(program: str) -> bool:
    """Whether a program has its place outside the tree; one with a relative path may be a story's work."""
    return bool(program) and ("/" not in program or program.startswith("/"))


def cannot_start(what: str, program: str, exit_code: int | None) -> tuple[str, str]:
    """Return why something cannot start, and what to do about it."""
    how = f"exit code {exit_code}" if exit_code is not None else "it was not found"
    why = f"{what} cannot start: {program} is not installed here, or not on PATH ({how})"
    hint = (
        f"make `{program}` work in a fresh checkout (install it, activate its environment, or prepare "
        "workspaces with the hook after_create), then run again."
    )
    return why, hint


def words_of(command: str | Iterable[str]) -> CommandWords:
    """Read a shell command, or an argv."""
    if isinstance(command, str):
        return _read(_tokens(command))
    argv = list(command)
    if argv[:2] == ["sh", "-c"] and len(argv) == 3:  # noqa: PLR2004  a command that is one text has this form
        return _read(_tokens(argv[2]))
    return _read(argv)


def _tokens(command: str) -> list[str]:
    lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:  # a quotation that does not end
        return []


def _read(tokens: list[str]) -> CommandWords:
    scripts: list[str] = []
    names: list[str] = []
    program, before = "", ""
    for token in tokens:
        previous, before = before, token
        if _OPERATOR.fullmatch(token):
            if "()" in token:
                return CommandWords()  # a function, whose name looks like that of a program
            program = program if token[0] in "<>" else ""
        elif previous.startswith(">"):
            continue  # it is written, so it need not be there
        elif program in _INTERPRETERS:
            # Behind an option only the interpreter knows what is a script.
            scripts += [] if token.startswith("-") else _literal(token)
            program = " "
        elif program:
            names += [] if token.startswith("-") else _literal(token)
        elif not (token in _WORDS_BEFORE_A_PROGRAM or token.startswith("-") or _ASSIGNMENT.match(token)):
            program = token
            if token in _MOVES:
                break
            scripts += _literal(token) if "/" in token else []
    return CommandWords(scripts=tuple(dict.fromkeys(scripts)), names=tuple(dict.fromkeys(names)))


def _literal(word: str) -> list[str]:
    return [] if not word or _NOT_LITERAL & set(word) else [word]
