"""Check what this machine and this repository support, and how to fix what does not work.

Also finds what stories will not see: uncommitted files, submodules, ignored programs. The exit code is 2 if
something would prevent a run.

With --repair the command explains what a crash has left (a stale lease, processes, locks of its own, torn
state files, worktrees without a folder), says what it would do about it, and asks. Nothing is destroyed: what
is in the way is moved aside. What another command completes, such as a killed run or landing, is named.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import structs

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from runner.report.terminal.table import Look
    from runner.run.doctor.check import Check
    from runner.run.doctor.repair import Repair

EXAMPLE = "autopilot-multi doctor"

EXIT_SYSTEM = 2
_LEVEL_WIDTH = 6
_INDENT = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `doctor`."""
    parser.add_argument("--repair", action="store_true", help="repair what a crash left, after a question")
    parser.add_argument("--yes", action="store_true", help="with --repair: do not ask for confirmation")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Run every check, and print each result right away; or repair."""
    if arguments.repair:
        return _repair(arguments, output)
    from runner.report.terminal.table import look_for
    from runner.run.doctor.check import Severity
    from runner.run.doctor.examination import examine

    look = look_for(sys.stdout, no_color=arguments.no_color)
    findings = []
    for finding in examine(Path(arguments.directory), dict(os.environ)):
        findings.append(finding)
        output.answer("\n".join(_lines(finding, look)))
    passed = all(finding.level is not Severity.FAIL for finding in findings)
    output.document({"checks": [structs.asdict(finding) for finding in findings]}, success=passed)
    return 0 if passed else EXIT_SYSTEM


def _lines(finding: "Check", look: "Look") -> list[str]:
    from runner.core.text.screen import neutral

    color = {"ok": "green", "warn": "yellow", "fail": "red"}[finding.level]
    level = look.paint(finding.level, color) + " " * (_LEVEL_WIDTH - len(finding.level))
    name = finding.name.ljust(_INDENT - _LEVEL_WIDTH)
    first, *rest = look.wrapped(neutral(finding.detail), _INDENT) or [" " * _INDENT]
    hint = look.wrapped(f"hint: {neutral(finding.hint)}", _INDENT) if finding.hint else []
    return [level + name + first[_INDENT:], *rest, *hint]


def _repair(arguments: argparse.Namespace, output: Output) -> int:
    """Show what a crash left, ask, and repair it while holding the lease."""
    from isolation.files import lease
    from isolation.git.repository import Repository
    from runner.plan.repositories.site import worktree_root_of
    from runner.plan.settings.load import load_settings
    from runner.run.doctor.repair import find_repairs

    repository = Repository.open(Path(arguments.directory))
    settings = load_settings(top=repository.top, flags={}, environ=os.environ).settings
    _require_quiet(repository)
    found = [
        *find_repairs(repository, settings, worktree_root_of(repository, settings)),
        *_landings(repository),
    ]
    rows = [{"what": one.what, "act": one.act, "command": one.command, "done": ""} for one in found]
    output.answer(_plan_text(found))
    able = [(one.apply, row) for one, row in zip(found, rows, strict=True) if one.apply is not None]
    if able and _confirmed(output, yes=arguments.yes):
        with lease.acquire(repository.common_dir, "repair") as held:
            for note in held.notes:
                output.say(note)
            for apply, row in able:
                row["done"] = apply()
                output.answer(f"{row['act']}: {row['done']}")
    output.document({"repairs": rows})
    return 0


def _require_quiet(repository: "Repository") -> None:
    """Raise while a run is active: what it uses is not left over."""
    from isolation.files import lease

    if lease.holder_is_alive(repository.common_dir):
        lease.acquire(repository.common_dir, "repair").release()


def _landings(repository: "Repository") -> "list[Repair]":
    from isolation.paths import journal_path
    from runner.core.errors import JournalError, NotFoundError
    from runner.land.landings import landings
    from runner.records.journal import Journal
    from runner.run.doctor.repair import Repair
    from runner.run.several.belonging import known_repositories

    try:
        with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
            every = known_repositories(repository, journal).values()
            known = [each for there in every for each in landings(journal, there)]
    except (JournalError, NotFoundError):
        return []
    return [
        Repair(what=f"landing {each.id} on {each.onto} was interrupted", command="autopilot-multi land")
        for each in known
        if each.moving or each.undoing is not None
    ]


def _plan_text(found: "list[Repair]") -> str:
    if not found:
        return "nothing to repair"
    ways = (f"will: {one.act}" if one.apply else f"continue with: {one.command}" for one in found)
    return "\n".join(f"- {one.what}\n  {way}" for one, way in zip(found, ways, strict=True))


def _confirmed(output: Output, *, yes: bool) -> bool:
    from runner.cli.commands.consent import can_ask

    if yes:
        return True
    if not can_ask(output):
        output.say("nothing was changed; check the plan, then add --yes")
        return False
    sys.stderr.write("repair this? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
