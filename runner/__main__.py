"""`python -m runner` and the console script: hand over to the command line."""

import gc
import sys


def main() -> None:
    """Run the program and leave with its exit code."""
    gc.disable()  # loading modules makes no garbage worth a search; a run switches it on again
    from runner.cli.main import run_program

    sys.exit(run_program(sys.argv[1:]))


if __name__ == "__main__":
    main()
