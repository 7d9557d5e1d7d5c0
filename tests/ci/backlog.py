"""Six stories for a pipeline: one fails, one can be canceled, one looks for credentials."""

import json
import os
import sys
from pathlib import Path
from typing import Any

from tests.ci.github_runner import copied
from tests.conftest import git

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "ci"

HUNT = """
import json, os, pathlib, subprocess, sys
places = {f"environment {name}": value for name, value in os.environ.items()}
places["git config"] = subprocess.run(["git", "config", "--list"], capture_output=True, text=True).stdout
for process in pathlib.Path("/proc").glob("[0-9]*"):
    for name in ("environ", "cmdline"):
        try:
            places[f"{name} of {process.name}"] = (process / name).read_text(errors="replace")
        except OSError:
            pass
for folder in sys.argv[2:]:
    for path in pathlib.Path(folder).rglob("*"):
        if path.is_file() and path.stat().st_size < 1_000_000:
            places[str(path)] = path.read_text(errors="replace")
signs = ("canary", "token-of", "AUTHORIZATION")
found = {place: text for place, text in places.items() if any(sign in text for sign in signs)}
pathlib.Path(sys.argv[1]).write_text(json.dumps(found))
print("the key is", os.environ.get("AGENT_KEY"), os.environ.get("ANTHROPIC_API_KEY"))
"""
"""Searches for what the tests call canary and for tokens of jobs, and prints the key that it was given.

A checkout that keeps the token does so as an encoded header."""


def stories(world: Path, marker: str) -> list[dict[str, Any]]:
    """Return the stories; what fails or waits does so until the file `repaired` is in `world`."""
    repaired = world / "repaired"
    hunt = (
        f'{sys.executable} {world}/hunt.py {world}/found.json "$HOME" ${{RUNNER_TEMP:-}} '
        '"$(git rev-parse --git-common-dir)/.." && echo hunted > hunt.txt'
    )
    return [
        {"id": "base", "command": "echo base > base.txt"},
        {"id": "top", "command": "cat base.txt > top.txt", "depends_on": ["base"]},
        {"id": "bad", "command": f"test -e {repaired} && echo good > bad.txt", "max_attempts": 1},
        {"id": "after", "command": "cat bad.txt > after.txt", "depends_on": ["bad"]},
        {
            "id": "slow",
            # Deaf to SIGTERM: only the end of the grace period ends it.
            "command": f"trap '' TERM; until test -e {repaired}; do sleep 1 {marker}; done; echo x > slow",
        },
        {"id": "hunt", "command": hunt},
    ]


def make_origin(world: Path, entries: list[dict[str, Any]]) -> Path:
    """Make a repository with the pipelines as they are shipped, and this backlog in place of its own."""
    origin = world / "origin"
    copied(EXAMPLE, origin)
    (origin / "backlog.toml").write_text(_toml(entries))
    (world / "hunt.py").write_text(HUNT)
    git(world, "init", "-q", "-b", "main", str(origin))
    for message in ("files", "more"):
        (origin / "more.txt").write_text(f"{message}\n")
        git(origin, "add", "-A")
        git(origin, "commit", "-q", "-m", message)
    return origin


def marker_of(world: Path) -> str:
    """Return words that only the sessions of one test have on their command line."""
    return f"0.{os.getpid()}{abs(hash(str(world))) % 10**6}"


def _toml(entries: list[dict[str, Any]]) -> str:
    lines = []
    for entry in entries:
        lines.append("[[stories]]")
        values = {"title": entry["id"], **entry}
        lines += [f"{name} = {json.dumps(value)}" for name, value in values.items()]
    return "\n".join(lines) + "\n"
