"""The documentation says what the program does: its pages are compared with real runs."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from runner.cli.overview import COMMANDS
from runner.plan.stories.keys import KEYS
from tests.acceptance.program import LIMIT, commit_stories, run, write_story, writes
from tests.acceptance.shell_blocks import told
from tests.conftest import git
from tests.schemas import complaints

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"


def _check(root: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, str(root / "docs" / "generate.py"), *flags]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=LIMIT)


def test_the_pages_are_current() -> None:
    """The reference of the command line, the settings and every link agree with the program."""
    checked = _check(ROOT, "--check")
    assert checked.stderr == ""
    assert checked.returncode == 0


def test_the_check_finds_what_is_wrong(tmp_path: Path) -> None:
    """A stale page, a wrong or missing setting and a dead link are each named; writing repairs the pages."""
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("README.md", "CONTRIBUTING.md"):
        shutil.copy(ROOT / name, tmp_path)
    cli = tmp_path / "docs" / "reference" / "cli.md"
    whole = cli.read_text()
    cli.write_text(whole.replace("--max-stories", "--most-stories"))
    settings = tmp_path / "docs" / "reference" / "settings.md"
    described = settings.read_text()
    settings.write_text(
        described.replace("| `log-cap-mb` |", "| log-cap-mb |").replace("60 to 3600", "1 to 2")
    )
    index = tmp_path / "docs" / "README.md"
    index.write_text(index.read_text() + "[gone](nowhere.md) [odd](changelog.md#no-such-heading)\n")
    checked = _check(tmp_path, "--check")
    assert checked.returncode == 1
    for complaint in ("cli.md is stale", "settings.md is stale", "nowhere.md", "#no-such-heading"):
        assert complaint in checked.stderr
    assert checked.stderr.count("error:") == 4
    assert _check(tmp_path).returncode == 0
    assert cli.read_text().split() == whole.split()
    assert settings.read_text() == described


@cache
def schema() -> dict[str, Any]:
    """Return the schema of what `--json` prints."""
    loaded: dict[str, Any] = json.loads((REFERENCE / "status.schema.json").read_text())
    return loaded


def _complaints(document: dict[str, Any]) -> list[str]:
    return complaints(schema(), document)


@pytest.fixture
def backlog(repo: Path) -> Path:
    """Return a repository with stories of every verdict that a run without a person can give."""
    report = json.dumps({"status": "done", "usage": {"input_tokens": 5, "cost_usd": 0.5}})
    ask = json.dumps({"status": "needs-decision", "decision": {"question": "red or blue?"}})
    write_story(repo, "a", command=f"{writes('a.txt')}; echo '{report}' > $AUTOPILOT_RESULT_FILE")
    write_story(repo, "b", command="false", depends_on=["a"])
    write_story(repo, "c", command="true", depends_on=["b"])
    write_story(repo, "d", command="true")
    write_story(repo, "e", command=f"echo '{ask}' > $AUTOPILOT_RESULT_FILE")
    commit_stories(repo)
    return repo


def test_real_documents_fit_the_schema(backlog: Path) -> None:
    """What run, status, resume, plan, history and errors print with --json is what the schema says."""
    invocations = (["plan"], ["run", "--dry-run"], ["run"], ["status"], ["resume"], ["config"], ["run", "x"])
    documents = [run(backlog, *arguments, "--json").document for arguments in invocations]
    documents += [run(backlog, "history", *more, "--json").document for more in ([], ["--story", "a"])]
    documents.append(run(backlog, "run", "--nonsense", "--json").document)
    for document in documents:
        assert _complaints(document) == []
    verdicts = {story["status"] for story in documents[2]["data"]["stories"]}
    assert verdicts == {"done", "failed", "skipped", "no_work", "parked"}


def test_the_schema_refuses_what_is_no_document(backlog: Path) -> None:
    """A document that lacks a part, or has a value that there is not, does not fit."""
    whole = run(backlog, "run", "--only", "a", "--json").document
    assert _complaints(whole) == []
    for broken in _broken(whole):
        assert _complaints(broken), broken


def _broken(whole: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Break the document in one place at a time."""
    text = json.dumps(whole)
    yield {**whole, "schema": 2}
    yield {name: value for name, value in whole.items() if name != "data"}
    yield {**whole, "error": {"code": "usage", "message": "both", "hint": ""}}
    yield {**whole, "command": "plan"}
    for name in whole["data"]:
        yield {**whole, "data": {key: value for key, value in whole["data"].items() if key != name}}
    story = whole["data"]["stories"][0]
    for name in story:
        less = {key: value for key, value in story.items() if key != name}
        yield {**whole, "data": {**whole["data"], "stories": [less]}}
    yield json.loads(text.replace('"status": "done"', '"status": "finished"'))
    yield json.loads(text.replace('"state": "ended"', '"state": "over"'))
    yield json.loads(text.replace('"cost_usd": 0.5', '"cost_usd": "0.5"'))


def _keys_of(page: str) -> set[str]:
    """Return all names that the first columns of a page's tables hold."""
    cells = re.findall(r"^\| (`[^|]+) \|", (REFERENCE / page).read_text(), re.MULTILINE)
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


def test_every_key_of_a_story_is_described() -> None:
    """The page of the stories has a row for each key."""
    assert set(KEYS) <= _keys_of("stories.md")


def test_every_variable_of_a_session_is_described(repo: Path) -> None:
    """The page of the session contract has exactly the variables that a session gets."""
    write_story(repo, "a", command="env | sed -n 's/^\\(AUTOPILOT_[A-Z0-9_]*\\)=.*/\\1/p' > names.txt")
    assert run(repo, "--token-budget=1000", "--cost-budget=5", "--ports=1").code == 0
    names = set(git(repo, "show", "autopilot/a:names.txt").split())
    described = {name for name in _keys_of("session-contract.md") if name.startswith("AUTOPILOT_")}
    assert described == names


def test_every_field_of_the_records_is_described(backlog: Path) -> None:
    """The page of the records has every field that a run writes."""
    run(backlog)
    described = _keys_of("records.md")
    for name in ("autopilot.jsonl", "sessions.jsonl"):
        lines = (backlog / ".orchestrator" / "metrics" / name).read_text().splitlines()
        assert lines
        for line in lines:
            assert set(json.loads(line)) <= described


def test_the_readme_names_every_command() -> None:
    """The table of commands in the README is that of the program."""
    rows = re.findall(
        r"^\| `autopilot-multi(?: ([a-z-]+))?[^`]*` \|", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert {row or "run" for row in rows} == set(COMMANDS)


def test_the_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    """Every line of the README's sample is one of the demo's report, in its order."""
    (sample,) = re.findall(
        r"^```text\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )
    ran = run(tmp_path, "demo", env={"TMPDIR": str(tmp_path)})
    assert ran.code == 0, ran.err
    printed = iter(told(ran.out, tmp_path))
    shown = told(sample, tmp_path)
    assert len(shown) > 8
    for line in shown:
        assert line in printed, line
