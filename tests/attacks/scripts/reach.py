"""Do one act to one process of the run: `reach.py WHO ACT`. Succeeds if it goes through."""

import sys

import process_intruder as intruder  # type: ignore[import-not-found]  # copied beside this file

who, act = sys.argv[1:]
sys.exit(intruder.outcome(intruder.ACTS[act], intruder._find_run()[who]) != "through")
