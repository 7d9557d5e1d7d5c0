"""What `git merge-tree --write-tree --name-only` answers, with NULs.

A merge can conflict without a file in conflict: where a folder was renamed in two directions, only a message
says so. By its files alone such a merge would look clean.
"""

from collections.abc import Sequence

from msgspec import Struct

from isolation.git.repository import GitOutput

_CLEAN = "1"
_CONFLICT = "CONFLICT"


class Answer(Struct, frozen=True, kw_only=True):
    """One merge: whether it is clean; if it is not, the paths in conflict, which may be none."""

    clean: bool
    files: tuple[str, ...] = ()


def read_answers(text: str) -> list[Answer]:
    """Read what `--stdin --no-messages` answers: status, tree, paths and an empty field for each merge."""
    fields = text.split("\0")
    answers: list[Answer] = []
    at = 0
    while at < len(fields) and fields[at]:
        end = fields.index("", at)
        answers.append(_answer(fields[at:end]))
        at = end + 1
    return answers


def _answer(fields: Sequence[str]) -> Answer:
    status, _tree, *files = fields
    clean = status == _CLEAN
    return Answer(clean=clean, files=() if clean else tuple(dict.fromkeys(files)))


def named_in_messages(output: GitOutput) -> tuple[str, ...]:
    """Return the paths that the messages on conflicts name, where no file is in conflict.

    A message is the number of its paths, the paths, its kind and its text; what follows is for people.
    """
    _files, _, messages = output.stdout.partition("\0\0")
    fields = messages.split("\0")
    named: list[str] = []
    at = 0
    while at < len(fields) and fields[at].isascii() and fields[at].isdigit():
        kind_at = at + 1 + int(fields[at])
        if kind_at < len(fields) and fields[kind_at].startswith(_CONFLICT):
            named += fields[at + 1 : kind_at]
        at = kind_at + 2
    return tuple(dict.fromkeys(named))
