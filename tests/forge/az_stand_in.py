"""A stand-in for `az` with its extension `azure-devops`: the two commands by which work items are read.

The work items are in `items.json` in AZURE_CONFIG_DIR; `down` there is how many calls fail first.
"""

import json
import os
import sys
from itertools import pairwise
from pathlib import Path


def main() -> int:
    """Answer as the real program does with `--output json`."""
    words = sys.argv[1:]
    folder = Path(os.environ["AZURE_CONFIG_DIR"])
    state = json.loads((folder / "items.json").read_text())
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps(words) + "\n")
    if state["down"]:
        (folder / "items.json").write_text(json.dumps({**state, "down": state["down"] - 1}))
        sys.stderr.write("ERROR: TF400733: The service is not available.\n")
        return 1
    options = dict(pairwise(words[2:]))
    if words[:2] == ["boards", "query"] and {"--wiql", "--path", "--id"} & set(words):
        sys.stdout.write(json.dumps([{"id": item["id"], "fields": {}} for item in state["items"]]))
        return 0
    if words[:2] == ["devops", "invoke"] and options["--resource"] == "workitemsbatch":
        asked = json.loads(Path(options["--in-file"]).read_text())
        found = [item for item in state["items"] if item["id"] in asked["ids"]]
        sys.stdout.write(json.dumps({"count": len(found), "value": found}))
        return 0
    sys.stderr.write(f"ERROR: {words} is misspelled or not recognized by the system.\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
