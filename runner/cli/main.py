"""From argv to an exit code: pick the command, load only its module, print every error once."""

import sys

from runner.cli.overview import COMMANDS, COMPLETE, DEFAULT_COMMAND, module_of, overview

TYPE_CHECKING = False  # type checkers know this name; importing `typing` would double the time of --help
if TYPE_CHECKING:
    from types import ModuleType

    from runner.cli.output import Output

EXIT_USER_ERROR = 1
EXIT_SYSTEM = 2
EXIT_INTERRUPTED = 130
STDERR = 2
COMMON_SWITCHES = frozenset({"--json", "-q", "--quiet", "-v", "--verbose", "--no-color"})


def run_program(arguments: list[str]) -> int:
    """Run one command and return its exit code; no exception leaves this function."""
    _open_closed_streams()
    first, rest = _split(arguments)
    if first == "help":
        first, arguments = ("".join(rest[:1]) or "--help"), [*rest, "--help"]
    if first in {"-h", "--help"}:
        sys.stdout.write(overview())
        return 0
    if first == "--version":
        return _print_version(as_json="--json" in arguments)
    if arguments[:1] == [COMPLETE] and len(arguments) > 1:
        from runner.cli.completion.candidates import print_names

        print_names(arguments[1], arguments[2:])
        return 0
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a limited locale must not crash the program
    if {"-h", "--help"} & set(arguments) and first.isalpha() and first not in COMMANDS:
        from runner.cli.parser import nearest_command

        if meant := nearest_command(first):
            return _unknown_command(first, f"did you mean '{meant}'?", as_json="--json" in arguments)
    name, rest = _command(arguments)
    return _run_command(name, rest, word=_implied_word(name, arguments))


def _open_closed_streams() -> None:
    """Open the null device in place of a closed stdin, stdout or stderr.

    Otherwise the next opened file, such as the journal, would get that descriptor and receive our output.
    """
    if None not in (sys.stdin, sys.stdout, sys.stderr):
        return
    import os

    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        os.set_inheritable(descriptor, True)  # like the standard streams
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(STDERR, "w", closefd=False)


def _run_command(name: str, rest: list[str], *, word: str = "") -> int:
    """Run a command; `word` was typed in the place of one, and may be a mistyped one."""
    from importlib import import_module

    from runner.cli.output import Output
    from runner.cli.parser import CommandLineError, nearest_command, parse

    _load_msgspec()
    options = rest[: rest.index("--")] if "--" in rest else rest
    quiet = "-q" in options or "--quiet" in options
    output = Output(command=name, as_json="--json" in options, quiet=quiet)
    try:
        module: ModuleType = import_module(module_of(name))
        arguments = parse(name, module, rest)
        # What is started without a terminal looks by itself.
        if getattr(module, "SEES_TREES", False) and not getattr(arguments, "detach", False):
            _see_layers(arguments.directory)
        return int(module.execute(arguments, output))
    except CommandLineError as error:
        meant = nearest_command(word)
        hint = f"did you mean the command '{meant}'? {error.hint}" if meant else error.hint
        output.error(code="usage", message=str(error), hint=hint)
        return EXIT_USER_ERROR
    except BrokenPipeError:
        return _pipe_closed()
    except Exception as error:  # noqa: BLE001  the only place that turns bugs into error messages
        meant = nearest_command(word) if _names_nothing(error, word) else None
        if meant is None:
            return _failed(error, output)
        return _unknown_command(word, _meant(meant, error), as_json=output.as_json)
    except (KeyboardInterrupt, BaseExceptionGroup):  # a nursery wraps KeyboardInterrupt in a group
        output.error(code="interrupted", message="interrupted", hint="see `autopilot-multi status`.")
        return EXIT_INTERRUPTED


def _see_layers(directory: str) -> None:
    """Show the command the files of stories, also where they are layers that only processes of ours see.

    It must come first: later the command may have threads.
    """
    from pathlib import Path

    from isolation.errors import IsolationError
    from isolation.paths import find_repository, layers_dir

    try:
        common = find_repository(Path(directory)).common_dir
        if any(layers_dir(common).glob("*.layer")):
            from isolation.worktree.layers.seeing import see_layers

            see_layers(common)
    except (IsolationError, OSError):
        return  # the command says what is wrong


def _load_msgspec() -> None:
    """Load msgspec with Python's own `typing`, which has all that it needs of `typing_extensions`.

    It looks for that package first, and loading it would take a tenth of the time of `status`.
    """
    absent = "typing_extensions" not in sys.modules
    if absent:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        import msgspec  # noqa: F401  for everything that comes after
    finally:
        if absent:
            del sys.modules["typing_extensions"]


def _command(arguments: list[str]) -> tuple[str, list[str]]:
    first, rest = _split(arguments)
    return (first, rest) if first in COMMANDS else (DEFAULT_COMMAND, arguments)


def _split(arguments: list[str]) -> tuple[str, list[str]]:
    """Return the first argument that is not a common flag, and all others."""
    leading = 0
    while leading < len(arguments) and (
        arguments[leading] in COMMON_SWITCHES or arguments[leading].startswith("-C")
    ):
        leading += 2 if arguments[leading] == "-C" else 1  # followed by its value, unless written as -CDIR
    return "".join(arguments[leading:][:1]), [*arguments[:leading], *arguments[leading + 1 :]]


def _unknown_command(word: str, hint: str, *, as_json: bool) -> int:
    from runner.cli.output import Output

    Output(command=DEFAULT_COMMAND, as_json=as_json).error(
        code="usage", message=f"unknown command '{word}'", hint=hint
    )
    return EXIT_USER_ERROR


def _print_version(*, as_json: bool) -> int:
    from importlib.metadata import version

    from runner.cli.output import Output

    found = version("autopilot-multi")
    output = Output(command="--version", as_json=as_json)
    output.document({"version": found})
    output.answer(f"autopilot-multi {found}")
    return 0


def _implied_word(name: str, arguments: list[str]) -> str:
    """Return the first word if no command was typed; empty for a flag, a path or a prompt."""
    word, _ = _split(arguments)
    return word if name == DEFAULT_COMMAND != word and word.isalpha() else ""


def _names_nothing(error: Exception, word: str) -> bool:
    """Whether an error says that a word is no story, or that there is no repository with stories."""
    code = getattr(error, "code", "")
    return bool(word) and (getattr(error, "name", "") == word or code == "repository")


def _meant(command: str, error: Exception) -> str:
    """Suggest the command, after the story that the error suggests, if it does."""
    story = str(getattr(error, "hint", ""))
    if story.startswith("did you mean"):
        return f"{story} or the command '{command}'?"
    return f"did you mean '{command}'? `autopilot-multi --help` lists all commands."


def _failed(error: Exception, output: "Output") -> int:
    """Print an expected error, or write a bug's traceback to a log and print its path."""
    message = getattr(error, "message", None)
    if isinstance(message, str) and hasattr(error, "exit_code"):
        output.error(code=getattr(error, "code", "error"), message=message, hint=getattr(error, "hint", ""))
        return int(error.exit_code)
    bug = error
    while isinstance(bug, ExceptionGroup):
        bug = bug.exceptions[0]  # the group that a nursery adds means nothing to users
    fault = error if isinstance(error, OSError) else _machine_fault(bug)
    if fault is not None:
        from runner.core.errors import system_message

        output.error(
            code="system",
            message=system_message(fault),
            hint="fix this and run again; `autopilot-multi doctor` checks this machine.",
        )
        return EXIT_SYSTEM
    import os

    from runner.core.text.redaction import Redactor
    from runner.records.crash_log import write_crash_log

    where = write_crash_log(error)
    output.error(
        code="bug",
        message=f"internal error: {type(bug).__name__}: {Redactor(os.environ).text(str(bug))}",
        hint=f"details are in {where}; please report them. Continue a run with `autopilot-multi resume`.",
    )
    return EXIT_SYSTEM


def _machine_fault(bug: BaseException | None) -> OSError | None:
    """Return what the machine had no more of (space, files, processes, memory): no bug, wherever it shows."""
    import errno
    import os

    faults = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO}
    faults |= {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
    while bug is not None:
        if isinstance(bug, OSError) and bug.errno in faults:
            return bug
        if isinstance(bug, RuntimeError) and str(bug) == "can't start new thread":
            return OSError(errno.EAGAIN, f"no new thread: {os.strerror(errno.EAGAIN)} (limit: ulimit -u)")
        bug = bug.__cause__ or bug.__context__
    return None


def _pipe_closed() -> int:
    """Exit quietly when the reader of our output is gone, as with `| head`."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0
