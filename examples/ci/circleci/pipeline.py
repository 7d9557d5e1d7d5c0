"""Print the jobs of a matrix as the configuration with which a setup workflow continues."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

matrix = json.loads(Path(sys.argv[1]).read_text())
jobs = [job for stage in matrix["stages"] for job in stage]
keys = {
    job["name"]: f"story-{number}-{re.sub('[^A-Za-z0-9_-]', '_', job['name'])}"
    for number, job in enumerate(jobs, 1)
}


def defined(command: str, *more: dict[str, Any]) -> dict[str, Any]:
    """Return a job that gets the shards of the jobs before it."""
    return {
        "docker": [{"image": "cimg/python:3.12-node"}],
        "environment": {"AUTOPILOT_STORIES": os.environ.get("AUTOPILOT_STORIES", "")},
        "steps": [
            "checkout",
            {"attach_workspace": {"at": "."}},
            # What a job leaves is kept after a failure, too, so that it fails at its end.
            {"run": {"command": f"{command} || echo $? > failed", "no_output_timeout": "2h"}},
            *more,
            {"run": 'if [ -e failed ]; then exit "$(cat failed)"; fi'},
        ],
    }


def after(names: list[str]) -> list[dict[str, list[str]]]:
    """Wait for jobs, however they end."""
    return [{keys[name]: ["success", "failed", "canceled"]} for name in names]


config: dict[str, Any] = {"version": 2.1, "jobs": {}, "workflows": {"stories": {"jobs": []}}}
order = config["workflows"]["stories"]["jobs"]
for job in jobs:
    shard = {"persist_to_workspace": {"root": ".", "paths": [f"shards/{job['name']}"]}}
    config["jobs"][keys[job["name"]]] = defined(f"./autopilot-ci.sh job '{job['name']}'", shard)
    order.append({keys[job["name"]]: {"requires": after(job["needs"])}})
results = ({"store_artifacts": {"path": "reports"}}, {"store_test_results": {"path": "reports/junit.xml"}})
config["jobs"]["join"] = defined("./autopilot-ci.sh join" if jobs else "true", *results)
order.append({"join": {"requires": after([job["name"] for job in jobs])}})
json.dump(config, sys.stdout, indent=2)
