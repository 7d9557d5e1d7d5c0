"""The program in a real process of its own, without the time that Python takes to load it.

About six hundred starts of the program made up a third of the suite, and nearly all of that was loading
modules. Here one process per test worker loads them once and forks for each command: the child has its own
arguments, folder, environment, streams and exit code, and enters through the program's own entrance. What a
test changes in the environment that counts while Python starts (the locale, PYTHON*, which git is found)
needs a real start; `can_run` says so.

The server has one thread, so its children may do all that the program does, trio and threads included.
"""

import atexit
import gc
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).parents[2]
_AT_START = ("LANG", "LC_", "PYTHON", "TZ", "LD_")
"""Variables that count when Python starts, or when a module is loaded."""


def _starting(environ: Mapping[str, str], root: Path) -> dict[str, str | None]:
    found: dict[str, str | None] = {
        name: value
        for name, value in environ.items()
        # The server runs in the folder of the packages, so this one adds nothing.
        if name.startswith(_AT_START) and (name, value) != ("PYTHONPATH", str(root))
    }
    # git is looked up once, when it is first needed; all other programs each time.
    return {**found, "git": shutil.which("git", path=environ.get("PATH"))}


class ProgramServer:
    """One server, started when it is first needed, gone with the process that started it.

    `root` holds the packages, and this module; with `uid` everything belongs to another user.
    """

    def __init__(
        self,
        *,
        python: str = sys.executable,
        root: Path = ROOT,
        environ: Mapping[str, str] | None = None,
        uid: int | None = None,
    ) -> None:
        self._python = python
        self._root = root
        self._environ = dict(os.environ if environ is None else environ)
        self._uid = uid
        self._process: subprocess.Popen[bytes] | None = None
        self._ours: socket.socket | None = None

    def can_run(self, environ: Mapping[str, str]) -> bool:
        """Whether a process forked from the server would see this environment as a real start does."""
        return _starting(environ, self._root) == _starting(self._environ, self._root)

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        out: int,
        err: int,
        limit: float,
        landlocks: int = 0,
    ) -> int:
        """Run the program to its end; after `limit` seconds it is killed and `TimeoutError` raised.

        Before it starts, it is within as many Landlocks that close nothing, see `people`.
        """
        connection = self._connection()
        request = json.dumps(
            {"argv": list(argv), "cwd": str(cwd), "env": dict(env), "landlocks": landlocks}
        ).encode()
        socket.send_fds(connection, [len(request).to_bytes(4, "big")], [out, err])
        connection.sendall(request)
        connection.settimeout(limit)
        pid = int.from_bytes(exactly(connection, 4), "big")
        try:
            return int.from_bytes(exactly(connection, 4), "big", signed=True)
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            connection.settimeout(None)
            exactly(connection, 4)
            raise

    def _connection(self) -> socket.socket:
        if self._ours is None:
            self._ours, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [self._python, "-m", "tests.acceptance.preloaded", str(theirs.fileno())],
                    cwd=self._root,
                    env=self._environ,
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    user=self._uid,
                    group=self._uid,
                    extra_groups=None if self._uid is None else [],
                )
            atexit.register(self.close)
        return self._ours

    def close(self) -> None:
        """End the server; it leaves when its connection is closed."""
        if self._ours is not None and self._process is not None:
            self._ours.close()
            self._process.wait()
            self._ours = None


SERVER = ProgramServer()


def exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _serve(connection: socket.socket) -> None:
    while True:
        head, descriptors, _, _ = socket.recv_fds(connection, 4, 2)
        if not head:
            return
        request = json.loads(exactly(connection, int.from_bytes(head, "big")))
        pid = os.fork()
        if not pid:
            connection.close()
            become_program(request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.sendall(pid.to_bytes(4, "big"))
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        connection.sendall(code.to_bytes(4, "big", signed=True))


def become_program(request: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    os.setpgid(0, 0)  # as a shell starts a program: what it sends to its group reaches nobody else
    for descriptor, stream in zip(descriptors, (1, 2), strict=True):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for _ in range(request["landlocks"]):
        from isolation.kernel import landlock

        landlock.restrict([b"/nowhere"], [])
    sys.argv = [sys.argv[0], *request["argv"]]
    sys.orig_argv[:] = [sys.executable, "-m", "runner", *request["argv"]]
    from runner.__main__ import main

    try:
        main()
    except SystemExit as leaving:
        _leave(leaving)
    raise AssertionError("main() leaves by itself")


def _leave(leaving: SystemExit) -> NoReturn:
    """Do what Python does at its end, but do not take all modules apart: that took most of a short command."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        raise leaving from None  # Python knows what that means
    if not isinstance(leaving.code, int):
        raise leaving
    os._exit(leaving.code)


def preload() -> None:
    """Load every module of the program, in this process and before any fork."""
    from importlib import import_module

    import psutil  # noqa: F401  as the next one, the program loads it when it is first needed

    for package in ("isolation", "runner"):
        for path in sorted(Path(package).rglob("*.py")):
            name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
            if not name.endswith("__main__"):
                import_module(name)
    from isolation.git.repository import _git_class

    _git_class()
    gc.freeze()  # what is loaded is shared with every child, as long as no search for garbage touches it


if __name__ == "__main__":
    preload()
    with socket.socket(fileno=int(sys.argv[1])) as _connection:
        _serve(_connection)
