"""What browsers cost: the processor time of a run with many stories, without and with pages that watch it.

Sessions print the time, so that each line that reaches a browser says how old it is.
"""

import argparse
import os
import re
import signal
import socket
import statistics
import tempfile
import threading
import time
from pathlib import Path

import psutil

from runner.serve.web.access.address import read_address
from tests.acceptance.program import started, wait_until, write_story
from tests.acceptance.test_web import Socket
from tests.conftest import GIT_ENVIRONMENT, begin_repository, git
from tests.serve.web.project import served

MOST_SLOTS = 50
_STAMP = re.compile(rb"(\d{10}\.\d+)")


class Reader(threading.Thread):
    """One browser: reads all that it is sent, and notes how old the newest line in it is."""

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
                for message in whole:
                    stamps = [float(found) for found in _STAMP.findall(message.partition(b'"html"')[2])]
                    if stamps and b'"at"' in message:
                        self.ages.append(time.time() - max(stamps))
        except OSError:
            pass


def spent(pid: int) -> float:
    """Return the processor time of a process so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stories", type=int, default=200)
    parser.add_argument("--browsers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    os.environ.update({**GIT_ENVIRONMENT, "AUTOPILOT_MULTI_TRUST": "always"})
    with tempfile.TemporaryDirectory() as place:
        repo = Path(place) / "repo"
        slots = f"max-stories = {min(given.stories, MOST_SLOTS)}\n"
        limits = f'{slots}window = "fixed"\nguard = false\nbase-check = "off"\n'
        begin_repository(repo, {"autopilot-multi.toml": limits})
        for number in range(given.stories):
            loop = "while true; do date +%s.%N; sleep 4; done"
            write_story(repo, f"story-{number:03}", title=f"Story {number}", command=loop)
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "stories")
        with started(repo, "run", "-q") as run, served(repo) as (url, _):
            measure(repo, run.pid, url, given)
            run.send(signal.SIGINT)
            run.send(signal.SIGINT)


def measure(repo: Path, coordinator: int, url: str, given: argparse.Namespace) -> None:
    """Compare the run alone with the run that is watched."""
    browser = Socket(url)
    working = re.compile(r'id="count-working" class="count">(\d+)<')

    def running() -> bool:
        page = browser.ask("GET", "/")[2]
        found = working.search(page)
        return bool(found and int(found[1]) >= min(given.stories, MOST_SLOTS))

    wait_until(running, what="all slots are taken", limit=300)
    time.sleep(20)
    before = spent(coordinator)
    time.sleep(given.seconds)
    alone = (spent(coordinator) - before) / given.seconds
    address = read_address(repo / ".git")
    assert address is not None
    readers = [Reader(browser) for _ in range(given.browsers)]
    for reader in readers:
        reader.start()
    time.sleep(3)
    before, server = spent(coordinator), spent(address.pid)
    time.sleep(given.seconds)
    watched = (spent(coordinator) - before) / given.seconds
    serving = (spent(address.pid) - server) / given.seconds
    resident = psutil.Process(address.pid).memory_info().rss / 2**20
    for reader in readers:
        reader.link.shutdown(socket.SHUT_RDWR)
        reader.join()
        reader.link.close()
    before = spent(coordinator)
    time.sleep(given.seconds)
    again = (spent(coordinator) - before) / given.seconds
    ages = sorted(age for reader in readers for age in reader.ages)
    report = (
        f"stories {given.stories}, browsers {given.browsers}\n"
        f"coordinator alone {alone:.1%} of a core, watched {watched:.1%}, alone again {again:.1%}\n"
        f"server {serving:.1%} of a core, {resident:.0f} MiB\n"
        f"age of the newest line when it arrives: median {statistics.median(ages):.2f} s, "
        f"99 of 100 below {ages[int(len(ages) * 0.99)]:.2f} s\n"
        f"each browser {readers[0].amount / given.seconds / 1024:.0f} KiB/s"
    )
    print(report)  # noqa: T201  a bench prints


if __name__ == "__main__":
    main()
