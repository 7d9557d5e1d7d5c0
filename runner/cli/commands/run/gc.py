"""Show which worktrees of finished stories, or which old runs, can be removed; remove them with --apply.

Unsaved work is never removed: worktrees with uncommitted changes, commits that are on no branch,
worktrees of an active run and folders that this tool did not create are kept, each with the reason.
Branches are never deleted.

With --undo, the worktrees that the last run or the last --apply has removed are brought back, with the files
that git ignores. The last few are kept for a day, unless the disk is short.

With --runs, logs and events of finished runs are removed by age and size (`keep-runs-days`, `keep-runs-mb`).
Runs that are unfinished or wait for an answer are kept, and so are the newest ones and the records of all.
"""

import argparse
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from runner.core.settings import Settings
    from runner.records.journal import Journal
    from runner.records.retention.runs import OldRun

EXAMPLE = "autopilot-multi gc --apply"

SEES_TREES = True

DAY_SECONDS = 86_400
_MB = 1 << 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `gc`."""
    parser.add_argument("--apply", action="store_true", help="remove what is listed (default: only list it)")
    parser.add_argument("--runs", action="store_true", help="old runs, their logs and events, not worktrees")
    parser.add_argument(
        "--undo", action="store_true", help="bring back the worktrees that were removed last, within a day"
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Check every worktree, and with --apply remove those that are safe to remove."""
    import trio

    from isolation.git.repository import Repository
    from runner.plan.repositories.site import worktree_root_of
    from runner.plan.settings.load import load_settings

    repository = Repository.open(Path(arguments.directory))
    settings = load_settings(top=repository.top, flags={}, environ=os.environ).settings
    if arguments.undo:
        return _undo(repository, arguments, output)
    if arguments.runs:
        return _old_runs(repository, settings, arguments, output)
    every = _repositories(repository)
    rows: list[dict[str, str | None]] = []
    for name, there in every.items():
        own = load_settings(top=there.top, flags={}, environ=os.environ).settings
        found = trio.run(_collect, there, worktree_root_of(there, own), arguments.apply)
        rows += [row | ({"repo": name} if len(every) > 1 else {}) for row in found]
    output.document({"worktrees": rows})
    output.answer(_text(rows, apply=arguments.apply))
    return 0


def _repositories(home: "Repository") -> "dict[str, Repository]":
    """Return the repositories in which stories of the runs here have worked, this one first."""
    from isolation.paths import journal_path
    from runner.core.errors import RunnerError
    from runner.records.journal import Journal
    from runner.run.several.belonging import known_repositories

    try:
        with Journal.open_readonly(journal_path(home.common_dir)) as journal:
            return known_repositories(home, journal)
    except RunnerError:  # nothing has run here yet, or the journal cannot be read
        return {"": home}


async def _collect(repository: "Repository", root: Path, apply: bool) -> list[dict[str, str | None]]:  # noqa: FBT001  trio.run takes positions
    from isolation.worktree.gc import remove, survey

    batch = f"gc-{time.time():.6f}"
    rows: list[dict[str, str | None]] = []
    for finding in await survey(repository, root):
        verdict, reason = "removable" if finding.removable and not apply else "kept", finding.reason
        if finding.removable and apply:
            closing = await remove(repository, finding, batch)
            verdict, reason = ("removed" if closing.removed else "kept"), closing.reason or finding.reason
        rows.append(
            {"path": str(finding.path), "branch": finding.branch, "verdict": verdict, "reason": reason}
        )
    return rows


def _undo(repository: "Repository", arguments: argparse.Namespace, output: Output) -> int:
    from isolation.worktree.gc import undo
    from runner.core.errors import UsageError

    if arguments.apply or arguments.runs:
        raise UsageError(
            "--undo brings worktrees back, so it cannot be used with --apply or --runs", hint="use it alone."
        )
    rows = [
        {
            "path": str(each.path),
            "branch": each.branch,
            "verdict": "restored" if each.restored else "not restored",
            "reason": each.reason,
        }
        for there in _repositories(repository).values()
        for each in undo(there)
    ]
    output.document({"worktrees": rows})
    lines = [f"{row['verdict']:<10} {row['path']}  ({row['reason']})" for row in rows]
    output.answer(
        "\n".join(lines) or "nothing to bring back: no worktree was removed within a day, or it was deleted"
    )
    return 0


def _text(rows: list[dict[str, str | None]], *, apply: bool) -> str:
    if not rows:
        return "no story worktrees"
    lines = [f"{row['verdict']:<10} {row['path']}  ({row['reason']})" for row in rows]
    if not apply and any(row["verdict"] == "removable" for row in rows):
        lines.append("remove them with `autopilot-multi gc --apply`; branches are kept.")
    if apply and any(row["verdict"] == "removed" and row["branch"] for row in rows):
        lines.append("`autopilot-multi gc --undo` brings them back within a day.")
    return "\n".join(lines)


def _old_runs(
    repository: "Repository", settings: "Settings", arguments: argparse.Namespace, output: Output
) -> int:
    """Judge every run, and with --apply remove those that may go."""
    import trio

    from isolation.paths import journal_path
    from runner.core.errors import NotFoundError
    from runner.records.journal import Journal
    from runner.records.retention.runs import disk_use

    before = disk_use(repository.common_dir)
    found: tuple[OldRun, ...] = ()
    try:
        with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
            found = _survey(journal, repository, settings)
    except NotFoundError:
        output.say("this repository has no runs yet")
    if arguments.apply and any(run.removable for run in found):
        found = trio.run(_remove_runs, repository, settings)
    done = "removed" if arguments.apply else "removable"
    rows = [
        {
            "run_id": run.run_id,
            "verdict": done if run.removable else "kept",
            "reason": run.reason,
            "bytes": run.size,
            "days": round(run.age / DAY_SECONDS, 1),
        }
        for run in found
    ]
    after = disk_use(repository.common_dir)
    output.document({"runs": rows, "bytes_before": before, "bytes_after": after})
    output.answer(_text_of_runs(found, done, after))
    return 0


async def _remove_runs(repository: "Repository", settings: "Settings") -> "tuple[OldRun, ...]":
    from trio import to_thread

    from runner.core.model import RunId
    from runner.records.retention.runs import remove
    from runner.run.several.acquisition import acquired

    async with acquired(repository, RunId("gc")) as journal:
        # Judged once more, now that no other process can change a run.
        found = await to_thread.run_sync(_survey, journal, repository, settings)
        gone = [run for run in found if run.removable]
        await to_thread.run_sync(remove, journal, repository.common_dir, gone)
    return found


def _survey(journal: "Journal", repository: "Repository", settings: "Settings") -> "tuple[OldRun, ...]":
    from runner.land.landings import landings
    from runner.records.retention.runs import survey
    from runner.run.several.belonging import known_repositories

    every = known_repositories(repository, journal).values()
    known = (each for there in every for each in landings(journal, there))
    incomplete = (each for each in known if each.moving or each.undoing is not None)
    return survey(
        journal,
        repository.common_dir,
        {run_id for each in incomplete for run_id, _ in each.owners},
        now=time.time(),
        days=settings.keep_runs_days,
        megabytes=settings.keep_runs_mb,
    )


def _text_of_runs(found: "tuple[OldRun, ...]", done: str, after: int) -> str:
    lines = [
        f"{done:<10} {run.run_id}  {run.age / DAY_SECONDS:.0f} days, {run.size / _MB:.1f} MB  ({run.reason})"
        for run in found
        if run.removable
    ]
    kept = len(found) - len(lines)
    use = f"{after / _MB:.1f} MB in use"
    if not lines:
        return f"nothing to remove: {kept} runs are kept, {use}"
    lines.append(f"{kept} runs are kept, {use}; `autopilot-multi history` shows all")
    if done == "removable":
        lines.append("remove their logs and events with `autopilot-multi gc --runs --apply`.")
    return "\n".join(lines)
