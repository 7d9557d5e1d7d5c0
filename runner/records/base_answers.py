"""What commands did on trees that were asked before, in one small file; the holder of the lease writes it.

A tree's id covers its content. What else decides is part of the key: the command, and how workspaces are
prepared. Programs that were installed or removed since are not seen, so only answers that let a run begin are
taken from here.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from isolation.files.disk import replace_file
from isolation.paths import autopilot_dir
from runner.core.base.check import Answer, Question, refuses
from runner.core.settings import Settings

MOST = 2000
"""How many answers are kept; the oldest go first."""

_FILE = "base-checks.json"


def key_of(tree: str, command: str, settings: Settings) -> str:
    """Return the name of one question: a command, on a tree, in a workspace that is prepared in this way."""
    hooks = settings.hooks
    asked = [tree, command, hooks.after_create, hooks.before_run, *settings.symlink_directories]
    return hashlib.sha256(json.dumps(asked).encode(errors="surrogateescape")).hexdigest()


def known_answers(
    common_dir: Path, tree: str, asked: Sequence[Question], settings: Settings
) -> dict[str, Answer]:
    """Return by command the answers of earlier runs that let stories start; others are asked again."""
    saved = load_answers(common_dir)
    found = ((each, saved.get(key_of(tree, each.command, settings))) for each in asked)
    return {
        each.command: Answer(answer)
        for each, answer in found
        if answer in set(Answer) and not refuses(each, Answer(answer))
    }


def load_answers(common_dir: Path) -> dict[str, str]:
    """Read the answers; a file that cannot be read holds none."""
    try:
        loaded = json.loads((autopilot_dir(common_dir) / _FILE).read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(loaded, dict):
        return {}
    return {name: answer for name, answer in loaded.items() if isinstance(answer, str)}


def save_answers(common_dir: Path, answers: Mapping[str, str]) -> None:
    """Add answers to the file. Blocking."""
    known = {**load_answers(common_dir), **answers}
    kept = dict(list(known.items())[-MOST:])
    replace_file(autopilot_dir(common_dir) / _FILE, json.dumps(kept).encode(), mode=0o600, durable=False)
