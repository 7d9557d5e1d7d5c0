"""The real program on a real repository: how acceptance tests start it and read what it says."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests.acceptance.preloaded import SERVER, Forked, ProgramServer

LIMIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one invocation of the program left: exit code, answer and narration."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout; anything else there is a failure."""
        loaded: dict[str, Any] = json.loads(self.out)
        return loaded

    @property
    def data(self) -> dict[str, Any]:
        """The document's data."""
        data: dict[str, Any] = self.document["data"]
        return data

    def story(self, story_id: str) -> dict[str, Any]:
        """One story of the document."""
        found: dict[str, Any] = next(story for story in self.data["stories"] if story["id"] == story_id)
        return found


def command(*args: str) -> list[str]:
    """Return the argv that starts the program as a user would, with this interpreter."""
    return [sys.executable, "-m", "runner", *args]


def run(
    cwd: Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    limit: float = LIMIT,
    real_start: bool = False,
) -> Ran:
    """Run the program to its end, in a process of its own; with `real_start` by a new interpreter."""
    return run_in(cwd, *args, environ={**os.environ, **(env or {})}, limit=limit, real_start=real_start)


def run_in(
    cwd: Path,
    *args: str,
    environ: Mapping[str, str],
    limit: float = LIMIT,
    real_start: bool = False,
    server: ProgramServer = SERVER,
    landlocks: int = 0,
) -> Ran:
    """Run the program to its end in an environment that is given whole."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, devnull() as nothing:
        process = start(
            cwd,
            *args,
            environ=environ,
            streams=(nothing, out.fileno(), err.fileno()),
            real_start=real_start,
            server=server,
            landlocks=landlocks,
        )
        try:
            code = process.wait(limit)
        except BaseException:
            process.kill()
            process.wait()
            raise
        return Ran(code=code, out=_text(out), err=_text(err))


def start(
    cwd: Path,
    *args: str,
    environ: Mapping[str, str],
    streams: tuple[int, int, int],
    real_start: bool = False,
    own_session: bool = False,
    server: ProgramServer = SERVER,
    landlocks: int = 0,
) -> "Forked | subprocess.Popen[bytes]":
    """Start the program with these streams: forked from one that is loaded, unless that would differ."""
    if not real_start and server.can_run(environ):
        return server.start(
            args, cwd=cwd, env=environ, streams=streams, landlocks=landlocks, own_session=own_session
        )
    stdin, stdout, stderr = streams
    return subprocess.Popen(
        command(*args),
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=environ,
        start_new_session=own_session,
    )


@contextmanager
def devnull() -> Iterator[int]:
    """Open the null device."""
    with Path(os.devnull).open("r+b") as file:
        yield file.fileno()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class Running:
    """The program beside the test: what it has narrated so far, signals to it, its end."""

    def __init__(self, process: "Forked | subprocess.Popen[bytes]", out: Path, err: Path) -> None:
        self._process = process
        self._out = out
        self._err = err
        self.pid = process.pid

    @property
    def err(self) -> str:
        """What it has said on stderr so far."""
        return self._err.read_text()

    @property
    def out(self) -> str:
        """What it has answered on stdout so far."""
        return self._out.read_text()

    def send(self, number: signal.Signals) -> None:
        """Send one signal to the program alone."""
        self._process.send_signal(number)

    def send_and_await(self, number: signal.Signals, answer: str) -> None:
        """Send a signal and wait until it has said that it took it."""
        before = self.err.count(answer)
        self.send(number)
        wait_until(lambda: self.err.count(answer) > before, what=f"it says '{answer}'")

    def finish(self) -> Ran:
        """Await its end."""
        return Ran(code=self._process.wait(LIMIT), out=self._out.read_text(), err=self.err)


@contextmanager
def started(
    cwd: Path,
    *args: str,
    env: Mapping[str, str] | None = None,
    environ: Mapping[str, str] | None = None,
    real_start: bool = False,
) -> Iterator[Running]:
    """Run the program beside the test; whatever happens, it is gone afterwards.

    Its environment is that of the test with `env`, or `environ` whole.
    """
    with (
        tempfile.NamedTemporaryFile() as out,
        tempfile.NamedTemporaryFile() as err,
        devnull() as nothing,
    ):
        process = start(
            cwd,
            *args,
            environ={**os.environ, **(env or {})} if environ is None else environ,
            streams=(nothing, out.fileno(), err.fileno()),
            own_session=True,
            real_start=real_start,
        )
        try:
            yield Running(process, Path(out.name), Path(err.name))
        finally:
            process.kill()
            process.wait(LIMIT)


class Screen:
    """The program on a terminal of its own, and all that it has drawn there."""

    def __init__(self, process: "Forked | subprocess.Popen[bytes]", descriptor: int) -> None:
        self.process = process
        self._descriptor: int | None = descriptor
        self._drawn = b""

    def await_text(self, text: str) -> None:
        """Read what is drawn until `text` was."""
        deadline = time.monotonic() + LIMIT
        while text.encode() not in self._drawn:
            left = deadline - time.monotonic()
            assert self._descriptor is not None
            if not select.select([self._descriptor], [], [], max(0.0, left))[0]:
                raise AssertionError(f"gave up waiting until the screen shows {text!r}")
            self._drawn += os.read(self._descriptor, 1 << 16)

    @property
    def rang(self) -> bool:
        """Whether the bell has rung in what was read."""
        return b"\a" in self._drawn

    def close(self) -> None:
        """Take the terminal away."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def on_terminal(cwd: Path, *args: str, term: str = "xterm", keys: bool = False) -> Iterator[Screen]:
    """Run the program with a terminal for its narration, or also for `keys`; it is gone afterwards."""
    ours, theirs = os.openpty()
    with devnull() as nothing:
        process = start(
            cwd,
            *args,
            environ={**os.environ, "TERM": term, "COLUMNS": "80", "LINES": "24"},
            streams=(theirs if keys else nothing, nothing, theirs),
            own_session=True,
        )
    os.close(theirs)
    screen = Screen(process, ours)
    try:
        yield screen
    finally:
        screen.close()
        process.kill()
        process.wait(LIMIT)


def answered(cwd: Path, *args: str, typed: str) -> tuple[int, str]:
    """Run the program at a terminal where a user types; return the exit code and what was shown."""
    leader, follower = os.openpty()
    process = subprocess.Popen(command(*args), cwd=cwd, stdin=follower, stdout=follower, stderr=follower)
    os.close(follower)
    os.write(leader, typed.encode())
    shown = b""
    try:
        while part := os.read(leader, 4096):
            shown += part
    except OSError:
        pass  # a terminal ends with an error, not with an end
    os.close(leader)
    return process.wait(timeout=LIMIT), shown.decode().replace("\r\n", "\n")


def wait_until(condition: Callable[[], object], *, what: str, limit: float = 30.0) -> None:
    """Await something another process does and nobody can announce."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"gave up waiting until {what}")
        time.sleep(0.02)


def write_story(root: Path, story_id: str, *, body: str = "Do it.", **keys: object) -> Path:
    """Write one story file; keys are its front matter."""
    path = root / "stories" / f"{story_id}.md"
    path.parent.mkdir(exist_ok=True)
    front = "".join(f"{name}: {json.dumps(value)}\n" for name, value in keys.items())
    path.write_text(f"---\n{front}---\n{body}\n", encoding="utf-8")
    return path


def writes(name: str, text: str = "made") -> str:
    """Return a command that makes one file."""
    return f"echo {text} > {name}"


def commit_stories(root: Path) -> None:
    """Commit the stories, so that the checkout is clean and worktrees have them too."""
    for args in (["add", "-A"], ["commit", "-q", "-m", "stories"]):
        subprocess.run(["git", *args], cwd=root, check=True)


def processes_with(marker: str) -> list[int]:
    """Find live processes whose command line holds `marker`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marker in line and state != "Z":
                found.append(int(entry.name))
    return found
