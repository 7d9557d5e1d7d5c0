"""One attack by a session: a script, the seal that must stop it, and how it is seen from outside."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

WRITES, SECRETS, FULL = "writes", "secrets", "full"
SEALS = (WRITES, SECRETS, FULL)
"""From the weakest to the strongest."""


class Evidence(Protocol):
    """What a run left, as the tests' own eyes see it afterwards."""

    heard: set[str]
    shown: dict[str, str]

    def loot(self, name: str) -> str:
        """Return what the attack's script printed."""

    def worked(self, name: str) -> bool:
        """Return whether the attack's script ended well."""

    def changed(self, place: str) -> bool:
        """Return whether a place that belongs to somebody else is not what it was."""

    def exists(self, place: str) -> bool:
        """Return whether there is something at a place now."""


Proof = Callable[[Evidence, str], bool]
"""Whether an attack, by its name, got through."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """An attack: `script` is for `sh`, and ends well if it believes that it worked.

    `seal` is the weakest that must stop it. Attacks of one `group` share a session, with nothing else in it;
    such a session succeeds, so that the program works on with what it left. `target` is a text by which the
    program can name what was refused. What is `alone` has a session of its own, which fails. `needs` is what
    the machine must have, and the user be able to read or write, for the attack to mean anything. `silent` is
    why nothing can be named: nothing is refused that anybody could observe.
    """

    name: str
    family: str
    script: str
    seal: str
    proof: Proof
    target: str = ""
    group: str = ""
    alone: bool = False
    needs: str = ""
    silent: str = ""


def stopped_at(attack: Attack, seal: str) -> bool:
    """Return whether an attack must not get through at a seal."""
    return SEALS.index(attack.seal) <= SEALS.index(seal)


def stolen(mark: str) -> Proof:
    """Prove that the script has printed something that it must not read."""
    return lambda evidence, name: mark in evidence.loot(name)


def changed(place: str) -> Proof:
    """Prove that the script believes in its work, and that something of others is not what it was."""
    return lambda evidence, name: evidence.worked(name) and evidence.changed(place)


def appeared(place: str) -> Proof:
    """Prove that there is something that only the attack makes."""
    return lambda evidence, _: evidence.exists(place)


def worked() -> Proof:
    """Prove that the kernel let the script do what it tried; nothing else of it can be seen."""
    return lambda evidence, name: evidence.worked(name)


def heard() -> Proof:
    """Prove that a server outside has heard from it."""
    return lambda evidence, name: name in evidence.heard
