"""Real claude and codex, silent while their service is: neither is taken for dead, and a dead one still is.

The program that they run under is the real one, in this process, so that its windows of silence can be set
below what a person may set. What is shortened are settings and the agent's own figure; no check is left out.
"""

from typing import Any

import pytest
from msgspec.structs import replace

from runner.agents.known.claude import ClaudeAgent
from runner.core import settings
from runner.core.declaration import Bounds
from runner.core.model import Status, StorySnapshot
from tests.acceptance.program import write_story
from tests.real_agents.conftest import Stage
from tests.story.test_kill_switches import carry, story, switch_of

pytestmark = pytest.mark.agents
BOTH = pytest.mark.parametrize("agent", ["claude", "codex"])
QUIETS = {
    "claude": "runner.agents.known.claude.ClaudeAgent.traits",
    "codex": "runner.agents.known.codex.QUIET",
}
WINDOW = 3.0
"""Two of them, and a session that shows no sign of life is ended."""
SILENCE = 20
WORK = {"write": ["a.txt", "made"]}


class Silence:
    """One story whose service is silent for a while, under windows of a few seconds."""

    def __init__(self, stage: Stage, patch: pytest.MonkeyPatch) -> None:
        self._stage = stage
        self._patch = patch
        for name in ("stall-seconds", "inactivity-timeout"):
            patch.setitem(settings.BOUNDS, name, Bounds(low=0.1, high=100))
        # An idle program has a pulse; a starting one does more than that.
        patch.setattr("runner.core.limits.stall.BUSY_SHARE", 0.05)
        for name, value in stage.env.items():
            patch.setenv(name, value)

    def may_last(self, seconds: float) -> None:
        """Say how long the agent may be silent in good health."""
        traits = replace(ClaudeAgent.traits, quiet_seconds=seconds)
        claude = self._stage.agent == "claude"
        self._patch.setattr(QUIETS[self._stage.agent], traits if claude else seconds)

    async def carry(self, fault: dict[str, Any]) -> StorySnapshot:
        """Carry the story out."""
        body = self._stage.play("a", WORK, faults=({"at": 0, **fault},))
        write_story(self._stage.repo, "a", body=body, agent=self._stage.agent)
        model = self._stage.model.partition("=")[2]
        ended = await carry(self._stage.repo, stall_seconds=WINDOW, grace_seconds=1, model=model)
        return story(ended, "a")


@pytest.fixture
def silence(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Silence:
    """Return the story and its windows."""
    return Silence(stage, monkeypatch)


@BOTH
async def test_a_stalled_stream_is_waited_for(stage: Stage, silence: Silence) -> None:
    """A reply that stops in its middle for several windows, and no longer than is healthy: it recovers."""
    stage.configure(codex=(f"stream_idle_timeout_ms={SILENCE * 1000 - 5000}",))
    # A silence is noted after half of this, which must not be the moment at which it ends.
    silence.may_last(3 * SILENCE)
    found = await silence.carry({"stall": SILENCE})
    assert (found.status, found.stalls, found.progress.attempt, len(found.sessions)) == (Status.DONE, 0, 1, 1)


@BOTH
async def test_the_same_silence_ends_an_agent_that_should_have_spoken(silence: Silence) -> None:
    """The check is there: with nothing that explains it, as long a silence is a stall."""
    silence.may_last(0)
    assert switch_of(await silence.carry({"stall": SILENCE, "times": 9}))[0] == "stall-timeout"


@BOTH
async def test_an_announced_retry_is_waited_for(silence: Silence) -> None:
    """Acceptance 36: told to come back later, the agent says so and is silent for several windows."""
    silence.may_last(0)
    found = await silence.carry({"status": 429, "after": SILENCE})
    assert (found.status, found.stalls, found.progress.attempt, len(found.sessions)) == (Status.DONE, 0, 1, 1)
