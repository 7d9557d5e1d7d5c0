"""How stories are carried out by real agents here, and what the run left about them."""

import json
import sqlite3
import time
from pathlib import Path
from typing import Any

from tests.acceptance.program import Ran, run, write_story
from tests.real_agents.conftest import Stage

PATIENCE = 240.0
"""Some of these programs take long to start, and more so beside each other."""


SUBSCRIBED = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-scripted-0123456789abcdef"}
"""By this claude takes itself for signed in with a subscription, and listens to headers about its limit."""


def limit(*, seconds: int) -> dict[str, Any]:
    """Return the refusal of a subscription that is at its limit for so long, as its service words it."""
    prefix = "anthropic-ratelimit-unified"
    reset = str(int(time.time()) + seconds)
    headers = {f"{prefix}-status": "rejected", f"{prefix}-reset": reset}
    headers |= {f"{prefix}-representative-claim": "five_hour", f"{prefix}-5h-reset": reset}
    return {"at": 0, "status": 429, "headers": headers}


def carry_one(stage: Stage, body: str, *arguments: str, env: dict[str, str] | None = None) -> Ran:
    """Carry one story out."""
    write_story(stage.repo, "a", body=body, agent=stage.agent)
    return run(
        stage.repo, "--json", stage.model, *arguments, env={**stage.env, **(env or {})}, limit=PATIENCE
    )


def work_sessions(repo: Path) -> list[dict[str, Any]]:
    """Read the records of work sessions."""
    path = repo / ".orchestrator" / "metrics" / "sessions.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [record for record in records if record["session_kind"] == "work"]


def events(repo: Path, kind: str) -> list[dict[str, Any]]:
    """Read the events of one kind from the journal."""
    with sqlite3.connect(f"file:{repo}/.git/autopilot/journal.db?mode=ro", uri=True) as journal:
        rows = journal.execute("SELECT data FROM events WHERE kind = ? ORDER BY seq", (kind,)).fetchall()
    return [json.loads(row[0]) for row in rows]


def alive(run_id: str) -> list[str]:
    """Find processes that carry the run's mark in their environment."""
    mark = f"AUTOPILOT_RUN_ID={run_id}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found
