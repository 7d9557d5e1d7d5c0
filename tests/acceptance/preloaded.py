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
import select
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

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        landlocks: int = 0,
        own_session: bool = False,
    ) -> "Forked":
        """Start the program with these streams, in a session of its own if it is to have one.

        Before it starts, it is within as many Landlocks that close nothing, see `people`.
        """
        connection = self._connection()
        request = json.dumps(
            {
                "argv": list(argv),
                "cwd": str(cwd),
                "env": dict(env),
                "landlocks": landlocks,
                "own_session": own_session,
            }
        ).encode()
        ours, theirs = socket.socketpair()
        with theirs:
            socket.send_fds(connection, [len(request).to_bytes(4, "big")], [*streams, theirs.fileno()])
            connection.sendall(request)
        return Forked(ours)

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


class Forked:
    """A program that was forked from a server; it can be used like `subprocess.Popen`."""

    def __init__(self, answers: socket.socket) -> None:
        self._answers = answers
        self.pid = int.from_bytes(exactly(answers, 4), "big")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return its exit code, negative for a signal; None while it runs."""
        with suppress(TimeoutError):
            self.wait(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Await its end; `TimeoutError` if that takes too long."""
        if self.returncode is None:
            if not select.select([self._answers], [], [], timeout)[0]:
                raise TimeoutError(f"it has not ended after {timeout} s")
            with self._answers:
                self.returncode = int.from_bytes(exactly(self._answers, 4), "big", signed=True)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to it alone, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)


def _serve(connection: socket.socket) -> None:
    """Fork for every request until the connection is closed; tell each caller how its program ended."""
    woken, waking = os.pipe()
    os.set_blocking(waking, False)
    signal.set_wakeup_fd(waking)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    callers: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([connection.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 512)
            _answer(callers)
        if connection.fileno() in ready:
            head, descriptors, _, _ = socket.recv_fds(connection, 4, 4)
            if not head:
                return
            request = json.loads(exactly(connection, int.from_bytes(head, "big")))
            pid = os.fork()
            if not pid:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for other in (connection, *callers.values()):
                    other.close()
                for descriptor in (woken, waking, descriptors[3]):
                    os.close(descriptor)
                become_program(request, descriptors[:3])
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            callers[pid] = socket.socket(fileno=descriptors[3])
            callers[pid].sendall(pid.to_bytes(4, "big"))


def _answer(callers: dict[int, socket.socket]) -> None:
    """Send the exit codes of programs that have ended to their callers."""
    for pid in list(callers):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            with callers.pop(pid) as caller, suppress(BrokenPipeError):  # it may have given up
                caller.sendall(code.to_bytes(4, "big", signed=True))


def become_program(request: dict[str, Any], descriptors: Sequence[int]) -> NoReturn:
    """Be the program in this process, with these descriptors as its streams."""
    if request["own_session"]:
        os.setsid()
    else:
        os.setpgid(0, 0)  # as a shell starts a program: what it sends to its group reaches nobody else
    for stream, descriptor in enumerate(descriptors):
        os.dup2(descriptor, stream)
        os.close(descriptor)
    _open_streams()
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


def _open_streams() -> None:
    """Open the streams as Python does when it starts: it remembers what they are, such as a terminal."""
    for descriptor, (name, mode, buffering) in enumerate(
        (("stdin", "r", -1), ("stdout", "w", -1), ("stderr", "w", 1))
    ):
        before = getattr(sys, name)
        stream = os.fdopen(
            descriptor, mode, buffering, encoding=before.encoding, errors=before.errors, closefd=False
        )
        for one in (name, f"__{name}__"):
            setattr(sys, one, stream)


def _leave(leaving: SystemExit) -> NoReturn:
    """Do what Python does at its end, but leave the modules as they are: freeing them takes longest."""
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
    gc.freeze()  # what is loaded is shared with every child, as long as no search for garbage touches it


if __name__ == "__main__":
    preload()
    with socket.socket(fileno=int(sys.argv[1])) as _connection:
        _serve(_connection)
