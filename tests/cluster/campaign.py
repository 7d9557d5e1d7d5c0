"""Kills and cuts on a whole cluster, and a judgment of what is left.

The judge knows nothing of the program: it reads the journal as a SQLite file, git by plain commands, and a
ledger that the sessions keep outside of the repository. Each session writes a word of its own into its file
and into the ledger, so the file of a branch says which session made it.
"""

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.acceptance.program import commit_stories, processes_with, wait_until, write_story
from tests.cluster.machines import Machines, events
from tests.cluster.proxy import Network, Wire, free_port
from tests.conftest import git

TIMEOUT = 10
"""The setting `cluster-timeout` of a campaign, in seconds."""
PARTITION_SECONDS = TIMEOUT + 6.0
STALL_SECONDS = 4.0
UNIQUE = "$$-$(date +%s%N)"
_ALONE = "".join(f"[tiers.{tier}]\npeers = 1000\n" for tier in ("green", "warn", "degraded"))
"""Agents that happen to run on this machine say nothing about a campaign."""


def write_graph(
    repo: Path,
    count: int,
    ledger: Path,
    seconds: float,
    *,
    also: str = "true",
    word: str = UNIQUE,
    others: Sequence[Path] = (),
) -> dict[str, Path]:
    """Write stories of which every third waits for the two before it; return where each works, by its name.

    Each session does `also` something, and writes a `word` into its file. With `others`, two stories work
    in each repository in turn; a story finds the files of those it waits for in its own.
    """
    (repo / "autopilot-multi.toml").write_text(_ALONE)
    places = [repo, *others]
    names = [f"s{number:03}" for number in range(count)]
    works_in = {name: places[number // 2 % len(places)] for number, name in enumerate(names)}
    for number, name in enumerate(names):
        needs = names[number - 2 : number] if number % 3 == 2 else []
        here = works_in[name]
        reads = "".join(f"cat {other}.txt && " for other in needs if works_in[other] == here)
        write_story(
            repo,
            name,
            command=f"word={word}; echo begin {name} $word >> {ledger}; "
            f"{reads}sleep {seconds}; {also}; echo $word > {name}.txt; echo end {name} $word >> {ledger}",
            verify=f"test -f {name}.txt",
            depends_on=needs,
            **({} if here == repo else {"repo": os.path.relpath(here, repo)}),
        )
    commit_stories(repo)
    return works_in


@dataclass(kw_only=True)
class Wired:
    """A cluster on which every connection can be cut."""

    cluster: Machines
    network: Network
    names: tuple[str, ...]
    entrance: str = ""
    """What `--cluster` gets."""
    strikes: Counter[str] = field(default_factory=Counter)
    _wires: dict[str, tuple[Wire, ...]] = field(default_factory=dict)
    _options: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def begin(self) -> None:
        """Start all workers, each with its own two wires: to the scheduler, and from it."""
        for name in self.names:
            port = free_port()
            there, back = self.network.wire(self.cluster.port), self.network.wire(port)
            self._wires[name] = (there, back)
            contact = f"tcp://127.0.0.1:{back.port}"
            self._options[name] = ("--slots=1", f"--port={port}", f"--contact={contact}")
            self._launch(name)
        own = self.network.wire(self.cluster.port)
        self._wires["coordinator"] = (own,)
        self.entrance = f"tcp://127.0.0.1:{own.port}"
        for name in self.names:
            wait_until(partial(self._waits, name), what=f"{name} waits for stories", limit=90)

    def _waits(self, name: str) -> bool:
        return "waits for stories" in self.cluster.log(name)

    def _launch(self, name: str) -> None:
        there = self._wires[name][0]
        self.cluster.launch(name, *self._options[name], address=f"tcp://127.0.0.1:{there.port}")

    def kill(self, name: str) -> None:
        """Kill a worker, and start it again."""
        self.strikes["kill"] += 1
        self.cluster.signal(name, signal.SIGKILL)
        self._launch(name)

    def cut(self, name: str) -> None:
        """Break all connections of a worker, or of the coordinator, once."""
        self.strikes["cut"] += 1
        for wire in self._wires[name]:
            wire.reset()

    def stall(self, name: str, seconds: float) -> None:
        """Let nothing through for some time; beyond the timeout that is a partition."""
        self.strikes["partition" if seconds > TIMEOUT else "stall"] += 1
        for wire in self._wires[name]:
            wire.stall(seconds)

    def strike(self, rng: random.Random) -> None:
        """Do one of these to somebody."""
        name = rng.choice(self.names)
        what = rng.choices(("kill", "cut", "stall", "partition", "coordinator"), (5, 3, 1, 1, 1))[0]
        if what == "kill":
            self.kill(name)
        elif what == "cut":
            self.cut(name)
        elif what == "coordinator":
            self.cut("coordinator")
        else:
            self.stall(name, STALL_SECONDS if what == "stall" else PARTITION_SECONDS)


def has_ended(repo: Path) -> bool:
    """Whether the journal has the end of the run."""
    if not (repo / ".git/autopilot/journal.db").exists():
        return False
    return any(each["kind"] == "RunEnded" for each in events(repo))


def judge(
    repo: Path, ledger: Path, names: Mapping[str, Path], strikes: Counter[str]
) -> tuple[list[str], str]:
    """Return what is wrong, and the figures in a sentence; `names` says where each story works."""
    journal, findings = events(repo), []
    of_kind: dict[str, Counter[str]] = {}
    for each in journal:
        story = each["data"].get("story_id", "")
        of_kind.setdefault(each["kind"], Counter())[story] += 1
    finished, losses = of_kind.get("StoryFinished", Counter()), of_kind.get("StoryLost", Counter())
    lines = [line.split() for line in ledger.read_text().splitlines()]
    begun = Counter(name for what, name, _ in lines if what == "begin")
    words = {name: {word for what, its, word in lines if (what, its) == ("end", name)} for name in names}
    for name, here in names.items():
        if finished[name] != 1:
            findings.append(f"{name} has {finished[name]} results")
        if begun[name] > 1 + losses[name]:
            findings.append(f"{name} had {begun[name]} sessions, and lost its worker {losses[name]} times")
        with suppress(subprocess.CalledProcessError):
            made = git(here, "show", f"autopilot/{name}:{name}.txt").strip()
            if made not in words[name]:
                findings.append(f"{name} has what no session says it made: {made}")
            continue
        findings.append(f"{name} has no branch with its file")
    findings += [
        f"{each['data']['story_id']} ended as {each['data'].get('verdict')}"
        for each in journal
        if each["kind"] == "StoryFinished" and each["data"].get("verdict") != "done"
    ]
    findings += _fences(journal)
    findings += _strays(names)
    fatal = strikes["kill"] + strikes["partition"]
    if losses.total() > fatal:
        findings.append(f"{losses.total()} losses of a worker's one story by {fatal} kills and partitions")
    struck = ", ".join(f"{count} {what}s" for what, count in sorted(strikes.items()))
    repeated = begun.total() - len(names)
    return findings, f"{len(names)} stories, {struck}: {losses.total()} losses, {repeated} sessions repeated"


def _fences(journal: list[dict[str, object]]) -> list[str]:
    """Return where a placing has not the next number, or a result came after the story was placed again."""
    newest: Counter[str] = Counter()
    findings = []
    for each in journal:
        data = each["data"]
        assert isinstance(data, dict)
        if each["kind"] == "StoryPlaced":
            newest[data["story_id"]] += 1
            if data["fence"] != newest[data["story_id"]]:
                findings.append(f"{data['story_id']} was placed as {data['fence']}, not {newest}")
    return findings


def _strays(names: Mapping[str, Path]) -> list[str]:
    """Return the branches of stories that came to a repository in which they do not work."""
    found = []
    for place in set(names.values()):
        branches = git(place, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/heads/autopilot").split()
        found += [f"{place.name} has a branch of {name}" for name in branches if names.get(name) != place]
    return found


def await_nothing_running(folder: Path) -> None:
    """Wait until no process of a campaign is left."""
    deadline = time.monotonic() + 30
    while found := processes_with(str(folder)):
        assert time.monotonic() < deadline, f"still running: {found}"
        time.sleep(0.1)
