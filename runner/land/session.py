"""A landing from its request to its end: the lease, recovery, the plan, the user's consent, the act."""

import os
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio
from msgspec import Struct
from trio import to_thread

from isolation.git.repository import Repository
from isolation.paths import current_branch, journal_path
from runner.core.errors import UsageError
from runner.core.events import landing as ld
from runner.core.model import RunId
from runner.core.settings import Settings
from runner.land.landing import Landing, Plan, Result, Say, make_plan, require_free_checkouts
from runner.land.landings import LandingLog, owners_of
from runner.land.left_out.resolver import Resolver
from runner.land.left_out.resolving import Resolving
from runner.land.recovery import recover
from runner.land.train import Style
from runner.land.verifier import StoppedError, open_verifier
from runner.plan.settings.json_form import redactor_for
from runner.plan.settings.load import load_settings
from runner.records.journal import Journal
from runner.run.coordinator import acquired
from runner.run.signals import EndedBy, listening
from runner.story.context.error_groups import unwrapped
from runner.story.context.stop import Level, StopControl


class Request(Struct, frozen=True, kw_only=True):
    """What the user asks to land; without `onto`, on the branch of the main checkout.

    `asked` means that the user has named the stories. `resolve` gives conflicts to agents.
    """

    directory: Path
    names: Sequence[str] = ()
    asked: bool = True
    resolve: bool = False
    onto: str | None = None
    style: Style = Style.MERGE


class Ended(Struct, frozen=True, kw_only=True):
    """The end of a landing; without a result it was not begun, `signal` is the exit code of a signal."""

    plan: Plan
    result: Result | None = None
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
    repository, settings = _opened(request)
    with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
        return _plan(request, repository, settings, journal)


def land(request: Request, say: Say, *, confirmed: Callable[[Plan], bool]) -> Ended:
    """Land what can land; `confirmed` asks the user before anything happens."""
    return trio.run(partial(_land, request, say, confirmed=confirmed))


def _opened(request: Request) -> tuple[Repository, Settings]:
    from dataclasses import replace

    repository = Repository.open(request.directory)
    settings = load_settings(top=repository.top, flags={}, environ=os.environ).settings
    # Whatever the stories worked in, the train is verified in a worktree.
    return repository, replace(settings, bg_isolation="worktree")


def _plan(request: Request, repository: Repository, settings: Settings, journal: Journal) -> Plan:
    onto = target_of(repository, request.onto)
    return make_plan(
        repository,
        journal,
        settings,
        landing_id=new_landing_id(),
        onto=onto,
        names=request.names,
        asked=request.asked,
        style=request.style,
    )


async def _land(request: Request, say: Say, *, confirmed: Callable[[Plan], bool]) -> Ended:
    repository, settings = await to_thread.run_sync(_opened, request)
    redactor = redactor_for(settings, os.environ)
    lease = RunId(f"land-{new_landing_id()}")
    async with acquired(repository, lease) as journal:
        log = LandingLog(journal, redactor)
        await to_thread.run_sync(recover, repository, log, say)
        plan = await to_thread.run_sync(_plan, request, repository, settings, journal)
        if not plan.candidates.stories:
            return Ended(plan=plan)
        await to_thread.run_sync(require_free_checkouts, repository, plan)
        if not confirmed(plan):
            return Ended(plan=plan)
        control, ended_by = StopControl(), EndedBy()
        stories = [each.story for each in plan.candidates.stories]
        repository.exclude("/.orchestrator/")
        result = None
        try:
            with unwrapped():
                # What a verify command would still find out is of no use once the landing is stopped.
                async with (
                    listening(control, ended_by, say, first=Level.STOP),
                    open_verifier(
                        repository, settings, stories, control, landing_id=plan.id, redactor=redactor
                    ) as verifier,
                ):
                    resolver = Resolver(verifier.context, journal)
                    resolving = Resolving(resolver, onto=plan.onto, everything=request.resolve)
                    landing = Landing(repository, log, verifier, plan, say, resolving=resolving)
                    result = await landing.run()
        except* StoppedError:
            owners = owners_of(plan.candidates.stories)
            log.record(owners, lambda _: ld.LandingAbandoned(landing_id=plan.id, reason="stopped by you"))
    return Ended(plan=plan, result=result, signal=ended_by.code if result is None else None)
