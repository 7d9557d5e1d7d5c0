"""An agent that does exactly and only what its prompt says: it writes the files that the prompt names.

Started by the real program as a story's command, with the prompt on standard input. It knows nothing of the
flow: what the prompt does not say does not happen. `$LITERAL_AGENT_KEEPS` is a folder in which it keeps a
copy of every prompt.
"""

import os
import re
import sys
from pathlib import Path

WORDS = {"<N>": "1", "<id>": "01", "<name>": "first", "<product>": "shop", "<feature>": "search"}


def main() -> int:
    """Play one session."""
    prompt = sys.stdin.read()
    kept = os.environ.get("LITERAL_AGENT_KEEPS")
    if kept:
        step = os.environ["AUTOPILOT_STEP"]
        Path(kept, f"{os.environ['AUTOPILOT_STORY_ID']} {step}").write_text(prompt)
    _, _, task = prompt.partition("What this step is for:\n")
    for name in re.findall(r"`([^`\s]+\.(?:md|yaml|json))`", task):
        path = Path(_filled(name))
        if path.exists() or not _own(path, prompt):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"written for {os.environ['AUTOPILOT_STEP']}\n")
    return 0


def _filled(name: str) -> str:
    for placeholder, word in WORDS.items():
        name = name.replace(placeholder, word)
    return name


def _own(path: Path, prompt: str) -> bool:
    """Whether the prompt tells the agent to write a file, not to read one that an earlier story left."""
    return f"Compare the code with `{path}`" not in prompt


if __name__ == "__main__":
    sys.exit(main())
