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

from tests.acceptance.preloaded import SERVER, ProgramServer

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
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        if real_start or not server.can_run(environ):
            code = subprocess.run(
                command(*args),
                cwd=cwd,
                stdout=out,
                stderr=err,
                timeout=limit,
                check=False,
                stdin=subprocess.DEVNULL,
                env=environ,
            ).returncode
        else:
            code = server.run(
                args,
                cwd=cwd,
                env=environ,
                out=out.fileno(),
                err=err.fileno(),
                limit=limit,
                landlocks=landlocks,
            )
        return Ran(code=code, out=_text(out), err=_text(err))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


class Running:
    """The program beside the test: what it has narrated so far, signals to it, its end."""

    def __init__(self, process: "subprocess.Popen[str]", narration: Path) -> None:
        self._process = process
        self._narration = narration
        self.pid = process.pid

    @property
    def err(self) -> str:
        """What it has said on stderr so far."""
        return self._narration.read_text()

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
        out, _ = self._process.communicate(timeout=LIMIT)
        return Ran(code=self._process.returncode, out=out, err=self.err)


@contextmanager
def started(cwd: Path, *args: str, env: Mapping[str, str] | None = None) -> Iterator[Running]:
    """Run the program beside the test; whatever happens, it is gone afterwards."""
    with tempfile.NamedTemporaryFile() as narration:
        process = subprocess.Popen(
            command(*args),
            cwd=cwd,
            stdout=subprocess.PIPE,
            stderr=narration,
            text=True,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **(env or {})},
        )
        try:
            yield Running(process, Path(narration.name))
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            process.communicate(timeout=LIMIT)


class Screen:
    """The program on a terminal of its own, and all that it has drawn there."""

    def __init__(self, process: "subprocess.Popen[bytes]", descriptor: int) -> None:
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

    def close(self) -> None:
        """Take the terminal away."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@contextmanager
def on_terminal(cwd: Path, *args: str) -> Iterator[Screen]:
    """Run the program with a terminal for its narration; whatever happens, it is gone afterwards."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        command(*args),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        start_new_session=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
    )
    os.close(theirs)
    screen = Screen(process, ours)
    try:
        yield screen
    finally:
        screen.close()
        if process.poll() is None:
            process.kill()
        process.wait(LIMIT)


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
