"""What shards say about stories: which shard counts for which story, and what is left to do."""

from collections.abc import Collection, Iterable, Sequence

from msgspec.structs import replace

from runner.core.errors import NotFoundError
from runner.core.events.events import StoryFinished
from runner.core.events.fold import fold
from runner.core.events.story_json import digest
from runner.core.limits.budget import Amount, OtherJobs
from runner.core.model import SessionKind, SessionRecord, Status, Story, StoryId, Usage
from runner.core.schedule.budget_share import Share, most_of, share_now
from runner.records.shards.shard import Shard, ShardError

_UNFINISHED = frozenset({Status.FAILED, Status.SKIPPED})
_RESUMABLE = frozenset({Status.STOPPED, Status.PARKED, Status.SKIPPED})
NO_SHARD = "its job left no shard"
COMMAND = "command"
"""What the agent of a story with a `command` is called; it spends nothing."""


def newest(shards: Iterable[Shard]) -> dict[StoryId, Shard]:
    """Return the shard that counts for every story: a job that ran again replaces what it left before."""
    found: dict[StoryId, Shard] = {}
    for shard in sorted(shards, key=lambda shard: (shard.ended_at, shard.run_id)):
        found.update(dict.fromkeys(shard.stories, shard))
    return found


def unfinished_in(shards: Sequence[Shard]) -> tuple[StoryId, ...]:
    """Return the stories that failed in these shards, and those that were skipped because of them."""
    found = tuple(
        name
        for name, shard in newest(shards).items()
        if name in shard.verdicts and shard.verdicts[name].verdict in _UNFINISHED
    )
    if not found:
        raise NotFoundError("no story failed in these shards", hint="`autopilot-multi aggregate` shows them.")
    return found


def results_in(
    shards: Sequence[Shard], stories: Iterable[Story], *, base: str, rerun_unfinished: bool
) -> dict[StoryId, StoryFinished]:
    """Return the results that other jobs have for `stories`.

    With `rerun_unfinished`, stories that they left unfinished are left out, so that they run; without it, a
    story that no shard has counts as stopped.
    """
    sources = newest(shards)
    results: dict[StoryId, StoryFinished] = {}
    for story in stories:
        shard = sources.get(story.id)
        if shard is None or story.id not in shard.verdicts:
            if not rerun_unfinished:
                results[story.id] = StoryFinished(story_id=story.id, verdict=Status.STOPPED, reason=NO_SHARD)
            continue
        _require_same(shard, story, base)
        verdict = shard.verdicts[story.id]
        if not (rerun_unfinished and verdict.verdict in _RESUMABLE):
            results[story.id] = verdict
    return results


def handed_on(
    shards: Sequence[Shard], stories: Iterable[Story], *, only: Collection[str], base: str
) -> dict[StoryId, StoryFinished]:
    """Return those stories of a job that an earlier attempt has done already, on the parents that count now.

    `stories` are in start order. A story whose parent runs again must run again, too.
    """
    sources = newest(shards)
    found: dict[StoryId, StoryFinished] = {}
    for story in stories:
        shard = sources.get(story.id)
        if story.id not in only or shard is None or shard.base != base:
            continue
        result = shard.verdicts.get(story.id)
        if result is None or result.verdict != Status.DONE or shard.digest_of(story.id) != digest(story):
            continue
        if all(
            (name in found or name not in only) and _same_result(shard, sources.get(name), name)
            for name in story.depends_on
        ):
            found[story.id] = result
    return found


def used_in(
    shards: Sequence[Shard], *, base: str, limit: Amount | None = None, share: Share | None = None
) -> OtherJobs:
    """Return what the jobs of a pipeline have used together; every attempt counts, since it was paid for.

    What their sessions spent also decides how much of the rest of the `limit` the `share` of this job is.
    """
    jobs = {shard.run_id: shard for shard in shards if shard.base == base}.values()
    usage, sessions = Usage(), []
    for shard in jobs:
        run = fold(shard.run_id, shard.events)
        for name in shard.stories:
            usage += run.stories[name].usage
            sessions += [each.usage for each in run.stories[name].sessions if _tells_the_price(each)]
    used = OtherJobs(
        tokens=usage.tokens or 0,
        cost=usage.cost_usd or 0.0,
        seconds=_covered((shard.events[0].at, shard.ended_at) for shard in jobs),
    )
    left = used.left_of(limit or Amount())
    return replace(used, share=share_now(share or Share(), left, most_of(sessions)))


def _tells_the_price(session: SessionRecord) -> bool:
    """Whether a session shows what others will spend: one of an agent that has ended."""
    return session.kind is SessionKind.WORK and session.ended_at is not None and session.agent != COMMAND


def _same_result(shard: Shard, counting: Shard | None, name: StoryId) -> bool:
    """Return whether a shard was made with the result of a dependency that counts now."""
    if counting is shard:
        return True
    then, now = shard.verdicts.get(name), counting.verdicts.get(name) if counting else None
    return then is not None and now is not None and (then.verdict, then.commit) == (now.verdict, now.commit)


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Return how long at least one span lasted: what ran in parallel counts once, and gaps not at all."""
    total, until = 0.0, 0.0
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _require_same(shard: Shard, story: Story, base: str) -> None:
    if shard.base != base:
        raise ShardError(
            f"{shard.path} starts from commit {shard.base[:12]}, and this run from {base[:12]}",
            hint="all jobs must check out the same commit; `--base` names it.",
        )
    if shard.digest_of(story.id) != digest(story):
        raise ShardError(
            f"{shard.path} holds another story '{story.id}' than this backlog",
            hint="all jobs must use the same backlog; run the older one again.",
        )
