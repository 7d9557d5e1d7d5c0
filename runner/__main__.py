"""`python -m runner` and the console script: hand over to the command line.

The wheel also has this file as `autopilot_multi.py`. The console script starts that copy, because `runner`
and `isolation` are common names: a folder of PYTHONPATH that has them, too, would be searched first.
"""

import atexit
import gc
import os
import sys

_PACKAGES = ("runner", "isolation")


def main() -> None:
    """Run the program and leave with its exit code."""
    if sys.getfilesystemencoding() != "utf-8":
        _begin_again_in_utf8()
    gc.disable()  # loading modules makes no garbage worth a search; a run switches it on again
    _load_own_packages()
    from runner.cli.main import run_program

    _leave(run_program(sys.argv[1:]))


def _leave(code: int) -> None:
    """Exit without freeing every module first, which takes a seventh of the time of a short command."""
    threading = sys.modules.get("threading")
    if threading is None or threading.active_count() == 1:
        atexit._run_exitfuncs()  # noqa: SLF001  as Python does, before it frees anything
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        except OSError:
            pass  # Python says what could not be written
        else:
            os._exit(code)
    sys.exit(code)


def _begin_again_in_utf8() -> None:
    """Restart in Python's UTF-8 mode, in place of this process.

    git hands out names as bytes, and stories are UTF-8: in another encoding a name would have two spellings.
    What sessions inherit stays as it is.
    """
    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606  ourselves


def _load_own_packages() -> None:
    """Import the two packages from their own folder, and let no other folder hide what they depend on.

    The packages themselves are empty. Once they are loaded, Python looks for their modules beside them.
    """
    folder = _own_folder()
    path = sys.path[:]
    if folder:
        sys.path[:] = [folder]
        try:
            for name in _PACKAGES:
                __import__(name)
        finally:
            sys.path[:] = path
    # The folder of the script (of the user, for `python -m`) and those of PYTHONPATH come last.
    later = {os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep)}  # noqa: PTH100  pathlib is slow to load
    first = [] if sys.flags.safe_path else path[:1]
    own = [entry for entry in path[len(first) :] if entry == folder or os.path.abspath(entry) not in later]  # noqa: PTH100
    sys.path[:] = [*own, *(entry for entry in path if entry not in own)]


def _own_folder() -> str | None:
    """Return the folder that holds the two packages: around this file, or where an editable install leads."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    candidates = [here, os.path.dirname(here)]  # noqa: PTH120
    try:
        with open(f"{here}/_autopilot_multi.pth", encoding="utf-8") as lines:  # noqa: PTH123
            candidates += lines.read().split("\n")
    except OSError:  # not an editable install
        pass
    found = (folder for folder in candidates if os.path.isfile(f"{folder}/runner/cli/main.py"))  # noqa: PTH113
    return next(found, None)


if __name__ == "__main__":
    main()
