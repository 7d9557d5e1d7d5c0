"""The stories that can land: done according to the journal, and not in the target yet."""

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from isolation.git.forecast.forecaster import Forecaster
from isolation.git.forecast.scratch import scratch
from isolation.git.landing.merges import not_contained
from isolation.git.landing.patches import Work, brought_by, patched_into
from isolation.git.repository import Repository
from runner.core.errors import NotFoundError
from runner.core.forecast.clashes import Forecast
from runner.core.landing.forecast import Tip, foresee
from runner.core.landing.question import chosen
from runner.core.left_out.evidence import RESOLVE, RETRY, SKIP
from runner.core.model import RunId, Story, StoryId
from runner.core.text.names import did_you_mean
from runner.core.trust import is_imported
from runner.land.known import Known, landed_in, load_known
from runner.records.journal import Journal
from runner.run.forecast.tips import can_foresee, forecast


class Candidate(Struct, frozen=True, kw_only=True):
    """A done story with the tip of its branch; `fork` is where its own work begins.

    `verify` are the commands that decided about it; `general` means that they are those of the settings.
    `since` is when the first of its runs began, `losses` how many landings left it out in favor of others.
    `imported` means that its run came by shards.
    """

    story: Story
    run_id: RunId
    branch: str
    tip: str
    fork: str
    verify: tuple[str, ...]
    general: bool
    replayed: bool = False
    since: float = 0.0
    imported: bool = False
    losses: int = 0

    @property
    def id(self) -> StoryId:
        """The story's id."""
        return self.story.id


class Candidates(Struct, frozen=True, kw_only=True):
    """What can land, in the order in which it is tried, by a `forecast` of the conflicts.

    `contained` are stories that are in the target, `gone` are done stories without a branch or a commit.
    `held` are those that the user has decided about, each with the reason, `resolvable` those whose conflicts
    an agent shall resolve.
    """

    stories: tuple[Candidate, ...] = ()
    forecast: Forecast = Forecast()
    contained: tuple[StoryId, ...] = ()
    gone: tuple[StoryId, ...] = ()
    held: Mapping[StoryId, str] = {}
    resolvable: frozenset[StoryId] = frozenset()

    @property
    def needs(self) -> dict[StoryId, set[StoryId]]:
        """What each of them depends on, as far as it is to land, too."""
        ids = {each.id for each in self.stories}
        return {each.id: ids & set(each.story.depends_on) for each in self.stories}

    def __getitem__(self, story_id: StoryId) -> Candidate:
        return next(each for each in self.stories if each.id == story_id)


def find_candidates(
    repository: Repository,
    journal: Journal,
    onto: str,
    tip: str,
    names: Sequence[str] = (),
    *,
    asked: bool = True,
) -> Candidates:
    """Return the stories that can land on a target; with `names` only these, and what they depend on.

    A story that the user has skipped lands if it is `asked` for by its name.
    """
    past = load_known(journal, repository)
    done = {story_id: each for story_id, each in past.stories.items() if each.is_done}
    if asked:
        _require_known(names, done)
    chosen = _with_dependencies(names, done) if names else set(done)
    tips = {story_id: _tip(repository, done[story_id]) for story_id in sorted(chosen)}
    there = {story_id: found for story_id, found in tips.items() if found and done[story_id].branch != onto}
    landed = {story_id for story_id in there if landed_in(repository, done[story_id], tip)}
    missing = not_contained(repository, there.values(), tip)
    open_ = {name: found for name, found in there.items() if found in missing and name not in landed}
    works = [Work(done[name].fork, found) for name, found in open_.items()]
    by_hand = patched_into(repository, tip, works, without=brought_by(repository, past.undone))
    open_ = {name: found for name, found in open_.items() if found not in by_hand}
    held = _held(done, open_, names if asked else ())
    ready = {story_id: found for story_id, found in open_.items() if story_id not in held}
    found = [
        _candidate(done[story_id], found, replayed=_holds(repository, found, past.replaced | by_hand))
        for story_id, found in ready.items()
    ]
    ordered, foreseen = _ordered(repository, onto, tip, found)
    return Candidates(
        stories=ordered,
        forecast=foreseen,
        contained=tuple(story_id for story_id in there if story_id not in open_),
        gone=tuple(story_id for story_id in tips if story_id not in there),
        held=held,
        resolvable=frozenset(each for each in ready if _decided(done[each], ready[each]) == RESOLVE),
    )


def _held(
    done: Mapping[StoryId, Known], tips: Mapping[StoryId, str], asked: Collection[str]
) -> dict[StoryId, str]:
    """Return the stories that wait by the user's decision, and those that depend on them, with the reason."""
    held: dict[StoryId, str] = {}
    for story_id, tip in tips.items():
        decided = _decided(done[story_id], tip)
        if decided == RETRY:
            held[story_id] = f"is to be tried again: autopilot-multi resume {done[story_id].run.run_id}"
        elif decided == SKIP and story_id not in asked:
            held[story_id] = "skipped by your decision"
    while True:
        behind = {
            story_id: f"depends on {needs[0]}, which waits"
            for story_id in tips
            if story_id not in held
            and (needs := [each for each in done[story_id].story.depends_on if each in held])
        }
        if not behind:
            return held
        held |= behind


def _decided(done: Known, tip: str) -> str:
    """Return what the user has decided about a story that was left out; it counts until its branch moves."""
    story = done.run.stories[done.story.id]
    left = story.workspace.left_out
    return chosen(story) if left is not None and left.tip == tip else ""


def _holds(repository: Repository, tip: str, commits: Collection[str]) -> bool:
    return any(commit != tip and repository.is_ancestor(commit, tip) for commit in commits)


def _require_known(names: Sequence[str], done: Mapping[StoryId, Known]) -> None:
    for name in names:
        if StoryId(name) not in done:
            hint = did_you_mean(name, done) or f"done are: {', '.join(sorted(done)) or 'none'}."
            raise NotFoundError(f"no done story '{name}'", hint=hint)


def _with_dependencies(names: Sequence[str], done: Mapping[StoryId, Known]) -> set[StoryId]:
    chosen: set[StoryId] = set()
    left = [StoryId(name) for name in names]
    while left:
        story_id = left.pop()
        if story_id in done and story_id not in chosen:
            chosen.add(story_id)
            left.extend(done[story_id].story.depends_on)
    return chosen


def _tip(repository: Repository, done: Known) -> str:
    """Return what a story's branch holds now; without the branch, what its run recorded."""
    if done.branch and (tip := repository.branch_tip(done.branch)):
        return tip
    found = repository.run("rev-parse", "--verify", "--quiet", f"{done.commit}^{{commit}}", check=False)
    return found.stdout.strip()


def _candidate(done: Known, tip: str, *, replayed: bool) -> Candidate:
    own, story = done.story.verify, done.story
    info = done.run.repos.get(story.repo)
    general = (info.settings if info and story.repo else done.run.options).get("verify")
    shared = tuple(str(each) for each in general) if isinstance(general, list | tuple) else ()
    return Candidate(
        story=story,
        run_id=done.run.run_id,
        branch=done.branch,
        tip=tip,
        fork=done.fork,
        verify=own or shared,
        general=not own,
        replayed=replayed,
        since=done.since,
        imported=is_imported(done.run.options),
        losses=done.losses,
    )


def tip_of(one: Candidate) -> Tip:
    """Return a candidate as a forecast looks at it."""
    return Tip(id=one.id, commit=one.tip, needs=one.story.depends_on, since=one.since, losses=one.losses)


def _ordered(
    repository: Repository, onto: str, tip: str, found: Sequence[Candidate]
) -> tuple[tuple[Candidate, ...], Forecast]:
    """Put them in the order that loses the fewest, by a forecast of their conflicts."""
    by_id = {each.id: each for each in found}
    tips = tuple(map(tip_of, found))
    if not tips or not can_foresee(repository):
        foreseen = foresee(tips, {}, onto)
    else:
        # What landed as other commits is in conflict with itself here, unless it is merged with its own base.
        merged_plainly = not any(each.replayed for each in found)
        with scratch(repository) as place:
            commit = tip if merged_plainly else ""
            foreseen = forecast(Forecaster(), place, tips, onto=onto, commit=commit)
    return tuple(by_id[StoryId(name)] for name in foreseen.order), foreseen
