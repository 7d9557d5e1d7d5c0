"""A landing from its request to its end: the lease, recovery, the plan, the user's consent, the act."""

import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import trio
from msgspec import Struct
from msgspec.structs import replace
from trio import to_thread

from isolation.errors import IsolationError
from isolation.git.repository import Repository
from isolation.paths import current_branch, journal_path
from isolation.worktree.throwaway import clear_leftovers
from runner.core.errors import RunnerError, UsageError
from runner.core.events.events import Event
from runner.core.model import RunId
from runner.core.progress.landing import LEASE
from runner.core.settings import Settings
from runner.land.landing import Landing, Plan, Result, make_plan, require_free_checkouts
from runner.land.landings import LandingLog, landings
from runner.land.left_out.resolver import Resolver
from runner.land.left_out.resolving import Resolving
from runner.land.recovery import give_up, recover
from runner.land.restack import Restack, restack, restack_line
from runner.land.train import Style
from runner.land.verification.verifier import PLACES, StoppedError, open_verifier
from runner.plan.repositories.site import worktree_root_of
from runner.plan.settings.json_form import redactor_for
from runner.plan.settings.load import load_settings
from runner.records.journal import Journal
from runner.run.cleanup import sweep_briefly
from runner.run.several.acquisition import acquired
from runner.run.several.belonging import known_repositories
from runner.run.signals import EndedBy, ctrl_c, listening
from runner.story.context.error_groups import unwrapped
from runner.story.context.stop import Level, StopControl

_FIRST = Level.STOP
"""What the first Ctrl-C does: what a verify command would still find out is of no use then."""


class View(Protocol):
    """What the user sees while a landing is active."""

    def seen(self, event: Event) -> None:
        """Take note of one event of the whole landing; called in a thread, one event at a time."""

    def say(self, line: str) -> None:
        """Show one line now."""

    def progress(self, line: str) -> None:
        """Show one line of progress, unless the view shows that otherwise."""

    async def refresh(self, hint: Callable[[], str]) -> None:
        """Keep what is shown current until cancelled; `hint` returns what Ctrl-C would do now."""


class Request(Struct, frozen=True, kw_only=True):
    """What the user asks to land; without `onto`, on the branch of the main checkout.

    `asked` means that the user has named the stories. `resolve` gives conflicts to agents. Without a `style`
    it is that of the settings. A landing at the end of a run has the settings of the run; without them those
    of now count. `repository` is where to land, if that is another one than that of the directory, which has
    the journal.
    """

    directory: Path
    settings: Settings | None = None
    names: Sequence[str] = ()
    asked: bool = True
    resolve: bool = False
    onto: str | None = None
    style: Style | None = None
    repository: Repository | None = None


class Ended(Struct, frozen=True, kw_only=True):
    """The end of a landing; without a result it was not begun, `signal` is the exit code of a signal.

    `restacked` are the stories that were built on what has landed as other commits.
    """

    plan: Plan
    result: Result | None = None
    restacked: tuple[Restack, ...] = ()
    signal: int | None = None


def new_landing_id() -> str:
    """Return an id that sorts by time and never repeats."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + f"-{secrets.token_hex(4)}"


def target_of(repository: Repository, onto: str | None) -> str:
    """Return the branch to land on."""
    checkout = repository.main_checkout
    branch = onto or (current_branch(checkout) if checkout is not None else "")
    if not branch:
        raise UsageError(
            "the main checkout is on no branch, so there is none to land on",
            hint="name one with --onto BRANCH.",
        )
    return branch.removeprefix("refs/heads/")


def show_plan(request: Request) -> Plan:
    """Find what would land; changes nothing."""
    home, repository, settings = _opened(request)
    with Journal.open_readonly(journal_path(home.common_dir)) as journal:
        return _plan(request, repository, settings, journal)


def land(request: Request, view: View, *, confirmed: Callable[[Plan], bool]) -> Ended:
    """Land what can land; `confirmed` asks the user before anything happens."""
    return trio.run(partial(_land, request, view, confirmed=confirmed))


def recover_landings(repository: Repository, say: Callable[[str], None]) -> None:
    """Bring landings to their end that a killed process has left, with all that follows from them."""
    trio.run(_recover_landings, repository, say)


async def _recover_landings(home: Repository, say: Callable[[str], None]) -> None:
    every = tuple((await to_thread.run_sync(_known, home)).values())
    async with acquired(home, RunId(f"{LEASE}{new_landing_id()}"), others=every) as journal:
        for repository in every:
            settings = load_settings(top=repository.top, flags={}, environ=os.environ).settings
            log = LandingLog(journal, redactor_for(settings, os.environ))
            await to_thread.run_sync(recover, repository, log, say)
            there = await to_thread.run_sync(landings, journal, repository)
            for onto in sorted({each.onto for each in there}):
                for each in await to_thread.run_sync(restack, repository, log, onto):
                    say(restack_line(each, onto))
            root = worktree_root_of(repository, replace(settings, bg_isolation="worktree"))
            await to_thread.run_sync(clear_leftovers, repository, root, PLACES)
            await sweep_briefly(repository, root)


def _known(home: Repository) -> dict[str, Repository]:
    with Journal.open_readonly(journal_path(home.common_dir)) as journal:
        return known_repositories(home, journal)


def _opened(request: Request) -> tuple[Repository, Repository, Settings]:
    """Return the repository with the journal, the one to land in, and its settings."""
    home = Repository.open(request.directory)
    repository = request.repository or home
    settings = request.settings
    if settings is None:
        settings = load_settings(top=repository.top, flags={}, environ=os.environ).settings
    # Whatever the stories worked in, the train is verified in a worktree.
    return home, repository, replace(settings, bg_isolation="worktree")


def _plan(
    request: Request, repository: Repository, settings: Settings, journal: Journal, landing_id: str = ""
) -> Plan:
    onto = target_of(repository, request.onto)
    return make_plan(
        repository,
        journal,
        settings,
        landing_id=landing_id or new_landing_id(),
        onto=onto,
        names=request.names,
        asked=request.asked,
        style=request.style,
    )


async def _land(request: Request, view: View, *, confirmed: Callable[[Plan], bool]) -> Ended:
    home, repository, settings = await to_thread.run_sync(_opened, request)
    redactor = redactor_for(settings, os.environ)
    landing_id = new_landing_id()
    async with acquired(home, RunId(f"{LEASE}{landing_id}"), others=(repository,)) as journal:
        earlier = LandingLog(journal, redactor)
        await to_thread.run_sync(recover, repository, earlier, view.say)
        onto = target_of(repository, request.onto)
        # Those that a killed landing had left to do.
        await to_thread.run_sync(restack, repository, earlier, onto)
        log = LandingLog(journal, redactor, view.seen)
        plan = await to_thread.run_sync(_plan, request, repository, settings, journal, landing_id)
        if not plan.candidates.stories:
            return Ended(plan=plan)
        await to_thread.run_sync(require_free_checkouts, repository, plan)
        if not confirmed(plan):
            return Ended(plan=plan)
        control, ended_by = StopControl(), EndedBy()
        stories = [each.story for each in plan.candidates.stories]
        repository.exclude("/.orchestrator/")
        result = None
        async with (
            listening(control, ended_by, view.say, first=_FIRST),
            open_verifier(
                repository, settings, stories, control, landing_id=plan.id, redactor=redactor
            ) as verifier,
            _refreshing(view, control),
        ):
            resolver = Resolver(verifier.context, journal)
            resolving = Resolving(resolver, onto=plan.onto, everything=request.resolve)
            landing = Landing(repository, log, verifier, plan, view.progress, resolving=resolving)
            try:
                with unwrapped():
                    result = await landing.run()
            except* StoppedError:
                await to_thread.run_sync(give_up, repository, log, plan.id, "stopped by you")
            except* (IsolationError, RunnerError) as group:
                await to_thread.run_sync(give_up, repository, log, plan.id, str(group.exceptions[0]))
                raise
        landed = result is not None and result.after
        restacked = await to_thread.run_sync(restack, repository, log, onto) if landed else ()
    signal = ended_by.code if result is None else None
    return Ended(plan=plan, result=result, restacked=restacked, signal=signal)


@asynccontextmanager
async def _refreshing(view: View, control: StopControl) -> AsyncIterator[None]:
    """Keep the view current while the block lasts."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(view.refresh, partial(ctrl_c, control, first=_FIRST))
        try:
            yield
        finally:
            nursery.cancel_scope.cancel()
