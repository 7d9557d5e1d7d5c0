"""Print the steps of a matrix as a pipeline for `buildkite-agent pipeline upload`."""

import json
import sys
from pathlib import Path

matrix = json.loads(Path(sys.argv[1]).read_text())
jobs = [job for stage in matrix["stages"] for job in stage]
# A key may not contain all that a name may.
keys = {job["name"]: f"story-{number}" for number, job in enumerate(jobs, 1)}
steps = []
for job in jobs:
    needed = [f'buildkite-agent artifact download "shards/{name}/**/*" .' for name in job["needs"]]
    steps.append(
        {
            "label": job["name"],
            "key": keys[job["name"]],
            "command": [
                "buildkite-agent artifact download matrix.json .",
                *needed,
                f"./autopilot-ci.sh job '{job['name']}'",
            ],
            # Also after a failure, so that dependents of the failed story are reported as skipped.
            "depends_on": [{"step": keys[name], "allow_failure": True} for name in job["needs"]],
            "artifact_paths": [f"shards/{job['name']}/**/*"],
            "concurrency": matrix["max_parallel"],
            "concurrency_group": "autopilot",
            "timeout_in_minutes": 120,
        }
    )
if jobs:
    steps.append(
        {
            "label": "join",
            "command": [
                "buildkite-agent artifact download matrix.json .",
                'buildkite-agent artifact download "shards/**/*" .',
                "./autopilot-ci.sh join",
            ],
            "depends_on": [{"step": key, "allow_failure": True} for key in keys.values()],
            "artifact_paths": ["reports/*"],
        }
    )
json.dump({"steps": steps}, sys.stdout, indent=2)
