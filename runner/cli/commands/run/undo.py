"""Take a landing back: the branch is again without the stories that it brought.

LANDING is the id that `land` printed, or its first characters; without it the newest landing is undone.
Where nothing stands on the landing and nothing of it was pushed, the branch moves back. Otherwise a new
commit on top reverts it. The branches of the stories stay, and what the branch held is kept under
refs/autopilot/undone/. Files that you have changed are never touched.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.land.undo import UndoPlan

EXAMPLE = "autopilot-multi undo --dry-run"

SEES_TREES = True
_REMOTES = "refs/remotes/"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `undo`."""
    parser.add_argument(
        "landing", nargs="?", metavar="LANDING", help="the id of a landing (default: the newest)"
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would be undone; change nothing")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Show the plan, ask, and undo the landing while holding the lease."""
    from isolation.git.repository import Repository
    from isolation.paths import journal_path
    from runner.land.undo import find_landing, holding, make_plan, undo
    from runner.records.journal import Journal
    from runner.run.several.belonging import known_repositories

    home = Repository.open(Path(arguments.directory))
    with Journal.open_readonly(journal_path(home.common_dir)) as journal:
        known = known_repositories(home, journal)
        if arguments.dry_run:
            plan = make_plan(*find_landing(journal, known.values(), arguments.landing))
    if arguments.dry_run:
        output.document({**_data(plan), "dry_run": True})
        output.answer(_text(plan, done=False))
        return 0
    with holding(home, known.values(), output.say) as log:
        repository, landing = find_landing(log.journal, known.values(), arguments.landing)
        plan = make_plan(repository, landing)
        if not _confirmed(plan, output, yes=arguments.yes):
            output.answer("nothing was undone")
            return 0
        undo(repository, log, plan)
    output.document(_data(plan))
    output.answer(_text(plan, done=True))
    return 0


def _confirmed(plan: "UndoPlan", output: Output, *, yes: bool) -> bool:
    from runner.core.errors import UsageError

    if yes:
        return True
    words = _text(plan, done=False)
    if output.as_json or sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"undoing must be confirmed: {words}", hint="check it, then add --yes.")
    sys.stderr.write(f"{words}\nUndo this? [y/N]: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _data(plan: "UndoPlan") -> dict[str, Any]:
    landing = plan.landing
    return {
        "landing_id": landing.id,
        "onto": landing.onto,
        "before": plan.tip,
        "after": None if plan.reverts else plan.commit,
        "how": "revert" if plan.reverts else "move",
        "because": list(plan.standing),
        "stories": list(landing.stories),
    }


def _because(standing: Sequence[str]) -> str:
    """Return in words why the branch cannot just move back."""
    pushed = [ref.removeprefix(_REMOTES) for ref in standing if ref.startswith(_REMOTES)]
    others = [ref.removeprefix("refs/heads/") for ref in standing if not ref.startswith(_REMOTES)]
    reasons = [f"it was pushed ({', '.join(pushed)})"] if pushed else []
    return " and ".join([*reasons, *([f"it is in {', '.join(others)}"] if others else [])])


def _text(plan: "UndoPlan", *, done: bool) -> str:
    landing = plan.landing
    stories = ", ".join(landing.stories)
    if plan.reverts:
        verb = "reverted" if done else "would be reverted"
        how = f"{verb} by commit {plan.commit[:10]} on {landing.onto}, because {_because(plan.standing)}"
        again = (
            f"\nto land these stories again, revert that commit: git revert {plan.commit[:10]}"
            if done
            else ""
        )
    else:
        verb = "moved" if done else "would move"
        how, again = f"{landing.onto} {verb} back from {plan.tip[:10]} to {plan.commit[:10]}", ""
    return f"landing {landing.id} of {stories}: {how}{again}"
