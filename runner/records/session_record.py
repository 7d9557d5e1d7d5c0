"""The line of one session, in a form that passes the schema of other programs that keep `sessions.jsonl`.

That schema demands numbers and instants where a session may have reported none. Such a value is filled in
with what is known of the session from outside, and the field is named under `assumed`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.core.model import MULTI_STORY, Outcome, RunSnapshot, SessionKind, SessionRecord, StorySnapshot
from runner.core.schedule.exclusivity import session_type
from runner.core.text.instants import iso

SCHEMA_VERSION = 1
COMPLETED, ABANDONED = "completed", "abandoned"

_AGENT_OUTCOMES = ("complete", "partial", "failed", "spiral")
_OWN_OUTCOME: Mapping[Outcome | None, str] = {Outcome.OK: "complete", Outcome.FAILED: "failed"}
_CUT_SHORT = {None, Outcome.STOPPED, Outcome.STALLED, Outcome.STUCK}


def loop_id(run: RunSnapshot, story: StorySnapshot) -> str:
    """Name one story's loop in one run; unique because run ids and the ids of a backlog are."""
    return f"{run.run_id}/{story.id}"


def session_record(
    run: RunSnapshot, story: StorySnapshot, session: SessionRecord, *, top: Path
) -> dict[str, Any]:
    """Build the line of one session. `top` is the repository that paths are relative to."""
    mode = session.mode or story.mode or MULTI_STORY
    demanded, assumed = _demanded(session)
    effect = session.effectiveness
    return {
        "schema_version": SCHEMA_VERSION,
        "session_id": session.id,
        "session_type": session_type(mode),
        "session_kind": session.kind.value,
        "mode": mode,
        "autopilot_run_id": loop_id(run, story),
        "parent_run_id": run.run_id,
        "agent_identity": session.agent or None,
        "model": session.model or None,
        "escalated": session.escalated,
        "step": session.step.name,
        "attempt": session.attempt,
        "worktree_path": relative_path(story.workspace.path, top),
        "branch": story.workspace.branch,
        "started_at": iso(session.started_at),
        **demanded,
        "status": ABANDONED if session.outcome in _CUT_SHORT else COMPLETED,
        "outcome": session.outcome.value if session.outcome else "running",
        "effectiveness": {
            "planned_issues": effect.get("planned_issues"),
            "carryover": effect.get("carryover"),
            "completion_rate": _completion(effect),
        },
        "input_tokens": session.usage.input_tokens,
        "output_tokens": session.usage.output_tokens,
        "total_tokens": session.usage.tokens,
        "cost_usd": session.usage.cost_usd,
        "cost_estimated": session.usage.estimated,
        "tool_uses": session.tools,
        "conversation": session.conversation or None,
        "agents_per_wave": session.agents_per_wave,
        "assumed": assumed,
    }


def relative_path(workspace: str | None, top: Path) -> str | None:
    """Return where a workspace is, relative to the repository; None where there is none."""
    return None if workspace is None else os.path.relpath(top / workspace, top)


def _demanded(session: SessionRecord) -> tuple[dict[str, Any], list[str]]:
    """Return what the schema does not allow to be null, and which of it was not reported."""
    works = session.kind is SessionKind.WORK  # a verify command has neither agents nor waves nor a commit
    summary = dict.fromkeys(_AGENT_OUTCOMES, 0)
    if session.summary:
        summary |= {name: max(0, session.summary.get(name, 0)) for name in _AGENT_OUTCOMES}
    elif works:
        summary[_OWN_OUTCOME.get(session.outcome, "partial")] = 1
    waves = _waves(session)
    if session.total_waves is None and session.waves is None and works:
        waves = [{"wave": 1, "role": session.step.name}]
    # The end of a session that was killed with its run is unknown; when it started, it was alive.
    ended = session.started_at if session.ended_at is None else max(session.ended_at, session.started_at)
    missing = {
        "completed_at": session.ended_at is None,
        "total_waves": works and session.total_waves is None,
        "waves": works and session.waves is None,
        "agent_summary": works and not session.summary,
        "total_agents": works and not session.summary,
        "total_files_changed": works and session.files_changed is None,
    }
    values = {
        "completed_at": iso(ended),
        "duration_seconds": round(ended - session.started_at, 3),
        "total_waves": len(waves) if session.total_waves is None else max(0, session.total_waves),
        "waves": waves,
        "agent_summary": summary,
        "total_agents": sum(summary.values()),
        "total_files_changed": session.files_changed or 0,
    }
    return values, [name for name, unknown in missing.items() if unknown]


def _waves(session: SessionRecord) -> list[dict[str, Any]]:
    """Return the waves that a session reported; one without a number or a role gets its own."""
    return [_wave(wave, number, session.step.name) for number, wave in enumerate(session.waves or (), 1)]


def _wave(wave: Any, number: int, step: str) -> dict[str, Any]:
    if not isinstance(wave, dict):
        return {"wave": number, "role": step, "reported": wave}
    own, role = wave.get("wave"), wave.get("role")
    numbered = isinstance(own, int | float) and not isinstance(own, bool) and own >= 1
    return {
        **wave,
        "wave": own if numbered else number,
        "role": role if isinstance(role, str) and role else step,
    }


def _completion(effect: Mapping[str, float]) -> float | None:
    """Return the completed share of what was planned, from whatever the session reported of it."""
    if "completion_rate" in effect:
        return effect["completion_rate"]
    planned, completed, carryover = (
        effect.get(name) for name in ("planned_issues", "completed", "carryover")
    )
    if not planned:
        return None
    if completed is None and carryover is not None:
        completed = planned - carryover
    return None if completed is None else round(completed / planned, 4)
