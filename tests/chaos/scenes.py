"""The backlogs that campaigns disturb: every kind of end, flows, questions, landings, and unsaved work."""

import os
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.acceptance.program import write_story
from tests.chaos import scripted_session
from tests.chaos.checker import Checker, users
from tests.conftest import begin_repository, git

SECONDS = 0.1
_OFTEN = 12
"""Attempts of a story whose sessions are killed; each kill of a session is a failed attempt."""

FLOW = "".join(
    f'[[steps]]\nnumber = {number}\nname = "{name}"\nprompt = "Do it."\n'
    f'artifacts = ["{{docs}}/{number}.md"]\n'
    for number, name in ((1, "Collect"), (2, "Write"), (3, "Check"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One story: how it ends, what its sessions do beside their work, and its front matter."""

    ends: str = "done"
    tricks: tuple[str, ...] = ()
    verify: str = ""
    often: bool = True
    more: dict[str, Any] = field(default_factory=dict)


MIXED = {
    "base": Planned(verify="test -s packages/base/attempt"),
    "next": Planned(more={"depends_on": ["base"]}),
    "twice": Planned(verify="test $(cat packages/twice/attempt) -ge 2"),
    "wrong": Planned(ends="failed", verify="false", often=False, more={"max_attempts": 2}),
    "after-wrong": Planned(ends="skipped", often=False, more={"depends_on": ["wrong"]}),
    "daemon": Planned(tricks=("daemon",)),
    "flow": Planned(tricks=("ask:2",), more={"flow": "tiny"}),
}
FLOWS = {
    "walk": Planned(more={"flow": "tiny"}),
    "judged": Planned(verify="test $(ls packages/judged/3-* | wc -l) -ge 2", more={"flow": "tiny"}),
    "after-walk": Planned(tricks=("daemon",), more={"flow": "tiny", "depends_on": ["walk"]}),
    "flow": Planned(tricks=("ask:2",), more={"flow": "tiny"}),
}
DECISIONS = {
    "first": Planned(tricks=("ask:1",), more={"flow": "tiny"}),
    "second": Planned(tricks=("ask:2",), more={"flow": "tiny"}),
    "third": Planned(tricks=("ask:3",), more={"flow": "tiny", "depends_on": ["first"]}),
    "plain": Planned(tricks=("ask:quick",)),
}
LANDINGS = {
    "base": Planned(verify="test -s packages/base/attempt"),
    "next": Planned(more={"depends_on": ["base"]}),
    "wrong": Planned(ends="failed", verify="false", often=False, more={"max_attempts": 2}),
    "flow": Planned(tricks=("ask:2",), more={"flow": "tiny"}),
    "other": Planned(tricks=("daemon",)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """How the runs of a scene are started, what is in its backlog, and whether it lands."""

    arguments: tuple[str, ...] = ()
    stories: dict[str, Planned] = field(default_factory=lambda: MIXED)
    lands: bool = False


_FILES = {
    "flows/tiny.toml": FLOW,
    "mine.txt": "committed\n",
    # Other sessions on the machine would stop stories.
    "autopilot-multi.toml": 'land-verify = ["test -e README.md"]\npeer-abort = 1000\n',
}


def _shared(level: str, *more: str) -> tuple[str, ...]:
    return ("--bg-isolation", "none", "--deconflict-paths", "packages/{id}/**", "--enforce", level, *more)


MODES: dict[str, Mode] = {
    "worktrees": Mode(),
    **{level: Mode(arguments=_shared(level)) for level in ("divert", "deny", "detect")},
    "flows": Mode(arguments=("--pool", "3"), stories=FLOWS),
    "decisions": Mode(stories=DECISIONS),
    "landings": Mode(arguments=("--land",), stories=LANDINGS, lands=True),
}


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
        limits = ("--max-stories", "3", "--window", "fixed", "--max-sessions", "50")
        return ("run", *limits, *MODES[self.mode].arguments)

    @property
    def landing(self) -> tuple[str, ...]:
        """How its stories land after a run that was killed; empty if they are not to."""
        return ("land",) if MODES[self.mode].lands else ()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of its commands."""
        return {**os.environ, "CHAOS_MARK": self.mark}


def prepare(folder: Path, mode: str, *, seconds: float = SECONDS, witness: Path | None = None) -> Scene:
    """Make a repository with a backlog in `folder`, and things of the user's that nobody may touch.

    The ledger is in the folder `witness`, where no fault reaches it; without one, beside the repository.
    """
    repo, mark = folder / "repo", f"chaos-{uuid.uuid4().hex}"
    ledger, plan = (witness or folder) / f"ledger-{mark}", MODES[mode]
    packages = {f"packages/{name}/README.md": f"{name}\n" for name in plan.stories}
    begin_repository(repo, {**packages, **_FILES})
    for name, story in plan.stories.items():
        _write(repo, name, story, [str(ledger), str(seconds)])
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "stories")
    (repo / "staged.txt").write_text("staged\n")
    git(repo, "add", "staged.txt")
    (repo / "mine.txt").write_bytes(b"edited\r\n\xff, not staged")
    (repo / "notes.txt").write_text("untracked\n")
    before = users(repo, ("staged.txt", "mine.txt", "notes.txt", "README.md"))
    expected = {name: story.ends for name, story in plan.stories.items()}
    checker = Checker(repo, ledger, mark=mark, before=before, expected=expected, lands=plan.lands)
    return Scene(repo=repo, mode=mode, mark=mark, checker=checker)


def _write(repo: Path, name: str, story: Planned, arguments: list[str]) -> None:
    program = [sys.executable, "-I", "-S", scripted_session.__file__]
    fields = {**({"max_attempts": _OFTEN} if story.often else {}), **story.more}
    if story.verify:
        fields["verify"] = [story.verify]
    write_story(repo, name, command=[*program, *arguments, *story.tricks], **fields)
