"""Real claude, continued by hand: one conversation of the run, of a person at a terminal, and of the run."""

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import command, run, started, wait_until, write_story
from tests.acceptance.tmux import Window
from tests.conftest import git
from tests.real_agents.conftest import Stage
from tests.real_agents.stories import PATIENCE, work_sessions

pytestmark = pytest.mark.agents
AFTERWARDS = "I have worked on this myself"


@pytest.fixture
def window(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Window]:
    """Return a terminal in the repository, of somebody who has used claude before."""
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    for name, value in stage.env.items():
        monkeypatch.setenv(name, value)
    made = Window(tmp_path / "tmux")
    made.tmux("new-session", "-d", "-x", "160", "-y", "50", "-c", str(stage.repo), "env", "PS1=> ", "sh")
    try:
        yield made
    finally:
        made.tmux("kill-server")


def welcome(stage: Stage, folder: str) -> None:
    """Answer what claude asks a person once: the theme, whether to use the key, if the folder is safe."""
    path = Path.home() / ".claude.json"
    known = json.loads(path.read_text())
    known |= {"hasCompletedOnboarding": True, "theme": "dark"}
    known["customApiKeyResponses"] = {"approved": [stage.env["ANTHROPIC_API_KEY"][-20:]], "rejected": []}
    known.setdefault("projects", {}).setdefault(folder, {})["hasTrustDialogAccepted"] = True
    path.write_text(json.dumps(known))


@pytest.mark.parametrize("agent", ["claude"])
def test_a_person_takes_over_and_the_story_continues_in_the_same_conversation(
    stage: Stage, window: Window, tmp_path: Path
) -> None:
    """What the run and the person have said is in the requests of the session that `resume` starts."""
    stage.configure(bypass=True)
    ready, go = tmp_path / "ready", tmp_path / "go"
    wait = {"sh": f"touch {ready}; until test -f {go}; do sleep 0.1; done"}
    rest = (AFTERWARDS, [{"write": ["rest.txt", "made"]}])
    body = stage.play("a", {"write": ["half.txt", "made"]}, wait, told=rest)
    write_story(stage.repo, "a", body=body, agent="claude")
    with started(stage.repo, "run", "--json", stage.model) as running:
        wait_until(ready.exists, what="the tool runs", limit=PATIENCE)
        window.type(shlex.join(command("takeover", "a")))
        window.await_text("story a stops when its session ends")
        go.touch()
        window.await_text("&& claude --resume ", "continues the story in the same conversation")
        running.finish()
    (first,) = work_sessions(stage.repo)
    printed = run(stage.repo, "takeover", "a", "--json").data
    assert printed["argv"] == ["claude", "--resume", first["conversation"]]

    welcome(stage, str(stage.repo))
    welcome(stage, printed["workspace"])
    window.type(shlex.join(command("takeover", "a", "--start")))
    window.await_text("● All done.", "? for shortcuts")  # the end of what the run has said
    message = 'PLAY {"id": "person", "acts": [{"say": "I see what was done."}]}'
    window.tmux("send-keys", "-l", message)
    window.await_text(message)
    window.press("Enter")
    window.await_text("● I see what was done.")
    (asked,) = stage.scene.requests_of("person")
    assert asked["scripts"] == 2, "the prompt of the run comes before the message"
    window.tmux("send-keys", "-l", "/exit")
    window.await_text("/exit")
    window.press("Enter")
    window.await_text("claude --resume")
    (Path(printed["workspace"]) / "by-hand.txt").write_text("mine\n")

    ran = run(stage.repo, "resume", "--json", limit=PATIENCE)
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert [record["conversation"] for record in work_sessions(stage.repo)] == [first["conversation"]] * 2
    assert stage.scene.requests_of("a")[-1]["scripts"] == 3, "it continues after what was said by hand"
    files = git(stage.repo, "ls-tree", "-r", "--name-only", "autopilot/a").split()
    assert {"half.txt", "by-hand.txt", "rest.txt"} <= set(files)
