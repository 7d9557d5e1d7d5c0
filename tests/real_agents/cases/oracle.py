"""What became of each case, found out without the program under test.

The branch is checked out afresh in a clone and its verify command run there; git says what changed; `/proc`
says who is left; the service's books say what was asked, answered and charged.
"""

import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from tests.acceptance.program import processes_with
from tests.conftest import git
from tests.real_agents.cases.case import Case
from tests.real_agents.dialects import INPUT
from tests.real_agents.model import Scene
from tests.real_agents.stories import alive

PRICES = {"claude": (3.0, 0.3, 15.0), "codex": (1.25, 0.125, 10.0)}
"""What a million tokens of the models cost: input, input from a cache, output."""
CENT = 0.01
UNFINISHED = frozenset({"failed", "stopped"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What git says about a story: whether its branch changes anything, and whether that is right.

    `unfinished`: git is in the middle of something in its worktree.
    """

    changed: tuple[str, ...]
    good: bool
    unfinished: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case, judged."""

    case: Case
    agent: str
    status: str
    expected: frozenset[str]
    attempts: int
    tokens: tuple[int, int]
    charged: tuple[int, int]
    begun: int
    cost: float
    price: float
    reason: str

    @property
    def flaws(self) -> list[str]:
        """What is wrong about it."""
        found = []
        if self.status not in self.expected:
            found.append(f"is {self.status}, not {' or '.join(sorted(self.expected))}")
        if self.case.heals and self.status != "done":
            found.append("could have been done")
        if self.case.free and self.attempts > 1:
            found.append(f"took {self.attempts} attempts")
        if self.tokens not in self._owed and not self.case.lossy:
            found.append(f"counts {self.tokens} tokens of {self.charged}")
        if abs(self.cost - self.price) >= CENT and not self.case.lossy:
            found.append(f"counts ${self.cost:.4f} of ${self.price:.4f}")
        return found

    @property
    def _owed(self) -> set[tuple[int, int]]:
        """What may be counted: of a reply that is cut off, claude counts what was told at its start.

        When the connection breaks, it depends on the moment whether it has read that.
        """
        given, made = self.charged
        begun = self.begun if self.agent == "claude" else 0
        return {(given + count * INPUT, made + count) for count in range(begun + 1)}

    def __str__(self) -> str:
        """Return a line of the table."""
        judged = "; ".join(self.flaws) or "right"
        return (
            f"| {self.agent} | {self.case.name} | {self.status} | {self.attempts} | {sum(self.tokens)} | "
            f"{self.cost:.4f} | {judged} |"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """Judges the cases of one run: where it was carried out, from which commit, and the service's books."""

    repo: Path
    clone: Path
    base: str
    agent: str
    scene: Scene

    def judge(
        self, cases: Iterable[Case], ran: dict[str, Any], records: list[dict[str, Any]]
    ) -> Iterator[Row]:
        """Judge every case of a run that has ended."""
        git(self.repo.parent, "clone", "-q", "--no-local", "--no-checkout", str(self.repo), str(self.clone))
        found = {story["id"]: story for story in ran["stories"]}
        for case in cases:
            spent = [record for record in records if record["session_id"].split("/")[1] == case.name]
            yield self._row(case, found[case.name], spent)

    def _is_unfinished(self, case: Case) -> bool:
        place = self.repo / ".git" / "worktrees" / case.name
        return any((place / name).exists() for name in ("rebase-merge", "rebase-apply", "MERGE_HEAD"))

    def _row(self, case: Case, story: dict[str, Any], spent: list[dict[str, Any]]) -> Row:
        book, prices = self.scene.books[case.name], PRICES.get(self.agent, (0.0, 0.0, 0.0))
        amounts = (book["input"] - book["cached"], book["cached"], book["output"])
        truth = replace(look(self.clone, self.base, case), unfinished=self._is_unfinished(case))
        return Row(
            case=case,
            agent=self.agent,
            status=story["status"],
            expected=expected(truth, self.scene.requests_of(case.name)),
            attempts=story["attempt"],
            tokens=(
                sum(record["input_tokens"] or 0 for record in spent),
                sum(record["output_tokens"] or 0 for record in spent),
            ),
            charged=(book["input"], book["output"]),
            begun=book["begun"],
            cost=sum(record["cost_usd"] or 0.0 for record in spent) if any(prices) else 0.0,
            price=sum(amount * price for amount, price in zip(amounts, prices, strict=True)) / 1e6,
            reason=story.get("reason") or "",
        )


def look(clone: Path, base: str, case: Case) -> Truth:
    """Check a story's branch out in a fresh clone, and ask git and its verify command about it."""
    branch = f"origin/autopilot/{case.name}"
    if subprocess.run(
        ["git", "checkout", "-q", "-f", "--detach", branch], cwd=clone, check=False, capture_output=True
    ).returncode:
        return Truth(changed=(), good=False)
    git(clone, "clean", "-ffdxq")
    changed = tuple(git(clone, "diff", "--name-only", "-z", base, "HEAD").split("\0")[:-1])
    owned = case.keys.get("owns") or ["**"]
    inside = all(any(fnmatch(path, claim.replace("**", "*")) for claim in owned) for path in changed)
    shell = ["sh", "-c", case.verify]
    onto = subprocess.run(["git", "merge-base", "--is-ancestor", base, "HEAD"], cwd=clone, check=False)
    passes = subprocess.run(shell, cwd=clone, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    return Truth(
        changed=changed, good=bool(changed) and inside and not onto.returncode and not passes.returncode
    )


def expected(truth: Truth, asked: list[dict[str, Any]]) -> frozenset[str]:
    """Return the verdicts that are true of a story, by git and by the last answer of the service."""
    last = asked[-1] if asked else {"fault": None, "says": None}
    broken = last["fault"] is not None and "stall" not in last["fault"]
    said = None if broken else last["says"]
    if truth.good:
        return frozenset({"done"}) if said is not None and not truth.unfinished else UNFINISHED | {"done"}
    if said is None:
        return UNFINISHED
    asks = frozenset({"parked"}) if "?" in said or "confirm" in said else frozenset()
    return asks | (
        UNFINISHED if truth.changed else {"no_work", *UNFINISHED} - (UNFINISHED if asks else set())
    )


def survivors(run_id: str, nap: str) -> list[str]:
    """Find processes of the run, by their environment and by what only they run."""
    return alive(run_id) + [f"process {pid}" for pid in processes_with(nap)]
