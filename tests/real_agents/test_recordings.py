"""Recordings of the real programs' output, made here and compared with what the programs print today.

`RECORD_STREAMS=1 make agents` writes them anew; the ordinary tests and the benchmarks read them.
"""

import os
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.agents.recordings.reading import FOLDER, hear
from tests.real_agents.conftest import Stage
from tests.real_agents.programs import PREFIX
from tests.real_agents.stories import SUBSCRIBED, carry_one, limit

pytestmark = pytest.mark.agents
DONE = ({"write": ["a.txt", "made"]}, {"sh": "seq 1 300; git add -A && git commit -q -m work"})
BAD_KEY = {"at": "*", "status": 401, "times": 999}
OVERLOAD = {"at": 0, "status": 529}


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """What is played for one recording."""

    acts: tuple[dict[str, Any], ...] = DONE
    faults: tuple[dict[str, Any], ...] = ()
    bypass: bool = True
    env: dict[str, str] = field(default_factory=dict)
    codex: tuple[str, ...] = ()


def takes() -> dict[str, Take]:
    """Return every recording by its name; the first word is the agent."""
    agents = ("claude", "codex", "opencode", "gemini", "qwen", "aider")
    found = {f"{agent}-done": Take() for agent in agents}
    found |= {f"{agent}-bad-key": Take(faults=(BAD_KEY,)) for agent in agents}
    found["claude-overload"] = Take(faults=(OVERLOAD,))
    found["codex-overload"] = Take(faults=(OVERLOAD,), codex=("request_max_retries=0",))
    found["claude-denied"] = Take(acts=({"sh": "wget example.com"},), bypass=False)
    found["claude-limit"] = Take(faults=(limit(seconds=10),), env=SUBSCRIBED)
    return found


@pytest.mark.parametrize(("agent", "name"), [(name.partition("-")[0], name) for name in takes()])
def test_the_program_still_prints_what_was_recorded(stage: Stage, agent: str, name: str) -> None:
    """A fresh session tells the same as the recorded one: tools, tokens, cost and last word."""
    take = takes()[name]
    stage.configure(bypass=take.bypass, codex=take.codex)
    carry_one(
        stage,
        stage.play("a", *take.acts, faults=take.faults),
        env=take.env,
    )
    log, *_ = sorted((stage.repo / ".git" / "autopilot" / "runs").glob("*/a/01-*.log"))
    stream = scrubbed(log.read_text(), stage)
    if os.environ.get("RECORD_STREAMS"):
        (FOLDER / f"{name}.log").write_text(stream)
    fresh, recorded = hear(agent, stream.encode()), hear(agent, (FOLDER / f"{name}.log").read_bytes())
    assert fresh == recorded


def scrubbed(text: str, stage: Stage) -> str:
    """Take out what belongs to this machine and this moment."""
    base = stage.repo.parent
    places = {
        f"{base}/repo.worktrees/a": "/example/story",
        f"{base}/repo": "/example/repo",
        str(base): "/example",
        str(PREFIX): "/example/agents",
        stage.url: "http://127.0.0.1:8000",
    }
    for found, told in places.items():
        # Some programs make a name of a path.
        for before, after in ((found, told), (re.sub(r"[/._]", "-", found), told.replace("/", "-"))):
            text = text.replace(before, after)
    return re.sub(r"/[^\s\"']*/node_modules", "/example/agents/node_modules", text)
