"""`report`: real runs, here and in shards, written in every form."""

import json
import os
import re
import stat
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from msgspec.structs import replace

from runner.report.formats import FORMATS
from tests.acceptance.ci import Stories, make_ci
from tests.acceptance.program import commit_stories, run, write_story
from tests.acceptance.written_runs import autopilot, coordinator, document, write_events
from tests.conftest import git
from tests.records.sample_runs import RUN, START, mixed_events

STORIES: Stories = {
    "good": {"command": "echo one > good.txt; echo '<b>bold</b>'", "verify": ["test -e good.txt"]},
    "bad": {"command": "echo the reason; exit 7"},
    "after": {"command": "true", "depends_on": ["bad"]},
}


@pytest.fixture
def ran(repo: Path) -> Path:
    """Return a repository with a run of three verdicts."""
    for name, keys in STORIES.items():
        write_story(repo, name, **keys)
    commit_stories(repo)
    assert run(repo).code == 4
    return repo


def test_the_page_has_what_the_run_left(ran: Path) -> None:
    """Logs and changes of the repository are in it; the file is whole and the checkout stays clean."""
    target = ran.parent / "out" / "report.html"
    told = run(ran, "report", "--output", str(target), "--json")
    assert told.data["output"] == str(target)
    page = target.read_text()
    for text in ("1 of 3 stories done", "the reason", "&lt;b&gt;bold&lt;/b&gt;", "good.txt", "+1 -0"):
        assert text in page
    assert '<span class="plus">+one</span>' in page, "the diff is there"
    assert git(ran, "status", "--short") == ""
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_every_form_goes_to_stdout_and_a_run_can_be_named(ran: Path) -> None:
    """Each is the answer alone; the beginning of a run's id is enough."""
    run_id = run(ran, "status", "--json").data["run_id"]
    suites = ET.fromstring(run(ran, "report", run_id[:10], "--format", "junit").out)  # noqa: S314  our own
    assert [suite.get("name") for suite in suites] == ["bad", "after", "good"]
    assert "the reason" in ET.tostring(suites[0], encoding="unicode")
    assert run(ran, "report", "--format", "markdown").out.startswith("## 1 done, 1 failed, 1 skipped in")
    annotations = run(ran, "report", "--format", "github").out.splitlines()
    kinds = [line.split("::")[1].split(",")[0] for line in annotations]
    assert kinds == ["error title=bad%3A failed", "notice title=after%3A skipped"]
    assert "file=stories/bad.md" in annotations[0]
    entries = json.loads(run(ran, "report", "--format", "gitlab").out)
    assert [entry["location"]["path"] for entry in entries] == ["stories/bad.md", "stories/after.md"]


def test_shards_give_the_same_report_without_a_repository(tmp_path: Path, repo: Path) -> None:
    """Logs and changes come from the shards; what is missing is told first."""
    ci = make_ci(tmp_path, repo, STORIES)
    ci.run_all()
    bare = tmp_path / "nowhere"
    bare.mkdir()
    page = run(bare, "report", str(ci.shards)).out
    for text in ("1 of 3 stories done", "the reason", "&lt;b&gt;bold&lt;/b&gt;", "good.txt", "+1 -0"):
        assert text in page
    shard = str(ci.shards / "good")
    one = run(bare, "report", shard, "--format", "markdown").out
    assert "> story bad has no shard" in one
    assert "> story" not in run(bare, "report", shard, "--only=good", "--format=markdown").out


def test_a_secret_of_the_environment_is_in_no_report(repo: Path) -> None:
    """A token that a session printed is hidden in the file that leaves the machine."""
    write_story(repo, "leak", command="echo $MY_TOKEN; exit 1")
    commit_stories(repo)
    secret = {"MY_TOKEN": "very-secret-value"}
    run(repo, "--seal=writes", env=secret)
    page = run(repo, "report", env=secret).out
    assert "very-secret-value" not in page
    assert "[redacted]" in page


def test_a_run_that_is_not_there_is_told(repo: Path) -> None:
    """Without a run there is an error with a hint; two runs at once, or a lost folder, are no report."""
    absent = run(repo, "report", "--json")
    assert absent.code == 1
    assert absent.document["error"]["hint"]
    wrong = run(repo, "report", "one", "two", "--json")
    assert wrong.code == 1
    assert "no shards found in one, two" in wrong.document["error"]["message"]


def test_a_run_that_goes_on_is_reported_up_to_now(repo: Path) -> None:
    """No session that has only not ended yet counts as broken, and every form says that it is early."""
    begun = time.time() - 7201
    events = [replace(event, at=event.at - START + begun) for event in mixed_events()]
    write_events(repo, events)
    with coordinator(repo):
        shown = {name: autopilot(repo, "report", "--format", name) for name in FORMATS}
        told = document(repo, "report", "--format", "github")["data"]
        past = autopilot(repo, "history")
    assert told["state"] == "running"
    assert all(f"run {RUN} is still active" in one.stderr for one in shown.values())
    page, summary, junit = (shown[name].stdout for name in ("html", "markdown", "junit"))
    assert re.search(r"<dt>in progress for</dt><dd>2 h 0\d min</dd>", page)
    assert "The run is still in progress." in page
    assert "still running" in page
    assert "never" not in page
    assert "waiting, in progress for 2 h 0" in summary.splitlines()[0]
    assert re.search(r"\*\*docs\\?-2\*\*.*\| running \| [12] h \d\d min \|", summary)
    root = ET.fromstring(junit)  # noqa: S314  written a moment ago
    assert float(root.get("time", "0")) >= 7200
    running = root.find("testsuite[@name='docs-2']")
    assert running is not None
    assert [running.get(name) for name in ("errors", "failures")] == ["0", "0"]
    assert "::notice title=autopilot-multi::the run is still in progress\n" in shown["github"].stdout
    assert f"run {RUN} is still active" in past.stderr


def test_a_run_that_broke_off_is_reported_up_to_the_last_that_is_known(repo: Path) -> None:
    """Nobody knows when its coordinator died; it did not go on for ever since."""
    write_events(repo, mixed_events())
    page = autopilot(repo, "report").stdout
    assert "still" not in page
    assert "<dt>took</dt>" in page
    assert document(repo, "report")["data"]["state"] == "ended"


def test_a_pipe_is_written_to_and_never_replaced(ran: Path, tmp_path: Path) -> None:
    """A device such as /dev/null would be replaced by a plain file, if the user may do that."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        written = run(ran, "report", "--format", "github", "--output", str(pipe))
        assert written.code == 0, written.err
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert os.read(reader, 1 << 16) == run(ran, "report", "--format", "github").out.encode()
    finally:
        os.close(reader)
