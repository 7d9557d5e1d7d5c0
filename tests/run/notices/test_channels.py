"""Channels of notifications: real programs below a real keeper, which harm nobody when they fail."""

import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio
from msgspec import structs

from isolation.keeper.client import Keeper, open_keeper
from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.model import StoryId
from runner.core.notices.notice import Notice, hidden_url, notice_of
from runner.core.setting_groups.notify_settings import NoticeKind
from runner.core.settings import Settings
from runner.run.notices import channels
from runner.run.notices.channels import Complaint, channels_of, send
from tests.records.sample_runs import START, event, snapshot, started

NOTICE = Notice(
    kind=NoticeKind.QUESTION,
    title="a asks: Which?",
    text="A) red\nB) blue",
    story_id=StoryId("a"),
    decision="a-1",
)


@pytest.fixture
async def keeper(tmp_path: Path) -> AsyncIterator[Keeper]:
    """Return the keeper of a run."""
    with trio.fail_after(60):
        async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper:
            yield keeper


async def told(settings: Settings, keeper: Keeper, cwd: Path) -> Complaint | None:
    """Notify by the one channel that the settings name."""
    (channel,) = channels_of(settings)
    return await send(channel, NOTICE, run_id="r-1", keeper=keeper, cwd=cwd)


async def test_the_command_gets_the_text_and_what_it_is_about(keeper: Keeper, tmp_path: Path) -> None:
    """It reads the text, and knows the rest from its environment."""
    names = ("NOTICE", "NOTICE_TITLE", "RUN_ID", "STORY_ID", "DECISION")
    words = " ".join(f'"$AUTOPILOT_{name}"' for name in names)
    command = f"cat > told; printf '%s\\n' {words} > who"
    assert await told(Settings(notify=command), keeper, tmp_path) is None
    assert (tmp_path / "told").read_text() == "A) red\nB) blue\n"
    assert (tmp_path / "who").read_text().splitlines() == ["question", "a asks: Which?", "r-1", "a", "a-1"]


async def test_without_settings_there_is_no_channel() -> None:
    """Nothing is started for nobody."""
    assert channels_of(Settings(notify=" ")) == ()


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("echo no bus >&2; exit 3", "exit code 3: no bus"),
        ("kill -9 $$", "signal 9"),
        ("no-such-program-7431", "exit code 127"),
    ],
)
async def test_a_command_that_fails_is_a_complaint(
    keeper: Keeper, tmp_path: Path, command: str, problem: str
) -> None:
    """The user reads why there was no notification."""
    complaint = await told(Settings(notify=command), keeper, tmp_path)
    assert complaint is not None
    assert complaint.words.startswith(f"the notify command failed: {problem}")
    assert not complaint.hung


async def test_a_command_that_cannot_start_is_a_complaint(keeper: Keeper, tmp_path: Path) -> None:
    """Not even a folder that is gone is an error of the run."""
    assert await told(Settings(notify="true"), keeper, tmp_path / "missing") is not None


async def test_a_command_that_hangs_is_ended(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is bounded, and none of its processes is left."""
    monkeypatch.setattr(channels, "NOTIFY_SECONDS", 0.5)
    complaint = await told(Settings(notify="sleep 60 & echo $! > pid; wait"), keeper, tmp_path)
    assert complaint is not None
    assert complaint.hung
    assert "ended after 0.5 s" in complaint.words
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_the_desktop_gets_title_and_text_as_arguments(
    keeper: Keeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The words are no part of any script; where there is no such program, that is said."""
    fake = tmp_path / "bin"
    fake.mkdir()
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    for name, first in (("osascript", "-e"), ("notify-send", "--app-name=autopilot-multi")):
        program = fake / name
        program.write_text(
            f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], open('seen', 'w'))\n"
        )
        program.chmod(0o755)
        assert await told(Settings(notify_desktop=True), keeper, tmp_path) is None
        seen = json.loads((tmp_path / "seen").read_text())
        assert (seen[0], seen[-2:]) == (first, ["a asks: Which?", "A) red\nB) blue"])
    monkeypatch.setenv("PATH", str(tmp_path))
    complaint = await told(Settings(notify_desktop=True), keeper, tmp_path)
    assert complaint is not None
    assert "notify-send" in complaint.words


def test_nothing_of_a_url_is_shown_but_its_service() -> None:
    """Tokens may be anywhere in it."""
    assert hidden_url("slack://T1/secret/x?y=z") == "slack://[redacted]"
    assert hidden_url("secret") == "[redacted]"
    assert hidden_url("sec ret://x") == "[redacted]"


def test_limits_are_told_once_and_waits_of_one_story_not_at_all() -> None:
    """A rate limit stops every session of an agent; a hiccup of its service only repeats one."""
    run = snapshot([started("a")])
    pause = ag.AgentPaused(story_id=StoryId("a"), agent="claude", reason="429", until=START, everyone=True)
    limit = notice_of(event(1, pause), run)
    assert limit is not None
    assert (limit.kind, limit.key) == (NoticeKind.LIMIT, f"claude {START:.0f}")
    assert limit.title.startswith("claude is at a limit until ")
    assert notice_of(event(1, structs.replace(pause, everyone=False)), run) is None
    spent = ev.AdmissionEnded(name="cost-budget-exceeded", detail="$5 of $5", hint="")
    assert notice_of(event(1, spent), run) == Notice(
        kind=NoticeKind.LIMIT, title="no more sessions start: $5 of $5", key="cost-budget-exceeded"
    )
    assert notice_of(event(1, ev.AdmissionEnded(name="user-abort", detail="", hint="")), run) is None
