"""A stand-in for the model: does what a step of a flow asks for, by writing its artifacts.

Started by the real program as a story's command. Arguments change what it does: `fail:STEP:N` fails
that step's first N sessions, `ask:STEP` asks a question in it once, `nag:STEP` asks it every time,
`circle:STEP:N` goes round in circles in the first N sessions, `wait:STEP:FILE` waits there.

Standard library only, and the artifacts of each step come in a file (`write_artifacts` in the tests): it is
started about five hundred times, and loading the program each time took longer than everything else.
"""

import json
import os
import sys
import time
from pathlib import Path


def main(artifacts: str, *tricks: str) -> int:
    """Play one session."""
    number, _, name = os.environ["AUTOPILOT_STEP"].partition(" ")
    key = f"{os.environ['AUTOPILOT_STORY_ID']}-{number}"
    memory, docs = Path(os.environ["FLOW_AGENT_MEMORY"]), os.environ["AUTOPILOT_DOCS"]
    with (memory / "trace").open("a") as trace:
        trace.write(f"{key} attempt {os.environ['AUTOPILOT_ATTEMPT']}\n")
    for trick in tricks:
        what, _, rest = trick.partition(":")
        where, _, more = rest.partition(":")
        if where != name:
            continue
        if what == "fail" and _count(memory / f"{key}-failed") < int(more):
            sys.stdout.write("this attempt fails\n")
            return 1
        if what == "nag" or (what == "ask" and not _count(memory / f"{key}-asked")):
            _ask()
            return 0
        if what == "circle" and _count(memory / f"{key}-circled") < int(more):
            glob, _ = json.loads(Path(artifacts).read_text())[number][0]
            path = _named(glob, docs)
            while True:  # works on and on, and leaves the same thing every time
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("the same words\n")
                sys.stdout.write("thinking\n")
                sys.stdout.flush()
                time.sleep(0.3)
        if what == "wait":
            (memory / f"{key}-waits").touch()
            while not Path(more).exists():
                time.sleep(0.02)
    for glob, line in json.loads(Path(artifacts).read_text()).get(number, ()):
        path = _named(glob, docs)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name} by {os.environ['AUTOPILOT_STORY_ID']}\n{line}\n")
    return 0


def _named(glob: str, docs: str) -> Path:
    """Return a path that matches, in the first cycle."""
    named = glob.replace("{docs}", docs).replace("{cycle}", "1")
    return Path(named.replace("**", "x").replace("*", "x"))


def _count(path: Path) -> int:
    """Count how often this was called before for `path`."""
    calls = int(path.read_text()) if path.exists() else 0
    path.write_text(str(calls + 1))
    return calls


def _ask() -> None:
    result = {
        "status": "needs-decision",
        "decision": {
            "question": "Which database?",
            "options": ["Postgres", "SQLite"],
            "recommendation": "B",
            "reason": "nothing to run",
        },
    }
    Path(os.environ["AUTOPILOT_RESULT_FILE"]).write_text(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
