"""A made-up machine for whole runs under a fake clock: processes, memory, git and threads that cost no time.

Orchestrator, pipeline, kill-switches, sessions, event log and records are the real ones. Everything random
comes from one seed, and so does the order in which trio runs its tasks, so that a run is replayed by its
seed. Each story has dice of its own: what its sessions do does not depend on which one was quicker.
"""

import json
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import trio
import trio._core._run as trio_internals

from isolation.git.commits import Checkpoint
from isolation.git.repository import GitOutput
from isolation.keeper.client import TreeUsage
from isolation.model import Closing, Exit, SessionSpec, Workspace, WorkspaceRequest
from isolation.workspace import OpenWorkspace

GB = 1 << 30
WHOLE_MEMORY = 16 * GB
FOR_EVER = 10**9

Dice = Callable[[str], random.Random]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What one session does: how long it runs, what it says, how it ends, and what it uses."""

    seconds: float
    silent: bool = False
    idle: bool = False
    announces: float = 0.0
    returncode: int = 0
    result: dict[str, Any] = field(default_factory=dict)
    changes: bool = True
    memory: int = GB // 4


def dice_of(seed: int) -> Dice:
    """Return the dice of each story by its id; asked again, the same ones continue."""
    return cache(lambda story_id: random.Random(f"{seed} {story_id}"))  # noqa: S311  dice, not secrets


def script(rng: random.Random) -> Script:
    """Draw a session: most work, some fail, ask, circle, stall or do nothing."""
    seconds = rng.choice([1, 5, 30, 120, 900, 5000]) * rng.uniform(0.5, 1.5)
    usage = {"cost_usd": round(rng.uniform(0, 2), 2), "input_tokens": rng.randrange(100_000)}
    memory = int(rng.choice([0.1, 0.5, 2.0, 5.0]) * GB)
    kinds: dict[str, tuple[int, Callable[[], Script]]] = {
        "done": (
            50,
            lambda: Script(seconds=seconds, result={"status": "done", "usage": usage}, memory=memory),
        ),
        "plain": (10, lambda: Script(seconds=seconds, memory=memory)),
        "nothing": (4, lambda: Script(seconds=seconds, changes=False)),
        "fails": (12, lambda: Script(seconds=seconds, returncode=1)),
        "killed": (3, lambda: Script(seconds=seconds, returncode=-9)),
        "partial": (8, lambda: Script(seconds=seconds, result={"status": "partial", "usage": usage})),
        "asks": (3, lambda: Script(seconds=seconds, result={"status": "needs-decision", "notes": "Which?"})),
        "spirals": (3, lambda: Script(seconds=seconds, result={"agent_summary": {"spiral": 1}})),
        "failed wave": (3, lambda: Script(seconds=seconds, result={"agent_summary": {"failed": 2}})),
        "carries over": (
            3,
            lambda: Script(seconds=seconds, result={"effectiveness": {"planned_issues": 4, "carryover": 3}}),
        ),
        "stalls": (3, lambda: Script(seconds=FOR_EVER, silent=True, idle=True)),
        "waits": (3, lambda: Script(seconds=2000, silent=True, idle=True, announces=1900)),
    }
    names = list(kinds)
    return kinds[rng.choices(names, weights=[kinds[name][0] for name in names])[0]][1]()


class SimulatedSession:
    """One process tree that exists on paper; it prints, uses memory, ends, or is ended."""

    pid = 1

    def __init__(self, plan: Script, spec: SessionSpec) -> None:
        self.plan = plan
        self._spec = spec
        self._ended = trio.Event()
        self._returncode: int | None = None
        self._began = trio.current_time()
        self._announced = False
        self.wrote = False

    async def live(self) -> None:
        """Run to the end of the script."""
        await trio.sleep(self.plan.seconds)
        if self.plan.result and "AUTOPILOT_RESULT_FILE" in self._spec.env:
            _write(self._spec.env["AUTOPILOT_RESULT_FILE"], self.plan.result)
        self._end(self.plan.returncode)

    def _end(self, returncode: int) -> None:
        if self._returncode is None:
            self._returncode = returncode
            self._ended.set()

    async def receive(self) -> bytes:
        """Print now and then, unless silent."""
        if self.plan.announces and not self._announced:
            self._announced = True
            await trio.lowlevel.checkpoint()
            return f"overloaded, retrying in {self.plan.announces:.0f} s\n".encode()
        with trio.move_on_after(FOR_EVER if self.plan.silent else 60):
            await self._ended.wait()
            return b""
        return b"at work\n"

    async def wait(self) -> Exit:
        """Return how it ended."""
        await self._ended.wait()
        return Exit(returncode=self._returncode or 0, stopped=self._returncode == -15)

    def stop(self, *, grace: float) -> None:  # noqa: ARG002  nothing here needs any grace
        """End as a process does that obeys."""
        self._end(-15)

    def kill(self) -> None:
        """End immediately."""
        self._end(-9)

    def usage(self) -> TreeUsage | None:
        """Use memory that grows in the first minute."""
        if self._returncode is not None:
            return None
        share = min(1.0, (trio.current_time() - self._began) / 60)
        cpu = 0.0 if self.plan.idle else trio.current_time() - self._began
        return TreeUsage(cpu_seconds=cpu, rss_bytes=int(self.plan.memory * share), processes=1)


class SimulatedKeeper:
    """Starts sessions on paper; verify commands fail now and then, those of some stories always."""

    def __init__(self, dice: Dice, draw: Callable[[random.Random], Script] = script) -> None:
        self._dice = dice
        self._draw = draw
        self.running: set[SimulatedSession] = set()

    @asynccontextmanager
    async def start(self, spec: SessionSpec) -> AsyncIterator[SimulatedSession]:
        """Run one session."""
        works = "AUTOPILOT_PROMPT_FILE" in spec.env
        story_id = spec.env["AUTOPILOT_STORY_ID"]
        rng = self._dice(story_id)
        fails = story_id.endswith("7") or rng.random() < 0.15
        plan = self._draw(rng) if works else Script(seconds=5, returncode=int(fails))
        session = SimulatedSession(plan, spec)
        self.running.add(session)
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(session.live)
                yield session
                nursery.cancel_scope.cancel()
        finally:
            self.running.discard(session)

    @property
    def memory_used(self) -> int:
        """Add up what all sessions use now."""
        used = (session.usage() for session in self.running)
        return sum(usage.rss_bytes for usage in used if usage)


@dataclass(slots=True)
class SimulatedRepository:
    """What the pipeline asks of git, with commits that are numbers; `judged` tells of a durable verdict."""

    common_dir: Path
    top: Path
    dice: Dice
    judged: Callable[[str], bool]
    commits: int = 0

    @property
    def main_checkout(self) -> Path:
        """The one checkout, in which no other session has a lock."""
        return self.top

    def branch_tip(self, _branch: str) -> None:
        """Know no branch, so that the journal's commits count."""

    def is_ancestor(self, _commit: str, _of: str) -> bool:
        """Have no commit in the history of another: nothing has landed."""
        return False

    def name_of_branch(self, branch: str) -> str:
        """Know of no tags."""
        return branch

    def changed_paths(self, *_: object) -> tuple[str, ...]:
        """Change nothing outside any claim."""
        return ()

    def trees(self, commits: tuple[str, ...]) -> tuple[str, ...]:
        """Let every commit hold something new."""
        return commits

    def run(self, *_: object, **__: object) -> GitOutput:
        """Find nothing in a worktree that no commit holds."""
        return GitOutput(returncode=0, stdout="", stderr="")


@asynccontextmanager
async def open_workspace(
    repository: SimulatedRepository,
    request: WorkspaceRequest,
    **_: object,
) -> AsyncIterator[OpenWorkspace]:
    """Open a folder for a story; making it takes a moment."""
    await trio.sleep(0.05)
    path = repository.top / request.story_id
    path.mkdir(parents=True, exist_ok=True)
    base = request.parents[0]
    workspace = Workspace(path=path, branch=request.branch, base=base, head=base, reattached=False)
    opened = OpenWorkspace(workspace=workspace)
    yield opened
    if opened.finished and not repository.judged(request.story_id):
        raise AssertionError(f"the worktree of {request.story_id} goes before its verdict is durable")
    opened.closing = Closing(removed=opened.finished, reason="")


def checkpoint(repository: SimulatedRepository, path: Path, *_: object, **__: object) -> Checkpoint:
    """Commit: most sessions leave something."""
    if repository.dice(path.name).random() < 0.15:
        return Checkpoint(tip="0" * 40, commits=0, files=0)
    repository.commits += 1
    return Checkpoint(tip=f"{repository.commits:040x}", commits=1, files=1)


def _write(path: str, result: dict[str, Any]) -> None:
    Path(path).write_text(json.dumps(result))


async def _inline(function: Callable[..., Any], *args: object, **_: object) -> Any:
    """Do without a thread: under a fake clock time leaps while one works."""
    await trio.lowlevel.checkpoint()
    return function(*args)


@contextmanager
def made_up(seed: int) -> Iterator[None]:
    """Put the made-up parts in the place of the real ones, and trio's dice under the seed.

    Whoever looks now and then looks less often, since hours pass in an instant.
    """
    trio_internals._r.seed(seed)
    with (
        mock.patch("trio.to_thread.run_sync", _inline),
        mock.patch("isolation.files.threads.run", _inline),
        mock.patch("runner.story.workspace.open_workspace", open_workspace),
        mock.patch("runner.story.workspace.checkpoint", checkpoint),
        mock.patch("runner.story.workspace.require_there"),
        mock.patch("runner.story.pipeline.thin_trash"),
        mock.patch("runner.story.session.session.changed_since", return_value=False),
        mock.patch("runner.story.session.session.LOOK_FOR_LIFE", 60.0),
        mock.patch("runner.story.presence.BEAT_SECONDS", 36_000.0),
        mock.patch("runner.run.window.TICK_SECONDS", 20.0),
        mock.patch("runner.run.control.service.REQUEST_SECONDS", 600.0),
        mock.patch("runner.run.orchestrator.PAUSE_SECONDS", 600.0),
    ):
        yield
