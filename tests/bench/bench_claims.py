"""What proving claims disjoint costs: fifty stories of five globs each, beside matching one path a pair.

`packages` differ in the folders that they begin with, as those of a monorepo do; `wild` begin alike and
differ within a name behind wildcards. `hostile` and `deep` are refused: what counts is that it is soon.
The limits are in seconds, since a person waits for a plan; the ratio shows what else the machine did.
"""

import sys
import time
from collections.abc import Callable
from itertools import combinations

from isolation.claims import globs as claims
from isolation.claims.disjoint import Proof
from isolation.claims.globs import Claim
from isolation.errors import ClaimError
from tests.bench import record

STORIES = 50
ROUNDS = 5
PROOF_SECONDS = 1.0
REFUSAL_SECONDS = 5.0


def packages(number: int) -> list[str]:
    """Return the claim of a package."""
    name = f"pkg-{number:02}"
    return [
        f"packages/{name}/**",
        f"!packages/{name}/dist/**",
        f"docs/{name}.md",
        f"ci/{name}/*.yml",
        f"e2e/{name}/",
    ]


def wild(number: int) -> list[str]:
    """Return a claim that only a search can tell from its siblings."""
    return [
        f"src/*/mod-{number:02}/**",
        f"!src/*/mod-{number:02}/gen/**",
        f"tests/**/test_{number:02}_*.py",
        f"docs/**/{number:02}-*.md",
        f"conf/*-{number:02}.toml",
    ]


def hostile(number: int) -> list[str]:
    """Return a claim whose takings-back have more states than anybody can look at."""
    return [f"lib/{'?' * 25}*", f"!lib/*{number % 10}{'?' * 20}*"]


def deep(number: int) -> list[str]:
    """Return the same for folders."""
    return ["[01]/" * 25, f"!**/{number % 2}{'/*' * 20}/**"]


def matched(owners: list[Claim]) -> int:
    """Match one path a pair: what sampling would cost at the least."""
    return sum(
        first.owns("src/a/b.py") and second.owns("src/a/b.py") for first, second in combinations(owners, 2)
    )


def proven(owners: list[Claim]) -> int:
    """Prove all pairs; none overlaps."""
    found = sum(1 for _ in Proof().overlaps(owners))
    assert found == 0
    return found


def refused(owners: list[Claim]) -> int:
    """Ask what cannot be answered."""
    try:
        list(Proof().overlaps(owners))
    except ClaimError:
        return 0
    raise AssertionError("a hostile claim was decided; find a worse one")


def best(once: Callable[[list[Claim]], int], make: Callable[[int], list[str]]) -> float:
    """Return the best seconds."""
    owners = [claims.compile(make(number)) for number in range(STORIES)]
    seconds = float("inf")
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        once(owners)
        seconds = min(seconds, time.perf_counter() - begun)
    return seconds


def main() -> bool:
    """Print the times; tell whether proofs and refusals come within their limits."""
    unit = best(matched, packages)
    pairs = STORIES * (STORIES - 1) // 2
    fine = True
    for name, once, make, limit in (
        ("packages", proven, packages, PROOF_SECONDS),
        ("wild", proven, wild, PROOF_SECONDS),
        ("hostile", refused, hostile, REFUSAL_SECONDS),
        ("deep", refused, deep, REFUSAL_SECONDS),
    ):
        seconds = best(once, make)
        fine = fine and seconds <= limit
        record.compare("claims", f"{name}, {pairs} pairs / one match a pair", [seconds / unit])
        verdict = "ok" if seconds <= limit else "too slow"
        text = f"{seconds * 1e3:8.1f} ms  ratio to one match a pair {seconds / unit:8.1f}"
        sys.stdout.write(f"{name:9}{pairs} pairs {text}, at most {limit:g} s: {verdict}\n")
    return fine


if __name__ == "__main__":
    main()
