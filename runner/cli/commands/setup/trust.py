"""Show what this repository's own files would run or switch off, and agree to it.

Settings, stories and flows of a repository name commands, hooks, agents and variables, and can switch off
the guard; agents obey files such as `.claude/settings.json`. So their authors decide what runs on your
machine. Nothing of it runs before you have agreed, and whatever changes later asks again. What you agreed to
is kept in your own data folder. `--trust`, or AUTOPILOT_MULTI_TRUST=always in CI, agrees for one run.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common
from runner.core.progress.repositories import HOME

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from runner.core.trust import Asked, Demand
    from runner.plan.plan import Plan

EXAMPLE = "autopilot-multi trust"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `trust`."""
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--yes", action="store_true", help="agree to what is shown, without being asked")
    what.add_argument(
        "--always", action="store_true", help="agree to everything in this repository, now and later"
    )
    what.add_argument("--forget", action="store_true", help="forget what you agreed to in this repository")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Show what is asked for, and record the answer."""
    from isolation.git.repository import Repository
    from runner.cli.commands.consent import asks_to_agree, can_ask, listing
    from runner.plan.trust.agreed import agree, forget, load_trust, not_agreed_yet

    repository = Repository.open(Path(arguments.directory))
    if arguments.forget:
        known = forget(repository, os.environ)
        output.document({"forgotten": known})
        output.answer("forgotten" if known else "there was nothing to forget")
        return 0
    every = _demands(Path(arguments.directory), repository)
    agreed, found = True, []
    for there, demands in every:
        elsewhere = there is not repository
        asked = not_agreed_yet(there, demands, trust="ask", environ=os.environ)
        if asked:
            output.answer(listing(there, asked, demands, elsewhere=elsewhere))
        if not asked or arguments.yes or arguments.always:
            # What is agreed to always is said about one repository, the one in which the command was given.
            agree(there, asked, os.environ, always=arguments.always and not elsewhere)
        else:
            agreed = can_ask(output) and asks_to_agree(there, asked) and agreed
        found += [_data(one) | ({"repository": str(there.top)} if elsewhere else {}) for one in asked]
    always = load_trust(repository, os.environ).always
    output.document({"agreed": agreed, "always": always, "asked": found})
    if agreed:
        number = sum(len(demands) for _, demands in every)
        what = "everything in this repository, now and later" if always else f"{number} things"
        output.answer(f"you agree to {what}" if number or always else "nothing here needs your agreement")
        return 0
    output.answer("you have not agreed; nothing of this will run\nnext: autopilot-multi trust --yes")
    return 1


def _demands(directory: Path, repository: "Repository") -> "list[tuple[Repository, Sequence[Demand]]]":
    """Return what the files of each repository ask for, the one of the command first.

    Of one that is named by URL and not cloned yet, only that it be cloned can be asked.
    """
    from runner.plan.plan import RunRequest, make_plan
    from runner.plan.repositories.clones import NotClonedError
    from runner.plan.trust.demands import demands_of

    try:
        plan = make_plan(RunRequest(directory=directory))
    except NotClonedError as error:
        return [(repository, error.demands)]
    asked = demands_of(plan)
    home = (repository, [*asked.pop(HOME), *_of_imported_runs(plan)])
    return [home, *((plan.sites[name].repository, demands) for name, demands in asked.items())]


def _of_imported_runs(plan: "Plan") -> "list[Demand]":
    """Return what `land` and `resume` would ask about stories that came by shards."""
    from isolation.errors import IsolationError
    from isolation.paths import journal_path
    from runner.core.errors import RunnerError
    from runner.land.landing import landing_demands
    from runner.land.session import Request, show_plan
    from runner.plan.trust.imported import newest_demands
    from runner.records.journal import Journal

    repository, settings = plan.repository, plan.settings
    try:
        landing = show_plan(Request(directory=repository.top))
        demands = landing_demands(repository, settings, landing, resolve=True)
    except (IsolationError, RunnerError):
        demands = []  # nothing has run here, or there is no branch to land on
    try:
        with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
            return [*demands, *newest_demands(repository, settings, journal)]
    except RunnerError:
        return demands


def _data(one: "Asked") -> dict[str, Any]:
    return {"what": one.what, "value": one.value, "where": list(one.places)}
