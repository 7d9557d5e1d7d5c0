"""Asks the untouched base before the first session whether the verify commands work there.

The commands run one after the other in a worktree of the base that is prepared like a story's, while the
worktrees of the first stories are made. No session starts before the project's own commands and those of its
story are answered. What was asked of the same tree before is not asked again, unless the answer would prevent
something: what was missing may be there by now.

With the setting `base-follow`, the base branch is looked at again before stories start. Its new tip becomes
the base of those that have not started, if the commands work there.

In a shared tree the base is the user's own checkout, in which nothing may run before a story owns it. There
only the programs are looked for.
"""

import shutil
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import count

import trio
from trio import to_thread

from isolation.errors import IsolationError
from isolation.model import Workspace
from isolation.paths import autopilot_dir, current_branch
from isolation.worktree.checkout_files import after_checkouts
from runner.agents.command import CommandAgent
from runner.agents.workers import Worker, Workers
from runner.core.base import check
from runner.core.base.check import BASE, Answer, Mode, Question
from runner.core.base.commands import cannot_start, is_of_the_machine, missing_program
from runner.core.errors import JournalError, RunnerError
from runner.core.events import base as base_events
from runner.core.events import events as ev
from runner.core.limits.kill_switches import Switch
from runner.core.model import KillSwitch, Outcome, Story, StoryId
from runner.core.text.shell_words import programs_of
from runner.core.text.telling import telling_lines
from runner.plan.unseen import named_by_output, unseen_notes
from runner.records.base_answers import key_of, known_answers, save_answers
from runner.story import results
from runner.story.context.context import RunContext, StoryContext, story_context
from runner.story.session.hooks import hook_order
from runner.story.session.session import SessionVerdict, run_session
from runner.story.sessions import prepare_base_check
from runner.story.throwaway import throwaway_of

_HOOKS = ("after_create", "before_run")
_SEE_LOGS = "`autopilot-multi logs --base` shows its output; --no-base-check ignores it."
_UNASKED = (
    "in a shared tree verify commands do not run before the first session; only their programs are looked for"
)


class _RefusedError(Exception):
    """The base is not ready, which is recorded."""


class BaseCheck:
    """The questions of one run to its base; `waiting` are the stories that must not start yet.

    A run that has begun to work was answered when it began.
    """

    def __init__(self, context: RunContext, stories: Sequence[Story]) -> None:
        snapshot = context.log.snapshot
        states = snapshot.stories
        self._context = context
        self._log = context.log
        self._mode = Mode(context.settings.base_check)
        own = [story for story in stories if story.repo == context.repo]
        self._stories = [story for story in own if not states[story.id].status.final]
        begun = any(state.sessions for state in states.values() if state.repo == context.repo)
        self._fresh = not begun
        self._elsewhere = {story.id for story in stories if story.repo != context.repo}
        off = begun or self._mode is Mode.OFF
        self._asked = asked = () if off else self._questions(self._stories)
        self._answers: dict[str, Answer] = {}
        self._one_at_a_time = trio.Lock()
        self._numbers = count(1)
        self._branch = _followed_branch(context)
        self._declined = ""
        self._left = {
            story.id: {each.command for each in asked if each.shared or story.id in each.stories}
            for story in (self._stories if asked else ())
        }

    @property
    def waiting(self) -> set[StoryId]:
        """The stories that have no complete answer yet."""
        return {story_id for story_id, left in self._left.items() if left}

    async def run(self, wake: Callable[[], None]) -> None:
        """Ask everything; `wake` is called when stories may have stopped waiting."""
        try:
            await self._note_unseen()
            if not self._asked:
                return
            async with self._one_at_a_time:
                await (self._look_for_programs() if self._context.shared_tree else self._ask_all(wake))
            await self._note_green()
        except _RefusedError:
            return
        except JournalError:
            raise
        except (IsolationError, RunnerError, OSError) as error:
            # The stories will meet the same obstacle, each with a message of its own.
            await self._log.record(ev.Noted(message=f"{self._the_base} could not be checked: {error}"))
        self._left.clear()
        wake()

    def _questions(self, stories: Sequence[Story]) -> tuple[Question, ...]:
        return check.questions(stories, self._context.settings, elsewhere=self._elsewhere)

    async def _note_unseen(self) -> None:
        """Say what of the checkout the stories will not see; only the checks of the base wait for it.

        Without these the first stories get their trees before: git may read every file for the answer. It is
        given, too, if the run ends before that.
        """
        context = self._context
        if not self._fresh or self._mode is Mode.OFF:
            return
        try:
            if not self._asked:
                await self._first_session()
                await after_checkouts(context.populate)
        finally:
            with trio.CancelScope(shield=True):
                look = partial(unseen_notes, context.repository, context.settings, idle=not self._asked)
                notes = await to_thread.run_sync(look)
                self._log.defer(*(ev.Noted(message=f"{self._prefix}{note}") for note in notes))

    async def _first_session(self) -> None:
        """Wait until a session has started, or a story has ended without any."""
        happened = trio.Event()
        self._log.subscribe(lambda _event, _run: happened.set(), ev.SessionStarted, ev.StoryFinished)
        await happened.wait()

    async def _note_ignored(self, output: str) -> None:
        """Say which files of the checkout a failed command names that no worktree has."""
        context, base = self._context, self._context.base
        notes = await to_thread.run_sync(named_by_output, context.repository, base, context.settings, output)
        self._log.defer(*(ev.Noted(message=note) for note in notes))

    async def _ask_all(self, wake: Callable[[], None]) -> None:
        context, repository = self._context, self._context.repository
        base = context.base
        tree = (await to_thread.run_sync(repository.trees, (base,)))[0]
        asking = (repository.common_dir, tree, self._asked, context.settings)
        known = await to_thread.run_sync(known_answers, *asking)
        left = [each for each in self._asked if each.command not in known]
        for each in self._asked:
            if each.command in known:
                self._take(each, known[each.command])
        wake()
        if not left:
            return
        try:
            async with throwaway_of(context, BASE, base, ports=self._ports) as workspace:
                for detail in await self._prepare(workspace):
                    await self._refuse(KillSwitch(name=str(Switch.BASE), detail=detail, hint=_SEE_LOGS))
                for question in left:
                    await self._ask(question, workspace)
                    wake()
        finally:
            new = {
                key_of(tree, each.command, context.settings): self._answers[each.command]
                for each in left
                if each.command in self._answers
            }
            if new:
                save_answers(repository.common_dir, new)

    def _take(self, question: Question, answer: Answer) -> None:
        """Take an answer of an earlier run."""
        body = base_events.BaseChecked(
            command=question.command,
            shared=question.shared,
            answer=answer,
            known=True,
            repo=self._context.repo,
        )
        self._log.defer(body)
        self._answered(question, answer)

    def _answered(self, question: Question, answer: Answer) -> None:
        self._answers[question.command] = answer
        for left in self._left.values():
            left.discard(question.command)

    async def _prepare(self, workspace: Workspace) -> list[str]:
        """Run the hooks that prepare a story's worktree, without which the commands would find less.

        Returns why hooks failed; only with `warn` a later one runs after that.
        """
        failed: list[str] = []
        for name in _HOOKS:
            command: str = getattr(self._context.settings.hooks, name)
            if not command:
                continue
            order = await to_thread.run_sync(hook_order, f"hook {name}", command, self._story(), workspace)
            ended = await run_session(order, self._context)
            if ended.outcome is Outcome.STOPPED:
                raise _RefusedError
            if ended.outcome is not Outcome.OK:
                failed.append(f"the hook {name} fails in a fresh checkout of the base: {_words(ended)}")
                if self._mode is not Mode.WARN:
                    break
        return failed

    async def _ask(self, question: Question, workspace: Workspace) -> None:
        ended = await self._answer_on(question, workspace, self._started)
        answer = check.answer_of(ended.outcome, ended.exit_code, ended.output)
        answered = base_events.BaseChecked(
            command=question.command,
            shared=question.shared,
            answer=answer,
            exit_code=ended.exit_code,
            detail="" if answer is Answer.PASSES else _words(ended),
            output=() if answer is Answer.PASSES else tuple(telling_lines(ended.output)),
            repo=self._context.repo,
        )
        self._answers[question.command] = answer
        if not check.refuses(question, answer):
            self._log.defer(answered)
        else:
            await self._note_ignored(ended.output)
            program = missing_program(ended.exit_code, ended.output)
            await self._not_ready(question, answered, program)
        self._answered(question, answer)

    async def _answer_on(
        self, question: Question, workspace: Workspace, started: Callable[[Question, str], Awaitable[None]]
    ) -> SessionVerdict:
        """Run a command in a worktree of a base; `started` gets the name of its log."""
        context, number = self._story(question), next(self._numbers)
        order = await to_thread.run_sync(prepare_base_check, context, workspace, question.command, number)
        records = autopilot_dir(self._context.home.common_dir)
        await started(question, order.log.relative_to(records).as_posix())
        ended = await run_session(order, self._context)
        if ended.outcome is Outcome.STOPPED:
            raise _RefusedError  # the user has stopped the run, which says so itself
        return ended

    async def _started(self, question: Question, log: str) -> None:
        started = base_events.BaseCheckStarted(
            command=question.command, shared=question.shared, log=log, repo=self._context.repo
        )
        await self._log.record(started)

    async def follow(self) -> bool:
        """Take the new tip of the base branch for stories that have not started; True if that took time.

        A tip on which the commands do not work is not taken, with a note.
        """
        repository = self._context.repository
        if not self._branch:
            return False
        tip = await to_thread.run_sync(repository.branch_tip, self._branch)
        before = self._context.newest_base
        if tip is None or tip in {before, self._declined}:
            return False
        try:
            async with self._one_at_a_time:
                problem = await self._problem_on(tip)
        except _RefusedError:
            return True
        except (IsolationError, RunnerError, OSError) as error:
            if isinstance(error, JournalError):
                raise
            problem = str(error)
        if problem:
            self._declined = tip
            branch = f"{self._prefix}{self._branch}"
            words = f"{branch} has moved to {tip[:10]}, but {problem}; stories still start from"
            await self._log.record(ev.Noted(message=f"{words} {before[:10]}"))
        else:
            await self._log.record(base_events.BaseFollowed(base=tip, before=before, repo=self._context.repo))
        return True

    async def _problem_on(self, tip: str) -> str:
        """Return why stories cannot start from a commit; empty if they can. Asked once for each tree."""
        context, repository, states = self._context, self._context.repository, self._log.snapshot.stories
        if self._mode is Mode.OFF:
            return ""
        open_ = [story for story in self._stories if not states[story.id].sessions]
        asked = [each for each in self._questions(open_) if each.shared]
        (tree,) = await to_thread.run_sync(repository.trees, (tip,))
        asking = (repository.common_dir, tree, asked, context.settings)
        known = await to_thread.run_sync(known_answers, *asking)
        left = [each for each in asked if each.command not in known]
        if not left:
            return ""
        async with throwaway_of(self._context, BASE, tip, ports=self._ports) as workspace:
            if (failed := await self._prepare(workspace)) and self._mode is not Mode.WARN:
                return failed[0]
            for question in left:
                ended = await self._answer_on(question, workspace, _unrecorded)
                answer = check.answer_of(ended.outcome, ended.exit_code, ended.output)
                if check.refuses(question, answer) and self._mode is not Mode.WARN:
                    return f"`{question.command}` does not work there ({_words(ended)})"
                saved = {key_of(tree, question.command, context.settings): answer}
                await to_thread.run_sync(save_answers, repository.common_dir, saved)
        return ""

    async def _not_ready(self, question: Question, answered: base_events.BaseChecked, program: str) -> None:
        """Record what follows from an answer with which its stories cannot succeed."""
        base = self._context.base
        if question.shared:
            found = check.not_ready(answered, base, program)
            await self._log.record(answered)
            await self._refuse(found)
            return
        why, hint = cannot_start(f"verify `{question.command}`", program, answered.exit_code)
        if self._mode is Mode.WARN:
            await self._log.record(answered, ev.Noted(message=f"{why}; {hint}"))
            return
        states = self._log.snapshot.stories
        refused = [story_id for story_id in question.stories if not states[story_id].status.final]
        await self._log.record(answered, *(results.failed(each, why, next_=hint) for each in refused))

    async def _refuse(self, found: KillSwitch) -> None:
        """End the run before its first session; with `warn`, only say why it should."""
        if self._mode is Mode.WARN:
            await self._log.record(ev.Noted(message=f"{self._prefix}{found.detail}"))
            return
        if self._log.snapshot.repos:
            # Stories elsewhere do not depend on this base; those that depend on stories here are skipped.
            states = self._log.snapshot.stories
            left = [story.id for story in self._stories if not states[story.id].status.final]
            why = f"{self._the_base} is not ready: {found.detail}"
            await self._log.record(*(results.failed(each, why, next_=found.hint) for each in left))
            raise _RefusedError
        await self._log.record(ev.AdmissionEnded(name=found.name, detail=found.detail, hint=found.hint))
        raise _RefusedError

    async def _look_for_programs(self) -> None:
        """Find programs that are on no PATH, where nothing may run."""
        self._log.defer(ev.Noted(message=_UNASKED))
        for question in self._asked:
            programs = filter(is_of_the_machine, programs_of(question.command))
            missing = next((each for each in programs if shutil.which(each) is None), "")
            if missing:
                answered = base_events.BaseChecked(
                    command=question.command,
                    shared=question.shared,
                    answer=Answer.CANNOT_START,
                    detail=f"{missing}: not found",
                    repo=self._context.repo,
                )
                await self._not_ready(question, answered, missing)

    async def _note_green(self) -> None:
        """Say which stories are done already as far as their own commands can tell."""
        passed = {command for command, answer in self._answers.items() if answer is Answer.PASSES}
        idle = check.says_nothing(self._stories, self._context.settings, passed)
        if idle:
            words = "its verify commands pass on the base already, so they do not show that its work is done"
            self._log.defer(*(ev.Noted(story_id=story_id, message=words) for story_id in idle))

    @property
    def _prefix(self) -> str:
        """Begins what is said about the base, where there are several."""
        name = self._log.snapshot.repo_name(self._context.repo)
        return f"{name}: " if name else ""

    @property
    def _the_base(self) -> str:
        name = self._log.snapshot.repo_name(self._context.repo)
        return f"the base of {name}" if name else "the base"

    @property
    def _ports(self) -> int:
        """As many ports as any story has, since each command may need them."""
        return max((self._context.settings.ports, *(story.ports or 0 for story in self._stories)))

    def _story(self, question: Question | None = None) -> StoryContext:
        """Return the base as if it were a story, with the time limit of the first one that asks."""
        asks = question.stories[0] if question else None
        limit = next((story.verify_minutes for story in self._stories if story.id == asks), None)
        base = Story(id=BASE, title="the base", prompt="", verify_minutes=limit)
        return story_context(base, Workers(first=Worker(agent=CommandAgent())), self._context)


class BaseChecks:
    """The questions of a run to the bases of all its repositories, each asked by itself."""

    def __init__(self, context: RunContext, stories: Sequence[Story]) -> None:
        self._checks = tuple(BaseCheck(here, stories) for here in context.everywhere)

    @property
    def waiting(self) -> set[StoryId]:
        """The stories that have no complete answer yet."""
        return {story_id for check in self._checks for story_id in check.waiting}

    async def run(self, wake: Callable[[], None]) -> None:
        """Ask everything, all repositories at once; `wake` is called when stories may stop waiting."""
        async with trio.open_nursery() as nursery:
            for each in self._checks:
                nursery.start_soon(each.run, wake)

    async def follow(self) -> bool:
        """Take the new tips of the base branches for stories that have not started; True if it took time."""
        return any([await each.follow() for each in self._checks])


async def _unrecorded(_question: Question, _log: str) -> None:
    """Record nothing: the answers of a run are those of the base that it began with."""


def _followed_branch(context: RunContext) -> str:
    """Return the branch whose tip is the base of the run; empty if it is not to be followed."""
    settings, top = context.settings, context.repository.top
    if not settings.base_follow or context.shared_tree:
        return ""
    return current_branch(top) or "" if settings.base == "HEAD" else settings.base


def _words(ended: SessionVerdict) -> str:
    return f"{ended.detail}: {ended.last_line}".rstrip(": ")
