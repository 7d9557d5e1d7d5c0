"""A run that meets a fault, is healed, and is brought to its end; what was said and left is judged."""

import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from tests.acceptance.program import Ran, run_in, started, wait_until
from tests.chaos.processes import send
from tests.chaos.scenes import Scene

LIMIT = 90.0
_ENDED = {0, 1, 2, 3, 4, 5}


def troubled(
    scene: Scene,
    fault: AbstractContextManager[None],
    *,
    after_sessions: int,
    env: Mapping[str, str] | None = None,
) -> Ran:
    """Run the backlog; the fault comes when so many sessions have ended, and stays until the run is over.

    With variables of its own the program is started by a new interpreter, which reads them.
    """
    surroundings, real = {**environment(scene), **(env or {})}, env is not None
    if not after_sessions:
        with fault:
            ran = run_in(scene.repo, *scene.arguments, environ=surroundings, limit=LIMIT, real_start=real)
            return said_clearly(ran)
    with started(scene.repo, *scene.arguments, environ=surroundings, real_start=real) as program:
        wait_until(lambda: _ended_sessions(scene) >= after_sessions, what="sessions have ended", limit=LIMIT)
        with fault:
            return said_clearly(program.finish())


def interrupted(scene: Scene, *, after_sessions: int) -> None:
    """Run the backlog and kill the coordinator when so many sessions have ended."""
    with started(scene.repo, *scene.arguments, environ=environment(scene)) as program:
        wait_until(lambda: _ended_sessions(scene) >= after_sessions, what="sessions have ended", limit=LIMIT)
        program.send(signal.SIGKILL)
    at_rest(scene)


def command(scene: Scene, *arguments: str, env: Mapping[str, str] | None = None) -> Ran:
    """Run one more command, which may be refused but never breaks down."""
    surroundings = {**environment(scene), **(env or {})}
    ran = run_in(scene.repo, *arguments, environ=surroundings, limit=LIMIT, real_start=env is not None)
    return said_clearly(ran)


def ends(scene: Scene, *, again: bool = False) -> int:
    """Resume until the run has ended; `again` allows a new run for what stays failed. Count the new runs.

    A new run asks before it repeats a story that failed: those that the fault has failed are repeated.
    """
    new_runs = 0
    for _ in range(12):
        at_rest(scene)
        kinds = [kind for _, kind, _ in scene.checker.rows()]
        asked = [story for story in scene.checker.questions() if story != "wrong"]
        if "RunStarted" not in kinds:
            command(scene, *scene.arguments)
        elif asked:
            command(scene, "decide", asked[0], "B" if asked[0] == "flow" else "A")
        elif kinds[-1] != "RunEnded" or _stopped(scene):
            command(scene, "resume")
        elif again and _unfinished(scene):
            new_runs += 1
            command(scene, *scene.arguments)
        else:
            break
    return new_runs


def judge(scene: Scene, *, excused: tuple[str, ...] = ()) -> list[str]:
    """Return what the checker finds at the very end."""
    at_rest(scene)
    return [one for one in scene.checker.at_rest(last=True) if not any(word in one for word in excused)]


def at_rest(scene: Scene) -> None:
    """Wait until no process of a run is left."""
    deadline = time.monotonic() + 15
    while left := scene.checker.processes():
        if time.monotonic() > deadline:
            send([pid for pid, _ in left], signal.SIGKILL)
            raise AssertionError(f"processes are left: {left}")
        time.sleep(0.02)


def said_clearly(ran: Ran) -> Ran:
    """Check that a command ended by itself, and that whatever failed was said in words."""
    assert ran.code in _ENDED, f"exit code {ran.code}: {ran.err}"
    assert "Traceback" not in ran.err + ran.out, ran.err
    if ran.code in {1, 2}:
        assert ran.err.strip(), "it failed and said nothing"
    return ran


def environment(scene: Scene) -> dict[str, str]:
    """Return the environment of a scene, with a temporary folder of its own."""
    temporary = scene.repo.with_name("temporary")
    temporary.mkdir(exist_ok=True)
    return {**scene.environment, "TMPDIR": str(temporary)}


def limited(scene: Scene, limits: str, *arguments: str) -> Ran:
    """Run the program under limits of the shell (`ulimit`)."""
    from tests.acceptance.program import command as argv

    done = subprocess.run(
        ["sh", "-c", f'{limits}; exec "$@"', "sh", *argv(*arguments)],
        cwd=scene.repo,
        env={**environment(scene), "PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    return said_clearly(Ran(code=done.returncode, out=done.stdout, err=done.stderr))


def some_have_ended(scene: Scene, sessions: int, *, limit: float) -> None:
    """Wait until so many more sessions have ended, or for `limit` seconds: a run may have fewer left."""
    goal, deadline = _ended_sessions(scene) + sessions, time.monotonic() + limit
    while _ended_sessions(scene) < goal and time.monotonic() < deadline:
        time.sleep(0.02)


def _ended_sessions(scene: Scene) -> int:
    return sum(kind == "SessionEnded" for _, kind, _ in scene.checker.rows())


def _stopped(scene: Scene) -> bool:
    return "stopped" in scene.checker.verdicts().values()


def _unfinished(scene: Scene) -> bool:
    verdicts = scene.checker.verdicts()
    return any(verdicts.get(name) != "done" for name in ("base", "next", "twice", "daemon", "flow"))
