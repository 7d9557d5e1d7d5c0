"""One landing: candidates, train, search for what is green together, and the move of the target.

The target only ever moves to a commit whose tree was verified, by compare-and-swap. If somebody else was
faster, the train is built on the new tip and verified again; `hold.py` makes sure that this ends. The order
of records is: the plan, then `LandingVerified` before the target moves, then `Landed`; `recovery.py` knows
what to do in between.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from msgspec import Struct
from msgspec.structs import replace
from trio import to_thread

from isolation.errors import TargetError
from isolation.git.landing.merges import (
    LANDED,
    Joined,
    brought_paths,
    join,
    not_contained,
    require_signing,
)
from isolation.git.landing.replay import replay
from isolation.git.landing.target import Move, move, require_movable
from isolation.git.repository import Repository
from runner.core.errors import UsageError
from runner.core.events import landing as ld
from runner.core.landing.search import Answer, Company, Found, Merge, Question, Stories, Verify, search
from runner.core.model import Story, StoryId
from runner.core.settings import Settings
from runner.core.trust import Demand
from runner.land.candidates import Candidate, Candidates, find_candidates
from runner.land.hold import Hold, holding
from runner.land.landings import LandingLog, owners_of
from runner.land.left_out.events import NotLanded, left_out_events
from runner.land.left_out.resolving import Resolving, moved_behind
from runner.land.train import Clash, Manner, Style, Train
from runner.land.verification.answers import Answers
from runner.land.verification.steps import Steps, left_out
from runner.land.verification.verifier import Verdict, Verifier, has_commands
from runner.plan.trust.imported import imported_demands, known_stories, with_local_commands
from runner.records.journal import Journal

MOST_REBUILDS = 200
"""How often the target may move in the middle of a landing before it is given up."""

Say = Callable[[str], None]


class Plan(Struct, frozen=True, kw_only=True):
    """What a landing would try: the target, its tip, and the candidates in their order."""

    id: str
    onto: str
    tip: str
    candidates: Candidates
    verified: bool
    manner: Manner = Manner()

    @property
    def style(self) -> Style:
        """What each story leaves in the history of the target."""
        return self.manner.style


class _Built(Struct, frozen=True, kw_only=True):
    """A train on one tip: what was found, its commit, and what stays on its branch."""

    tip: str
    found: Found
    joined: Joined
    left: tuple[NotLanded, ...]


class Result(Struct, frozen=True, kw_only=True):
    """How a landing ended; `after` is empty if the target did not move.

    `verify_runs` are those whose answers decided; those of `unused_runs` were not needed in the end.
    """

    plan: Plan
    before: str = ""
    after: str = ""
    tree: str = ""
    landed: Stories = ()
    not_landed: tuple[NotLanded, ...] = ()
    resolved: tuple[StoryId, ...] = ()
    verify_runs: int = 0
    unused_runs: int = 0
    canceled_runs: int = 0
    rebuilds: int = 0
    red_target: Verdict | None = None


def make_plan(
    repository: Repository,
    journal: Journal,
    settings: Settings,
    *,
    landing_id: str,
    onto: str,
    names: Sequence[str] = (),
    asked: bool = True,
    style: Style | None = None,
) -> Plan:
    """Find what can land; without a `style` in that of the settings. Changes nothing. Blocking."""
    tip = repository.branch_tip(onto)
    if tip is None:
        raise UsageError(
            f"there is no branch '{onto}' to land on", hint="`git branch` lists the branches; see --onto."
        )
    found = find_candidates(repository, journal, onto, tip, names, asked=asked)
    candidates = replace(found, stories=_with_local_commands(repository, settings, found.stories))
    verified = has_commands(candidates.stories, settings)
    manner = Manner(style=style or Style(settings.land_style), template=settings.land_message)
    return Plan(id=landing_id, onto=onto, tip=tip, candidates=candidates, verified=verified, manner=manner)


def _with_local_commands(
    repository: Repository, settings: Settings, candidates: Sequence[Candidate]
) -> tuple[Candidate, ...]:
    """Let the files of this repository say what verifies the stories that came by shards."""
    if not any(each.imported for each in candidates):
        return tuple(candidates)
    known = known_stories(repository, settings)
    return tuple(_local(each, settings, known) if each.imported else each for each in candidates)


def _local(each: Candidate, settings: Settings, known: Mapping[StoryId, Story]) -> Candidate:
    (story,) = with_local_commands((each.story,), known, each.run_id)
    return replace(each, story=story, verify=story.verify or settings.verify, general=not story.verify)


def landing_demands(repository: Repository, settings: Settings, plan: Plan, *, resolve: bool) -> list[Demand]:
    """Return what stories that came by shards ask for in this landing; agents only `resolve` conflicts."""
    imported = [each for each in plan.candidates.stories if each.imported]
    tips = {each.id: each.tip for each in imported if resolve or each.id in plan.candidates.resolvable}
    # Their work is done: no command of theirs runs but those that verify it.
    stories = [replace(each.story, command=None) for each in imported]
    return list(imported_demands(repository, settings, stories, tips))


def require_free_checkouts(repository: Repository, plan: Plan) -> None:
    """Refuse early what would stop the target from moving: changes of the user's in files that stories touch.

    It is looked at again when the target moves, with what lands then. Blocking.
    """
    touched = {each.tip: brought_paths(repository, plan.tip, each.tip) for each in plan.candidates.stories}
    require_movable(repository, plan.onto, touched)


class Landing:
    """Carries out a plan."""

    def __init__(
        self,
        repository: Repository,
        log: LandingLog,
        verifier: Verifier,
        plan: Plan,
        say: Say,
        *,
        resolving: Resolving,
    ) -> None:
        self._resolving = resolving
        self._repository = repository
        self._log = log
        self._verifier = verifier
        self._plan = plan
        self._say = say
        self._date = time.time()
        self._verdicts: dict[Stories, Verdict] = {}
        self._rejected: dict[StoryId, NotLanded] = {}
        self._target: Verdict | None = None
        self._steps = Steps(log, verifier, plan.id, owners_of(plan.candidates.stories))
        self._used: set[int] = set()

    async def run(self) -> Result:
        """Search and move until the target has what can land."""
        plan = self._plan
        # Before the verify commands take their time.
        await to_thread.run_sync(require_signing, self._repository, plan.tip, self._date)
        planned = partial(
            ld.LandingPlanned,
            landing_id=plan.id,
            onto=plan.onto,
            tip=plan.tip,
            style=str(plan.style),
            train=tuple(each.id for each in plan.candidates.stories),
        )
        owners = owners_of(plan.candidates.stories)
        await to_thread.run_sync(self._log.record, owners, lambda stories: planned(stories=stories))
        built, seconds = await self._build(plan.tip), self._verifier.context.settings.land_hold
        result = await self._try_to_move(plan.tip, built, built.joined)
        rebuilds = 0
        while result is None and rebuilds < MOST_REBUILDS:
            rebuilds += 1
            async with holding(
                self._repository, plan.onto, lost=rebuilds, seconds=seconds, say=self._say
            ) as hold:
                tip = await to_thread.run_sync(self._repository.branch_tip, plan.onto)
                if tip is None:
                    break
                self._say(f"{plan.onto} has moved to {tip[:10]}; the train is verified again on top of that")
                await self._steps.rebuilt(tip, rebuilds)
                joined = await self._catch_up(tip, built)
                if joined is None:
                    await to_thread.run_sync(self._leave_out_contained, tip)
                    built = await self._build(tip)
                result = await self._try_to_move(tip, built, joined or built.joined, hold)
            if hold.expired:
                seconds = 0.0  # it takes longer than others are to wait
        if result is None:
            raise TargetError(
                f"{plan.onto} moved {rebuilds} times while it was verified, or is gone",
                hint="try again when it is quiet, or with a longer land-hold; nothing was changed.",
            )
        result = replace(result, rebuilds=rebuilds)
        await to_thread.run_sync(self._record_end, result)
        return result

    @property
    def _runs(self) -> int:
        """How many verify runs had a part in what was found."""
        return len(self._used - {0})

    async def _build(self, tip: str) -> _Built:
        """Find out what can land on a tip, and why the rest cannot."""
        while True:
            train = await to_thread.run_sync(self._train, tip)
            found = await self._search(train)
            left = await to_thread.run_sync(self._explain, train, found)
            if not await self._resolved(train, found, left):
                break
        left = await to_thread.run_sync(self._explain, train, found)  # with why resolutions were refused
        if self._repository.signs_commits and found.landed:
            # The same merges once more, so the same trees; `_try_to_move` makes sure of the last one.
            verified = await to_thread.run_sync(train.build, found.landed)
            train = await to_thread.run_sync(partial(self._train, tip, signed=True))
            signed = await to_thread.run_sync(train.build, found.landed)
            return _Built(found=found, tip=tip, joined=replace(signed, tree=verified.tree), left=left)
        joined = await to_thread.run_sync(train.build, found.landed)
        return _Built(found=found, tip=tip, joined=joined, left=left)

    async def _resolved(self, train: Train, found: Found, left: Sequence[NotLanded]) -> bool:
        """Let agents resolve conflicts; return whether that makes another search worth it."""
        wanted = [each for each in left if self._resolving.wants(each, self._plan.candidates)]
        done: list[StoryId] = []
        for each in wanted:
            landed = (*found.landed, *done)
            joined = await to_thread.run_sync(train.build, (*landed, each.story))
            if joined.conflicts:
                onto = await to_thread.run_sync(train.build, landed)
                clash = await to_thread.run_sync(train.clash, each.story, landed)
                others = f" with {', '.join(clash.stories)}" if clash.stories else ""
                self._say(f"{each.story}: its agent resolves the conflict{others}")
                clash = replace(clash, files=joined.conflicts)
                if not await self._resolving.resolve(each.story, clash, onto.commit, train):
                    continue
                train = await to_thread.run_sync(self._train, train.tip)
            done.append(each.story)
        if done:
            self._plan = replace(
                self._plan, candidates=moved_behind(self._plan.candidates, found.landed, done)
            )
        return bool(done)

    async def _catch_up(self, tip: str, built: _Built) -> Joined | None:
        """Bring a train onto a tip that was not there when it was built; None if that is not green.

        Much faster than a new train, so that a target that moves all the time can be overtaken.
        """
        plan, train, sign = self._plan, built.joined.commit, self._repository.signs_commits
        landed = [plan.candidates[each] for each in built.found.landed]
        message = f"Merge landing of {len(landed)} stories\n\nAutopilot-Landing: {plan.id}\n"
        merged = partial(join, self._repository, tip, train, message, self._date, sign=sign)
        in_line = partial(replay, self._repository, tip, train, self._date, fork=built.tip, sign=sign)
        joined = await to_thread.run_sync(merged if plan.style is Style.MERGE else in_line)
        if not joined.commit:
            return None
        async with self._steps.verifying(built.found.landed) as step:
            step.verdict = await self._verifier.verify(joined.commit, joined.tree, landed)
        self._used.add(step.verdict.run)
        return joined if step.verdict.green else None

    def _leave_out_contained(self, tip: str) -> None:
        """Leave out what somebody else has merged in the meantime."""
        candidates = self._plan.candidates
        missing = not_contained(self._repository, [each.tip for each in candidates.stories], tip)
        left = tuple(each for each in candidates.stories if each.tip in missing)
        contained = tuple(each.id for each in candidates.stories if each.tip not in missing)
        candidates = replace(candidates, stories=left, contained=(*candidates.contained, *contained))
        self._plan = replace(self._plan, candidates=candidates)

    def _train(self, tip: str, *, signed: bool = False) -> Train:
        plan = self._plan
        return Train(
            self._repository,
            plan.candidates,
            tip=tip,
            landing_id=plan.id,
            onto=plan.onto,
            date=self._date,
            manner=plan.manner,
            signed=signed,
            resolutions=self._resolving.made,
        )

    async def _search(self, train: Train) -> Found:
        """Answer the questions of the search with git and with verify commands."""
        candidates = self._plan.candidates
        order = [each.id for each in candidates.stories]
        kept = tuple(each.id for each in candidates.stories if each.losses)
        self._verdicts.clear()
        answers = Answers(
            begin=partial(search, order, candidates.needs, rejected=tuple(self._rejected), kept=kept),
            known=partial(self._known, train),
            verify=partial(self._verify, train),
            conflict=self._steps.conflict,
            slots=self._slots,
        )
        end = await answers.end()
        found = end.found or Found()
        self._used |= {
            self._verdicts[each.stories].run for each in end.asked if each.stories in self._verdicts
        }
        for story_id, company in found.red.items():
            self._rejected[story_id] = self._red(story_id, company)
        return found

    def _slots(self) -> int:
        """Return how many runs may be made at once; one as long as all is green.

        Each story was green alone, so the whole train mostly is, too, and then one run is all that it takes.
        """
        green = all(each.green for each in tuple(self._verdicts.values()))
        return 1 if green else self._verifier.slots

    def _known(self, train: Train, question: Question) -> Answer | None:
        """Answer what needs no verify run. Blocking."""
        verdict = self._verdicts.get(question.stories) if isinstance(question, Verify) else None
        if verdict is not None:
            return Answer.GREEN if verdict.green else Answer.RED
        if not train.build(question.stories).commit:
            return Answer.CONFLICT
        return Answer.GREEN if isinstance(question, Merge) else None

    async def _verify(self, train: Train, question: Verify, waited: bool) -> None:  # noqa: FBT001  as `Answers` calls it
        stories, candidates = question.stories, self._plan.candidates
        joined = await to_thread.run_sync(train.build, stories)
        shown = f"{_shown(stories)} on {self._plan.onto}" if stories else f"{self._plan.onto} as it is"
        self._say(f"verifying {shown}{'' if waited else ', ahead'}")
        if stories:
            chosen = [candidates[each] for each in stories]
            async with self._steps.verifying(stories) as step:
                verdict = step.verdict = await self._verifier.verify(joined.commit, joined.tree, chosen)
        else:
            async with self._steps.verifying(()) as step:
                verdict = step.verdict = await self._verifier.verify_target(
                    joined.commit, joined.tree, candidates.stories
                )
            self._target = verdict
        self._verdicts[stories] = verdict
        if not verdict.green:
            self._say(f"red: {shown}: `{verdict.command}` {verdict.detail}")

    async def _try_to_move(
        self, tip: str, built: _Built, joined: Joined, hold: Hold | None = None
    ) -> Result | None:
        """Move the target to what was found green; None if somebody else has moved it."""
        plan, found = self._plan, built.found
        result = Result(
            plan=plan,
            before=tip,
            landed=found.landed,
            not_landed=built.left,
            resolved=tuple(each for each in found.landed if each in self._resolving.made),
            verify_runs=self._runs,
            unused_runs=self._verifier.started - self._verifier.canceled - self._runs,
            canceled_runs=self._verifier.canceled,
            red_target=self._target if found.red_target else None,
        )
        if not found.landed:
            return result
        trees = await to_thread.run_sync(self._repository.trees, (joined.commit,))
        if trees != (joined.tree,):
            raise TargetError(f"commit {joined.commit[:12]} does not hold the tree that was verified")
        owners = owners_of(plan.candidates[each] for each in found.landed)
        verified = partial(
            ld.LandingVerified,
            landing_id=plan.id,
            onto=plan.onto,
            before=tip,
            commit=joined.commit,
            tree=joined.tree,
            verify_runs=self._runs,
            style=str(plan.style),
        )
        await to_thread.run_sync(self._log.record, owners, lambda stories: verified(stories=stories))
        wanted = Move(
            branch=plan.onto,
            old=tip,
            new=joined.commit,
            reason=f"land {plan.id}",
            recorded={f"{LANDED}/{plan.id}": tip},
        )
        try:
            held = hold.take() if hold is not None else ()
            moved = await to_thread.run_sync(partial(move, self._repository, wanted, held=held))
        except TargetError as error:
            reason = error.message
            abandoned = ld.LandingAbandoned(landing_id=plan.id, reason=reason)
            await to_thread.run_sync(self._log.record_whole, self._steps.owners, abandoned)
            raise
        return replace(result, after=joined.commit, tree=joined.tree) if moved else None

    def _record_end(self, result: Result) -> None:
        """Record that the target has moved, and why stories were left out."""
        plan, candidates = self._plan, self._plan.candidates
        if result.after:
            landed = partial(ld.Landed, landing_id=plan.id, onto=plan.onto, commit=result.after)
            owners = owners_of(candidates[each] for each in result.landed)
            self._log.record(owners, lambda stories: landed(stories=stories))
        self._log.append(
            left_out_events(self._log.journal, plan.onto, plan.id, candidates, result.not_landed)
        )
        ended = ld.LandingEnded(
            landing_id=plan.id,
            landed=result.landed,
            left=left_out((each.story, each.why, each.reason, each.others) for each in result.not_landed),
            after=result.after,
            verify_runs=result.verify_runs,
            rebuilds=result.rebuilds,
            red_target=result.red_target.command if result.red_target else "",
        )
        self._log.record_whole(self._steps.owners, ended)

    def _explain(self, train: Train, found: Found) -> tuple[NotLanded, ...]:
        """Say of each story that does not land why."""
        if found.red_target:
            return ()
        landed, needs = set(found.landed), self._plan.candidates.needs
        explained: list[NotLanded] = []
        for each in self._plan.candidates.stories:
            if each.id in landed:
                continue
            missing = sorted(needs[each.id] - landed)
            if each.id in self._rejected:
                explained.append(self._rejected[each.id])
            elif missing:
                words = f"depends on {', '.join(missing)}, which did not land"
                explained.append(
                    NotLanded(story=each.id, why="dependency", reason=words, others=tuple(missing))
                )
            else:
                explained.append(self._conflict(each, train.clash(each.id, found.landed)))
        return tuple(explained)

    def _conflict(self, each: Candidate, clash: Clash) -> NotLanded:
        whom = ", ".join(clash.stories) or self._plan.onto
        files = ", ".join(clash.files)
        reason = f"conflicts with {whom} in {files}" if clash.files else f"cannot be merged: {clash.obstacle}"
        if refused := self._resolving.refused.get(each.id):
            reason = f"{reason}; {refused}"
        return NotLanded(
            story=each.id, why="conflict", reason=reason, files=clash.files, others=clash.stories
        )

    def _red(self, story_id: StoryId, company: Company) -> NotLanded:
        """Say with whom a story is red, with the evidence of the smallest group that showed it."""
        shown = [(len(key), verdict) for key, verdict in self._verdicts.items() if story_id in key]
        verdict = min(
            (each for each in shown if not each[1].green),
            key=lambda each: each[0],
            default=(0, Verdict(green=False)),
        )[1]
        fails = f"`{verdict.command}` fails ({verdict.detail})"
        if not company.stories:
            why, reason = "red", f"{fails} with it on {self._plan.onto}"
        else:
            others = " and ".join(company.stories) + ("" if company.exact else " and others")
            why, reason = "red-together", f"red together with {others}, green without: {fails}"
        return NotLanded(story=story_id, why=why, reason=reason, others=company.stories, verdict=verdict)


def _shown(stories: Stories) -> str:
    if len(stories) == 1:
        return stories[0]
    return f"{len(stories)} stories ({stories[0]} … {stories[-1]})"
