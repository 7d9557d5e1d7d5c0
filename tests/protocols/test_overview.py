"""Where all stories are: on one page while a run works, and by `status`, also before the first run."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story
from tests.conftest import git
from tests.schemas import complaints

DIALECTS = ("rich", "pointer", "autodev")
FLOW = """
[[steps]]
number = "1"
name = "Draft"
prompt = "draft it"

[[steps]]
number = "2"
name = "Write"
prompt = "write it"
"""
SCHEMA = Path(__file__).parents[2] / "docs" / "reference" / "status.schema.json"


def _flow(repo: Path) -> None:
    (repo / "flows").mkdir()
    (repo / "flows" / "short.toml").write_text(FLOW)


def _row(text: str, title: str, story: str) -> dict[str, str]:
    """Read one story's row of one table of the page."""
    table = [line for line in text.split(f"## {title}\n", 1)[-1].split("\n## ", 1)[0].splitlines() if line]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return next((dict(zip(cells[0], row, strict=True)) for row in cells if row[0] == story), {})


@pytest.mark.protocol("card.5", "003.30")
def test_the_page_and_status_join_all_dialects_while_they_work(repo: Path, tmp_path: Path) -> None:
    """From the first moment and to the second: flow, sub-step, retries and blockers of every dialect."""
    _flow(repo)
    go, late, later = (tmp_path / name for name in ("go", "late", "later"))
    save = f"{sys.executable} -m runner state sub-step"
    wait = "until test -f {}; do sleep 0.02; done"
    first = f"{save} 1 outline half; test $AUTOPILOT_ATTEMPT = 1 && echo 'error: no pen' && exit 7"
    second = f"touch {tmp_path}/here-$AUTOPILOT_STORY_ID; {wait.format(late)}; {save} 2 filling"
    third = f"{wait.format(later)}; {save} 3 polishing"
    script = f"{first}; {second}; {third}; {wait.format(go)}; exit 8"
    for name in DIALECTS:
        write_story(repo, name, command=script, flow="short", dialect=name, max_attempts=2)
    write_story(repo, "plain", command=wait.format(go))
    commit_stories(repo)
    page = repo / ".orchestrator" / "state.md"
    with started(repo, "run", "--json", "--max-stories=4") as program:
        wait_until(page.exists, what="there is a page")
        assert "| plain " in page.read_text(), "every story is on it at once"
        wait_until(
            lambda: all((tmp_path / f"here-{name}").exists() for name in DIALECTS),
            what="all are at their second attempt",
        )
        _await_rows(page, "Retry log", {"Attempt": "1", "Step": "1", "SubStep": "1 — outline (half)"})
        _await_rows(page, "Stories", {"Flow": "short", "Status": "in_progress", "Retries": "1"})
        shown = run(repo, "status").out
        for name in DIALECTS:
            assert f"retry: {name}: attempt 1 at step 1, sub-step 1 — outline (half), failed: " in shown
        # No event says so: the agents write into their files.
        for gate, sub_step in ((late, "2 — filling"), (later, "3 — polishing")):
            gate.touch()
            _await_rows(page, "Stories", {"SubStep": sub_step})
        go.touch()
        ran = program.finish()
    assert ran.code == 5, ran.err
    text, status = page.read_text(), run(repo, "status", "--json")
    assert _complaints(status.document) == []
    blocked = {one["story_id"]: one["text"] for one in status.data["blockers"]}
    for name in DIALECTS:
        assert f"- **{name}**: " in text.split("## Blockers\n")[1].split("\n## ")[0]
        assert "Draft" in blocked[name]
    assert {one["sub_step"] for one in status.data["retries"]} == {"1 — outline (half)", "3 — polishing"}


def _await_rows(page: Path, title: str, wanted: dict[str, str]) -> None:
    """Wait until the stories of all dialects have rows with these cells."""

    def there() -> bool:
        text = page.read_text()
        return all(wanted.items() <= _row(text, title, name).items() for name in DIALECTS)

    try:
        wait_until(there, what=f"the page has {wanted}", limit=10)
    except AssertionError as error:
        raise AssertionError(page.read_text()) from error


@pytest.mark.protocol("003.30")
def test_status_before_the_first_run_shows_where_the_stories_are(repo: Path) -> None:
    """By their state files, as in a fresh clone, and by the backlog; nothing starts or is written."""
    _flow(repo)
    for name in ("a", "b", "c"):
        write_story(
            repo, name, command="date +%N > $AUTOPILOT_STORY_ID.txt", flow="short" if name != "c" else "quick"
        )
    commit_stories(repo)
    assert run(repo, "--only", "a").code == 0
    clone = repo.parent / "clone"
    git(repo, "merge", "-q", "--no-edit", "autopilot/a")
    git(repo.parent, "clone", "-q", str(repo), str(clone))
    before = git(clone, "status", "--porcelain", "--ignored")
    ran = run(clone, "status")
    assert ran.code == 0, ran.err
    rows = {line.split()[0]: line.split() for line in ran.out.splitlines() if line}
    assert rows["a"][1:5] == ["autodev", "short", "done", "Done"]
    assert rows["b"][1:5] == ["autodev", "short", "not", "started"]
    assert rows["c"][1:5] == ["journal", "quick", "not", "started"]
    document = run(clone, "status", "--json").document
    assert _complaints(document) == []
    assert document["data"]["counts"]["not_started"] == 2
    assert git(clone, "status", "--porcelain", "--ignored") == before
    assert not (clone / ".git" / "autopilot").exists()


def _complaints(document: dict[str, Any]) -> list[str]:
    return complaints(json.loads(SCHEMA.read_text()), document)
