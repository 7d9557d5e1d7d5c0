"""An agent that does exactly and only what its prompt says: writes the files that it names, saves, reports.

Started by the real program, with the prompt on standard input. It knows nothing of the flow, of the
environment or of this program: what the prompt does not say does not happen. `$LITERAL_AGENT_KEEPS` is a
folder in which it keeps a copy of every prompt, by the story and the step in its text.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

WORDS = {"<N>": "1", "<id>": "01", "<name>": "first", "<product>": "shop", "<feature>": "search"}


def main() -> int:
    """Play one session."""
    prompt = sys.stdin.buffer.read().decode()
    _keep(prompt)
    _, _, task = prompt.partition("What this step is for:\n\n")
    task, *_ = task.split("\n\n")
    for name in re.findall(r"`([^`\s]+\.(?:md|yaml|json))`", task):
        path = Path(_filled(name))
        if path.exists() or f"Compare the code with `{path}`" in task:
            continue  # earlier work, or what the step only reads
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {path.stem}\n\nwritten as told\n")
    save = re.search(r"save where you are:\n\n    (.+)\n", prompt)
    if save is not None:
        subprocess.run(["sh", "-c", save[1]], check=True, stdout=subprocess.DEVNULL)
    result = re.search(r"write the result as JSON to `(.+)`:\n\n    (.+)\n", prompt)
    if result is None:
        return 1
    Path(result[1]).write_text(result[2])
    return 0


def _keep(prompt: str) -> None:
    kept = os.environ.get("LITERAL_AGENT_KEEPS")
    place = re.search(r"^Story (.+), step (.+) \((.+)\), attempt", prompt, re.MULTILINE)
    if kept and place:
        Path(kept, f"{place[1]} {place[2]} {place[3]}").write_bytes(prompt.encode())


def _filled(name: str) -> str:
    for placeholder, word in WORDS.items():
        name = name.replace(placeholder, word)
    return name


if __name__ == "__main__":
    sys.exit(main())
