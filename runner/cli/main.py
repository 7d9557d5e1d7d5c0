"""From argv to an exit code: pick the command, load only its module, print every error once."""

import sys

from runner.cli.overview import COMMANDS, DEFAULT_COMMAND, module_of, overview

TYPE_CHECKING = False  # the name is what type checkers know; `typing` itself would double the time of --help
if TYPE_CHECKING:
    from types import ModuleType

    from runner.cli.output import Output

EXIT_USER_ERROR = 1
EXIT_SYSTEM = 2
EXIT_INTERRUPTED = 130
STDERR = 2
COMMON_SWITCHES = frozenset({"--json", "-q", "--quiet", "-v", "--verbose", "--no-color"})


def run_program(arguments: list[str]) -> int:
    """Run one command; nothing but an exit code leaves here."""
    _open_closed_streams()
    if arguments[:1] in (["-h"], ["--help"]) or arguments == ["help"]:
        sys.stdout.write(overview())
        return 0
    if arguments[:1] == ["--version"]:
        from importlib.metadata import version

        sys.stdout.write(f"autopilot-multi {version('autopilot-multi')}\n")
        return 0
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a poor locale costs a letter
    return _run_command(*_command(arguments))


def _open_closed_streams() -> None:
    """Put the null device where stdin, stdout or stderr is closed.

    Otherwise the next file that is opened takes that place, the journal say, and is written into.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    import os

    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)  # as the standard streams are
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(STDERR, "w", closefd=False)


def _run_command(name: str, rest: list[str]) -> int:
    from importlib import import_module

    from runner.cli.output import Output
    from runner.cli.parser import CommandLineError, parse

    options = rest[: rest.index("--")] if "--" in rest else rest
    quiet = "-q" in options or "--quiet" in options
    output = Output(command=name, as_json="--json" in options, quiet=quiet)
    try:
        module: ModuleType = import_module(module_of(name))
        return int(module.execute(parse(name, module, rest), output))
    except CommandLineError as error:
        output.error(code="usage", message=str(error), hint=error.hint)
        return EXIT_USER_ERROR
    except BrokenPipeError:
        return _pipe_closed()
    except Exception as error:  # noqa: BLE001  the one place where a bug is turned into words
        return _failed(error, output)
    except (KeyboardInterrupt, BaseExceptionGroup):  # a nursery wraps the one into the other
        output.error(code="interrupted", message="interrupted", hint="`autopilot-multi status` tells more.")
        return EXIT_INTERRUPTED


def _command(arguments: list[str]) -> tuple[str, list[str]]:
    leading = 0
    while leading < len(arguments) and arguments[leading] in {*COMMON_SWITCHES, "-C"}:
        leading += 2 if arguments[leading] == "-C" else 1  # that one has a value
    if leading < len(arguments) and arguments[leading] in COMMANDS:
        return arguments[leading], [*arguments[:leading], *arguments[leading + 1 :]]
    return DEFAULT_COMMAND, arguments


def _failed(error: Exception, output: "Output") -> int:
    """Print an expected error, or put a bug's traceback into a log and name it."""
    message = getattr(error, "message", None)
    if isinstance(message, str) and hasattr(error, "exit_code"):
        output.error(code=getattr(error, "code", "error"), message=message, hint=getattr(error, "hint", ""))
        return int(error.exit_code)
    if isinstance(error, OSError):
        output.error(
            code="system",
            message=f"the machine refused: {error}",
            hint="mend that, then run again; `autopilot-multi doctor` looks at this machine.",
        )
        return EXIT_SYSTEM
    from runner.records.crash_log import write_crash_log

    where, bug = write_crash_log(error), error
    while isinstance(bug, ExceptionGroup):
        bug = bug.exceptions[0]  # a nursery's wrapping tells a person nothing
    output.error(
        code="bug",
        message=f"autopilot-multi itself failed: {type(bug).__name__}: {bug}",
        hint=f"the details are in {where}; please report them. `autopilot-multi resume` goes on with a run.",
    )
    return EXIT_SYSTEM


def _pipe_closed() -> int:
    """End quietly when the reader of our output has gone, as `| head` does."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
