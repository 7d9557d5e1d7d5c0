"""What an agent says of its tools and its waits keeps it from being called silent."""

import json
import sys
from pathlib import Path

import pytest

from runner.core import settings
from runner.core.declaration import Bounds
from runner.core.model import Status
from tests.acceptance.program import write_story
from tests.story.test_kill_switches import carry, story, switch_of

TOOL = {"type": "item.started", "item": {"id": "i", "type": "command_execution", "command": "make test"}}
FAKE = """#!{python}
import pathlib, select, sys
print({line!r}, flush=True)
select.select([], [], [], 2.5)
pathlib.Path("made.txt").write_text("made")
print('{{"type": "turn.completed", "usage": {{"input_tokens": 1}}}}')
"""


@pytest.mark.parametrize(("line", "lives"), [(json.dumps(TOOL), True), ("{}", False)])
async def test_an_open_tool_is_a_sign_of_life(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, *, lives: bool
) -> None:
    """Acceptance 36: silence while a tool runs ends nothing; the same silence without one does."""
    for name in ("stall-seconds", "inactivity-timeout"):
        monkeypatch.setitem(settings.BOUNDS, name, Bounds(low=0.1, high=100))
    monkeypatch.setattr("runner.agents.known.codex.QUIET", 0.0)
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text(FAKE.format(python=sys.executable, line=line))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    write_story(repo, "a", agent="codex")
    found = story(await carry(repo, stall_seconds=0.5, grace_seconds=1), "a")
    if lives:
        assert (found.status, found.stalls) == (Status.DONE, 0)
    else:
        assert switch_of(found)[0] == "stall-timeout"


STAYS = """#!{python}
import pathlib, subprocess, sys
server = subprocess.Popen(["sleep", "600"], start_new_session=True)
pathlib.Path("made.txt").write_text("made")
print('{{"type": "turn.completed", "usage": {{"input_tokens": 1}}}}', flush=True)
server.wait()
print('{{"type": "turn.failed", "error": {{"message": "interrupted"}}}}', flush=True)
sys.exit(7)
"""


async def test_a_program_that_stays_after_its_final_result_is_ended_and_its_work_counts(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that it left running keeps it alive; what it prints when it is ended changes nothing."""
    monkeypatch.setattr("runner.story.session.session.AFTER_RESULT", 0.4)
    program = tmp_path / "bin" / "codex"
    program.parent.mkdir()
    program.write_text(STAYS.format(python=sys.executable))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    write_story(repo, "a", agent="codex")
    found = story(await carry(repo, grace_seconds=1), "a")
    assert (found.status, found.progress.attempt) == (Status.DONE, 1)
    (session,) = found.sessions
    assert " s after its final result, since something" in session.detail
