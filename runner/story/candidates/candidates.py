"""Best of N: a story's candidates one after the other, each from the base in a new worktree.

The walk of a story knows nothing of this: it ends with a result, as always, and that result is either the
story's or that of one candidate. Between two candidates the branch and the worktree are set aside as a branch
of their own. What is to happen follows from what is recorded, so a killed run continues in the right one.
"""

from msgspec.structs import replace
from trio import to_thread

from isolation.git.diffstat import changes
from isolation.model import Workspace
from isolation.worktree.fresh import bring_forward, set_aside
from runner.core.events import candidates as cd
from runner.core.events import events as ev
from runner.core.limits.kill_switches import Switch
from runner.core.model import KillSwitch, SessionKind, Status, StorySnapshot, Usage
from runner.core.progress.candidates import Candidate, next_number, winner
from runner.core.schedule.offers import LAND
from runner.core.text.names import branch_of, candidate_branch
from runner.core.text.words import count
from runner.story import results
from runner.story.candidates.hidden import HiddenVerdict, judge_hidden
from runner.story.context.context import StoryContext
from runner.story.session.session import SessionVerdict

_OF_THE_CANDIDATE = frozenset(
    map(str, (Switch.STALL, Switch.SPIRAL, Switch.MAX_SESSIONS, Switch.FAILED_WAVE, Switch.CARRYOVER))
)
"""Switches that say something about one try; the others hold for every further one, too."""
_OUT_OF_BUDGET = frozenset(map(str, (Switch.TOKEN_BUDGET, Switch.COST_BUDGET, Switch.MAX_HOURS)))


class Candidates:
    """The candidates of one story."""

    def __init__(self, context: StoryContext) -> None:
        self._context = context
        self._story = context.story
        self._repository = context.repository

    @property
    def _now(self) -> StorySnapshot:
        return self._context.now

    @property
    def _ended(self) -> tuple[Candidate, ...]:
        """The candidates that have ended; a story that a landing left out continues with what it has."""
        now = self._now
        if now.workspace.left_out is None:
            return now.candidates
        return tuple(one for one in now.candidates if one.number == now.candidate)

    @property
    def between(self) -> bool:
        """Whether the current candidate is about to be set aside: another one follows, or has won."""
        now, ended = self._now, self._ended
        if now.status.final or not ended or ended[-1].number != now.candidate:
            return False
        best = winner(ended)
        return self._next() is not None or (best is not None and best.number != now.candidate)

    async def judged(self, result: ev.StoryFinished, workspace: Workspace) -> ev.StoryFinished | None:
        """Return the result of the story; None if this was the result of a candidate that is set aside."""
        now, settings = self._now, self._context.settings
        if self._context.best_of == 1 and not settings.hidden_verify and not self._ended:
            return result
        known = self._ended[-1] if self._ended else None
        if known is None or known.number != now.candidate:
            if not self._counts(result):
                return result
            ended = await self._measured(result, workspace)
            if not isinstance(ended, cd.CandidateEnded):
                return ended
            await self._context.log.record(ended)
        if self.between:
            return None
        return await self._settled(result)

    async def set_aside(self) -> ev.StoryFinished | None:
        """Set the current candidate aside, and begin the next; or return the result of the one that won."""
        now, log, run = self._now, self._context.log, self._context.run
        story_id, branch = self._story.id, branch_of(self._story.id)
        kept = candidate_branch(story_id, log.snapshot.run_id, now.candidate)
        path = run.workspace_path(story_id)
        await to_thread.run_sync(lambda: set_aside(self._repository, story_id, branch, path, kept=kept))
        following = self._next()
        if following is not None:
            await log.record(cd.CandidateStarted(story_id=story_id, number=following, kept=kept))
            return None
        best = winner(self._ended)
        if best is None:
            raise AssertionError(f"{story_id}: a candidate was set aside for none")
        aside = candidate_branch(story_id, log.snapshot.run_id, best.number)
        await to_thread.run_sync(
            lambda: bring_forward(self._repository, branch, kept=aside, commit=best.commit)
        )
        await log.record(
            cd.CandidateChosen(story_id=story_id, number=best.number, kept=kept),
            ev.WorkspaceClosed(story_id=story_id, removed=True, reason="another candidate is the best"),
        )
        return self._won(best)

    def _next(self) -> int | None:
        context = self._context
        return next_number(self._ended, most=context.best_of, when=context.settings.best_of_when)

    def _counts(self, result: ev.StoryFinished) -> bool:
        """Whether a result is that of this try alone, and another one might end otherwise."""
        now = self._now
        match result.verdict:
            case Status.DONE:
                return True
            case Status.NO_WORK:
                return not self._story.allow_no_change
            case Status.FAILED:
                return any(one.kind is SessionKind.WORK for one in now.own_sessions)
            case Status.STOPPED:
                switch = (result.kill_switch or {}).get("name", "")
                rescued = switch in _OUT_OF_BUDGET and winner(self._ended) is not None
                return switch in _OF_THE_CANDIDATE or rescued
            case _:
                return False

    async def _measured(
        self, result: ev.StoryFinished, workspace: Workspace
    ) -> cd.CandidateEnded | ev.StoryFinished:
        """Judge a candidate by what it did not know, and measure it; or return why that could not be."""
        now, context = self._now, self._context
        hidden = HiddenVerdict()
        commit = result.commit or now.workspace.commit or ""
        if result.verdict == Status.DONE:
            found = await judge_hidden(context, workspace, commit)
            if isinstance(found, SessionVerdict):
                found = Switch.USER_ABORT.tripped(context.aborted or found.detail)
            if isinstance(found, KillSwitch):
                return results.stopped(self._story.id, context.log.snapshot.run_id, found)
            hidden = found
        changed = (
            await to_thread.run_sync(changes, self._repository, workspace.base, commit) if commit else ()
        )
        used = sum((one.usage for one in now.own_sessions), Usage())
        stopped = (result.kill_switch or {}).get("name", "") in _OUT_OF_BUDGET
        return cd.CandidateEnded(
            story_id=self._story.id,
            number=now.candidate,
            agent=self._who(),
            verdict=result.verdict,
            reason=hidden.reason or result.reason,
            branch=workspace.branch,
            commit=commit,
            commits=result.commits or now.workspace.commits,
            files=len(changed),
            lines=sum((one.added or 0) + (one.removed or 0) for one in changed),
            hidden=hidden.verdict,
            weak=not context.verify and not hidden.verdict,
            final=stopped or self._refused_for_good(),
            next=result.next,
            kill_switch=result.kill_switch,
            cost_usd=used.cost_usd,
            tokens=used.tokens,
        )

    def _who(self) -> str:
        """Return who worked on the current candidate, each once."""
        worked = (one for one in self._now.own_sessions if one.kind is SessionKind.WORK)
        return ", ".join(
            dict.fromkeys(f"{one.agent}:{one.model}" if one.model else one.agent for one in worked)
        )

    def _refused_for_good(self) -> bool:
        """Whether what cannot work here at all would be asked again by the next candidate."""
        now, workers = self._now, self._context.workers
        if now.refusal is None:
            return False
        refused, _, _ = now.refusal[0].partition(":")
        return refused in {"verify", workers.at(now.candidate + 1).agent.name}

    async def _settled(self, result: ev.StoryFinished) -> ev.StoryFinished:
        """Return the story's result, which is that of the last candidate."""
        ended = self._ended
        last, several = ended[-1], len(ended) > 1
        if last.passes:
            chosen = cd.CandidateChosen(story_id=self._story.id, number=last.number)
            await self._context.log.record(chosen)
            return self._won(last)
        tried = f"none of {count(len(ended), 'candidate')} passed; the last: " if several else ""
        reason = f"{tried}{last.reason}"
        if result.verdict == Status.DONE:  # of what it did not know, a command has failed
            return results.failed(self._story.id, reason)
        return replace(result, reason=reason)

    def _won(self, best: Candidate) -> ev.StoryFinished:
        ended = len(self._ended)
        which = f", candidate {best.number} of {ended}" if ended > 1 else ""
        proof = ", hidden verify commands passed" if best.hidden else ""
        done = results.done(
            self._story.id, commit=best.commit, commits=best.commits, reason=f"{best.reason}{proof}{which}"
        )
        return replace(done, next=LAND)
