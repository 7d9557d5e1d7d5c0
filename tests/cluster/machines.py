"""A cluster of real processes on loopback: a Dask scheduler, and workers with their own folders and homes."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.acceptance.program import LIMIT, command, wait_until
from tests.conftest import git

_AS_VERSION = """
import sys, importlib.metadata as metadata, runpy
number, known = sys.argv.pop(1), metadata.version
metadata.version = lambda name: number if name == "autopilot-multi" else known(name)
runpy.run_module("runner", run_name="__main__", alter_sys=True)
"""
"""Starts the program as if it were another version."""


class Machines:
    """The processes of one cluster; `file` is what `--cluster` gets."""

    def __init__(self, folder: Path, scheduler_options: tuple[str, ...] = ()) -> None:
        self.file = folder / "scheduler.json"
        self.folder = folder
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.start_scheduler(0, *scheduler_options)

    def start_scheduler(self, port: int, *options: str) -> None:
        """Start the scheduler, or start it again where it was; wait until it serves."""
        folder = self.folder
        self.file.unlink(missing_ok=True)
        argv = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1"]
        argv += ["--port", str(port), "--no-dashboard", "--scheduler-file", str(self.file), *options]
        with (folder / "scheduler.log").open("wb") as log:
            self.scheduler = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
        wait_until(self._serves, what="the scheduler serves")

    def _serves(self) -> bool:
        if self.scheduler.poll() is not None:
            raise AssertionError((self.folder / "scheduler.log").read_text())
        return self.file.exists() and bool(self.file.read_text().strip())

    @property
    def address(self) -> str:
        """The scheduler's address."""
        address: str = json.loads(self.file.read_text())["address"]
        return address

    def log(self, name: str) -> str:
        """Return what a worker has printed."""
        return (self.folder / f"{name}.log").read_text()

    @property
    def port(self) -> int:
        """The scheduler's port."""
        return int(self.address.rpartition(":")[2])

    def start(self, name: str, *options: str, version: str = "", address: str = "") -> None:
        """Start a worker, perhaps again, as another version or by another way; wait until it has joined."""
        before = self.launch(name, *options, version=version, address=address)
        wait_until(lambda: "waits for stories" in self.log(name)[before:], what=f"{name} waits for stories")

    def launch(self, name: str, *options: str, version: str = "", address: str = "") -> int:
        """Start a worker; return how much it had printed before."""
        home = self.folder / f"home-{name}"
        home.mkdir(exist_ok=True)
        own = {"HOME": str(home), "XDG_CONFIG_HOME": "", "XDG_DATA_HOME": str(home / "share")}
        path = self.folder / f"{name}.log"
        with path.open("ab") as log:
            before = path.stat().st_size
            argv = command("worker", address or str(self.file), "--name", name, *options)
            if version:
                argv[1:3] = ["-c", _AS_VERSION, version]
            self.workers[name] = subprocess.Popen(
                argv, cwd=home, stdout=log, stderr=log, env={**os.environ, **own}, start_new_session=True
            )
        return before

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a worker's process alone; its keepers end what it started."""
        self.workers[name].send_signal(number)
        if number is signal.SIGKILL:
            self.workers[name].wait(LIMIT)

    def clone(self, name: str) -> Path:
        """Return a worker's clone."""
        (found,) = (self.folder / f"home-{name}").rglob("repo/.git")
        return found.parent

    def close(self) -> None:
        """End all processes."""
        for process in (*self.workers.values(), self.scheduler):
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in (*self.workers.values(), self.scheduler):
            try:
                process.wait(LIMIT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(LIMIT)


@contextmanager
def machines(folder: Path, *workers: str, options: tuple[str, ...] = ()) -> Iterator[Machines]:
    """Run a scheduler and workers beside the test; whatever happens, they are gone afterwards."""
    folder.mkdir()
    cluster = Machines(folder)
    try:
        for name in workers:
            cluster.start(name, *options)
        yield cluster
    finally:
        cluster.close()


def events(repo: Path) -> list[dict[str, Any]]:
    """Return what the journal has, as a file of SQLite; nothing before a run has made one."""
    if not (repo / ".git/autopilot/journal.db").exists():
        return []
    with closing(sqlite3.connect(repo / ".git/autopilot/journal.db")) as journal:
        if not journal.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchone():
            return []
        rows = journal.execute("SELECT kind, data FROM events ORDER BY seq").fetchall()
    return [{"kind": kind, "data": json.loads(data)} for kind, data in rows]


def moments(repo: Path, kind: str, **data: str) -> list[float]:
    """Return when events of a kind, and with this data, happened; oldest first."""
    with closing(sqlite3.connect(repo / ".git/autopilot/journal.db")) as journal:
        rows = journal.execute("SELECT at, data FROM events WHERE kind = ? ORDER BY seq", (kind,)).fetchall()
    return [at for at, text in rows if data.items() <= json.loads(text).items()]


def trees(repo: Path) -> dict[str, str]:
    """Return the tree of every story's branch."""
    lines = git(repo, "for-each-ref", "--format=%(refname:short) %(tree)", "refs/heads/autopilot").split("\n")
    return dict(line.split() for line in lines if line)
