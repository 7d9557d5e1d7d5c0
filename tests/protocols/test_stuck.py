"""When a session gets nowhere, and when it is left alone; half an hour is six seconds here."""

from pathlib import Path

import pytest

from tests.acceptance.flow_stories import sessions, story
from tests.acceptance.program import run, write_story
from tests.conftest import git

FLOW = """
summary = "one step"

[[steps]]
number = 1
name = "Implement"
prompt = "Build it."
artifacts = ["_docs/report.md"]
"""
SHORT = ("--stuck-minutes=0.1", "--max-sessions=1", "--grace-seconds=1", "--window=fixed", "--max-stories=5")
MINUTE = 0.2
"""What a minute is here: the limit of half an hour is set to six seconds."""
REPORT = "mkdir -p _docs; echo done > _docs/report.md"


def minutes(number: int, work: str) -> str:
    """Return a command that does something once a minute, and says so."""
    return f"for i in $(seq {number}); do echo working; {work}; sleep {MINUTE}; done"


@pytest.mark.protocol("003.49")
@pytest.mark.protocol("004.31")
def test_a_session_that_works_is_left_alone_and_one_that_leaves_nothing_is_ended(repo: Path) -> None:
    """Forty minutes of commits, or of changed files, are work; the same file again and again is none.

    The step whose report is written last has no artifact until then. What verify commands judge is never
    ended because it leaves nothing new.
    """
    (repo / "flows").mkdir()
    (repo / "flows" / "build.toml").write_text(FLOW)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "flow")
    works = {
        "commits": 'echo $i > "$i.txt"; git add -A; git commit -q -m "batch $i"',
        "files": "echo $i > code.txt",
        "thinks": ":",
        "idle": ":",
        "same": "echo same > code.txt",
    }
    for name, work in works.items():
        long = 40 if name in {"commits", "files", "thinks"} else 400
        verify = ["test -e _docs/report.md"] if name == "thinks" else []
        write_story(repo, name, flow="build", command=f"{minutes(long, work)}; {REPORT}", verify=verify)
    ran = run(repo, "--json", *SHORT)
    status = {name: ran.story(name)["status"] for name in works}
    assert {name for name, one in status.items() if one == "done"} == {"commits", "files", "thinks"}, ran.err
    assert ran.story("commits")["commits"] > 40
    ended = [line for line in ran.err.splitlines() if "though the session is active" in line]
    assert [line for line in ended if "session 1 stuck after" in line and "nothing new for" in line], ran.err
    assert {line.split()[1] for line in ended} == {"idle", "same"}


@pytest.mark.protocol("003.47")
def test_an_artifact_of_a_cycle_that_is_rewritten_without_change_is_noticed(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the steps of existing-code whose artifacts carry the number of the cycle."""
    monkeypatch.setenv("FLOW_AGENT_MEMORY", str(tmp_path))
    (repo / "app.py").write_text("print('hello')\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "code")
    story(repo, "a", "circle:New Task:1", "fail:Implement:99", flow="existing-code", max_attempts=1)
    ran = run(repo, "--json", "--grace-seconds=1", "--cross-boundaries")
    assert "/02_tasks/cycle1/x_x.md was rewritten 3 times without a meaningful change" in ran.err
    trace = sessions(tmp_path)
    assert trace.count("a-9 attempt 1") == 2
    assert "a-10 attempt 1" in trace, "the second session of the step did its work"
