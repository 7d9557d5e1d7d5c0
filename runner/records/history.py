"""What earlier runs in this repository have already finished, and how long that took."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from runner.core.choose import LAST_FAILURE
from runner.core.events.fold import fold
from runner.core.events.story_json import digest
from runner.core.flow import QUICK
from runner.core.model import (
    Decision,
    Memory,
    RunId,
    RunSnapshot,
    SessionKind,
    SessionRecord,
    Status,
    Story,
    StoryId,
    StorySnapshot,
)
from runner.core.text.instants import elapsed_seconds
from runner.records.journal import Journal

RUNS_LOOKED_AT = 20
SECONDS_PER_MINUTE = 60


class Finished(Struct, frozen=True, kw_only=True):
    """A story that an earlier run finished, word for word the same work.

    `landed_as` is the commit as which a landing has brought it to a branch.
    """

    run_id: RunId
    commit: str | None
    commits: int
    next: str
    landed_as: str = ""


class Past(Struct, frozen=True, kw_only=True):
    """What earlier runs left of a story, besides its state file.

    `failures` counts by step in how many consecutive runs, up to the newest, it failed; `reason` is the
    newest failure. `skipped` are the steps that the user chose to leave out. `answers` are what the user has
    decided, the oldest first; those in `pending` have had no effect yet. `memories` are what the state file
    has no section for, `session` is the newest session that worked on the story.
    """

    failures: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""
    skipped: tuple[str, ...] = ()
    answers: tuple[Decision, ...] = ()
    pending: tuple[Decision, ...] = ()
    memories: tuple[Memory, ...] = ()
    session: SessionRecord | None = None


class EarlierResults(Struct, frozen=True, kw_only=True):
    """What earlier runs left of a backlog: what they finished, and how many minutes each story took.

    `failed` says why stories failed in the newest run that had them, word for word the same.
    """

    finished: Mapping[StoryId, Finished] = field(default_factory=dict)
    minutes: Mapping[StoryId, Sequence[float]] = field(default_factory=dict)
    failed: Mapping[StoryId, str] = field(default_factory=dict)


def earlier_results(journal: Journal, stories: Iterable[Story]) -> EarlierResults:
    """Return which stories an earlier run finished, word for word the same, and how long they took.

    The newest run counts; once it is found for every story, older ones are not read.
    """
    wanted = {story.id: digest(story) for story in stories}
    found: dict[StoryId, Finished] = {}
    minutes: dict[StoryId, list[float]] = {}
    settled: set[StoryId] = set()
    tried: dict[StoryId, str] = {}
    landed: dict[StoryId, str] = {}
    for run_id in journal.runs()[:RUNS_LOOKED_AT]:
        if len(settled) == len(wanted):
            break
        run = fold(run_id, journal.events(run_id))
        for story in run.stories.values():
            if story.id in wanted and story.sessions and story.id not in tried:
                same = _digest_in(run, story.id) == wanted[story.id]
                tried[story.id] = story.reason if same and story.status is Status.FAILED else ""
            # One without sessions was done before: that run only repeated the result of an older one.
            if story.id not in wanted or story.status is not Status.DONE or not story.sessions:
                if story.workspace.landed_as:
                    landed.setdefault(story.id, story.workspace.landed_as)
                continue
            if (took := _minutes(story)) > 0:
                minutes.setdefault(story.id, []).append(took)
            if story.id not in settled:
                settled.add(story.id)
                if _digest_in(run, story.id) == wanted[story.id]:
                    found[story.id] = Finished(
                        run_id=run_id,
                        commit=story.workspace.commit,
                        commits=story.workspace.commits,
                        next=story.next,
                        landed_as=landed.get(story.id) or story.workspace.landed_as,
                    )
    failed = {story_id: reason for story_id, reason in tried.items() if reason}
    return EarlierResults(finished=found, minutes=minutes, failed=failed)


def _minutes(story: StorySnapshot) -> float:
    """Add up the sessions; what lies between them is not work."""
    seconds = (elapsed_seconds(session.started_at, session.ended_at) for session in story.sessions)
    return sum(each or 0.0 for each in seconds) / SECONDS_PER_MINUTE


def past_of(
    journal: Journal, stories: Iterable[Story], *, before: RunId, base: str = ""
) -> dict[StoryId, Past]:
    """Return what runs other than `before` left for stories that follow a flow; others have no such past.

    With a `base`, only runs that started from this commit count.
    """
    wanted = {story.id for story in stories if story.flow != QUICK.name}
    found: dict[StoryId, Past] = {}
    broken: set[tuple[StoryId, str]] = set()
    seen: set[StoryId] = set()
    if not wanted:
        return found
    for run_id in journal.runs()[: RUNS_LOOKED_AT + 1]:
        if run_id == before:
            continue
        run = fold(run_id, journal.events(run_id))
        for story in run.stories.values() if base in {"", run.base} else ():
            if story.id not in wanted or not story.started_at:
                continue
            past = found.get(story.id, Past())
            broken.update((story.id, number) for number in story.finished_steps)
            worked = [one for one in story.sessions if one.kind is SessionKind.WORK]
            pending = (story.decision,) if story.decision is not None and story.decision.letter else ()
            found[story.id] = past = replace(
                past,
                skipped=(*past.skipped, *(one for one in story.skipped_steps if one not in past.skipped)),
                answers=(*story.decided, *pending, *past.answers),
                # Only the newest run that had the story can still wait for something.
                pending=past.pending if story.id in seen else pending,
                memories=(*story.memories, *past.memories),
                session=past.session or (worked[-1] if worked else None),
            )
            seen.add(story.id)
            number = story.place.number
            if story.used_up and story.sessions and (story.id, number) not in broken:
                failures = {**past.failures, number: past.failures.get(number, 0) + 1}
                reason = past.reason or _failure_of(story)
                found[story.id] = replace(past, failures=failures, reason=reason)
    return found


def _failure_of(story: StorySnapshot) -> str:
    """Return why a story failed: as its question says it, else the reason of its result."""
    details = story.decision.question.get("details", ()) if story.decision else ()
    reasons = (line for line in map(str, details) if line.startswith(LAST_FAILURE))
    return next(reasons, story.reason).removeprefix(LAST_FAILURE)


def left_open(journal: Journal, stories: Iterable[Story], checkout: Path, *, before: RunId) -> set[StoryId]:
    """Return the stories that a killed run had open in the shared tree, and no other run has had since."""
    wanted, found = {story.id for story in stories}, set()
    for run_id in journal.runs()[: RUNS_LOOKED_AT + 1]:
        if not wanted:
            break
        if run_id == before:
            continue
        for story in fold(run_id, journal.events(run_id)).stories.values():
            if story.id in wanted and story.workspace.head is not None:
                wanted.discard(story.id)
                if not story.status.final and story.workspace.path == str(checkout):
                    found.add(story.id)
    return found


def overtaken(journal: Journal, run_id: RunId) -> dict[StoryId, RunId]:
    """Return the stories that newer runs have continued, and the newest of these runs."""
    found: dict[StoryId, RunId] = {}
    for newer in takewhile(lambda each: each != run_id, journal.runs()):
        for story in fold(newer, journal.events(newer)).stories.values():
            if story.started_at:
                found.setdefault(story.id, newer)
    return found


def without_overtaken(run: RunSnapshot, by: Collection[StoryId]) -> RunSnapshot:
    """Return a run whose questions are closed for stories that a newer run has continued."""
    stories = {
        story.id: replace(story, decision=None) if story.id in by else story for story in run.stories.values()
    }
    return replace(run, stories=stories)


def unfinished_of_newest(journal: Journal) -> tuple[StoryId, ...]:
    """Return the stories of the newest run that failed, and those that were skipped because of them."""
    run_id = journal.newest_run()
    run = fold(run_id, journal.events(run_id))
    return tuple(
        story.id for story in run.stories.values() if story.used_up or story.status is Status.SKIPPED
    )


def _digest_in(run: RunSnapshot, story_id: StoryId) -> object:
    digests = run.options.get("digests")
    return digests.get(story_id) if isinstance(digests, dict) else None
