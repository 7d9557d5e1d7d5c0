"""Process trees that resist being ended, a way to see what is left of them, and a coordinator to kill.

As a program: `keeper_scenes.py FOLDER SHAPE TOKEN GRACE [UID]` starts one such tree under a keeper,
says `up`, and then stops it after GRACE seconds and says how it ended, or with GRACE `never` waits to
be killed. With a UID it first becomes that user.
"""

import os
import sys
from pathlib import Path

import trio

from isolation.keeper.client import Keeper, Session, open_keeper
from isolation.model import SessionSpec

PROGRAM = r"""
import os, signal, sys, threading, time
shape, token = sys.argv[1:]

def rest(ready=True):
    if ready:
        os.write(1, b"ready\n")
    while True:
        signal.pause()

def deaf():
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)

def daemon():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            return True
        os._exit(0)
    os.wait()
    return False

if shape == "rest":
    rest()
elif shape == "plain":
    if os.fork() == 0:
        rest(ready=os.fork() == 0)
elif shape == "threaded":
    fork = lambda: os.fork() == 0 and rest()
    threading.Thread(target=lambda: (fork(), time.sleep(1000))).start()
elif shape == "setsid":
    if os.fork() == 0:
        os.setsid()
        rest()
elif shape == "double-fork":
    daemon() and rest()
elif shape == "scrubbed":
    if daemon():
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:-2], "rest", token], {})
elif shape == "deaf":
    deaf()
    if os.fork() == 0:
        daemon() and rest()
elif shape == "stopped":
    if (child := os.fork()) == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
    os.waitpid(child, os.WUNTRACED)
    rest()
elif shape in ("reforking", "frantic"):
    deaf()
    if daemon():
        os.write(1, b"ready\n")
        while True:
            if shape == "reforking":
                time.sleep(0.001)
            if os.fork():
                os._exit(0)
elif shape == "foreign":
    if daemon():
        command = [sys.executable, *sys.orig_argv[1:-2], "rest", token]
        os.execv("./setpriv", ["setpriv", "--reuid=0", "--regid=0", "--clear-groups", *command])
elif shape == "leaves-daemon":
    deaf()
    if daemon():
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:-2], "rest", token])
    os._exit(7)
rest(ready=False)
"""

UNTIL_GO = "until [ -e go ]; do sleep 0.01; done"
"""For a shell: go on when the test makes the file `go` in the session's folder."""

SHAPES = (
    "plain",
    "threaded",
    "setsid",
    "double-fork",
    "scrubbed",
    "deaf",
    "stopped",
    "reforking",
    "frantic",
)
DEAF_SHAPES = frozenset({"deaf", "reforking", "frantic"})


def spec(folder: Path, *argv: str, env: dict[str, str] | None = None, prompt: str = "") -> SessionSpec:
    """Order a session in a folder, with a prompt of its own."""
    path = folder / "prompt"
    path.write_text(prompt)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C"} if env is None else env
    return SessionSpec(argv=argv, cwd=folder, env=environment, prompt=path)


def shape_spec(folder: Path, shape: str, token: str) -> SessionSpec:
    """Order a tree of that shape; each of its processes has the token on its command line."""
    return spec(folder, sys.executable, "-I", "-S", "-c", PROGRAM, shape, token)


def living(token: str) -> list[int]:
    """Find the processes with the token on their command line, whatever their parent is now."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and int(folder.name) != os.getpid():
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            # The coordinator's own words hold it too; a member of the tree has it last.
            if words[-2:-1] == [token.encode()]:
                found.append(int(folder.name))
    return found


async def ready(session: Session) -> None:
    """Wait until the whole tree stands."""
    seen = b""
    while b"ready\n" not in seen:
        chunk = await session.receive()
        assert chunk, f"ended before it was ready: {seen!r}"
        seen += chunk


def become(uid: int) -> None:
    """Become an ordinary user, with an interpreter that this user may execute."""
    os.setgroups([])
    os.setgid(uid)
    os.setuid(uid)
    candidates = (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3")
    sys.executable = next((path for path in candidates if os.access(path, os.X_OK)), "")


async def coordinate(folder: Path, shape: str, token: str, grace: str) -> None:
    """Carry one tree until told otherwise."""
    async with open_keeper(alive_lock=folder / "alive.lock") as keeper:
        await _carry(keeper, shape_spec(folder, shape, token), token, grace)


async def _carry(keeper: Keeper, order: SessionSpec, token: str, grace: str) -> None:
    async with keeper.start(order) as session:
        await ready(session)
        os.write(1, b"up\n")
        if grace == "never":
            await trio.sleep_forever()
        session.stop(grace=float(grace))
        ended = await session.wait()
        left = [pid for _ in range(20) for pid in living(token)]
        os.write(1, f"stopped={ended.stopped} survivors={ended.survivors} left={left}\n".encode())


if __name__ == "__main__":
    place, wanted, mark, patience, *user = sys.argv[1:]
    if user:
        become(int(user[0]))
    trio.run(coordinate, Path(place), wanted, mark, patience)
