"""Put a payload, after a tag, into one field of what a session leaves: `write_text.py PAYLOAD FIELD`."""

import json
import os
import subprocess
import sys

name, field = sys.argv[1:]
with open(os.environ["SCRIPTS"] + "/payloads.json", encoding="utf-8") as file:
    text = f"[text-{name}-{field}]" + json.load(file)[name]
if field == "output":
    sys.stdout.write(f"{text}\n")
elif field == "subject":
    with open(f"x-{name}", "w", encoding="utf-8") as file:
        file.write(text)
    subprocess.run(["git", "add", f"x-{name}"], check=True)
    subprocess.run(["git", "commit", "-q", "-m", text], check=True)
elif field == "filename":
    with open(text.replace("/", "_"), "w", encoding="utf-8") as file:
        file.write("x")
else:
    path = os.environ["AUTOPILOT_RESULT_FILE"]
    result = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            result = json.load(file)
    if field == "question":
        result |= {"status": "needs-decision", "decision": {"question": text}}
    else:
        result |= {"status": "failed", field: text}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file)
