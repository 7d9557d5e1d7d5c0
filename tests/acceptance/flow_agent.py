"""A stand-in for the model: does what a step of a flow asks for, by writing its artifacts.

Started by the real program as a story's command. Arguments change what it does: `fail:STEP:N` fails
that step's first N sessions, `ask:STEP` asks a question in it once, `nag:STEP` asks it every time,
`circle:STEP:N` goes round in circles in the first N sessions, `wait:STEP:FILE` waits there.

It is started about five hundred times, and to load a module would take longer than everything that it does.
So it needs neither `pathlib` nor `json`, and the artifacts of each step come in a file of plain lines
(`write_artifacts` in the tests).
"""

import os
import sys
import time

QUESTION = """{"status": "needs-decision", "decision": {
    "question": "Which database?", "options": ["Postgres", "SQLite"],
    "recommendation": "B", "reason": "nothing to run"}}
"""


def main(artifacts: str, *tricks: str) -> int:
    """Play one session."""
    number, _, name = os.environ["AUTOPILOT_STEP"].partition(" ")
    key = f"{os.environ['AUTOPILOT_STORY_ID']}-{number}"
    memory = os.environ["FLOW_AGENT_MEMORY"]
    _write(f"{memory}/trace", f"{key} attempt {os.environ['AUTOPILOT_ATTEMPT']}\n", mode="a")
    for trick in tricks:
        what, _, rest = trick.partition(":")
        where, _, more = rest.partition(":")
        if where != name:
            continue
        if what == "fail" and _count(f"{memory}/{key}-failed") < int(more):
            sys.stdout.write("this attempt fails\n")
            return 1
        if what == "nag" or (what == "ask" and not _count(f"{memory}/{key}-asked")):
            _write(os.environ["AUTOPILOT_RESULT_FILE"], QUESTION)
            return 0
        if what == "circle" and _count(f"{memory}/{key}-circled") < int(more):
            path, _ = _left_by(artifacts, number)[0]
            while True:  # works on and on, and leaves the same thing every time
                _write(path, "the same words\n")
                sys.stdout.write("thinking\n")
                sys.stdout.flush()
                time.sleep(0.3)
        if what == "wait":
            _write(f"{memory}/{key}-waits", "")
            while not os.path.exists(more):
                time.sleep(0.02)
    for path, line in _left_by(artifacts, number):
        _write(path, f"{name} by {os.environ['AUTOPILOT_STORY_ID']}\n{line}\n")
    return 0


def _left_by(artifacts: str, number: str) -> list[tuple[str, str]]:
    """Return the files that a step leaves in the first cycle, each with the line that it must contain."""
    with open(artifacts, encoding="utf-8") as file:
        rows = [row.rstrip("\n").split("\t") for row in file]
    return [(_named(glob), line) for step, glob, line in rows if step == number]


def _named(glob: str) -> str:
    """Return a path that matches."""
    named = glob.replace("{docs}", os.environ["AUTOPILOT_DOCS"]).replace("{cycle}", "1")
    return named.replace("**", "x").replace("*", "x")


def _count(path: str) -> int:
    """Count how often this was called before for `path`."""
    calls = os.path.getsize(path) if os.path.exists(path) else 0
    _write(path, "x", mode="a")
    return calls


def _write(path: str, text: str, mode: str = "w") -> None:
    if folder := os.path.dirname(path):
        os.makedirs(folder, exist_ok=True)
    with open(path, mode, encoding="utf-8") as file:
        file.write(text)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
