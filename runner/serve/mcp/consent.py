"""What a person must have agreed to before a tool may start something. A tool never agrees to anything."""

import os
from collections.abc import Sequence
from pathlib import Path

from isolation.git.repository import Repository
from runner.core.errors import NotFoundError
from runner.core.text.names import one_line
from runner.core.trust import Demand
from runner.land.landing import landing_demands
from runner.land.session import Request, show_plan
from runner.plan.plan import RunRequest, make_plan
from runner.plan.settings.load import load_settings
from runner.plan.trust.agreed import TrustError, not_agreed_yet
from runner.plan.trust.demands import demands_of


def require_agreed_run(request: RunRequest) -> None:
    """Plan a run, and raise if it would do something that the user has not agreed to. Blocks."""
    plan = make_plan(request)
    for name, demands in demands_of(plan).items():
        _require(plan.sites[name].repository, demands, plan.settings.trust)


def require_agreed_landing(request: Request) -> None:
    """Plan a landing, and raise if it would run something that the user has not agreed to. Blocks."""
    repository = Repository.open(request.directory)
    loaded = load_settings(top=repository.top, flags={}, environ=os.environ)
    demands = list(loaded.demands)
    try:
        plan = show_plan(request)
    except NotFoundError:  # no run yet: the command itself says so
        return
    demands += landing_demands(repository, loaded.settings, plan, resolve=request.resolve)
    _require(repository, demands, loaded.settings.trust)


def require_agreed_settings(directory: Path) -> None:
    """Raise if the settings of the repository ask for something that the user has not agreed to. Blocks."""
    repository = Repository.open(directory)
    loaded = load_settings(top=repository.top, flags={}, environ=os.environ)
    _require(repository, loaded.demands, loaded.settings.trust)


def _require(repository: Repository, demands: Sequence[Demand], trust: str) -> None:
    asked = not_agreed_yet(repository, demands, trust=trust, environ=os.environ)
    if not asked:
        return
    listing = "".join(f"\n  {one.what}: {one_line(one.text)}  ({one.where})" for one in asked)
    raise TrustError(
        f"files of this repository ask for something that the user has not agreed to yet:{listing}",
        hint="no tool can agree to that; ask the user to type `autopilot-multi trust` in a terminal, in "
        f"{repository.top}.",
    )
