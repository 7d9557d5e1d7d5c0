"""A story that a landing left out: the evidence, and what the prompt of another try says."""

from collections.abc import Sequence

from msgspec import Struct

CONFLICT, RED, RED_TOGETHER, DEPENDENCY = "conflict", "red", "red-together", "dependency"
"""Why a story was left out."""

RETRY, RESOLVE, SKIP = "retry", "resolve", "skip"
"""What the user can decide about it."""


class Retry(Struct, frozen=True, kw_only=True):
    """Another try on a newer tip of the target: the branch moves from `old` to `commit`, on top of `base`.

    `commit` joins both. `files` are in conflict there, and have markers. `fresh`: it has the files of the
    target alone, since a plain command makes its changes again.
    """

    base: str
    old: str
    commit: str
    files: tuple[str, ...] = ()
    fresh: bool = False


class LeftOut(Struct, frozen=True, kw_only=True):
    """Why a landing on `onto` left out the story whose branch was at `tip`, and with which evidence.

    `others` are the stories that it conflicts or is red with, `command` what failed and `output` its telling
    lines. `fork` is set if only the changes since then count, since something below landed as other commits.
    """

    landing_id: str
    onto: str
    tip: str
    why: str
    reason: str
    files: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    command: str = ""
    output: tuple[str, ...] = ()
    log: str = ""
    fork: str = ""
    retry: Retry | None = None


def words_for_session(left: LeftOut, title_of: dict[str, str]) -> str:
    """Return what the session of another try must know; empty if there is none."""
    retry = left.retry
    if retry is None:
        return ""
    lines = [
        f"This story was done, but its work could not land on `{left.onto}`: {left.reason}.",
        f"Your branch now has `{left.onto}` as it is today ({retry.base[:10]}).",
        f"Your earlier work is commit {retry.old[:10]}.",
    ]
    if retry.fresh:
        lines.append(f"The files are those of `{left.onto}`; make your changes there again.")
    elif retry.files:
        lines += [
            "Both are merged, and these files are in conflict:",
            *(f"- {path}" for path in retry.files),
            "Keep in them what both sides want, and leave no conflict marker.",
        ]
    else:
        lines.append("Both are merged without a conflict; make them work together.")
    lines += [f"The other side is story {name}: {title_of.get(name, name)}" for name in left.others]
    if left.command:
        lines += [f"This command failed on the joined work: `{left.command}`", *_quoted(left.output)]
    return "\n".join(lines)


def _quoted(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]
