"""Spreads a backlog over the jobs of a CI system: stages by dependency, one job per story, chain or shard.

The same stories and durations give the same jobs with the same names. What a job needs is done in an
earlier stage or by the job itself.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct, structs

from runner.core.model import Story, StoryId


class Job(Struct, frozen=True, kw_only=True):
    """One job: its name, unique in the matrix, and the stories that it carries, in start order.

    `seconds` is how long they took before; a story that never ran counts as an average one. `needs` names the
    jobs of earlier stages whose stories these depend on, directly or through others.
    """

    name: str
    stage: int
    stories: tuple[StoryId, ...]
    seconds: float | None = None
    needs: tuple[str, ...] = ()


def fan_out(
    todo: Sequence[Story],
    *,
    stages: int | None = None,
    shards: int | None = None,
    seconds: Mapping[StoryId, float] | None = None,
    need_all: bool = False,
    first: StoryId | None = None,
) -> tuple[tuple[Job, ...], ...]:
    """Return the stages of jobs for `todo`, which is in start order; what is not in it counts as done.

    With `stages`, the jobs of the last stage also carry what would come after it, each a whole chain. With
    `shards`, no stage has more jobs than that. With `need_all`, a job needs all jobs of earlier stages, as it
    must to know what they have spent. The story `first`, which depends on none of them, is a stage of its own
    before all others, unless there may be only one stage.
    """
    order = {story.id: index for index, story in enumerate(todo)}
    needs = {story.id: story.depends_on for story in todo}
    known = seconds or {}
    found = []
    for number, units in enumerate(_stages(todo, stages, first), 1):
        if shards is not None and len(units) > shards:
            groups = _balanced(units, shards, _durations(order, known))
            merged = [tuple(sorted(group, key=order.__getitem__)) for group in groups]
            name = f"stage-{number}+{{}}-of-{shards}"
            named = [(name.format(shard), stories) for shard, stories in enumerate(merged, 1)]
        else:
            named = [(_name(unit, needs), unit) for unit in units]
        found.append(
            tuple(
                Job(name=name, stage=number, stories=stories, seconds=_sum(stories, known))
                for name, stories in named
            )
        )
    return _with_needs(found, todo, need_all=need_all)


def _with_needs(
    stages: Sequence[Sequence[Job]], todo: Sequence[Story], *, need_all: bool
) -> tuple[tuple[Job, ...], ...]:
    """Add to each job the names of the jobs that it needs, in the order of the matrix."""
    before: dict[StoryId, set[StoryId]] = {}
    for story in todo:
        direct = [name for name in story.depends_on if name in before]
        before[story.id] = set(direct).union(*(before[name] for name in direct))
    jobs = [job for stage in stages for job in stage]
    carrier = {story: job.name for job in jobs for story in job.stories}
    order = {job.name: index for index, job in enumerate(jobs)}

    def needs(job: Job) -> tuple[str, ...]:
        if need_all:
            return tuple(one.name for one in jobs if one.stage < job.stage)
        found = {carrier[name] for story in job.stories for name in before[story]} - {job.name}
        return tuple(sorted(found, key=order.__getitem__))

    return tuple(tuple(structs.replace(job, needs=needs(job)) for job in stage) for stage in stages)


def _name(unit: Sequence[StoryId], needs: Mapping[StoryId, Sequence[StoryId]]) -> str:
    """Name a job after its story, a chain after the first of its roots and the number of the others.

    The start order would not do, since it depends on how long stories took before. `+`, which no id may
    contain, distinguishes chains from stories.
    """
    root = min(name for name in unit if not set(needs[name]) & set(unit))
    return root if len(unit) == 1 else f"{root}+{len(unit) - 1}"


def _stages(
    todo: Sequence[Story], most: int | None, first: StoryId | None
) -> list[list[tuple[StoryId, ...]]]:
    level: dict[StoryId, int] = {}
    for story in todo:
        lowest = -1 if first in {None, story.id} else 0
        level[story.id] = 1 + max((level[name] for name in story.depends_on if name in level), default=lowest)
    last = max(level.values(), default=-1)
    cut = last if most is None else min(last, most - 1)
    found: list[list[tuple[StoryId, ...]]] = [
        [(story.id,) for story in todo if level[story.id] == number] for number in range(cut)
    ]
    rest = [story for story in todo if level[story.id] >= cut]
    return [*found, _chains(rest)] if rest else found


def _chains(stories: Sequence[Story]) -> list[tuple[StoryId, ...]]:
    """Group stories that depend on each other, each group and all groups in start order."""
    chain: dict[StoryId, list[StoryId]] = {}
    for story in stories:
        joined = [story.id]
        for name in story.depends_on:
            if name in chain and chain[name] is not joined:
                # A story may join several chains into one.
                joined[:0] = [one for one in chain[name] if one not in joined]
        for name in joined:
            chain[name] = joined
    order = {story.id: index for index, story in enumerate(stories)}
    distinct = {id(members): members for members in chain.values()}.values()
    groups = (tuple(sorted(members, key=order.__getitem__)) for members in distinct)
    return sorted(groups, key=lambda group: order[group[0]])


def _durations(names: Collection[StoryId], known: Mapping[StoryId, float]) -> dict[StoryId, float]:
    seen = [known[name] for name in names if name in known]
    average = sum(seen) / len(seen) if seen else 1.0
    return {name: known.get(name, average) for name in names}


def _balanced(
    units: Sequence[tuple[StoryId, ...]], shards: int, seconds: Mapping[StoryId, float]
) -> list[list[StoryId]]:
    """Assign the longest remaining unit to the shard with the least to do, until none is left."""
    weight = {unit: sum(seconds[name] for name in unit) for unit in units}
    groups: list[list[StoryId]] = [[] for _ in range(shards)]
    load = [0.0] * shards
    # The longest first, or a long one that comes last would make one shard late.
    for unit in sorted(units, key=lambda unit: -weight[unit]):
        least = min(range(shards), key=load.__getitem__)
        groups[least].extend(unit)
        load[least] += weight[unit]
    return groups


def _sum(stories: Sequence[StoryId], known: Mapping[StoryId, float]) -> float | None:
    found = [known[name] for name in stories if name in known]
    return round(sum(found), 3) if found else None
