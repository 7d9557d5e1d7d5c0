"""Asks the user before anything of a repository's own files runs that they have not agreed to yet."""

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from runner.cli.output import Output

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from runner.core.trust import Asked, Demand


def require_consent(
    repository: "Repository",
    demands: "Sequence[Demand]",
    *,
    trust: str,
    output: Output,
    ask: bool = True,
    elsewhere: bool = False,
) -> None:
    """Return if everything is agreed to; otherwise ask at the terminal, or refuse with what to type.

    `elsewhere`: it is another repository than the one in which the command was given.
    """
    from runner.plan.trust.agreed import TrustError, not_agreed_yet, refusal

    asked = not_agreed_yet(repository, demands, trust=trust, environ=os.environ)
    if not asked:
        return
    if not ask or not can_ask(output):
        whose = str(repository.top) if elsewhere else "this repository"
        hint = "`autopilot-multi trust` shows everything and asks; --trust agrees for this time."
        raise refusal(asked, hint=hint, whose=whose)
    sys.stderr.write(listing(repository, asked, demands, elsewhere=elsewhere) + "\n")
    if not asks_to_agree(repository, asked):
        raise TrustError("you did not agree, so nothing was run", hint="`autopilot-multi trust` asks again.")


def listing(
    repository: "Repository",
    asked: "Sequence[Asked]",
    demands: "Sequence[Demand]",
    *,
    elsewhere: bool = False,
) -> str:
    """Return what is asked for, each thing on lines of its own, and what it replaces."""
    from runner.core.trust import replaced_by, text_of
    from runner.plan.trust.agreed import load_trust

    agreed = set(load_trust(repository, os.environ).agreed)
    things = f"{len(asked)} thing{'s' * (len(asked) > 1)}"
    whose = repository.top if elsewhere else "this repository"
    lines = [f"files of {whose} ask for {things} that you have not agreed to:"]
    for one in asked:
        lines += _entry(one)
        replaced = replaced_by(one, agreed, demands)
        lines += [f"    instead of: {_plain(text_of(one.what, value))}" for value in replaced]
    return "\n".join(lines)


def _entry(one: "Asked") -> list[str]:
    """Return one thing; each line of a longer text is marked, so that none can pass for another thing."""
    first, *more = text = one.text.rstrip("\n").split("\n")
    if not more:
        return [f"  {one.what}: {_plain(first)}  ({one.where})"]
    return [f"  {one.what}  ({one.where})", *(f"    | {_plain(line)}" for line in text)]


def asks_to_agree(repository: "Repository", asked: "Sequence[Asked]") -> bool:
    """Ask at the terminal and record the answer; return whether the user agrees."""
    from runner.plan.trust.agreed import agree

    sys.stderr.write("agree? [y]es, [a]lways in this repository, [N]o: ")
    sys.stderr.flush()
    answer = sys.stdin.readline().strip().lower()
    if answer not in {"y", "yes", "a", "always"}:
        return False
    agree(repository, asked, os.environ, always=answer.startswith("a"))
    return True


def can_ask(output: Output) -> bool:
    """Return whether there is a user at a terminal to ask."""
    return not output.as_json and sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _plain(text: str) -> str:
    """Show a value whole, without what could disturb or deceive a terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
