"""What browsers cost: the processor time of a run with many stories, without and with pages that watch it.

All stories run at the same time. Sessions print the time, so that each line that reaches a browser says how
old it is. One more browser reads nothing: it is dropped, while the others are served.
"""

import argparse
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from runner.serve.web.access.address import read_address
from tests.acceptance.program import wait_until, write_story
from tests.acceptance.test_web import Socket, has_stream
from tests.bench import record
from tests.conftest import GIT_ENVIRONMENT, begin_repository, git
from tests.serve.web.project import served

ROOT = Path(__file__).resolve().parents[2]
BENCH = "bench_web"
MOST_EXTRA = 0.03
MOST_AGE = 1.0
MOST_MEMORY = 150.0
START_SECONDS = 600.0
DROP_SECONDS = 120.0
_STAMP = re.compile(r"(\d{10}\.\d+)")
_WORKING = re.compile(r'id="count-working" class="count">(\d+)<')


class Reader(threading.Thread):
    """One browser: reads all that it is sent, and notes how old each line in it is."""

    def __init__(self, browser: Socket) -> None:
        super().__init__(daemon=True)
        self.link = browser.watch("/events?page=board")
        self.ages: list[float] = []
        self.amount = 0
        self._rest = b""

    def run(self) -> None:
        """Read until the server ends."""
        try:
            while part := self.link.recv(1 << 18):
                self.amount += len(part)
                *whole, self._rest = (self._rest + part).split(b"\n\n")
                self._note(whole)
        except OSError:
            pass

    def _note(self, messages: Sequence[bytes]) -> None:
        """Note the age of each line that is new; the first message, which has no time, has old ones."""
        now = time.time()
        for message in messages:
            told = json.loads(message.partition(b"data: ")[2] or b"{}")  # before it is the length of a chunk
            lines = [html for name, html in told.get("html", {}).items() if name.startswith("line-")]
            if "at" in told:
                self.ages += [now - float(found[1]) for html in lines if (found := _STAMP.search(html))]

    def leave(self) -> None:
        """Close the page."""
        self.link.shutdown(socket.SHUT_RDWR)
        self.join()
        self.link.close()


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured; shares are of one core."""

    running: int
    alone: float
    watched: float
    again: float
    serving: float
    resident: float
    ages: Sequence[float]
    each: float
    dropped_after: float | None

    @property
    def extra(self) -> float:
        """How much more the coordinator needs while it is watched."""
        return self.watched - min(self.alone, self.again)

    @property
    def oldest(self) -> float:
        """The age below which 99 of 100 lines are."""
        return self.ages[int(len(self.ages) * 0.99)]

    def held(self) -> bool:
        """Whether everything is within its limit."""
        within = self.extra < MOST_EXTRA and self.oldest < MOST_AGE and self.resident < MOST_MEMORY
        return within and self.dropped_after is not None


def spent(pid: int) -> float:
    """Return the processor time of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def share(seconds: float, *pids: int) -> list[float]:
    """Wait; return the part of a core that each process has used meanwhile."""
    before = [spent(pid) for pid in pids]
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    return [(spent(pid) - start) / took for pid, start in zip(pids, before, strict=True)]


def main(arguments: Sequence[str] = ()) -> bool:
    """Measure, print the figures, and return whether they are within their limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stories", type=int, default=200)
    parser.add_argument("--browsers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args(arguments)
    os.environ.update({**GIT_ENVIRONMENT, "AUTOPILOT_MULTI_TRUST": "always"})
    with tempfile.TemporaryDirectory() as place:
        repo = Path(place) / "repo"
        slots = f"max-stories = {given.stories}\n"
        limits = f'{slots}window = "fixed"\nguard = false\nbase-check = "off"\n'
        begin_repository(repo, {"autopilot-multi.toml": limits})
        for number in range(given.stories):
            begun = f"touch {place}/begun-{number}"
            loop = f"{begun}; while true; do date +%s.%N; sleep 4; done"
            write_story(repo, f"story-{number:03}", title=f"Story {number}", command=loop)
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "stories")
        with running(repo, given.stories) as pid, served(repo) as (url, _):
            figures = measure(repo, pid, url, given)
    sys.stdout.write(_report(figures, given))
    record.compare(BENCH, "coordinator with 20 browsers / alone", [figures.watched / figures.alone])
    return figures.held()


@contextmanager
def running(repo: Path, slots: int) -> Iterator[int]:
    """Start the run with a slot for each story; yields the pid of the coordinator."""
    argv = [sys.executable, "-m", "tests.bench.many_slots", str(slots), "run", "-q", "-C", str(repo)]
    process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        yield process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(START_SECONDS)


def measure(repo: Path, coordinator: int, url: str, given: argparse.Namespace) -> Figures:
    """Compare the run alone with the run that is watched."""
    browser = Socket(url)

    def working() -> int:
        found = _WORKING.search(browser.ask("GET", "/")[2])
        return int(found[1]) if found else 0

    def begun() -> int:
        return len([*repo.parent.glob("begun-*")])

    wait_until(lambda: begun() == given.stories, what="all stories run", limit=START_SECONDS)
    time.sleep(given.seconds)
    (alone,) = share(given.seconds, coordinator)
    address = read_address(repo / ".git")
    assert address is not None
    readers = [Reader(browser) for _ in range(given.browsers)]
    for reader in readers:
        reader.start()
    with closing(browser.watch("/events?page=board")) as stalled:
        began = time.monotonic()
        share(3)
        watched, serving = share(given.seconds, coordinator, address.pid)
        resident = psutil.Process(address.pid).memory_info().rss / 2**20
        dropped = drop_time(browser.place.port or 0, stalled, began)
    served_until = min(len(reader.ages) for reader in readers)
    wait_until(
        lambda: all(len(reader.ages) > served_until for reader in readers), what="the others are served"
    )
    found = working()
    for reader in readers:
        reader.leave()
    (again,) = share(given.seconds, coordinator)
    return Figures(
        running=found,
        alone=alone,
        watched=watched,
        again=again,
        serving=serving,
        resident=resident,
        ages=sorted(age for reader in readers for age in reader.ages),
        each=readers[0].amount / (time.monotonic() - began - given.seconds) / 1024,
        dropped_after=dropped,
    )


def drop_time(port: int, link: socket.socket, began: float) -> float | None:
    """Return after how many seconds the server has given up a browser that reads nothing; None if not."""
    while has_stream(port, link):
        if time.monotonic() - began > DROP_SECONDS:
            return None
        time.sleep(0.2)
    return time.monotonic() - began


def _report(found: Figures, given: argparse.Namespace) -> str:
    dropped = "never" if found.dropped_after is None else f"after {found.dropped_after:.0f} s"
    return (
        f"{found.running} of {given.stories} stories run, {given.browsers} browsers\n"
        f"coordinator alone {found.alone:.1%} of a core, watched {found.watched:.1%}, "
        f"alone again {found.again:.1%}; limit {MOST_EXTRA:.0%} more\n"
        f"server {found.serving:.1%} of a core, {found.resident:.0f} MiB; limit {MOST_MEMORY:.0f} MiB\n"
        f"age of a line when it arrives: median {statistics.median(found.ages):.2f} s, "
        f"99 of 100 below {found.oldest:.2f} s; limit {MOST_AGE:.0f} s\n"
        f"each browser {found.each:.0f} KiB/s; one that reads nothing is dropped {dropped}\n"
    )


if __name__ == "__main__":
    sys.exit(not main(sys.argv[1:]))
