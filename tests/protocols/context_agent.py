"""A stand-in for the model behind `claude`: prints its stream, and does what each tool call says.

Installed as `claude` on PATH. `PLAYS` is a folder with one file for each story: a list of sessions, each a
list of acts. `{"sh": COMMAND}` runs a command as a tool call and prints what it printed; `{"read": PATH}`
reads a file as a tool call, `{"cut": TEXT}` gets that text as its result; `{"think": SECONDS}` is how long
the model is silent, `{"result": JSON}` writes the result file. Standard library only.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any


def main() -> int:
    """Play one session."""
    plays, story = Path(os.environ["PLAYS"]), os.environ["AUTOPILOT_STORY_ID"]
    prompt = sys.stdin.read()
    calls = plays / f"{story}.calls"
    with calls.open("a") as file:
        state = os.environ["AUTOPILOT_STATE_FILE"]
        seen = Path(state).read_text() if state else ""
        file.write(json.dumps({"argv": sys.argv[1:], "state": seen, "prompt": prompt}) + "\n")
    number = len(calls.read_text().splitlines())
    sessions = json.loads((plays / f"{story}.json").read_text())
    for position, act in enumerate(sessions[min(number, len(sessions)) - 1]):
        _play(act, f"{number}-{position}", plays / f"{story}.output")
    _print(type="result", subtype="success", is_error=False, result="All done.", usage={"input_tokens": 1})
    return 0


def _play(act: dict[str, Any], name: str, output: Path) -> None:
    if "think" in act:
        time.sleep(act["think"])
        return
    if "result" in act:
        Path(os.environ["AUTOPILOT_RESULT_FILE"]).write_text(json.dumps(act["result"]))
        return
    tool, arguments = (
        ("Bash", {"command": act["sh"]}) if "sh" in act else ("Read", {"file_path": act["read"]})
    )
    use = {"type": "tool_use", "id": name, "name": tool, "input": arguments}
    _print(type="assistant", message={"content": [use]}, parent_tool_use_id=None)
    failed = False
    if tool == "Bash":
        with output.open("a+") as file:
            before = file.tell()
            done = subprocess.run(["sh", "-c", act["sh"]], stdout=file, stderr=file, check=False)
            file.seek(before)
            words, failed = file.read(), done.returncode != 0
    else:
        words = act.get("cut") or Path(act["read"]).read_text()
    block = {"type": "tool_result", "tool_use_id": name, "content": words, "is_error": failed}
    _print(type="user", message={"content": [block]}, parent_tool_use_id=None)


def _print(**event: Any) -> None:
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
