"""An agent for the page's tests: asks, waits, fails and prints what no page may take for its own.

What it does is in the name of the story. Its memory is a folder outside of the repository; with a file
`plain` there, it prints nothing that a page could take for its own.
"""

import os
import sys
import time
from pathlib import Path

QUESTION = """{"status": "needs-decision", "decision": {
    "question": "Which database?", "options": ["Postgres <i>now</i>", "SQLite"],
    "recommendation": "B", "reason": "nothing to run"}}
"""
HOSTILE = (
    "<img src=x onerror='window.hacked=1'><script>window.hacked=2</script>\x1b[31mred\x1b]0;title\x07 & end"
)


def main(memory: Path) -> int:
    """Play one session."""
    story, prompt = os.environ["AUTOPILOT_STORY_ID"], sys.stdin.read()
    plain = (memory / "plain").exists()
    sys.stdout.write(f"working on {story}\n{'' if plain else HOSTILE}\n")
    for number in range(60):
        sys.stdout.write(f"line {number} of {story}\n")
    sys.stdout.flush()
    if story.startswith("asks") and not (memory / story).exists():
        (memory / story).touch()
        Path(os.environ["AUTOPILOT_RESULT_FILE"]).write_text(
            QUESTION.replace(" <i>now</i>", "") if plain else QUESTION
        )
        return 0
    if story.startswith("broken") and "try harder" not in prompt:
        sys.stdout.write("the tests fail\n")
        return 1
    if story.startswith("slow"):
        while not (memory / "go").exists():
            time.sleep(0.1)
    Path(f"{story}.txt").write_text(f"{HOSTILE}\n")
    sys.stdout.write("done\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
