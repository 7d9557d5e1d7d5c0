"""Whether an agent goes in circles, judged by what its attempts left behind and not by what it says.

Two patterns count: the same change made, undone and made again, and the same command that fails with
the same output three times. Meaningless differences between runs, such as times and addresses, are
ignored; counts are not, since fewer failures are progress.
"""

import re
from collections.abc import Sequence

SAME_FAILURES = 3
_TURN = 4  # before, changed, undone, changed again

# Compiled when a failure is folded, and cached by `re`: `status` of a run without one need not wait for it.
_NOISE = (
    (r"0x[0-9a-fA-F]+", "0x"),
    (r"\d{4}-\d\d-\d\d[T ]?", ""),
    (r"\d{1,2}:\d\d(:\d\d)?([.,]\d+)?Z?", "<time>"),
    (r"\d+(\.\d+)?\s*(µs|ms|s|secs?|seconds?|mins?|minutes?)\b", "<time>"),
    (r"/tmp/[\w./-]+", "<temporary>"),  # noqa: S108  a pattern, not a file
)


def failure_digest(reason: str, output: str) -> str:
    """Return what identifies a failure, regardless of times and addresses in its output."""
    import hashlib

    text = f"{reason}\n{output}"
    for pattern, instead in _NOISE:
        text = re.sub(pattern, instead, text)
    return hashlib.sha256(" ".join(text.split()).encode(errors="replace")).hexdigest()


def same_failure(digests: Sequence[str]) -> bool:
    """Return whether the newest failures of a step were all the same."""
    newest = digests[-SAME_FAILURES:]
    return len(newest) == SAME_FAILURES and len(set(newest)) == 1


def undone_and_redone(trees: Sequence[str]) -> bool:
    """Return whether the contents, at the start and after each session, alternate."""
    turns = [tree for number, tree in enumerate(trees) if not number or tree != trees[number - 1]]
    return len(turns) >= _TURN and turns[-1] == turns[-3] and turns[-2] == turns[-4]
