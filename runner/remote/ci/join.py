"""Joins shards into one run: which shard counts for which story, what is missing, what contradicts.

Pure: the same shards give the same run in any order. Missing, contradictory and foreign parts are reported,
the others are joined, and the run is not a success.
"""

import hashlib
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from runner.core.events import events as ev
from runner.core.events.fold import EXIT_SYSTEM, apply, exit_code, fold
from runner.core.events.story_json import from_json, to_json
from runner.core.model import RunId, RunSnapshot, Status, StoryId
from runner.core.schedule.graph import ordered
from runner.core.text.names import did_you_mean
from runner.core.trust import IMPORTED
from runner.records.shards.results import NO_SHARD, newest
from runner.records.shards.shard import HANDED_ON, Shard, ShardError, Torn, backlog_of

NOTHING = "no shards found: did the jobs write them with `--shard-out`, and were their artifacts fetched?"
_LEFT_BEHIND = "it was on the machine of the CI job"


class JoinedRun(Struct, frozen=True, kw_only=True):
    """One run made of shards. `problems` make it fail, `remarks` do not.

    `sources` holds the shard that counts for each story, `missing` the stories that have none. `usable` are
    all shards of the run, also those that a newer one has replaced.
    """

    run: RunSnapshot
    events: tuple[ev.Event, ...]
    sources: Mapping[StoryId, Shard]
    usable: tuple[Shard, ...]
    missing: tuple[StoryId, ...]
    problems: tuple[str, ...]
    remarks: tuple[str, ...]

    @property
    def shards(self) -> list[Shard]:
        """The shards that count for at least one story."""
        return list({shard.run_id: shard for shard in self.sources.values()}.values())

    @property
    def exit_code(self) -> int:
        """The exit code that a single run would have; never 0 when there are problems."""
        return EXIT_SYSTEM if self.run.exit_code is None else self.run.exit_code


class Wanted(Struct, frozen=True, kw_only=True):
    """What a join must find: the required stories, by default the whole backlog, and their base commit.

    An empty `base` is that of most shards.
    """

    stories: tuple[StoryId, ...] | None = None
    base: str = ""


def join(
    shards: Sequence[Shard],
    *,
    wanted: Wanted | None = None,
    problems: Sequence[str] = (),
    torn: Sequence[Torn] = (),
    now: float = 0.0,
) -> JoinedRun:
    """Join shards; `problems` are those of shards that could not be loaded, also of `torn` ones.

    `now` is when a run without any shard took place.
    """
    wanted = wanted or Wanted()
    single, remarks, doubled = _distinct(shards)
    distinct, foreign = _of_one_run(single, wanted.base)
    nothing = () if distinct else (NOTHING,)
    sources, backlog = newest(distinct), backlog_of(distinct)
    remarks += _repeated(distinct, sources)
    required = dict.fromkeys(wanted.stories if wanted.stories is not None else backlog)
    missing = tuple(name for name in required if name not in sources)
    recorded = _known_elsewhere(distinct, sources)
    absent = (_absence(name, recorded) for name in missing)
    replaced = {each.problem for each in torn if _is_replaced(each, sources)}
    remarks += [f"{line} A newer run of its job is used." for line in problems if line in replaced]
    problems = [line for line in problems if line not in replaced]
    found = [*nothing, *problems, *doubled, *foreign, *absent, *_contradictions(sources)]
    run_id = _run_id(distinct, now)
    entries = _entries(distinct, backlog, [*sources, *recorded, *missing])
    others = {**dict.fromkeys(missing), **recorded}
    ended = max((shard.ended_at for shard in distinct), default=now)
    bodies = sorted(_bodies(run_id, distinct, sources, others, ended), key=lambda event: event.at)
    begin = _begin(run_id, distinct, entries) if distinct else _blank(run_id, wanted.base, entries, now)
    events = [begin, *bodies]
    run = fold(run_id, events)
    code = exit_code(run)
    last = ev.Event(
        run_id=run_id,
        at=ended,
        body=ev.RunEnded(exit_code=EXIT_SYSTEM if found and code == 0 else code),
    )
    return JoinedRun(
        run=apply(run, last),
        events=(*events, last),
        sources=sources,
        usable=tuple(distinct),
        missing=missing,
        problems=tuple(found),
        remarks=tuple(remarks),
    )


def with_problems(joined: JoinedRun, problems: Sequence[str]) -> JoinedRun:
    """Return the run with more problems, which make it fail."""
    if not problems:
        return joined
    failed = replace(joined.run, exit_code=joined.exit_code or EXIT_SYSTEM)
    return replace(joined, run=failed, problems=(*joined.problems, *problems))


def require_known(shards: Sequence[Shard], only: Iterable[str]) -> tuple[StoryId, ...]:
    """Return the ids in `only`; raise when no shard knows one of them."""
    known = backlog_of(shards)
    for name in only:
        if name not in known:
            raise ShardError(
                f"no shard has a story '{name}'",
                hint=did_you_mean(name, known) or f"known stories: {', '.join(known)}.",
            )
    return tuple(StoryId(name) for name in only)


def resumable_events(joined: JoinedRun) -> list[ev.Event]:
    """Return the events without the missing stories, so that `resume` can continue the run.

    It is marked as imported: another machine has written what it says.
    """
    found = []
    for event in joined.events:
        body = event.body
        if ev.story_of(body) in joined.missing:
            continue
        if isinstance(body, ev.RunStarted):
            kept = tuple(entry for entry in body.stories if entry["id"] not in joined.missing)
            body = replace(body, stories=kept, options={**body.options, IMPORTED: True})
        if isinstance(body, ev.RunEnded):
            found += [replace(event, body=ev.Noted(message=line)) for line in joined.problems]
        found.append(replace(event, body=body))
    return found


def _distinct(shards: Sequence[Shard]) -> tuple[list[Shard], list[str], list[str]]:
    """Drop copies: a shard that was found in two folders counts once, and two that differ not at all."""
    found: dict[RunId, Shard] = {}
    remarks, problems = [], []
    for shard in sorted(shards, key=lambda shard: (shard.run_id, str(shard.path))):
        first = found.setdefault(shard.run_id, shard)
        if first is shard:
            continue
        if first.files != shard.files:
            problems.append(
                f"{first.path} and {shard.path} are both run {shard.run_id} but differ, so neither is used: "
                "download the artifacts again into an empty folder"
            )
        elif HANDED_ON not in {shard.path.parent.name, first.path.parent.name}:
            remarks.append(f"two copies of the shard of run {shard.run_id}: {first.path} and {shard.path}")
    differing = {shard.run_id for shard in shards if shard.files != found[shard.run_id].files}
    return [shard for name, shard in found.items() if name not in differing], remarks, problems


def _of_one_run(shards: Sequence[Shard], base: str) -> tuple[list[Shard], list[str]]:
    """Return the shards that belong together, and what is wrong with the others.

    The commit and the text of a story that most shards have count; of equally many, the newest.
    """
    problems = []
    base = base or _usual((shard.base, shard) for shard in shards)
    kept = []
    for shard in shards:
        if shard.base == base:
            kept.append(shard)
        else:
            problems.append(
                f"{shard.path} is not used: it starts from commit {shard.base[:12]}, "
                f"and this run from {base[:12]}"
            )
    texts: dict[StoryId, list[tuple[str, Shard]]] = defaultdict(list)
    for shard in kept:
        for entry in shard.started.stories:
            name = StoryId(entry["id"])
            texts[name].append((shard.digest_of(name) or "", shard))
    for name, seen in texts.items():
        usual = _usual(seen)
        for text, shard in seen:
            if text != usual and shard in kept:
                kept.remove(shard)
                problems.append(
                    f"{shard.path} is not used: its story {name} differs from that of the other shards, "
                    "so it comes from another backlog"
                )
    return kept, problems


def _usual(values: Iterable[tuple[str, Shard]]) -> str:
    """Return the most frequent value; of equally frequent ones, that of the newest shard."""
    newest_of: dict[str, float] = defaultdict(float)
    times: Counter[str] = Counter()
    for value, shard in values:
        times[value] += 1
        newest_of[value] = max(newest_of[value], shard.ended_at)
    return max(times, key=lambda value: (times[value], newest_of[value], value), default="")


def _repeated(shards: Sequence[Shard], sources: Mapping[StoryId, Shard]) -> list[str]:
    remarks = []
    counted = Counter(name for shard in shards for name in shard.stories)
    for name in (name for name, times in counted.items() if times > 1):
        older = [
            f"{shard.run_id} ({_verdict(shard, name)})"
            for shard in shards
            if name in shard.stories and shard is not sources[name]
        ]
        counts = f"{sources[name].run_id} ({_verdict(sources[name], name)})"
        remarks.append(
            f"story {name} ran more than once: the newest run counts, {counts}, not {', '.join(older)}"
        )
    return remarks


def _is_replaced(torn: Torn, sources: Mapping[StoryId, Shard]) -> bool:
    """Whether newer runs have sound shards for all that a torn one was for, so that nothing is lost.

    Ids of runs begin with the time of their start.
    """
    newer = (name in sources and sources[name].run_id > torn.run_id for name in torn.stories)
    bases = {shard.base for shard in sources.values()}
    return bool(torn.stories) and torn.base in bases and all(newer)


def _verdict(shard: Shard, name: StoryId) -> str:
    found = shard.verdicts.get(name)
    return found.verdict if found else "no result"


def _known_elsewhere(shards: Sequence[Shard], sources: Mapping[StoryId, Shard]) -> dict[StoryId, ev.Event]:
    """Find the results of stories without a shard that other jobs recorded."""
    found: dict[StoryId, ev.Event] = {}
    for shard in shards:
        for event in shard.events:
            body = event.body
            if (
                isinstance(body, ev.StoryFinished)
                and body.story_id not in sources
                and body.reason != NO_SHARD
            ):
                found.setdefault(body.story_id, event)
    return found


def _absence(name: StoryId, recorded: Mapping[StoryId, ev.Event]) -> str:
    if name in recorded:
        return f"story {name} has no shard; the result that another job recorded is used"
    return f"story {name} has no shard: its job was killed before writing one, or the artifact is missing"


def _contradictions(sources: Mapping[StoryId, Shard]) -> Iterator[str]:
    """Find stories that started from a result of a dependency other than the one that counts."""
    for name, shard in sources.items():
        entry = next(entry for entry in shard.started.stories if entry["id"] == name)
        for dependency in entry["depends_on"]:
            recorded, counts = shard.verdicts.get(dependency), sources.get(dependency)
            if recorded is None or counts is None or counts is shard:
                continue
            actual = counts.verdicts.get(dependency)
            if actual is not None and (actual.verdict, actual.commit) != (recorded.verdict, recorded.commit):
                yield (
                    f"story {name} ran with {dependency} {_end(recorded)}, but the shard of that says "
                    f"{_end(actual)}: run the job of {name} again"
                )


def _end(verdict: ev.StoryFinished) -> str:
    return f"{verdict.verdict} at {verdict.commit[:12]}" if verdict.commit else str(verdict.verdict)


def _entries(
    shards: Sequence[Shard], backlog: Mapping[StoryId, Mapping[str, Any]], names: Sequence[StoryId]
) -> tuple[Mapping[str, Any], ...]:
    """Return the joined backlog in start order; a story without a shard has only its title."""
    plans = {StoryId(entry["id"]): entry for shard in shards for entry in shard.started.stories}
    # Of a story that only the matrix names, nothing but its id is known.
    unknown = {name: {"id": name, "title": name, "depends_on": []} for name in names}
    known = {**unknown, **backlog, **plans}
    wanted = (known[name] for name in dict.fromkeys(names) if name in known)
    stories = {story.id: story for story in (from_json({"prompt": "", **entry}) for entry in wanted)}
    kept = [
        replace(story, depends_on=tuple(name for name in story.depends_on if name in stories))
        for story in stories.values()
    ]
    return tuple(to_json(story) for story in ordered(kept))


def _begin(run_id: RunId, shards: Sequence[Shard], entries: tuple[Mapping[str, Any], ...]) -> ev.Event:
    first = min(shards, key=lambda shard: shard.events[0].at)
    digests = {
        entry["id"]: shard.digest_of(StoryId(entry["id"]))
        for shard in shards
        for entry in shard.started.stories
    }
    options = {**first.started.options, "digests": digests}
    options.pop("other_jobs", None)  # what they used is part of this run
    options.pop("is_job", None)
    body = replace(first.started, stories=entries, options=options)
    return ev.Event(run_id=run_id, at=first.events[0].at, body=body)


def _blank(run_id: RunId, base: str, entries: tuple[Mapping[str, Any], ...], now: float) -> ev.Event:
    """Return the start of a run of which there is no shard."""
    body = ev.RunStarted(base=base, isolation="", enforcement="", max_stories=1, options={}, stories=entries)
    return ev.Event(run_id=run_id, at=now, body=body)


def _bodies(
    run_id: RunId,
    shards: Sequence[Shard],
    sources: Mapping[StoryId, Shard],
    others: Mapping[StoryId, ev.Event | None],
    ended: float,
) -> Iterator[ev.Event]:
    """Yield what happened; each shard keeps its order even if a clock stepped back."""
    own: dict[RunId, set[StoryId]] = defaultdict(set)
    for name, shard in sources.items():
        own[shard.run_id].add(name)
    for shard in shards:
        for at, body in _of_shard(shard, own[shard.run_id]):
            yield ev.Event(run_id=run_id, at=at, body=body)
    for name, event in others.items():
        unknown = ev.StoryFinished(
            story_id=name, verdict=Status.STOPPED, reason=NO_SHARD, next="run its job again"
        )
        at, body = (event.at, event.body) if event else (ended, unknown)
        yield ev.Event(run_id=run_id, at=at, body=body)


def _of_shard(shard: Shard, own: Collection[StoryId]) -> Iterator[tuple[float, ev.Body]]:
    at = shard.events[0].at
    workspaces: dict[StoryId, bool] = {}
    for event in shard.events:
        at = max(at, event.at)
        body = event.body
        name = ev.story_of(body)
        if name is None:
            if own and isinstance(body, ev.Noted | ev.AdmissionEnded):
                yield at, body
        elif name in own:
            yield at, body
            if isinstance(body, ev.WorkspacePlanned | ev.WorkspaceOpened):
                workspaces[name] = True
            elif isinstance(body, ev.WorkspaceClosed):
                workspaces[name] = not body.removed
    for name in (name for name, exists in workspaces.items() if exists):
        yield at, ev.WorkspaceClosed(story_id=name, removed=True, reason=_LEFT_BEHIND)


def _run_id(shards: Sequence[Shard], now: float) -> RunId:
    """Derive the id from the start time and the parts, so that the same shards give the same id."""
    begun = min((shard.events[0].at for shard in shards), default=now)
    parts = "\n".join(sorted(shard.run_id for shard in shards))
    mark = hashlib.sha256(parts.encode()).hexdigest()[:8]
    return RunId(time.strftime("%Y%m%d-%H%M%S", time.gmtime(begun)) + f"-{mark}")
