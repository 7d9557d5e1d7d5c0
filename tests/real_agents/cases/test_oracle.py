"""The judge of the scripted cases is tried itself, without any agent."""

from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import git
from tests.real_agents.cases import service, work
from tests.real_agents.cases.case import TALKERS, Case
from tests.real_agents.cases.oracle import Row, Truth, expected, look
from tests.real_agents.cases.test_cases import CHECK

FILES = {
    "right": {"work/right.txt": "right\n"},
    "wrong": {"work/wrong.txt": "wrong\n"},
    "breaks": {"work/breaks.txt": "right\n", "README": "gone\n"},
    "claims": {"work/claims.txt": "right\n", "more": "more\n"},
    "empty": {},
}


def test_every_case_has_a_name_of_its_own() -> None:
    """A name is a story's id; there are two hundred cases and more for the two main agents."""
    every = [*work.CASES, *service.CASES]
    assert max(Counter(case.name for case in every).values()) == 1
    assert sum(agent in TALKERS for case in every for agent in case.agents) >= 200
    assert all("@ID" not in case.body("9", toolless=False) for case in every)


def test_a_fresh_checkout_tells_what_is_right(repo: Path, tmp_path: Path) -> None:
    """Work, wrong work, a broken neighbour, a path outside the claim, an empty commit and no branch."""
    (repo / "check.sh").write_text(CHECK)
    (repo / "README").write_text("kept\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "project")
    base = git(repo, "rev-parse", "HEAD").strip()
    for name, files in FILES.items():
        git(repo, "checkout", "-q", "-b", f"autopilot/{name}", base)
        for path, text in files.items():
            (repo / path).parent.mkdir(exist_ok=True)
            (repo / path).write_text(text)
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "--allow-empty", "-m", name)
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--no-local", "--no-checkout", str(repo), str(clone))
    found = {
        name: look(clone, base, Case(name=name, keys={"owns": ["work/**"]})) for name in (*FILES, "none")
    }
    assert [name for name, truth in found.items() if truth.good] == ["right"]
    assert [name for name, truth in found.items() if not truth.changed] == ["empty", "none"]


def test_the_last_answer_of_the_service_decides_beside_git() -> None:
    """What is good is done, unless the service failed at the end; a question may wait for its answer."""
    ended, failed = {"fault": None, "says": "All done."}, {"fault": {"status": 500}, "says": "All done."}
    good, wrong, nothing = (
        Truth(changed=("a",), good=True),
        Truth(changed=("a",), good=False),
        Truth(changed=(), good=False),
    )
    assert expected(good, [failed, ended]) == {"done"}
    assert expected(good, [ended, failed]) == {"done", "failed", "stopped"}
    assert expected(wrong, [ended]) == expected(nothing, [failed]) == {"failed", "stopped"}
    assert expected(nothing, [ended]) == {"no_work", "failed", "stopped"}
    assert expected(nothing, [{"fault": None, "says": "Which one?"}]) == {"no_work", "parked"}


@pytest.mark.parametrize(
    ("agent", "tokens", "cost", "right"),
    [
        ("claude", (4000, 40), 0.0126, True),
        ("claude", (5000, 41), 0.0156, True),
        ("claude", (6000, 42), 0.0186, False),
        ("claude", (5000, 40), 0.0156, False),
        ("claude", (4000, 40), 0.0236, False),
        ("codex", (5000, 41), 0.0126, False),
    ],
)
def test_tokens_and_cents_are_those_of_the_books(
    agent: str, tokens: tuple[int, int], cost: float, *, right: bool
) -> None:
    """What its service told claude of one reply before it was cut off may count, and nothing else."""
    row = Row(
        case=Case(name="a"),
        agent=agent,
        status="done",
        expected=frozenset({"done"}),
        attempts=1,
        tokens=tokens,
        charged=(4000, 40),
        begun=1,
        cost=cost,
        price=0.0126,
        reason="",
    )
    assert (row.flaws == []) is right
