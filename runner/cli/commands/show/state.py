"""Show, check or convert the state files of stories.

show [PATH…]               show what the files contain (default: the files under `_docs/`)
check PATH…                list every problem with its line; exit code 1 if it finds any
convert --to DIALECT PATH  write the same state as `rich`, `pointer` or `autodev`, to stdout or --output
sub-step PHASE NAME [TEXT] inside a session: record the progress of a sub-skill in the story's file
install-merge-driver       let git merge the state files of story branches, in this repository
uninstall-merge-driver     undo install-merge-driver

show, check and convert never change a file; convert writes a new one. Content that the target dialect
has no field for is listed on stderr and copied unchanged to the new file's `## Imported` section.
"""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.flows.state.disk.collection import Found
    from runner.flows.state.model import Dialect, Position, StateFile
    from runner.flows.state.vocabulary import Vocabulary

EXAMPLE = "autopilot-multi state check _docs/_autodev_state.md"

SEES_TREES = True

ACTIONS = (
    *("show", "check", "convert", "sub-step"),
    *("install-merge-driver", "uninstall-merge-driver", "merge-driver"),
)
_VERSIONS = 3
_PARTS = (2, 3)
DEFAULT_PATTERNS = (
    "_docs/_autodev_state.md",
    "_docs/_autopilot_state.md",
    "_docs/stories/*/_autodev_state.md",
    "_docs/stories/*/_autopilot_state.md",
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `state`."""
    # git calls `merge-driver`; users never type it, so the help does not list it.
    parser.add_argument("action", choices=ACTIONS, metavar="ACTION", help="what to do, see above")
    parser.add_argument(
        "paths", nargs="*", metavar="PATH", help="state files; for sub-step: PHASE NAME [TEXT]"
    )
    parser.add_argument("--to", choices=("rich", "pointer", "autodev"), help="convert: the target dialect")
    parser.add_argument("--output", metavar="FILE", help="convert: write to this new file instead of stdout")
    parser.add_argument("--flow", help="convert: the flow, for a rich file, which does not name it")
    parser.add_argument("--step", help="convert: the step in the target, if its name is ambiguous")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Run the requested action."""
    from runner.core.errors import UsageError

    folder = Path(arguments.directory)
    paths = [folder / path for path in arguments.paths]
    match arguments.action:
        case "show":
            return _show(paths or _default_files(folder), _vocabulary(folder), output)
        case "check" if paths:
            return _check(paths, _vocabulary(folder), output)
        case "install-merge-driver" | "uninstall-merge-driver" if not paths:
            return _configure_git(arguments.action, folder, output)
        case "convert" if len(paths) == 1 and arguments.to:
            return _convert(arguments, paths[0], output)
        case "sub-step" if len(paths) in _PARTS:
            return _sub_step(*arguments.paths, output=output)
        case "merge-driver" if len(paths) == _VERSIONS:
            return _merge(paths)
        case _:
            wants = {
                "check": "PATH…",
                "convert": "--to DIALECT PATH",
                "sub-step": "PHASE NAME [TEXT]",
                "merge-driver": "%O %A %B",
            }
            raise UsageError(
                f"`state {arguments.action}` needs {wants.get(arguments.action, 'no PATH')}",
                hint="see `autopilot-multi state --help`.",
            )


def _default_files(folder: Path) -> list[Path]:
    from runner.core.errors import NotFoundError

    found = [path for pattern in DEFAULT_PATTERNS for path in sorted(folder.glob(pattern))]
    if not found:
        raise NotFoundError(
            f"no state files under {folder / '_docs'}",
            hint="pass the files: `autopilot-multi state show PATH…`",
        )
    return found


def _vocabulary(folder: Path) -> "Vocabulary":
    """Return the vocabulary of the dialects, extended by the user's own flows."""
    from runner.flows.state.vocabulary import STANDARD, Vocabulary

    if not any(folder.glob("flows/*.toml")):
        return STANDARD
    from runner.flows.catalog import list_flows

    own = [flow for listed in list_flows(folder) if listed.file for flow in listed.flows]
    last: dict[str, int] = {}
    for flow in own:
        numbers = (int(step.number) for step in flow.steps if step.number.isdigit())
        last[flow.name] = max(last.get(flow.name, 1), *numbers)
    return Vocabulary(flows=last, names=frozenset(step.name for flow in own for step in flow.steps))


def _configure_git(action: str, folder: Path, output: Output) -> int:
    from runner.flows.merge_driver import execute as configure_git

    result = configure_git(action, folder)
    output.document(result.data)
    output.answer(result.text)
    return 0


def _show(paths: Sequence[Path], vocabulary: "Vocabulary", output: Output) -> int:
    from runner.flows.state.aggregate import state_json
    from runner.flows.state.disk.collection import collect

    found = collect(paths, vocabulary=vocabulary)
    readable = all(item.state is not None for item in found)
    output.document({"states": [state_json(item) for item in found]}, success=readable)
    output.answer("\n\n".join(_text(item) for item in found))
    return 0 if readable else 1


def _text(found: "Found") -> str:
    """Format one file: its position in one line, then what needs attention."""
    from runner.core.text.names import one_line

    state = found.state
    if state is None:
        return f"{found.path}\n  unreadable: {found.problem}"
    flow = f", {state.flow}" if state.flow else ""
    cycle = f", cycle {state.cycle}" if (state.cycle or 1) > 1 else ""
    lines = [
        f"{found.path} ({state.dialect}{flow}{cycle})",
        f"  step {state.step} {state.name}: {state.status.replace('_', ' ')}, retry {state.retry_count} of 3",
        f"  sub-step {state.sub_step if state.sub_step is not None else 'unknown; derived from the folders'}",
    ]
    lines += [f"  blocker: {text}" for text in state.blockers]
    lines += [f"  attempt {row.attempt} at step {row.step} failed: {row.reason}" for row in state.retry_log]
    lines += [f"  decided: {text}" for text in state.decisions]
    lines += [f"  skipped: {', '.join(state.skipped_steps)}"] if state.skipped_steps else []
    lines += [f"  problem: {problem}" for problem in state.problems]
    return "\n".join("  " * line.startswith("  ") + one_line(line) for line in lines)


def _check(paths: Sequence[Path], vocabulary: "Vocabulary", output: Output) -> int:
    from runner.core.text.names import one_line
    from runner.flows.state.reading import find_problems

    rows = []
    for path in paths:
        try:
            problems = find_problems(path.read_bytes(), vocabulary=vocabulary)
        except OSError as error:
            rows.append({"path": str(path), "line": 0, "key": "", "message": error.strerror or str(error)})
            continue
        rows += [
            {"path": str(path), "line": item.line, "key": item.key, "message": one_line(str(item))}
            for item in problems
        ]
    output.document({"problems": rows}, success=not rows)
    output.answer("\n".join(f"{row['path']}: {row['message']}" for row in rows))
    if not rows:
        output.say("no problems")
    return 1 if rows else 0


def _convert(arguments: argparse.Namespace, path: Path, output: Output) -> int:
    from runner.core.errors import UsageError
    from runner.flows.state.conversion import IMPORTED, convert_state
    from runner.flows.state.model import Dialect

    folder, to = Path(arguments.directory), Dialect(arguments.to)
    vocabulary = _vocabulary(folder)
    state = _require_state(path, vocabulary)
    flow, step = arguments.flow or state.flow, arguments.step
    if step is None and flow is not None and state.dialect is not to and not state.done:
        step = _same_step(state, to, flow, folder)
    steps = _steps_of(to, flow, folder)
    made = convert_state(state, to, flow=arguments.flow, step=step, steps=steps, vocabulary=vocabulary)
    for name in made.unheld:
        output.warn(f"{to} has no field for: {name}; copied to '## {IMPORTED}'")
    if arguments.output is None:
        output.answer(made.state.text)
    else:
        target = folder / arguments.output
        try:
            with target.open("xb") as file:
                file.write(made.state.text.encode())
        except FileExistsError:
            raise UsageError(
                f"{target} already exists", hint="choose another name, or remove it first"
            ) from None
    output.document({"text": made.state.text, "output": arguments.output, "unheld": list(made.unheld)})
    return 0


def _require_state(path: Path, vocabulary: "Vocabulary") -> "StateFile":
    from runner.core.errors import NotFoundError
    from runner.flows.state.errors import UnreadableStateError
    from runner.flows.state.reading import decode, parse_state

    try:
        return parse_state(decode(path.read_bytes()), vocabulary=vocabulary)
    except OSError as error:
        raise NotFoundError(f"cannot read {path}: {error.strerror}", hint="pass a state file") from None
    except UnreadableStateError as error:
        raise UnreadableStateError(
            f"cannot convert {path}: {error.message}", problems=error.problems, hint=error.hint
        ) from None


def _same_step(state: "StateFile", to: "Dialect", flow: str, folder: Path) -> str | None:
    """Return the matching step in the target's edition of the flow; None if the flow does not decide it.

    Steps are matched by their artifacts, which are the same in every edition; a name may be used twice.
    """
    from runner.core.flow import Edition
    from runner.flows.catalog import FlowError, load_flow
    from runner.flows.state.errors import StateError

    try:
        source, target = (load_flow(flow, Edition(dialect), folder) for dialect in (state.dialect, to))
    except FlowError:
        return None
    here = next((step for step in source.steps if step.number == state.step), None)
    if here is None or source.edition is target.edition:
        return None if here is None else here.number
    same = [step.number for step in target.steps if here.artifacts and step.artifacts == here.artifacts]
    if len(same) != 1:
        raise StateError(
            f"{to} has no step for step {here.number} ({here.name}) of {flow}", hint="choose one with --step"
        )
    return same[0]


def _steps_of(dialect: "Dialect", flow: str | None, folder: Path) -> dict[str, str]:
    """Return the numbers of a flow's steps in a dialect, by their names where these are unique."""
    from runner.core.flow import Edition
    from runner.flows.catalog import FlowError, load_flow

    try:
        steps = load_flow(flow, Edition(dialect), folder).steps if flow else ()
    except FlowError:
        return {}
    names = [one.name for one in steps]
    return {one.name: one.number for one in steps if names.count(one.name) == 1}


def _sub_step(number: str, name: str, detail: str = "", *, output: Output) -> int:
    """Record a sub-skill's progress under the file's lock; only the runner writes the other fields."""
    from runner.core.errors import UsageError
    from runner.flows.state.disk.files import LOCK_NAME, load_state, save_sub_step
    from runner.flows.state.model import Dialect, Phase, Position

    path, exchange = _session_paths()
    vocabulary = _vocabulary(_top_of(exchange))
    state = load_state(path, vocabulary=vocabulary)
    sub_step: Phase | Position
    if state is None or state.dialect is Dialect.AUTODEV:
        if not (number.isascii() and number.isdigit()):
            raise UsageError(
                f"PHASE must be a whole number from 0, not '{number}'", hint="count save points: 0, 1, 2 …"
            )
        sub_step = Phase(phase=int(number), name=name, detail=detail)
    else:
        sub_step = _position(number, name, detail)
    saved = save_sub_step(
        path, sub_step, lock=exchange / LOCK_NAME, session=_session_id(exchange), vocabulary=vocabulary
    )
    notice = _context_notice()
    output.document({"path": str(path), "sub_step": str(saved.sub_step), "context": notice})
    output.answer(f"{path}: sub-step {saved.sub_step}" + (f"\n\n{notice}" if notice else ""))
    return 0


def _context_notice() -> str:
    """Return what the runner asks of a session whose context fills up: it is read when it saves."""
    file = os.environ.get("AUTOPILOT_CONTEXT_FILE")
    try:
        return Path(file).read_text(encoding="utf-8").rstrip() if file else ""
    except OSError:
        return ""


def _position(number: str, name: str, detail: str) -> "Position":
    """Return the one text that the older dialects hold: a skill's own number and name, or 0."""
    from runner.core.errors import UsageError
    from runner.flows.state.model import IDLE, RESERVED_NAME, Position

    if number == "0" and name == RESERVED_NAME:
        return IDLE
    written = Position(text=f"{number} — {name}" + (f" ({detail})" if detail else ""))
    if written.number != number:
        raise UsageError(
            f"PHASE must be a number such as 4 or 1b, not '{number}'",
            hint="it is the sub-skill's own number; its name follows: `state sub-step 1b test-cases`",
        )
    return written


def _session_id(exchange: Path) -> str:
    """Return the id of the session; one that was started without it is known by its exchange folder."""
    return os.environ.get("AUTOPILOT_SESSION_ID") or str(exchange)


def _session_paths() -> tuple[Path, Path]:
    """Return the session's state file and exchange folder, from its environment variables."""
    from isolation.paths import EXCHANGE
    from runner.core.errors import UsageError

    file, result = os.environ.get("AUTOPILOT_STATE_FILE"), os.environ.get("AUTOPILOT_RESULT_FILE")
    exchange = Path(result).parent if result else Path()
    above = next((folder for folder in (exchange, *exchange.parents) if folder.name == EXCHANGE), None)
    if not file or above is None:
        raise UsageError(
            "`state sub-step` works only inside a session whose story has a state file",
            hint="sessions have AUTOPILOT_STATE_FILE set; stories of the flow 'quick' have no state file",
        )
    return above.parent / file, exchange


def _top_of(folder: Path) -> Path:
    """Return the main checkout, which contains the user's own flows; a session sees its own tree there."""
    from isolation.paths import find_repository

    repository = find_repository(folder)
    return repository.main_checkout or repository.top


def _merge(paths: Sequence[Path]) -> int:
    """Merge the three versions that git passes; the result replaces ours, without conflicts."""
    from isolation.files.disk import replace_file
    from runner.flows.state.merging import merge_states

    base, ours, theirs = (path.read_bytes().decode("utf-8", "surrogateescape") for path in paths)
    merged = merge_states(base, ours, theirs)
    mode = paths[1].stat().st_mode & 0o777
    replace_file(paths[1], merged.encode("utf-8", "surrogateescape"), mode=mode)
    return 0
