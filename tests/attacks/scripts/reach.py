"""Do one act to one process of the run: `reach.py WHO ACT`. Succeeds if it goes through."""

import sys

import process_intruder as intruder  # type: ignore[import-not-found]  # copied beside this file

who, act = sys.argv[1:]
pid = intruder._find_run()[who]
try:
    intruder.ACTS[act](pid)
except OSError as error:
    print(f"reach.py: {error}", file=sys.stderr)  # noqa: T201  as any program does
    sys.exit(error.errno in intruder.REFUSALS)
