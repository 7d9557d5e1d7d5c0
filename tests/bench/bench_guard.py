"""What the write guard costs: the start of a session, and git and a build within it, beside none.

The ways take turns, in an order that turns round, and are compared within a round: what else the
machine does falls on all of them alike. The start is timed by the clock; the processor time that all its
processes took is printed beside it. The work is timed by its processor time alone: on a busy machine the
clock tells of the others. A witness works in the keeper, so what that takes is measured too: nearly all of
this work is making small files, which is the worst for a witness.
The view, in which a session sees its own tree under the repository's path, is what a run takes where it can;
the time in which the runner prepares it counts to its start. Sealed, as a run is by default, private files
of a home folder that has one at each known place are hidden as well; finding them counts too. With the seal
`full` it also has a network of its own, and a proxy; that is compared with the sealed way, too.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import psutil
import trio
from msgspec.structs import replace

from isolation.git.repository import Repository
from isolation.guard import guard
from isolation.guard.network import network_gap
from isolation.guard.private import STORES
from isolation.guard.seal import Seal
from isolation.guard.view import View, view_of
from isolation.keeper.client import Keeper, open_keeper
from isolation.model import Confinement, Means, Network, SessionSpec, WorkspaceRequest
from isolation.paths import worktree_root
from isolation.worktree.opening import create_or_attach
from tests.bench import record

FILES = 400
STARTS, WORKS = 60, 20
WITNESS, VIEW, SEALED, OFFLINE = "+witness", "view", "view, sealed", "view, full"
LIMITS_MS = {VIEW: 10.0, SEALED: 30.0, OFFLINE: 60.0}
NETWORK_LIMIT_MS = 30.0
"""What a network of its own may add to a sealed session."""
START_LIMIT_MS = 60.0
WORK_LIMIT = 1.10
WORKLOAD = """
import os, resource, subprocess
for _ in range(3):
    subprocess.run(["git", "status", "--porcelain"], check=True, stdout=subprocess.DEVNULL)
os.makedirs("build", exist_ok=True)
for number in range(400):
    with open(f"src/{number}.py") as source:
        code = compile(source.read(), source.name, "exec")
    with open(f"build/{number}.tmp", "wb") as made:
        made.write(repr(code.co_names).encode() * 50)
    os.replace(f"build/{number}.tmp", f"build/{number}.out")
used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(sum(one.ru_utime + one.ru_stime for one in used))
"""


def make_repository(folder: Path) -> Repository:
    """Make a repository with something to look at and to compile."""
    root = folder / "repo"
    (root / "src").mkdir(parents=True)
    body = "\n".join(
        f"def f{line}(a, b={line}):\n    return [a + b for _ in range({line})]" for line in range(8)
    )
    for number in range(FILES):
        (root / "src" / f"{number}.py").write_text(body)
    (root / ".gitignore").write_text("build/\n")
    who = ("-c", "user.name=bench", "-c", "user.email=bench@example.com")
    for args in (("init", "-q", "-b", "main"), ("add", "-A"), (*who, "commit", "-q", "-m", "first")):
        subprocess.run(["git", *args], cwd=root, check=True)
    return Repository.open(root)


async def once(keeper: Keeper, spec: SessionSpec) -> tuple[float, float]:
    """Time one session, by what it says itself or else to its known end; and with what its keeper used."""
    before, begun, told = _used_below(), time.perf_counter(), b""
    async with keeper.start(spec) as session:
        while chunk := await session.receive():
            told += chunk
        ended = await session.wait()
        taken = time.perf_counter() - begun
        assert ended.returncode == 0
    while psutil.pid_exists(session._keeper_pid):  # noqa: ASYNC110  the server reaps it and tells nobody
        await trio.sleep(0.001)
    return float(told) if told else taken, _used_below() - before


def _used_below() -> float:
    """Return the processor time of all sessions and keepers that have ended, below any of our servers."""
    times = [server.cpu_times() for server in psutil.Process().children()]
    return float(sum(each.children_user + each.children_system for each in times))


def _prepared(prepare: Callable[[], object]) -> tuple[float, float]:
    """Return how long the runner prepares a session, and what processor time it and its children use."""
    used, begun = sum(os.times()[:4]), time.perf_counter()
    prepare()
    return time.perf_counter() - begun, sum(os.times()[:4]) - used


Times = dict[str, list[tuple[float, float]]]
_PREPARING: Times = {}
"""The seconds in which the runner prepares a view, each time, and those of a processor."""


async def measure() -> tuple[Times, Times]:
    """Return the seconds to start, and to work, by each way in each round, without and with the keeper's."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository = make_repository(folder)
        root = worktree_root(repository.common_dir)
        request = WorkspaceRequest(
            run_id="run",
            story_id="one",
            branch="autopilot/one",
            path=root / "one",
            parents=(repository.resolve("HEAD"),),
        )
        workspace = await create_or_attach(repository, request, trio.CapacityLimiter(1))
        environment = dict(os.environ)
        plain = SessionSpec(argv=("true",), cwd=workspace.path, env=environment, prompt=Path(os.devnull))
        ways = {"none": plain}
        for means in Means:
            if not guard.attempt(guard.READ_ONLY, means):
                confinement = guard.for_worktree(repository, workspace, means=means, root=root)
                ways[means.value] = replace(plain, confinement=confinement)
                watched = replace(confinement, witnessed=repository.top)
                ways[f"{means.value}{WITNESS}"] = replace(plain, confinement=watched)
        view = view_of(repository.paths, root, environment)
        if Means.MOUNTS in ways and isinstance(view, View):
            confine = partial(guard.for_worktree, repository, workspace, means=Means.MOUNTS, root=root)
            ways[VIEW] = replace(plain, cwd=repository.top, confinement=confine(view=view))
            home = _private_home(folder)
            seal = Seal(folder=repository.common_dir / "seal")

            def hide(seal: Seal = seal) -> Confinement:
                return seal.around(confine(view=view), STORES, {"HOME": str(home)})

            ways[SEALED] = replace(ways[VIEW], confinement=hide())
            if not network_gap():
                full = partial(hide, replace(seal, network=Network(allowed=("api.example.org",))))
                ways[OFFLINE] = replace(ways[VIEW], confinement=full())
            _PREPARING[VIEW] = [_prepared(partial(confine, view=view)) for _ in range(STARTS)]
            _PREPARING[SEALED], _PREPARING[OFFLINE] = [], []
            for _ in range(STARTS):
                _PREPARING[SEALED].append(_prepared(hide))
                if OFFLINE in ways:
                    _PREPARING[OFFLINE].append(_prepared(full))
        works = {
            way: replace(spec, argv=(sys.executable, "-I", "-S", "-c", WORKLOAD))
            for way, spec in ways.items()
        }
        async with open_keeper(alive_lock=folder / "alive.lock", network=True) as keeper:
            return await _taken(keeper, ways, STARTS), await _taken(keeper, works, WORKS)


def _private_home(folder: Path) -> Path:
    """Make a home folder with something private at every known place."""
    home = folder / "home"
    places = (path.removeprefix("~/") for store in STORES for path in store.paths if path.startswith("~/"))
    for name in places:
        place = home / name.replace("*", "x")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text('password token _auth secret "auths": {1')
    return home


async def _taken(keeper: Keeper, ways: Mapping[str, SessionSpec], rounds: int) -> Times:
    taken: Times = {way: [] for way in ways}
    for number in range(rounds):
        for way in sorted(ways, reverse=bool(number % 2)):
            taken[way].append(await once(keeper, ways[way]))
    return taken


def main() -> bool:
    """Print the medians; tell whether the means that a run would take keeps both limits."""
    starts, works = trio.run(measure)
    lines = [f"{'guard':18}{'start':>10}{'work':>10}{'and keeper':>12}"]
    lines += [
        f"{way:18}{_ms(_own(starts[way])):7.2f} ms{_ms(_own(works[way])):7.1f} ms"
        f"{statistics.mean(total for _, total in works[way]) * 1e3:9.1f} ms"
        for way in starts
    ]
    kept = True
    support = guard.supported(guard.READ_ONLY)
    for way in starts:
        if way == "none":
            continue
        start, work = _own(starts[way]), _own(works[way])
        more = _ms([mine - bare for mine, bare in zip(start, _own(starts["none"]), strict=True)])
        ratios = [mine / bare for mine, bare in zip(work, _own(works["none"]), strict=True)]
        record.compare("guard", f"git and build, {way} / none", ratios, WORK_LIMIT)
        ratio = statistics.median(ratios)
        more += _ms(_own(_PREPARING[way])) if way in _PREPARING else 0.0
        used = _used_ms(starts[way]) - _used_ms(starts["none"]) + _used_ms(_PREPARING.get(way, []))
        limit = LIMITS_MS.get(way, START_LIMIT_MS)
        fits = more <= limit and ratio <= WORK_LIMIT
        verdict = "ok" if fits else "too slow"
        lines.append(
            f"{way} - none, `true`: {more:+.2f} ms, {used:+.2f} ms of a processor, at most {limit:g}; "
            f"git and build: ratio {ratio:.2f}, at most {WORK_LIMIT:g}: {verdict}"
        )
        kept = kept and (fits or way.removesuffix(WITNESS) not in {support.means, *LIMITS_MS})
    if OFFLINE in starts:
        more = 0.0
        for mine, sealed in (
            (_own(starts[OFFLINE]), _own(starts[SEALED])),
            (_own(_PREPARING[OFFLINE]), _own(_PREPARING[SEALED])),
        ):
            more += _ms([one - other for one, other in zip(mine, sealed, strict=True)])
        fits = more <= NETWORK_LIMIT_MS
        verdict = "ok" if fits else "too slow"
        lines.append(f"full - secrets, `true`: {more:+.2f} ms, at most {NETWORK_LIMIT_MS:g}: {verdict}")
        kept = kept and fits
    if support.means is None:
        lines.append(f"no guard here: {support.reason}")
    sys.stdout.write("\n".join(lines) + "\n")
    return kept


def _own(times: list[tuple[float, float]]) -> list[float]:
    return [own for own, _ in times]


def _used_ms(times: list[tuple[float, float]]) -> float:
    """Return the mean: a system counts processor time in steps that are longer than one start."""
    return statistics.fmean(used for _, used in times) * 1e3 if times else 0.0


def _ms(seconds: list[float]) -> float:
    return statistics.median(seconds) * 1e3


if __name__ == "__main__":
    main()
