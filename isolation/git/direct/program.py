"""Where git is, and what makes a command take only what the machine has to spare."""

import shutil
from functools import cache


@cache
def git_program(path: str | None) -> str:
    """Find git once: otherwise each start tries all folders of PATH, while all threads are blocked."""
    return shutil.which("git", path=path) or "git"


@cache
def polite_prefix(path: str | None) -> tuple[str, ...]:
    """Return what lowers the priority of a command, for the processor and the disk, as far as it is here."""
    known = (("nice", "-n", "19"), ("ionice", "-c", "3", "-t"))
    found = ((shutil.which(words[0], path=path), words[1:]) for words in known)
    return tuple(part for program, words in found if program for part in (program, *words))
