"""Show which worktrees of finished stories may go, or remove them with --apply.

Nothing of value is ever removed: dirty worktrees, commits that no branch keeps, worktrees of a run
that is going on and folders of others stay, and the reason is printed. Branches are never deleted.
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from isolation.git.repository import Repository

EXAMPLE = "autopilot-multi gc --apply"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `gc`."""
    parser.add_argument("--apply", action="store_true", help="remove what may go; without it, only show")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Judge every worktree, and with --apply remove those that may go."""
    import trio

    from isolation.git.repository import Repository
    from runner.plan.plan import root_of
    from runner.plan.settings.load import load_settings

    repository = Repository.open(Path(arguments.directory))
    settings = load_settings(top=repository.top, flags={}, environ=os.environ).settings
    rows = trio.run(_collect, repository, root_of(repository, settings), arguments.apply)
    output.document({"worktrees": rows})
    output.answer(_text(rows, apply=arguments.apply))
    return 0


async def _collect(repository: "Repository", root: Path, apply: bool) -> list[dict[str, str | None]]:  # noqa: FBT001  trio.run takes positions
    from isolation.worktree.gc import remove, survey

    rows: list[dict[str, str | None]] = []
    for finding in await survey(repository, root):
        verdict, reason = "removable" if finding.removable and not apply else "kept", finding.reason
        if finding.removable and apply:
            closing = await remove(repository, finding)
            verdict, reason = ("removed" if closing.removed else "kept"), closing.reason or finding.reason
        rows.append(
            {"path": str(finding.path), "branch": finding.branch, "verdict": verdict, "reason": reason}
        )
    return rows


def _text(rows: list[dict[str, str | None]], *, apply: bool) -> str:
    if not rows:
        return "no worktrees of stories are left"
    lines = [f"{row['verdict']:<10} {row['path']}  ({row['reason']})" for row in rows]
    if not apply and any(row["verdict"] == "removable" for row in rows):
        lines.append("`autopilot-multi gc --apply` removes what is removable; branches stay.")
    return "\n".join(lines)
