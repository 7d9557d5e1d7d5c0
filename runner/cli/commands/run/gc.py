"""Show which worktrees of finished stories can be removed; remove them with --apply.

Unsaved work is never removed: worktrees with uncommitted changes, commits that are on no branch,
worktrees of an active run and folders that this tool did not create are kept, each with the reason.
Branches are never deleted.
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
    parser.add_argument("--apply", action="store_true", help="remove the worktrees (default: only list them)")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Check every worktree, and with --apply remove those that are safe to remove."""
    import trio

    from isolation.git.repository import Repository
    from runner.plan.plan import worktree_root_of
    from runner.plan.settings.load import load_settings

    repository = Repository.open(Path(arguments.directory))
    settings = load_settings(top=repository.top, flags={}, environ=os.environ).settings
    rows = trio.run(_collect, repository, worktree_root_of(repository, settings), arguments.apply)
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
        return "no story worktrees"
    lines = [f"{row['verdict']:<10} {row['path']}  ({row['reason']})" for row in rows]
    if not apply and any(row["verdict"] == "removable" for row in rows):
        lines.append("remove them with `autopilot-multi gc --apply`; branches are kept.")
    return "\n".join(lines)
