"""50 stories of a repository with 7,000 files: which of the 1,225 pairs conflict.

The peer is git, asked for each pair by a process of its own, as a script would do it. Gates: all pairs within
1 s, and 60 ms for a new checkpoint of one story; every answer is the peer's.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

from isolation.git.forecast.forecaster import Forecaster
from isolation.git.forecast.scratch import scratch
from isolation.git.repository import Repository
from tests.bench import record
from tests.conftest import GIT_ENVIRONMENT, git

FILES, STORIES = 7_000, 50
MOST_SECONDS, MOST_INCREMENT = 1.0, 0.060
TIMES = 5


def main() -> bool:
    """Measure and print; False when a gate is missed."""
    os.environ.update(GIT_ENVIRONMENT)
    measured = [_measure(every) for every in (3, 1)]
    return all(measured)


def _measure(every: int) -> bool:
    """Measure with a changelog that every so many stories edit; with 1, all pairs conflict."""
    with tempfile.TemporaryDirectory() as folder:
        repo = Path(folder) / "repo"
        tips = _prepare(repo, every)
        repository = Repository.open(repo)
        whole, forecaster, found = min(_forecast(repository, tips) for _ in range(TIMES))
        increments = []
        for number in range(TIMES):
            tips = {**tips, "s07": _commit(repo, "s07", number)}
            began = time.perf_counter()
            with scratch(repository) as place:
                found = set(forecaster.clashes(place, tips))
            increments.append(time.perf_counter() - began)
        increment = min(increments)
        began = time.perf_counter()
        peer = {pair for pair in combinations(tips, 2) if _conflicts(repo, *pair)}
        one_by_one = time.perf_counter() - began
    pairs = STORIES * (STORIES - 1) // 2
    record.compare("forecast", f"{STORIES} stories / git for each pair", [whole / one_by_one])
    print(  # noqa: T201  a benchmark prints
        f"forecast: {STORIES} stories, {FILES} files, {len(found)} of {pairs} pairs conflict: {whole:.2f} s "
        f"(gate {MOST_SECONDS:g}), a new checkpoint {increment * 1000:.0f} ms "
        f"(gate {MOST_INCREMENT * 1000:g}); git for each pair {one_by_one:.2f} s, "
        f"ratio {whole / one_by_one:.3f}"
    )
    return found == peer and whole <= MOST_SECONDS and increment <= MOST_INCREMENT


class _Measured(tuple[float, Forecaster, set[tuple[str, str]]]):
    """A time with what was measured; only the time is compared."""

    __slots__ = ()

    def __lt__(self, other: tuple[object, ...]) -> bool:
        return self[0] < float(str(other[0]))


def _forecast(repository: Repository, tips: dict[str, str]) -> _Measured:
    began = time.perf_counter()
    forecaster = Forecaster()
    with scratch(repository) as place:
        found = set(forecaster.clashes(place, tips))
    return _Measured((time.perf_counter() - began, forecaster, found))


def _conflicts(repo: Path, one: str, other: str) -> bool:
    asked = ["git", "merge-tree", "--write-tree", "--name-only", one, other]
    return subprocess.run(asked, cwd=repo, check=False, stdout=subprocess.DEVNULL).returncode != 0


def _name(number: int) -> str:
    return f"pkg{number % 100:02}/part{number // 100 % 10}/file{number}.py"


def _text(number: int) -> str:
    return "".join(f"line {line} of {number}\n" for line in range(40))


def _prepare(repo: Path, every: int) -> dict[str, str]:
    """Make the repository: each story edits some files, renames and adds one; some edit a changelog."""
    git(repo.parent, "init", "-q", "-b", "main", str(repo))
    head = "committer t <t@localhost> 1 +0000\ndata 1\nx\n"
    parts = [f"commit refs/heads/main\n{head}", _file("CHANGELOG.md", "# Changes\n")]
    parts += [_file(_name(number), _text(number)) for number in range(FILES)]
    chance = random.Random(1)  # noqa: S311  the same repository each time
    for story in range(STORIES):
        parts.append(f"commit refs/heads/s{story:02}\n{head}from refs/heads/main\n")
        for number in chance.sample(range(FILES), 8):
            line = chance.randrange(40)
            text = _text(number).replace(f"line {line} ", f"story {story} ", 1)
            parts.append(_file(_name(number), text))
        old = chance.randrange(FILES)
        parts.append(f"R {_name(old)} moved/{story}-{old}.py\n")
        parts.append(_file(f"new/{story}.py", f"new {story}\n"))
        if story % every == 0:
            parts.append(_file("CHANGELOG.md", f"# Changes\n- story {story}\n"))
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repo, input="".join(parts).encode(), check=True)
    listed = git(repo, "for-each-ref", "--format=%(refname:short) %(objectname)", "refs/heads/s*")
    return dict(line.split() for line in listed.splitlines())


def _commit(repo: Path, branch: str, number: int) -> str:
    """Make a checkpoint on a branch."""
    head = "committer t <t@localhost> 1 +0000\ndata 1\nx\n"
    text = f"commit refs/heads/{branch}\n{head}from refs/heads/{branch}^0\n" + _file(
        "CHANGELOG.md", f"{number}\n"
    )
    subprocess.run(["git", "fast-import", "--quiet"], cwd=repo, input=text.encode(), check=True)
    return git(repo, "rev-parse", branch).strip()


def _file(path: str, text: str) -> str:
    return f"M 100644 inline {path}\ndata {len(text.encode())}\n{text}\n"


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
