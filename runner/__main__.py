"""`python -m runner` and the console script: hand over to the command line."""

import gc
import sys


def main() -> None:
    """Run the program and leave with its exit code."""
    if sys.getfilesystemencoding() != "utf-8":
        _begin_again_in_utf8()
    gc.disable()  # loading modules makes no garbage worth a search; a run switches it on again
    from runner.cli.main import run_program

    sys.exit(run_program(sys.argv[1:]))


def _begin_again_in_utf8() -> None:
    """Restart in Python's UTF-8 mode, in place of this process.

    git hands out names as bytes, and stories are UTF-8: in another encoding a name would have two spellings.
    What sessions inherit stays as it is.
    """
    import os

    os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606  ourselves


if __name__ == "__main__":
    main()
