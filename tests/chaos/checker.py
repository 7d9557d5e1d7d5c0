"""Decides what a killed or troubled run has left, from the outside.

It uses none of the program's own code: the journal is read as a SQLite file, records as lines of JSON, git by
plain commands, processes from /proc. The other witness is the ledger, which the sessions themselves keep
outside of the repository (`scripted_session.py`). It returns findings as sentences; none is the good case.
"""

import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

ORPHANS_GONE = 10.0
"""Seconds until whatever a killed run has started must be gone."""

COST = 0.25
"""What each session of the ledger says it has cost; a power of two, so that sums are exact."""

# A killed `git worktree add` leaves files of its worktree empty; the next run removes or completes them.
_EXCUSED = re.compile(
    r"error: worktrees/\S+/(HEAD|index): (detached HEAD points at nothing|index file.*)"
    r"|error: invalid worktrees/\S+/HEAD"
    r"|fatal: failed to read \S*worktrees/\S+/commondir: .*"
)


KINDS = ("lost", "repeated", "orphans", "fsck", "records", "ends", "user's")
"""What can be wrong: work lost, an acknowledged session repeated, a process left, a damaged repository,
records that do not add up, a story that ends in another way than without a kill, a
change of something of the user's."""


def _events(uri: str) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(uri, uri=True)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'events'").fetchall():
            return []  # killed before the first table was there
        return connection.execute("SELECT run_id, kind, data FROM events ORDER BY seq").fetchall()


class Finding(str):
    """A sentence about something that is wrong, and of which kind it is."""

    __slots__ = ("kind",)
    kind: str

    def __new__(cls, kind: str, text: str) -> Self:
        """Make one; it is used as a text."""
        found = super().__new__(cls, text)
        found.kind = kind
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of the ledger."""

    word: str
    story: str
    step: str
    attempt: str
    session: str
    path: str
    token: str

    @property
    def work(self) -> tuple[str, str, str]:
        """What the session was for."""
        return self.story, self.step, self.attempt


@dataclass(frozen=True, slots=True, kw_only=True)
class Users:
    """What is the user's alone in the main checkout."""

    head: str
    branch: str
    main: str
    staged: str
    files: dict[str, bytes]


def users(repo: Path, names: tuple[str, ...]) -> Users:
    """Read what is the user's."""
    return Users(
        head=git(repo, "rev-parse", "HEAD"),
        branch=git(repo, "symbolic-ref", "HEAD"),
        main=git(repo, "rev-parse", "refs/heads/main"),
        staged=git(repo, "diff", "--cached", "--raw"),
        files={name: (repo / name).read_bytes() for name in names},
    )


class Checker:
    """Looks at one repository and its ledger.

    `mark` is in the environment or the arguments of each process that a run starts, `before` is what the
    user had, `expected` how each story ends when nobody kills anything; `lands` says that what is done lands.
    """

    def __init__(
        self,
        repo: Path,
        ledger: Path,
        *,
        mark: str,
        before: Users,
        expected: dict[str, str],
        lands: bool = False,
    ) -> None:
        self._repo = repo
        self._ledger = ledger
        self._mark = mark
        self.before = before
        self._expected = expected
        self._lands = lands

    def at_rest(self, *, last: bool = False) -> list[Finding]:
        """Find what is wrong at a moment when no run is active; all has been done when it is the `last`."""
        left = self.left()
        rows, ledger = self.rows(), self.ledger()
        found = {
            "orphans": [f"process {pid} is left: {line}" for pid, line in left],
            "user's": self._user(last=last),
            "fsck": self._fsck(strict=last),
            "repeated": self._sessions(rows, ledger),
            "lost": self._work(rows, ledger, everything=last),
            "ends": [*(self._ends(rows) if last else ()), *(self._landed(rows, last) if self._lands else ())],
            "records": self._records(rows) if last else [],
        }
        return [Finding(kind, text) for kind, texts in found.items() for text in texts]

    def rows(self) -> list[tuple[str, str, dict[str, Any]]]:
        """Read the journal: run, kind and data of each event, in their order."""
        journal = self._repo / ".git" / "autopilot" / "journal.db"
        if not journal.exists():
            return []
        try:
            rows = _events(f"file:{journal}?mode=ro")
        except sqlite3.OperationalError:  # a kill in its first moments left a log that must be written to
            with tempfile.TemporaryDirectory() as folder:
                for file in journal.parent.glob("journal.db*"):
                    shutil.copy(file, folder)
                rows = _events(f"file:{folder}/journal.db")
        return [(run, kind, json.loads(data)) for run, kind, data in rows]

    def ledger(self) -> list[Entry]:
        """Read what the sessions have written."""
        if not self._ledger.exists():
            return []
        names = ("word", "story", "step", "attempt", "session", "path", "token")
        lines = self._ledger.read_text().splitlines()
        return [Entry(**dict(zip(names, line.split(), strict=True))) for line in lines]

    def left(self, patience: float = ORPHANS_GONE) -> list[tuple[int, str]]:
        """Return the processes that have not ended by themselves after some seconds.

        To have seen none before says nothing: until it has executed its program, a process that a killed run
        has just forked has the environment of whoever loaded the run, and so no mark.
        """
        deadline = time.monotonic() + patience
        while (found := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def processes(self) -> list[tuple[int, str]]:
        """Find living processes that a run of this repository has started."""
        mark, found = self._mark.encode(), []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit() or int(folder.name) == os.getpid():
                continue
            with suppress(OSError):
                line = (folder / "cmdline").read_bytes()
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and (mark in line or mark in (folder / "environ").read_bytes()):
                    words = line.replace(b"\0", b" ").decode(errors="replace")
                    found.append((int(folder.name), f"{words}({state})"))
        return found

    def verdicts(self) -> dict[str, str]:
        """Return the last result of each story."""
        results = [data for _, kind, data in self.rows() if kind == "StoryFinished"]
        return {data["story_id"]: data["verdict"] for data in results}

    def durations(self) -> list[float]:
        """Return how many seconds each finished session took, by the times of its events."""
        journal = self._repo / ".git" / "autopilot" / "journal.db"
        with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as connection:
            rows = connection.execute("SELECT kind, at, data FROM events ORDER BY seq").fetchall()
        times: dict[str, dict[str, float]] = {}
        for kind, at, data in rows:
            if kind in {"SessionStarted", "SessionEnded"}:
                times.setdefault(json.loads(data)["session_id"], {})[kind] = at
        whole = [one for one in times.values() if len(one) == 2]
        return [one["SessionEnded"] - one["SessionStarted"] for one in whole]

    def kept(self, sessions: set[str]) -> list[str]:
        """Find work of these sessions that is neither on a branch nor in a tree."""
        rows = [("", "SessionEnded", {"session_id": one, "outcome": "ok"}) for one in sessions]
        return self._work(rows, self.ledger(), everything=False)

    def _user(self, *, last: bool) -> list[str]:
        now = users(self._repo, tuple(self.before.files))
        if self._lands and self._moved(now):
            now = replace(now, head=self.before.head, main=self.before.main)
            if (
                not last
            ):  # killed between its ref and its checkout, a landing is completed by the next command
                now = replace(now, staged=self.before.staged)
        findings = [
            f"the user's {name} was {old!r} and is {new!r}"
            for name, old, new in (
                ("HEAD", self.before.head, now.head),
                ("branch", self.before.branch, now.branch),
                ("main", self.before.main, now.main),
                ("staged changes", self.before.staged, now.staged),
            )
            if old != new
        ]
        return findings + [
            f"the user's file {name} changed"
            for name, content in self.before.files.items()
            if now.files[name] != content
        ]

    def _moved(self, now: Users) -> bool:
        """Whether the target moved forward only, and the checkout with it."""
        if now.head != now.main:
            return False
        return git(self._repo, "merge-base", self.before.main, now.main) == self.before.main

    def _landed(self, rows: list[tuple[str, str, dict[str, Any]]], last: bool) -> list[str]:  # noqa: FBT001  as in `at_rest`
        """Find whether the target is at a tree that was verified, and in the end each done story is there."""
        tree = git(self._repo, "rev-parse", "main^{tree}")
        verified = {data["tree"] for _, kind, data in rows if kind == "LandingVerified"}
        first = git(self._repo, "rev-parse", f"{self.before.main}^{{tree}}")
        findings = [] if tree in {first, *verified} else [f"main is at {tree}, which nobody has verified"]
        if not last:
            return findings
        changed = git(self._repo, "diff", "--name-only").split()
        findings += [
            f"the checkout of main has not followed: {name}" for name in changed if name != "mine.txt"
        ]
        times = self.landed()
        there = set(git(self._repo, "ls-tree", "-r", "main").splitlines())
        for story, ends in self._expected.items():
            if times[story] != (ends == "done"):
                findings.append(f"story {story} landed {times[story]} times")
            if ends == "done" and (tip := self._tip(story)):
                own = git(self._repo, "ls-tree", "-r", tip, "--", f"packages/{story}").splitlines()
                findings += [f"{line} of {story} is not on main" for line in own if line not in there]
        return findings

    def landed(self) -> Counter[str]:
        """Count how often each story has landed."""
        landings = [data for _, kind, data in self.rows() if kind == "Landed"]
        return Counter(story for data in landings for story in data["stories"])

    def unlanded(self) -> list[str]:
        """Name the done stories that are to land and have not."""
        done = [story for story, verdict in self.verdicts().items() if verdict == "done"]
        return [story for story in done if story not in self.landed()] if self._lands else []

    def questions(self) -> list[str]:
        """Name the parked stories whose question has no answer yet."""
        asked: Counter[str] = Counter()
        for _, kind, data in self.rows():
            asked[data.get("story_id", "")] += {"DecisionAsked": 1, "DecisionAnswered": -1}.get(kind, 0)
        parked = [story for story, verdict in self.verdicts().items() if verdict == "parked"]
        return [story for story in parked if asked[story] > 0]

    def _tip(self, story: str) -> str:
        return git(self._repo, "for-each-ref", "--format=%(objectname)", f"refs/heads/autopilot/{story}")

    def _fsck(self, *, strict: bool) -> list[str]:
        done = subprocess.run(
            ["git", "fsck", "--full", "--strict", "--no-dangling", "--no-progress"],
            cwd=self._repo,
            check=False,
            capture_output=True,
            text=True,
        )
        lines = [line for line in done.stderr.splitlines() if strict or not _EXCUSED.fullmatch(line)]
        return [f"git fsck: {line}" for line in lines]

    def _sessions(self, rows: list[tuple[str, str, dict[str, Any]]], ledger: list[Entry]) -> list[str]:
        """Nothing that was acknowledged runs again, and the journal speaks only of what happened."""
        findings = []
        names: dict[str, tuple[str, str, str, str]] = {}
        settled: set[tuple[str, str, str, str]] = set()
        for run, kind, data in rows:
            if kind == "SessionStarted" and data["kind"] == "work":
                work = (run, data["story_id"], data["step_number"], str(data["attempt"]))
                if work in settled:
                    findings.append(f"{work} was acknowledged and started again")
                names[data["session_id"]] = work
            elif kind == "SessionEnded" and data["session_id"] in names and data["outcome"] == "ok":
                settled.add(names[data["session_id"]])
            elif kind == "DecisionApplied" and data.get("retry"):
                settled = {work for work in settled if work[1] != data["story_id"]}
        begun = Counter(_key(one.session) for one in ledger if one.word == "begun")
        findings += [f"session {name} began {count} times" for name, count in begun.items() if count > 1]
        ended = {_key(one.session) for one in ledger if one.word == "ended"}
        for _, kind, data in rows:
            name = data.get("session_id", "")
            if kind == "SessionEnded" and name in names and data["outcome"] in {"ok", "asks"}:
                if _key(name) not in ended:
                    findings.append(f"the journal says that {name} succeeded, but the ledger does not")
                if data["cost_usd"] != COST:
                    findings.append(f"session {name} cost {COST}, and the journal says {data['cost_usd']}")
        return findings

    def _work(
        self, rows: list[tuple[str, str, dict[str, Any]]], ledger: list[Entry], *, everything: bool
    ) -> list[str]:
        """Each finished session's file is on a branch or in a tree that was kept, byte for byte."""
        known = {
            _key(data["session_id"])
            for _, kind, data in rows
            if kind == "SessionEnded" and data["outcome"] in {"ok", "asks"}
        }
        wanted = [one for one in ledger if one.word == "ended" and (everything or _key(one.session) in known)]
        blobs, files = self._kept_blobs(), self._kept_files()
        return [
            f"the work of session {one.session} is lost: {one.path}"
            for one in wanted
            if (one.path, _blob(f"{one.token}\n".encode())) not in blobs
            and f"{one.token}\n".encode() not in files.get(Path(one.path).name, ())
        ]

    def _kept_blobs(self) -> set[tuple[str, str]]:
        refs = git(self._repo, "for-each-ref", "--format=%(refname)", "refs/heads", "refs/autopilot")
        found = set()
        for ref in refs.split():
            for row in git(self._repo, "ls-tree", "-r", "-z", ref).split("\0"):
                entry, _, path = row.partition("\t")
                if path:
                    found.add((path, entry.split()[2]))
        return found

    def _kept_files(self) -> dict[str, list[bytes]]:
        roots = [self._repo.with_name(f"{self._repo.name}{kind}") for kind in (".worktrees", ".layers")]
        found: dict[str, list[bytes]] = {}
        for root in (*roots, self._repo / "packages"):
            for folder, _, names in os.walk(root):
                for name in names:
                    with suppress(OSError):
                        found.setdefault(name, []).append(Path(folder, name).read_bytes())
        return found

    def _ends(self, rows: list[tuple[str, str, dict[str, Any]]]) -> list[str]:
        started = sum(kind == "RunStarted" for _, kind, _ in rows)
        findings = [] if started == 1 else [f"{started} runs were started, not one"]
        verdicts = self.verdicts()
        findings += [
            f"story {story} would have been {expected}, and is {verdicts.get(story)}: {self._reason(story)}"
            for story, expected in self._expected.items()
            if verdicts.get(story) != expected
        ]
        last = {data["story_id"]: data for _, kind, data in rows if kind == "StoryFinished"}
        for story, data in last.items():
            tip = self._tip(story)
            if data["verdict"] == "done" and data["commit"] != tip:
                findings.append(f"story {story} says {data['commit']}, its branch is at {tip or 'nothing'}")
        for name in ("index.lock", "HEAD.lock", "packed-refs.lock"):
            if (self._repo / ".git" / name).exists():
                findings.append(f"a lock is left: .git/{name}")
        return findings

    def _reason(self, story: str) -> str:
        found = [
            d["reason"] for _, kind, d in self.rows() if kind == "StoryFinished" and d["story_id"] == story
        ]
        return found[-1] if found else "it never ended"

    def _records(self, rows: list[tuple[str, str, dict[str, Any]]]) -> list[str]:
        folder = self._repo / ".orchestrator" / "metrics"
        lines = _json_lines(folder / "autopilot.jsonl")
        stories = {line["story_id"]: line for line in lines if line["kind"] == "story"}
        wholes = [line for line in lines if line["kind"] == "run"]
        if len(wholes) != 1 or len(stories) != len(lines) - 1:
            return [f"autopilot.jsonl has {len(wholes)} runs and {len(lines) - len(wholes)} stories"]
        findings = []
        counted = Counter(line["verdict"] for line in stories.values())
        counts = {name: count for name, count in wholes[0]["counts"].items() if count}
        if counts != dict(counted) or wholes[0]["story_count"] != len(self._expected):
            findings.append(f"the run counts {counts}, its stories {dict(counted)}")
        if {story: line["verdict"] for story, line in stories.items()} != self.verdicts():
            findings.append("records and journal have other results")
        sessions = Counter(line["session_id"] for line in _json_lines(folder / "sessions.jsonl"))
        for story, line in stories.items():
            started = [
                d["session_id"] for _, k, d in rows if k == "SessionStarted" and d["story_id"] == story
            ]
            ended = [d for _, k, d in rows if k == "SessionEnded" and d["story_id"] == story]
            cost = sum(data["cost_usd"] or 0 for data in ended)
            if sorted(map(_key, line["sessions"])) != sorted(map(_key, started)):
                findings.append(f"the record of {story} has {line['sessions']}, the journal {started}")
            if (line["total_cost_usd"] or 0) != cost:
                findings.append(f"the record of {story} costs {line['total_cost_usd']}, its sessions {cost}")
            own = sum(count for name, count in sessions.items() if name.split("/")[1] == story)
            if own != len(started):
                findings.append(f"sessions.jsonl has {own} sessions of {story}, the journal {len(started)}")
        total = sum(line["total_cost_usd"] or 0 for line in stories.values())
        if (wholes[0]["total_cost_usd"] or 0) != total:
            findings.append(f"the run costs {wholes[0]['total_cost_usd']}, its stories {total}")
        return findings


def git(repo: Path, *args: str) -> str:
    """Run git and return what it printed."""
    done = subprocess.run(["git", *args], cwd=repo, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _key(session: str) -> str:
    """Return the part of a session's name that is the same in journal, records and environment."""
    return "/".join(session.split("/")[-2:])


def _blob(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _json_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
