"""A conflict of a landing, given to the agent of the story in a worktree with the merge in progress.

The session is one of the story's: it is recorded in the run of the story, with its log and what it cost. What
it leaves is judged here by its files; the commands of both stories judge it in the train.
"""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct, structs
from msgspec.structs import replace
from trio import to_thread

from isolation.claims import globs as claims
from isolation.errors import IsolationError
from isolation.git.commits import named
from isolation.git.landing.merges import brought_paths, merged_files
from isolation.git.landing.resolution import begin_merge, keep, resolved, untracked
from isolation.model import Workspace
from isolation.paths import folds_case
from runner.agents.catalog import workers_of
from runner.core.errors import RunnerError
from runner.core.events.fold import fold
from runner.core.limits.budget import Amount
from runner.core.model import Outcome, RunSnapshot, Step, StepHistory, StepProgress, Story, StoryId
from runner.core.settings import Settings
from runner.land.candidates import Candidate
from runner.land.train import Resolution
from runner.land.verification.verifier import RESOLVING, StoppedError
from runner.plan.settings.json_form import from_json as settings_from_json
from runner.records.event_log import EventLog
from runner.records.journal import Journal
from runner.records.telemetry import records_checkout, write_run
from runner.story.context.context import RunContext, StoryContext, story_context
from runner.story.flow.brief import Brief
from runner.story.kill_switches import before_work
from runner.story.session.hooks import BRINGING, run_hook
from runner.story.session.session import run_session
from runner.story.sessions import prepare_work, session_ended
from runner.story.throwaway import throwaway_of

RESOLVE = Step(number="land", name="Resolve")


class Conflict(Struct, frozen=True, kw_only=True):
    """A story that does not merge onto `commit`, in `files`; `others` are the stories on the other side.

    With a `base` only what the story changed since then counts. `target` is the tip of the target branch.
    """

    landing_id: str
    story: Candidate
    others: tuple[Candidate, ...]
    files: tuple[str, ...]
    onto: str
    target: str
    commit: str
    base: str = ""


class _RefusedError(Exception):
    """The resolution does not count; the message says why."""


class Resolver:
    """Lets agents resolve conflicts, one after the other."""

    def __init__(self, context: RunContext, journal: Journal) -> None:
        self._context = context
        self._journal = journal
        self._repository = context.repository

    async def resolve(self, conflict: Conflict) -> Resolution | str:
        """Return what the story's agent made of a conflict, or why that does not count."""
        one = conflict.story
        if one.story.command is not None:
            return "its work is done by a command, which cannot resolve it"
        try:
            context = await self._story(conflict)
            return await self._resolved(context, conflict)
        except _RefusedError as error:
            return str(error)
        except (IsolationError, RunnerError) as error:
            return error.message
        finally:
            await to_thread.run_sync(self._write_records, conflict)

    async def _story(self, conflict: Conflict) -> StoryContext:
        """Return the context of a session of the story's, recorded in its own run."""
        one, repository = conflict.story, self._repository
        snapshot = fold(one.run_id, await to_thread.run_sync(self._journal.events, one.run_id))
        info = snapshot.repos.get(one.story.repo) if one.story.repo else None
        options = info.settings if info is not None else snapshot.options
        settings = settings_from_json(options, top=repository.top)
        settings = replace(settings, bg_isolation="worktree")
        redactor = self._context.log.redactor
        log = EventLog(store=self._journal, snapshot=_begun(snapshot, one.id), redactor=redactor)
        run = replace(self._context, log=log, settings=settings)
        return story_context(_written(conflict), workers_of(one.story, settings), run)

    async def _resolved(self, context: StoryContext, conflict: Conflict) -> Resolution:
        stop = before_work(context)
        if stop is not None:
            raise _RefusedError(f"no session may start: {stop.detail}")
        run, repository = context.run, self._repository
        async with throwaway_of(run, RESOLVING, conflict.commit, ports=context.ports) as workspace:
            for hook in sorted(BRINGING):
                if failure := await run_hook(hook, context, workspace):
                    raise _RefusedError(failure)
            before = await to_thread.run_sync(untracked, repository, workspace.path)
            at = time.time()
            begin = partial(begin_merge, base=conflict.base)
            await to_thread.run_sync(
                begin, repository, workspace.path, conflict.commit, conflict.story.tip, at
            )
            await self._work(context, workspace)
            judge = partial(self._judged, conflict, workspace.path, at, before)
            return await to_thread.run_sync(judge)

    async def _work(self, context: StoryContext, workspace: Workspace) -> None:
        """Run the session, and record it as one of the story's."""
        brief = Brief(
            step=RESOLVE, prompt="", command=None, state_file="", docs="", answers=(), verified=True
        )
        prepared = await prepare_work(context, workspace, brief, _allowance(context))
        await context.log.record(prepared.started)
        ended = await run_session(prepared.order, context.run)
        await context.log.record(session_ended(prepared.order, ended, context.settings))
        if ended.outcome is Outcome.STOPPED and context.aborted:
            raise StoppedError
        if ended.outcome is not Outcome.OK:
            raise _RefusedError(f"the session that should resolve it ended: {ended.outcome}, {ended.detail}")

    def _judged(self, conflict: Conflict, path: Path, at: float, before: Sequence[str]) -> Resolution:
        """Take the files of the worktree, unless they must not count. Blocking."""
        repository, one = self._repository, conflict.story
        message = f"Resolve the conflict of {one.id}\n\nAutopilot-Story: {one.id}\n"
        parents = (conflict.commit, one.tip)
        commit, markers = resolved(repository, path, parents, message, at, without=before)
        keep(repository, f"{conflict.landing_id}/{one.id}", commit)
        if markers:
            raise _RefusedError(f"its resolution leaves conflict markers in {named(markers)}")
        merged, _ = merged_files(repository, conflict.commit, one.tip, at, base=conflict.base)
        foreign = self._foreign(conflict, repository.changed_paths(merged, commit))
        if foreign:
            raise _RefusedError(f"its resolution touches what belongs to neither story: {named(foreign)}")
        trees = repository.trees((conflict.commit, commit))
        if trees[0] == trees[1]:
            raise _RefusedError("its resolution leaves nothing of the story")
        return Resolution(onto=conflict.commit, commit=commit)

    def _foreign(self, conflict: Conflict, touched: Sequence[str]) -> list[str]:
        """Return what was touched beyond the conflict and the claims of both; changes stand for no claim."""
        repository, folding = self._repository, folds_case(self._repository.top)
        left = [path for path in touched if path not in conflict.files]
        for each in (conflict.story, *conflict.others) if left else ():
            if each.story.owns:
                left = list(claims.compile(each.story.owns, folding=folding).foreign(left))
            else:
                own = brought_paths(repository, conflict.target, each.tip)
                left = [path for path in left if path not in own]
        return left

    def _write_records(self, conflict: Conflict) -> None:
        """Count the session in the records of its run. Blocking."""
        run_id = conflict.story.run_id
        run = fold(run_id, self._journal.events(run_id))
        write_run(run, records_checkout(self._repository.paths))


def _begun(run: RunSnapshot, story_id: StoryId) -> RunSnapshot:
    """Return the run with a story at the beginning of something new: nothing of its attempts counts."""
    story = structs.replace(
        run.stories[story_id],
        step_history=StepHistory(),
        progress=StepProgress(attempt=1),
        loop_sessions=0,
        before_loop=len(run.stories[story_id].sessions),
        mode="",
    )
    return structs.replace(run, stories={**run.stories, story_id: story}, cohort_spirals=0)


def _written(conflict: Conflict) -> Story:
    """Return the story as the session gets it: both stories, and what to do about their conflict."""
    one, stories = conflict.story, (conflict.story, *conflict.others)
    whom = " and ".join(each.id for each in conflict.others) or f"`{conflict.onto}`"
    lines = [
        f"The merge of two stories stops at a conflict: {one.id} does not merge with {whom}.",
        "This worktree is in the middle of that merge. Both stories are done and verified on their own.",
        "",
        "Resolve the conflict so that what both of them want holds, and leave no conflict marker. Change",
        "only files in conflict, and other files of these stories if that is necessary. You need not commit.",
        "",
        "Files in conflict:",
        *(f"- {path}" for path in conflict.files),
    ]
    for each in stories:
        lines += ["", f"## Story {each.id}: {each.story.title}", "", each.story.prompt.strip()]
    if not conflict.others:
        lines += ["", f"The other side is on `{conflict.onto}` already; `git log -p HEAD` shows it."]
    return structs.replace(
        one.story,
        title=f"Resolve the conflict of {one.id} with {whom}",
        prompt="\n".join(lines),
        owns=(),
        verify=tuple(dict.fromkeys(line for each in stories for line in each.verify)),
    )


def _allowance(context: StoryContext) -> Amount:
    """Return what is left of the budget of the run."""
    settings: Settings = context.settings
    usage = context.log.snapshot.usage
    tokens, cost = settings.token_budget, settings.cost_budget
    return Amount(
        tokens=None if tokens is None else max(0.0, tokens - (usage.tokens or 0)),
        cost=None if cost is None else max(0.0, cost - (usage.cost_usd or 0.0)),
    )
