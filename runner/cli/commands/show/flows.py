"""List the available flows, show the steps of one, or check a flow file.

Your own flows are the files flows/*.toml at the top of the repository. `check` prints every problem;
its exit code is 1 if it finds any.
"""

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runner.core.flow import Flow
    from runner.flows.catalog import Listed
    from runner.report.terminal.table import Look

EXAMPLE = "autopilot-multi flows show existing-code --edition pointer"

EXIT_PROBLEMS = 1
_ACTIONS = ("list", "show", "check")
_EDITIONS = ("autodev", "pointer", "rich")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `flows`."""
    parser.add_argument(
        "action", nargs="?", choices=_ACTIONS, default="list", help="what to do (default: list)"
    )
    parser.add_argument(
        "target", nargs="?", metavar="NAME|FILE", help="the flow to show, or the file to check"
    )
    parser.add_argument(
        "--edition", choices=_EDITIONS, help="number the steps as in this dialect of the state file"
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """List, show or check."""
    from runner.core.errors import UsageError

    if arguments.action == "list":
        if arguments.target is not None:
            raise UsageError(
                "`flows list` takes no name",
                hint=f"to show one flow: `autopilot-multi flows show {arguments.target}`",
            )
        return _list(arguments, output)
    if arguments.target is None:
        wanted = "the NAME of a flow" if arguments.action == "show" else "a FILE"
        raise UsageError(
            f"`flows {arguments.action}` needs {wanted}", hint="list the flows with `autopilot-multi flows`."
        )
    return _show(arguments, output) if arguments.action == "show" else _check(arguments, output)


def _top(directory: str) -> Path | None:
    """Return the top of the repository, whose flows are listed too; None outside a repository."""
    from isolation.errors import IsolationError
    from isolation.paths import find_repository

    try:
        return find_repository(Path(directory)).top
    except IsolationError:
        return None


def _list(arguments: argparse.Namespace, output: Output) -> int:
    from runner.core.text.screen import neutral
    from runner.flows.catalog import list_flows
    from runner.report.terminal.table import Cell, Column, layout, look_for

    listed = list_flows(_top(arguments.directory))
    output.document({"flows": [_listed_json(one) for one in listed]})
    if output.as_json:
        return 0
    rows = [
        [
            Cell(text=neutral(one.name), color="bold"),
            Cell(text=_counts(one) if one.flows else "invalid", color="" if one.flows else "red"),
            Cell(text=neutral(_note(one)), color="dim"),
        ]
        for one in listed
    ]
    columns = [Column(title="FLOW"), Column(title="STEPS"), Column()]
    output.answer("\n".join(layout(columns, rows, look_for(sys.stdout, no_color=arguments.no_color))))
    return 0


def _counts(one: "Listed") -> str:
    from runner.core.flow import Edition

    if one.flows[0].edition is Edition.ANY:
        return str(len(one.flows[0].steps))
    return ", ".join(f"{len(flow.steps)} ({flow.edition})" for flow in one.flows)


def _note(one: "Listed") -> str:
    if one.problems:
        return f"see `autopilot-multi flows check {shlex.quote(one.file or one.name)}`"
    return " · ".join(part for part in (one.file or "", one.flows[0].summary) if part)


def _listed_json(one: "Listed") -> dict[str, Any]:
    return {
        "name": one.name,
        "file": one.file,
        "editions": [{"edition": flow.edition.value, "steps": len(flow.steps)} for flow in one.flows],
        "problems": [str(problem) for problem in one.problems],
    }


def _show(arguments: argparse.Namespace, output: Output) -> int:
    from runner.core.flow import Edition
    from runner.flows.catalog import list_flows, load_flow
    from runner.report.terminal.table import look_for

    top = _top(arguments.directory)
    edition = Edition(arguments.edition or Edition.AUTODEV)
    if arguments.edition is None:
        # New stories use autodev, but a custom flow may have only other editions.
        flows = next((one.flows for one in list_flows(top) if one.name == arguments.target), ())
        known = [flow.edition for flow in flows]
        edition = edition if edition in known or not known else known[0]
    flow = load_flow(arguments.target, edition, top)
    output.document(_flow_json(flow))
    if not output.as_json:
        output.answer("\n".join(_table(flow, look_for(sys.stdout, no_color=arguments.no_color))))
    return 0


def _table(flow: "Flow", look: "Look") -> list[str]:
    from runner.core.text.screen import neutral
    from runner.report.terminal.table import Cell, Column, layout

    edition = "" if flow.edition == "any" else f", edition {flow.edition}"
    head = [look.paint(f"{flow.name}{edition}", "bold"), *([flow.summary] if flow.summary else []), ""]
    rows = [
        [
            Cell(text=step.number),
            Cell(text=neutral(step.name), color="bold"),
            Cell(text=_marks(step.kind, optional=step.optional, tracker=step.tracker), color="dim"),
            Cell(text=neutral(", ".join(step.artifacts)) or "—", color="dim"),
        ]
        for step in flow.steps
    ]
    columns = [
        Column(title="STEP", right=True),
        Column(title="NAME"),
        Column(),
        Column(title="DONE WHEN THIS EXISTS"),
    ]
    lines = layout(columns, rows, look)
    return [*head, *_with_boundaries(flow, lines, look), *_loop(flow)]


def _with_boundaries(flow: "Flow", lines: "Sequence[str]", look: "Look") -> list[str]:
    """Draw a line below each step that ends at a session boundary."""
    drawn = [lines[0]]
    for step, line in zip(flow.steps, lines[1:], strict=True):
        drawn.append(line)
        if step.session_boundary:
            drawn.append(look.paint("      ── session boundary ──", "yellow"))
    return drawn


def _marks(kind: str, *, optional: bool, tracker: bool) -> str:
    marks = [kind if kind == "verify" else "", "optional" if optional else "", "tracker" if tracker else ""]
    return ", ".join(mark for mark in marks if mark)


def _loop(flow: "Flow") -> list[str]:
    if flow.loop_from is None:
        return []
    return ["", f"After step {flow.loop_from} the next cycle begins at step {flow.loop_to}."]


def _flow_json(flow: "Flow") -> dict[str, Any]:
    steps = [
        {
            "number": step.number,
            "name": step.name,
            "kind": step.kind.value,
            "artifacts": list(step.artifacts),
            "session_boundary": step.session_boundary,
            "optional": step.optional,
            "tracker": step.tracker,
            "prompt": step.prompt,
            "command": None if step.command is None else list(step.command),
        }
        for step in flow.steps
    ]
    loop = None if flow.loop_from is None else {"from": flow.loop_from, "to": flow.loop_to}
    return {
        "name": flow.name,
        "edition": flow.edition.value,
        "summary": flow.summary,
        "loop": loop,
        "steps": steps,
    }


def _check(arguments: argparse.Namespace, output: Output) -> int:
    from runner.core.text.screen import neutral
    from runner.flows.catalog import check_flow

    problems = check_flow(Path(arguments.directory) / arguments.target)
    rows = [{"where": one.where, "message": one.message, "hint": one.hint} for one in problems]
    output.document({"file": arguments.target, "problems": rows}, success=not problems)
    for one in problems:
        output.answer(f"{neutral(arguments.target)}: {neutral(str(one))}\n  hint: {neutral(one.hint)}")
    if not problems:
        output.answer(f"{neutral(arguments.target)}: no problems")
    return EXIT_PROBLEMS if problems else 0
