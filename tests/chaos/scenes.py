"""The backlog that campaigns disturb: every kind of end, a flow with a question, a user with unsaved work."""

import os
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.acceptance.program import write_story
from tests.chaos import scripted_session
from tests.chaos.checker import Checker, users
from tests.conftest import begin_repository, git

EXPECTED = {
    "base": "done",
    "next": "done",
    "twice": "done",
    "wrong": "failed",
    "after-wrong": "skipped",
    "daemon": "done",
    "flow": "done",
}
FLOW = "".join(
    f'[[steps]]\nnumber = {number}\nname = "{name}"\nprompt = "Do it."\n'
    f'artifacts = ["{{docs}}/{number}.md"]\n'
    for number, name in ((1, "Collect"), (2, "Write"), (3, "Check"))
)
MODES: dict[str, tuple[str, ...]] = {
    "worktrees": (),
    **{
        level: ("--bg-isolation", "none", "--deconflict-paths", "packages/{id}/**", "--enforce", level)
        for level in ("divert", "deny", "detect")
    },
}
SECONDS = 0.1
_OFTEN = 12
"""Attempts of a story whose sessions are killed; each kill of a session is a failed attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A repository in one mode, the mark of its processes, and its checker."""

    repo: Path
    mode: str
    mark: str
    checker: Checker

    @property
    def arguments(self) -> tuple[str, ...]:
        """How its run is started; a resume knows them by itself."""
        return ("run", "--max-stories", "3", "--window", "fixed", "--max-sessions", "50", *MODES[self.mode])

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its commands."""
        return {**os.environ, "CHAOS_MARK": self.mark}


def prepare(folder: Path, mode: str, *, seconds: float = SECONDS) -> Scene:
    """Make a repository with a backlog in `folder`, and things of the user's that nobody may touch."""
    repo, mark = folder / "repo", f"chaos-{uuid.uuid4().hex}"
    ledger = folder / f"ledger-{mark}"
    packages = {f"packages/{name}/README.md": f"{name}\n" for name in EXPECTED}
    begin_repository(repo, {**packages, "flows/tiny.toml": FLOW, "mine.txt": "committed\n"})
    _stories(repo, ledger, seconds)
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "stories")
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    (repo / "mine.txt").write_bytes(b"edited\r\n\xff, not staged")
    (repo / "notes.txt").write_text("untracked\n")
    before = users(repo, ("staged.txt", "mine.txt", "notes.txt", "README.md"))
    checker = Checker(repo, ledger, mark=mark, before=before, expected=EXPECTED)
    return Scene(repo=repo, mode=mode, mark=mark, checker=checker)


def _stories(repo: Path, ledger: Path, seconds: float) -> None:
    work = [sys.executable, "-I", "-S", scripted_session.__file__, str(ledger), str(seconds)]
    often: dict[str, Any] = {"max_attempts": _OFTEN}
    write_story(repo, "base", command=work, verify=["test -s packages/base/attempt"], **often)
    write_story(repo, "next", command=work, depends_on=["base"], **often)
    write_story(repo, "twice", command=work, verify=["test $(cat packages/twice/attempt) -ge 2"], **often)
    write_story(repo, "wrong", command=work, verify=["false"], max_attempts=2)
    write_story(repo, "after-wrong", command=work, depends_on=["wrong"])
    write_story(repo, "daemon", command=[*work, "daemon"], **often)
    write_story(repo, "flow", flow="tiny", command=[*work, "ask:2"], **often)
