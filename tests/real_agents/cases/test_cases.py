"""Scripted cases with real agents, several stories in one run, judged by an oracle of the tests' own.

`AGENTS_CASES=name,name` chooses cases, `AGENTS_TABLE=file` collects the lines of the table.
"""

import os
from pathlib import Path

import pytest

from runner.agents.catalog import KNOWN
from tests.acceptance.program import Ran, run, write_story
from tests.conftest import git
from tests.real_agents.cases import service, work
from tests.real_agents.cases.case import Case
from tests.real_agents.cases.oracle import Oracle, Row, survivors
from tests.real_agents.conftest import Stage
from tests.real_agents.stories import work_sessions

pytestmark = pytest.mark.agents
CASES = (*work.CASES, *service.CASES)
CHOSEN = frozenset(filter(None, os.environ.get("AGENTS_CASES", "").split(",")))
TOGETHER = 14
LIMIT = 1500.0
CHECK = """# Tells whether the file of a story is right, and nothing else is broken.
test "$(cat "work/$1.txt" 2> /dev/null)" = right && grep -q kept README && test -f check.sh && exit 0
echo "NOT-RIGHT $1"
exit 1
"""
QUICK = ("request_max_retries=1", "stream_max_retries=1")
"""Codex tries again less often than it would, as claude is told to."""


def parts(agent: str) -> dict[str, tuple[Case, ...]]:
    """Return the cases of an agent, as many as go into one run."""
    mine = [case for case in CASES if agent in case.agents and (not CHOSEN or case.name in CHOSEN)]
    found = {}
    for part in dict.fromkeys(case.part for case in mine):
        those = [case for case in mine if case.part == part]
        for start in range(0, len(those), TOGETHER):
            found[f"{part}-{start // TOGETHER + 1}"] = tuple(those[start : start + TOGETHER])
    return found


def prepared(stage: Stage, part: str) -> str:
    """Write the project that the stories work on; return its commit."""
    repo = stage.repo
    stage.configure(bypass=not part.startswith("edit"), codex=QUICK)
    for name, text in {
        "check.sh": CHECK,
        "README": "kept\n",
        "old.txt": "old\n",
        ".gitignore": "build/\n",
    }.items():
        (repo / name).write_text(text)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "project")
    return git(repo, "rev-parse", "HEAD").strip()


def carry(stage: Stage, cases: tuple[Case, ...], nap: str) -> Ran:
    """Carry all stories out in one run."""
    for case in cases:
        body = case.body(nap, toolless=stage.agent == "aider")
        write_story(stage.repo, case.name, body=body, agent=stage.agent, **case.front())
    env = {**stage.env, "CLAUDE_CODE_MAX_RETRIES": "1"}
    arguments = ("--json", stage.model, "--no-base-check", "--max-stories=4", "--allow-unpriced")
    return run(stage.repo, *arguments, env=env, limit=LIMIT)


@pytest.mark.parametrize(("agent", "part"), [(agent, part) for agent in KNOWN for part in parts(agent)])
def test_no_verdict_is_wrong(stage: Stage, agent: str, part: str, tmp_path: Path) -> None:
    """Verdicts are those of git and a fresh verify, money and tokens those of the books; nobody is left."""
    cases, nap = parts(agent)[part], f"86397.{os.getpid()}"
    base = prepared(stage, part)
    ran = carry(stage, cases, nap)
    left = survivors(ran.data["run_id"], nap)
    oracle = Oracle(repo=stage.repo, clone=tmp_path / "clone", base=base, agent=agent, scene=stage.scene)
    rows = list(oracle.judge(cases, ran.data, work_sessions(stage.repo)))
    tell(rows)
    assert git(stage.repo, "rev-parse", "HEAD", "main").split() == [base, base]
    assert git(stage.repo, "status", "--porcelain", "--untracked-files=no") == ""
    git(stage.repo, "rev-list", "--objects", "--quiet", "--all")
    assert left == []
    wrong = {row.case.name: (*row.flaws, row.reason) for row in rows if row.flaws}
    assert wrong == {}, ran.err


def tell(rows: list[Row]) -> None:
    """Add lines to the table."""
    if path := os.environ.get("AGENTS_TABLE"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.writelines(f"{row}\n" for row in rows)
