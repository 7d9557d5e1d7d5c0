"""The landing at the end of a run that was started with `--land`: what is done lands as by `land`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.errors import IsolationError
from isolation.git.repository import Repository
from isolation.paths import current_branch, journal_path
from runner.core.errors import RunnerError, UsageError
from runner.core.events.fold import EXIT_DONE, EXIT_SOME_FAILED, EXIT_SYSTEM, EXIT_UNPRODUCTIVE, fold
from runner.core.model import RunSnapshot, Status, StoryId
from runner.core.progress.repositories import HOME
from runner.core.settings import Settings
from runner.land import session
from runner.land.landing import Plan
from runner.records.journal import Journal
from runner.run.result.ended import Ended

_AS_CHECKED_OUT = "HEAD"
_SIGNALS = 128
"""Exit codes above this say which signal ended something."""


class AfterRun(Struct, frozen=True, kw_only=True):
    """A run with its landing: the run as it is afterwards, the combined exit code, and why nothing landed.

    `failed` means that the landing was wanted and could not be.
    """

    ended: Ended
    code: int
    landing: session.Ended | None = None
    why_not: str = ""
    failed: bool = False


def land_after(
    directory: Path,
    settings: Settings,
    ended: Ended,
    view: session.View,
    *,
    require_consent: Callable[[Plan], None],
    repo: str = HOME,
    repository: Repository | None = None,
) -> AfterRun:
    """Land what a run has done; `require_consent` raises for what the user has not agreed to.

    `repo` is the name that its stories have for the repository to land in, `repository` that one, if it is
    not the run's own.
    """
    names = _landable(ended.run, repo)
    if ended.run.kill_switch is not None or ended.exit_code > _SIGNALS:
        return AfterRun(ended=ended, code=ended.exit_code, why_not="the run was ended early")
    if not names:
        return AfterRun(ended=ended, code=ended.exit_code, why_not="no story is done")
    try:
        onto = _target(repository or Repository.open(directory), settings)
        request = session.Request(
            directory=directory,
            settings=settings,
            names=names,
            asked=False,
            onto=onto,
            repository=repository,
        )
        landing = session.land(request, view, confirmed=partial(_confirmed, require_consent))
    except (IsolationError, RunnerError) as error:
        why = f"{error.message} ({error.hint})" if error.hint else error.message
        return AfterRun(ended=ended, code=_combined(ended, EXIT_SYSTEM), why_not=why, failed=True)
    plan = landing.plan
    if landing.result is None and plan.candidates.stories and landing.signal is None:
        why = f"no verify command is known, so nothing would show whether {plan.onto} works with this"
        return AfterRun(ended=ended, code=_combined(ended, EXIT_SYSTEM), why_not=why, failed=True)
    code = _combined(ended, landing_code(landing))
    return AfterRun(ended=_again(directory, ended), code=code, landing=landing)


def _confirmed(require_consent: Callable[[Plan], None], plan: Plan) -> bool:
    require_consent(plan)
    return plan.verified


def landing_code(landing: session.Ended) -> int:
    """Return the exit code of a landing by itself."""
    if landing.signal is not None:
        return landing.signal
    result = landing.result
    if result is None or (not result.not_landed and result.red_target is None):
        return EXIT_DONE
    return EXIT_SOME_FAILED if result.after else EXIT_UNPRODUCTIVE


def _combined(ended: Ended, landing: int) -> int:
    """Return one exit code: a signal, else that of the run unless it is a success, else the landing's."""
    return landing if landing > _SIGNALS or ended.exit_code == EXIT_DONE else ended.exit_code


def _landable(run: RunSnapshot, repo: str) -> tuple[StoryId, ...]:
    return tuple(
        story.id
        for story in run.stories.values()
        if story.repo == repo
        and story.status is Status.DONE
        and story.workspace.commit
        and story.workspace.commits
    )


def _target(repository: Repository, settings: Settings) -> str:
    """Return the branch to land on: the one that is named, or the base if the main checkout is on it."""
    if settings.land_onto:
        return settings.land_onto
    checkout = repository.main_checkout
    here = current_branch(checkout) if checkout is not None else ""
    base = current_branch(repository.top) if settings.base == _AS_CHECKED_OUT else settings.base
    if not here or base.removeprefix("refs/heads/") != here:
        raise UsageError(
            f"the run started from {base or 'a commit'}, and the main checkout is on {here or 'no branch'}",
            hint="name the branch to land on with --land-onto BRANCH.",
        )
    return here


def _again(directory: Path, ended: Ended) -> Ended:
    """Return the run as the journal has it after the landing; one that left nothing there stays as it is."""
    run_id = ended.run.run_id
    repository = Repository.open(directory)
    with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
        events = journal.events(run_id) if run_id in journal.runs() else ()
    return replace(ended, run=fold(run_id, events)) if events else ended
