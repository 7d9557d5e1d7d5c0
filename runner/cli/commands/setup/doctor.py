"""Check what this machine and this repository support, and how to fix what does not work.

Also finds what stories will not see: uncommitted files, submodules, ignored programs. The exit code is 2 if
something would prevent a run.
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
    from runner.doctor.check import Check
    from runner.report.terminal.table import Look

EXAMPLE = "autopilot-multi doctor"

EXIT_SYSTEM = 2
_LEVEL_WIDTH = 6
_INDENT = 20


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `doctor`."""
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Run every check, and print each result right away."""
    from runner.doctor.check import Severity
    from runner.doctor.examination import examine
    from runner.report.terminal.table import look_for

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
