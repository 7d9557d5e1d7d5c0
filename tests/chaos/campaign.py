"""Campaigns: runs are struck at random moments, resumed until they end, and judged by the checker.

    python -m tests.chaos.campaign --seed 7 --kills 100 --mode divert

A seed decides modes, targets, signals and moments. Which act of the program a moment meets depends on the
machine, too; a finding names the seed of its scene, and that scene alone is repeated with `--scene SEED`.
"""

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from tests.acceptance.preloaded import ProgramServer
from tests.acceptance.program import devnull, start
from tests.chaos.checker import KINDS
from tests.chaos.processes import descendants, freeze, send
from tests.chaos.scenes import MODES, Scene, prepare
from tests.conftest import GIT_ENVIRONMENT

USUAL = 1.4
"""Seconds within which a run of the backlog is struck."""

APPEARS = 0.7
"""Seconds until a session, a keeper or a git command must have appeared to be struck."""

PATIENCE = 60.0
ENDED = {0, 3, 4, 5}
SAID = ("cannot start the fork server", "was killed from outside")
"""How a run tells that one of its helping processes was killed."""
COMMANDS = "commands"
"""The kind of a finding about a command that hung, broke down or had another exit code."""

_OPENS = {"RunStarted", "RunResumed"}

# What is struck, with which signal, and how often beside the others.
STRIKES: dict[tuple[str, str], int] = {
    ("coordinator", "kill"): 45,
    ("coordinator+git", "kill"): 10,
    ("git", "kill"): 6,
    ("coordinator+server", "kill"): 6,
    ("keeper", "kill"): 8,
    ("server", "kill"): 8,
    ("keeper+server", "kill"): 4,
    ("session", "kill"): 7,
    ("coordinator", "stop"): 4,
    ("keeper", "stop"): 3,
    ("server", "stop"): 2,
    ("session", "stop"): 3,
}


@dataclass(slots=True)
class Figures:
    """What a campaign has done and found."""

    scenes: int = 0
    strikes: Counter[str] = field(default_factory=Counter)
    resumes: int = 0
    sessions: int = 0
    findings: list[str] = field(default_factory=list)
    by_mode: Counter[str] = field(default_factory=Counter)
    by_kind: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def kills(self) -> int:
        """How often something was killed; what was only stopped for a moment does not count."""
        return sum(count for name, count in self.strikes.items() if name.startswith("kill "))

    def __str__(self) -> str:
        hits = ", ".join(f"{name} {count}" for name, count in sorted(self.strikes.items()))
        head = (
            f"{self.kills} kills and {self.strikes.total() - self.kills} stops in {self.scenes} scenes, "
            f"{self.resumes} resumes, {self.sessions} sessions, {len(self.findings)} findings\n  {hits}"
        )
        rows = [
            "  ".join((f"  {mode:<10} {strikes:>5} strikes", *self._counts(mode)))
            for mode, strikes in self.by_mode.items()
        ]
        return "\n".join((head, *rows, *(f"  finding: {one}" for one in self.findings)))

    def _counts(self, mode: str) -> list[str]:
        return [f"{kind} {self.by_kind[mode, kind]}" for kind in (*KINDS, COMMANDS)]


class Play:
    """One scene: parts of its run are killed `kills` times, then it is left alone until it has ended."""

    def __init__(self, scene: Scene, seed: int, figures: Figures) -> None:
        self._scene = scene
        self._seed = seed
        self._chance = random.Random(seed)  # noqa: S311  moments, not secrets
        self._figures = figures
        self._struck: list[str] = []
        self._killed = True

    def run(self, kills: int) -> None:
        """Play the scene to its end."""
        figures, checker = self._figures, self._scene.checker
        figures.scenes += 1
        goal = figures.kills + kills
        for _ in range(4 * kills):
            if figures.kills >= goal or self._over():
                break
            self._disturbed()
            self._judge(last=False)
        for _ in range(12):
            if self._over():
                break
            self._undisturbed()
        self._judge(last=True)
        figures.sessions += sum(one.word == "begun" for one in checker.ledger())

    def _over(self) -> bool:
        """Whether the run has ended by itself and nothing waits for an answer or a landing."""
        if self._killed:
            return False  # perhaps between its last event and its records, which a resume writes
        checker = self._scene.checker
        stopped = "stopped" in checker.verdicts().values()
        return self._ended_runs() and not stopped and not checker.questions() and not checker.unlanded()

    def _ended_runs(self) -> bool:
        """Whether no run is open; what a landing records afterwards belongs to no run that is."""
        kinds = [kind for _, kind, _ in self._scene.checker.rows() if kind in _OPENS | {"RunEnded"}]
        return kinds[-1:] == ["RunEnded"]

    def _command(self) -> tuple[str, ...]:
        checker = self._scene.checker
        if not checker.rows():
            return self._scene.arguments
        if (asked := checker.questions()) and self._ended_runs():
            return ("decide", asked[0], "B")
        stopped = "stopped" in checker.verdicts().values()
        if self._ended_runs() and not stopped and not self._answered() and checker.unlanded():
            return self._scene.landing
        self._figures.resumes += 1
        return ("resume",)

    def _answered(self) -> bool:
        """Whether an answer waits for a run that acts on it."""
        return "parked" in self._scene.checker.verdicts().values()

    def _undisturbed(self) -> None:
        command = self._command()
        with self._started(command) as (process, said):
            try:
                code = process.wait(PATIENCE)
            except (TimeoutError, subprocess.TimeoutExpired):
                found = descendants(process.pid, self._scene.mark)
                self._find(f"`{command[0]}` did not end; {found}: {said.read_text()[-1500:]}")
            else:
                self._ended(command, code, said)

    def _disturbed(self) -> None:
        """Start what comes next, and strike it until it has ended, or was killed."""
        command = self._command()
        longest = {"decide": 0.4, "land": 0.8}.get(command[0], USUAL)
        with self._started(command) as (process, said):
            while True:
                moment = self._chance.uniform(0.02, longest)
                (target, how), *_ = self._chance.choices(list(STRIKES), list(STRIKES.values()))
                try:
                    code = process.wait(moment)
                except (TimeoutError, subprocess.TimeoutExpired):
                    pass
                else:
                    return self._ended(command, code, said)
                if self._strike(process.pid, target, how) and "coordinator" in target and how == "kill":
                    process.wait(PATIENCE)
                    self._killed = True
                    return None

    def _strike(self, coordinator: int, target: str, how: str) -> int:
        names = target.split("+")
        deadline = time.monotonic() + APPEARS
        while True:
            parts = descendants(coordinator, self._scene.mark)
            if all(parts[name] for name in names):
                break
            if time.monotonic() > deadline:
                return 0
            time.sleep(0.005)
        pids = [pid for name in names for pid in _chosen(name, parts[name], self._chance)]
        pause = self._chance.uniform(0.05, 0.6)
        hit = freeze(pids, pause) if how == "stop" else send(pids, signal.SIGKILL)
        if hit:
            self._figures.strikes[f"{how} {'+'.join(names)}"] += 1
            self._figures.by_mode[self._scene.mode] += 1
            self._struck.append(f"{how} {'+'.join(names)}")
        return hit

    def _ended(self, command: tuple[str, ...], code: int, said: Path) -> None:
        text, self._killed = said.read_text(errors="replace"), command[0] == "decide"
        if code == 2 and command[0] != "decide" and any(word in text for word in SAID):
            self._killed = True  # it says what was killed, and is resumed
        elif code not in ENDED:
            self._find(f"`{command[0]}` exited with {code}: {text[-600:]}")
        if "Traceback" in text:
            self._find(f"`{command[0]}` printed a traceback: {text[-1500:]}")

    def _judge(self, *, last: bool) -> None:
        for finding in self._scene.checker.at_rest(last=last):
            self._find(finding)
        send([pid for pid, _ in self._scene.checker.processes()], signal.SIGKILL)

    def _find(self, finding: str) -> None:
        before, mode = ", ".join(self._struck[-4:]), self._scene.mode
        text = f"scene {self._seed} ({mode}), after {before or 'nothing'}: {finding}"
        if text not in self._figures.findings:
            self._figures.findings.append(text)
            self._figures.by_kind[mode, getattr(finding, "kind", COMMANDS)] += 1

    @contextmanager
    def _started(self, command: tuple[str, ...]) -> Iterator[tuple[Any, Path]]:
        with tempfile.NamedTemporaryFile() as said, devnull() as nothing:
            process = start(
                self._scene.repo,
                *command,
                environ=self._scene.environment,
                streams=(nothing, said.fileno(), said.fileno()),
                own_session=True,
                server=_server(),
            )
            try:
                yield process, Path(said.name)
            finally:
                process.kill()
                process.wait(PATIENCE)


@cache
def _server() -> ProgramServer:
    """Return the loaded program, with the environment that a campaign has made for itself."""
    return ProgramServer()


def _chosen(name: str, pids: list[int], chance: random.Random) -> list[int]:
    return pids if name == "git" else [chance.choice(pids)]


def campaign(
    folder: Path,
    seed: int,
    *,
    kills: int,
    modes: Sequence[str] = tuple(MODES),
    each: int = 10,
    seen: Callable[[Figures], object] = str,
) -> Figures:
    """Play scenes in these modes by turns, until there were `kills`; `each` in a scene.

    After each scene `seen` gets the figures.
    """
    chance, figures = random.Random(seed), Figures()  # noqa: S311  moments, not secrets
    number = 0
    while figures.kills < kills:
        scene_seed, place = chance.randrange(1 << 30), folder / str(number)
        known = len(figures.findings)
        play_scene(place, scene_seed, modes[number % len(modes)], figures, min(each, kills - figures.kills))
        seen(figures)
        if len(figures.findings) == known:
            shutil.rmtree(place, ignore_errors=True)  # a thousand strikes make hundreds of repositories
        number += 1
    return figures


def play_scene(folder: Path, seed: int, mode: str, figures: Figures, kills: int) -> None:
    """Play one scene in a folder of its own."""
    folder.mkdir(parents=True)
    Play(prepare(folder, mode), seed, figures).run(kills)


def main() -> int:
    """Run a campaign from the command line, and print its figures."""
    parser = argparse.ArgumentParser(description="Strike runs at random moments and judge what is left.")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--each", type=int, default=10, help="strikes in one scene")
    parser.add_argument("--mode", choices=tuple(MODES), action="append")
    parser.add_argument("--scene", type=int, help="play this scene alone, in the mode given")
    parser.add_argument("--keep", type=Path, help="an empty folder for the repositories, which stay")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-", ignore_cleanup_errors=True) as temporary:
        folder = given.keep or Path(temporary)
        _own_environment(folder)
        modes = tuple(given.mode or MODES)
        sys.stdout.write(f"seed {given.scene or given.seed}\n")
        if given.scene:
            figures = Figures()
            play_scene(folder / "scene", given.scene, modes[0], figures, given.each)
        else:
            figures = campaign(
                folder, given.seed, kills=given.kills, modes=modes, each=given.each, seen=_show
            )
        sys.stdout.write(f"{figures}\n")
    return 1 if figures.findings else 0


def _show(figures: Figures) -> None:
    sys.stderr.write(f"{figures}\n")


def _own_environment(folder: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("GIT_", "AUTOPILOT"))]:
        del os.environ[name]
    home = folder / "home"
    home.mkdir(parents=True)
    os.environ.update(GIT_ENVIRONMENT)
    os.environ.update(HOME=str(home), XDG_CONFIG_HOME=str(home / "config"), XDG_DATA_HOME=str(home / "data"))
    os.environ.update(NO_COLOR="1", AUTOPILOT_MULTI_TRUST="always")


if __name__ == "__main__":
    sys.exit(main())
