"""A run as the one JSON object that `run`, `resume`, `status` and `aggregate` share.

It holds instants, never durations; every status has a count; null means unknown or not yet.
"""

from typing import Any

from msgspec import structs
from msgspec.structs import replace

from runner.core.left_out.evidence import RESOLVE, RETRY
from runner.core.model import (
    Decision,
    RunSnapshot,
    SessionKind,
    SessionRecord,
    Status,
    StorySnapshot,
    Usage,
    Wait,
)
from runner.core.outlook.left import Outlook, Range
from runner.core.outlook.waiting import Waiting, waiting
from runner.core.progress.base import BaseCheck
from runner.core.progress.candidates import Candidate
from runner.core.progress.draft import Draft
from runner.core.progress.repositories import HOME
from runner.core.schedule.offers import next_command
from runner.core.text.instants import iso, iso_or_none
from runner.core.text.words import awaited
from runner.report.forecast_document import run_forecast
from runner.report.landing_document import landing_document

_COUNTED = (
    Status.DONE,
    Status.FAILED,
    Status.PARKED,
    Status.SKIPPED,
    Status.STOPPED,
    Status.NO_WORK,
    Status.RUNNING,
    Status.WAITING,
    Status.QUEUED,
)


def with_outlook(document: dict[str, Any], run: RunSnapshot, found: Outlook, now: float) -> dict[str, Any]:
    """Add to the document of an active run what each story waits for, and what is expected of it and the run.

    They are only in the document of `status`: at the end of a run nothing is expected any more.
    """
    stories = [
        {
            **story,
            "waits_for": _waits_for(waiting(run.stories[story["id"]], run, now)),
            "expected_end": _expected_end(found.stories.get(story["id"]), now),
            "expected_cost_usd": found.cost.get(story["id"]),
        }
        for story in document["stories"]
    ]
    return {
        **document,
        "stories": stories,
        "expected_end": _expected_end(found.left, now),
        "expected_cost_usd": found.cost_usd,
        "expected_tokens": None if found.tokens is None else round(found.tokens),
    }


def _waits_for(found: Waiting | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "cause": found.cause.value,
        "words": found.words,
        "until": iso_or_none(found.until),
        "detail": found.detail,
    }


def _expected_end(left: Range | None, now: float) -> dict[str, str] | None:
    if left is None:
        return None
    return {
        "earliest": iso(now + left.low),
        "likely": iso(now + left.likely),
        "latest": iso(now + left.high),
    }


def run_document(run: RunSnapshot, *, alive: bool = True, landing: str = "") -> dict[str, Any]:
    """Return the run as JSON values. `alive`: a coordinator is still working on it.

    `landing` is the id of the landing that is in progress.
    """
    shown = settled(run, alive=alive and not run.ended)
    counts = shown.counts
    return {
        "run_id": shown.run_id,
        "state": "running" if alive and not shown.ended else "ended",
        "started_at": iso(shown.started_at),
        "ended_at": iso_or_none(shown.ended_at),
        "base": shown.base,
        "repos": [
            {
                "name": info.name,
                "path": info.path,
                "base": info.base,
                "url": info.url or None,
                "home": name == HOME,
            }
            for name, info in shown.repos.items()
        ],
        "isolation": shown.isolation,
        "enforcement": shown.enforcement,
        "tier": shown.tier.value,
        "window": shown.window,
        "paused": shown.paused,
        "kill_switch": structs.asdict(shown.kill_switch) if shown.kill_switch else None,
        "base_checks": [_base_check(check) for check in shown.base_checks],
        "counts": {status.value: counts[status] for status in _COUNTED},
        "usage": _usage(shown.usage),
        "stories": [
            story_document(story, repo=shown.repo_name(story.repo)) for story in shown.stories.values()
        ],
        "decisions": [
            {"story_id": story.id, **_decision(story.decision)}
            for story in shown.open_decisions
            if story.decision is not None
        ],
        "forecast": run_forecast(shown),
        "landings": [landing_document(one, alive=landing == one.id) for one in shown.landings],
        "next": next_command(shown) or None,
        "notes": [{"story_id": note.story_id, "message": note.message} for note in shown.notes],
    }


def _base_check(check: BaseCheck) -> dict[str, Any]:
    return {
        "command": check.command,
        "repo": check.repo or None,
        "general": check.shared,
        "answer": check.answer or None,
        "exit_code": check.exit_code,
        "detail": check.detail,
        "output": list(check.output),
        "known": check.known,
        "started_at": iso(check.started_at),
        "ended_at": iso_or_none(check.ended_at),
        "log": check.log or None,
    }


def settled(run: RunSnapshot, *, alive: bool) -> RunSnapshot:
    """Return the run as readers should see it: without a coordinator nothing in it is running."""
    if alive:
        return run
    return _decided(run if run.ended else _interrupted(run))


def _decided(run: RunSnapshot) -> RunSnapshot:
    """Mark stories whose question was answered since: they only wait for `resume`, or for `land`."""
    stories = dict(run.stories)
    for story in run.stories.values():
        if story.decision is None or not story.decision.letter:
            continue
        resume = f"autopilot-multi resume {run.run_id}"
        if story.status is Status.PARKED:
            stories[story.id] = replace(story, reason=f"decided: {story.decision.letter}", next=resume)
        elif decided := _about_landing(story.decision):
            following = {RETRY: resume, RESOLVE: "autopilot-multi land"}.get(decided, story.next)
            workspace = replace(story.workspace, unlanded=f"{story.workspace.unlanded} (decided: {decided})")
            stories[story.id] = replace(story, next=following, workspace=workspace)
    return replace(run, stories=stories)


def _about_landing(decision: Decision) -> str:
    """Return the word of the answer about a story that was left out; empty for any other question."""
    options = (one for one in decision.question.get("options", ()) if one.get("letter") == decision.letter)
    return next((str(one.get("word", "")) for one in options), "")


def _interrupted(run: RunSnapshot) -> RunSnapshot:
    """Stop what was running when the coordinator died."""
    stories = dict(run.stories)
    for story in run.stories.values():
        if story.status.final:
            continue
        ran = story.status is Status.RUNNING
        stories[story.id] = replace(
            story,
            status=Status.STOPPED if ran else story.status,
            reason="the run was interrupted" if ran else story.reason,
            next=f"autopilot-multi resume {run.run_id}",
            last_line="",
        )
    return replace(run, stories=stories)


def story_document(story: StorySnapshot, *, repo: str = "") -> dict[str, Any]:
    """Return one story of a run as JSON values; `repo` is its repository, if there are several."""
    return {
        "id": story.id,
        "title": story.title,
        "repo": repo or None,
        "status": story.status.value,
        "reason": story.reason,
        "branch": story.workspace.branch,
        "base": story.workspace.base,
        "commit": story.workspace.commit,
        "commits": story.workspace.commits,
        "merged": story.workspace.merged or None,
        "not_landed": story.workspace.unlanded or None,
        "draft": _draft(story.workspace.draft),
        "workspace": story.workspace.path,
        "ports": list(story.workspace.ports),
        "database": story.workspace.database or None,
        "step": {"number": story.step.number, "name": story.step.name},
        "attempt": story.progress.attempt,
        "max_attempts": story.max_attempts,
        "retry_count": story.retry_count,
        "sessions": len(story.sessions),
        **_worker(story),
        "waiting": _wait(now) if (now := awaited(story)) else None,
        "waits": [_wait(wait) for wait in story.waits],
        "started_at": iso_or_none(story.started_at),
        "ended_at": iso_or_none(story.ended_at),
        "kill_switch": structs.asdict(story.kill_switch) if story.kill_switch else None,
        "decision": _decision(story.decision) if story.decision else None,
        "candidates": [_candidate(one) for one in story.candidates],
        "review": structs.asdict(story.review) if story.review else None,
        "usage": _usage(story.usage),
        "next": story.next,
    }


def _draft(draft: Draft | None) -> dict[str, Any] | None:
    if draft is None or not draft.number:
        return None
    return {
        "number": draft.number,
        "url": draft.url,
        "base": draft.base,
        "commit": draft.commit,
        "review_rounds": draft.rounds,
        "queued": draft.queued,
    }


def session_document(session: SessionRecord) -> dict[str, Any]:
    """Return one session as JSON values."""
    return {
        "id": session.id,
        "kind": session.kind.value,
        "step": {"number": session.step.number, "name": session.step.name},
        "attempt": session.attempt,
        "agent": session.agent or None,
        "model": session.model or None,
        "started_at": iso(session.started_at),
        "ended_at": iso_or_none(session.ended_at),
        "outcome": session.outcome.value if session.outcome else None,
        "detail": session.detail,
        "conversation": session.conversation or None,
        "usage": _usage(session.usage),
        "log": session.log,
    }


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "number": candidate.number,
        "agent": candidate.agent or None,
        "verdict": candidate.verdict,
        "reason": candidate.reason,
        "hidden_verify": candidate.hidden or None,
        "branch": candidate.branch,
        "commit": candidate.commit or None,
        "files": candidate.files,
        "lines": candidate.lines,
        "cost_usd": candidate.cost_usd,
        "tokens": candidate.tokens,
        "chosen": candidate.chosen,
    }


def _wait(wait: Wait) -> dict[str, Any]:
    return {
        "for": wait.what,
        "reason": wait.reason,
        "since": iso(wait.since),
        "until": iso_or_none(wait.until),
    }


def _worker(story: StorySnapshot) -> dict[str, Any]:
    """Return who worked last; null before the first session."""
    last = next((one for one in reversed(story.sessions) if one.kind is SessionKind.WORK), None)
    return {
        "agent": last.agent or None if last else None,
        "model": last.model or None if last else None,
        "escalated": last.escalated if last else False,
    }


def _decision(decision: Decision) -> dict[str, Any]:
    return {
        "id": decision.id,
        "question": dict(decision.question),
        "asked_at": iso(decision.asked_at),
        "answer": decision.letter or None,
        "by": decision.by or None,
    }


def _usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": usage.cost_usd,
        "cost_estimated": usage.estimated,
    }
