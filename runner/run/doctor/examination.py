"""What this machine and this repository offer, found out by trying; nothing is changed.

The checks are independent: one that fails never hides the others.
"""

import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from isolation.errors import IsolationError
from isolation.files.lease import holder_is_alive, read_holder
from isolation.guard.network import network_gap
from isolation.kernel.process_tree import SUBREAPER, kill_level
from isolation.model import IsolationMode
from isolation.paths import RepositoryPaths, find_repository, journal_path, keepers_lock_path, worktree_root
from runner.agents.catalog import KNOWN, PROGRAMS
from runner.agents.installed import find_installed
from runner.core.agent_settings import AgentSettings
from runner.core.errors import NotFoundError, RunnerError
from runner.core.model import Tier
from runner.core.progress.landing import LEASE
from runner.core.schedule.exclusivity import runs_alone
from runner.core.schedule.resources import ResourceSample
from runner.core.schedule.window import at_start
from runner.core.settings import Settings
from runner.core.text.instants import clock, span
from runner.core.text.words import count, window
from runner.machine import probe
from runner.machine.registry import Registry
from runner.machine.session_lock import locked
from runner.plan.agent_conflicts import agent_conflicts
from runner.plan.guard import FULL, WriteGuard, write_guard_of
from runner.plan.settings.load import load_settings
from runner.plan.shared_tree import enforcement_of
from runner.records.journal import Journal
from runner.records.journal_file import require_sound
from runner.run.doctor.check import Check, Severity
from runner.run.doctor.repository import overlays, readiness

MERGE_TREE_GIT = (2, 38)
GB = 1 << 30
_SCARCE_DISK = 5 * GB
_LEAST_DISK = GB // 2
_SCARCE_INODES, _LEAST_INODES = 100_000, 1_000
_SCARCE_FILES = 1024
_CAN_READ = (
    "a run looks for ways out before it starts anything, and refuses them; where mounts are permitted "
    "(to root, or by user namespaces), sessions see their own tree instead, so that there are none."
)


def examine(start: Path, environ: dict[str, str]) -> Iterator[Check]:
    """Yield every check; outside a repository only those of the machine."""
    yield Check(name="python", level=Severity.OK, detail=f"{sys.version.split()[0]} ({sys.executable})")
    yield from _git(start)
    try:
        paths = find_repository(start)
    except IsolationError:
        paths = None
    # With broken settings the other checks still run, with the defaults.
    settings = Settings()
    try:
        settings = load_settings(top=paths.top if paths else start, flags={}, environ=environ).settings
        yield Check(name="settings", level=Severity.OK, detail="`autopilot-multi config` shows them")
    except RunnerError as error:
        yield Check(name="settings", level=Severity.FAIL, detail=error.message, hint=error.hint)
    yield _killing()
    yield _sandbox()
    yield _processes()
    yield _agents(settings, environ)
    root = _worktrees(paths, settings) if paths else start.resolve()
    sample = probe.sample(root, PROGRAMS)
    yield _machine(sample, settings)
    yield from _signals(sample)
    yield _disk(sample, root)
    yield _open_files()
    if paths:
        yield from readiness(start, settings, root, environ)
        if settings.bg_isolation == IsolationMode.WORKTREE:
            write_guard = write_guard_of(paths, settings, root)
            yield _guard(write_guard, settings)
            yield _seal(write_guard)
            yield from _ways_out(start, write_guard, settings, root, environ)
            yield from _pool(start, settings)
            yield from overlays(settings, root)
        yield from _agent_conflicts(start, settings, root, environ)
        yield _journal(paths.common_dir)
        yield from _coordinator(paths.common_dir)
        yield from _sessions(paths)


def _git(start: Path) -> Iterator[Check]:
    from isolation.git.repository import Repository

    try:
        repository = Repository.open(start)
    except IsolationError as error:
        yield Check(name="git", level=Severity.FAIL, detail=error.message, hint=error.hint)
        return
    version = ".".join(map(str, repository.version))
    yield Check(name="git", level=Severity.OK, detail=f"{version} ({shutil.which('git')})")
    yield Check(name="repository", level=Severity.OK, detail=str(repository.top))
    if repository.version >= MERGE_TREE_GIT:
        yield Check(
            name="merge-tree",
            level=Severity.OK,
            detail="a story with several dependencies starts from all of them, merged",
        )
    else:
        yield Check(
            name="merge-tree",
            level=Severity.WARN,
            detail=f"git {version} cannot merge without a worktree",
            hint="install git 2.38 or newer for stories with several dependencies.",
        )


def _killing() -> Check:
    if kill_level() == SUBREAPER:
        return Check(
            name="killing", level=Severity.OK, detail="subreaper: a story's whole process tree can be killed"
        )
    return Check(
        name="killing",
        level=Severity.WARN,
        detail="process groups only: a daemon that leaves its group may survive its story",
        hint="Linux with /proc mounted can kill whole process trees.",
    )


def _sandbox() -> Check:
    """Show which enforcement levels the machine supports, each of them tried out."""
    from isolation.shared_tree.levels import LEVELS

    supports = [(level, level.support()) for level in LEVELS.values()]
    present = (f"{level.name} ({support.reason})" for level, support in supports if support.available)
    missing = [
        f"{level.name} is not available: {support.reason}"
        for level, support in supports
        if not support.available
    ]
    missing += filter(
        None, (level.gap() for level, support in supports if level.prevents and support.available)
    )
    return Check(
        name="sandbox",
        level=Severity.WARN if missing else Severity.OK,
        detail="; ".join((", ".join(present), *missing)),
        hint="Linux 6.2 or newer, with user namespaces or Landlock, supports all levels." if missing else "",
    )


def _processes() -> Check:
    """Show what a confined session can do to processes that are not its own, as it was tried out."""
    from isolation.shared_tree.levels import LEVELS

    supports = [level.support() for level in LEVELS.values() if level.prevents]
    confined = [support for support in supports if support.available]
    gap = next((support.gap for support in confined if support.gap), "")
    if confined and not gap:
        detail = "a session can reach and signal its own processes only"
        return Check(name="processes", level=Severity.OK, detail=detail)
    return Check(
        name="processes",
        level=Severity.WARN,
        detail=gap or "sessions can reach every process of yours, since nothing confines them",
        hint="Linux 6.12 or newer with Landlock keeps the processes of sessions apart.",
    )


def _guard(write_guard: WriteGuard, settings: Settings) -> Check:
    if write_guard.means is None:
        hint = "`guard = true` switches it on." if not settings.guard else "run agents in a container."
        return Check(name="guard", level=Severity.WARN, detail=write_guard.note, hint=hint)
    detail = f"{write_guard.enforcement}: the main checkout and other worktrees are read-only to a session"
    if write_guard.own_path:
        detail += ", which sees its own tree at the checkout's path"
        return Check(name="guard", level=Severity.OK, detail=detail)
    detail += f", which can read the checkout ({write_guard.in_sight})"
    return Check(name="guard", level=Severity.OK, detail=detail, hint=_CAN_READ)


def _seal(write_guard: WriteGuard) -> Check:
    """Show what is kept from sessions, by what was tried out for the guard."""
    if write_guard.seal is None:
        detail = f"writes: sessions can read your keys and other private files ({write_guard.unsealed})"
        hint = 'mounts for sessions (root, or user namespaces) and `seal = "secrets"` hide them.'
        return Check(name="seal", level=Severity.WARN, detail=detail, hint=hint)
    private = count(
        len(write_guard.seal.private(os.environ)), "private file or folder", "private files and folders"
    )
    level = write_guard.sealing
    detail = f"{level}: sessions do not see {private} of yours, nor variables that look like secrets"
    if level == FULL:
        return Check(name="seal", level=Severity.OK, detail=f"{detail}; the network is closed but for a list")
    gap = network_gap()
    can = f"is not available ({gap})" if gap else "can close the network as well"
    return Check(name="seal", level=Severity.OK, detail=f"{detail}; `full` {can}")


def _ways_out(
    start: Path, write_guard: WriteGuard, settings: Settings, root: Path, environ: dict[str, str]
) -> Iterator[Check]:
    """Yield the ways by which verify commands would use the checkout, where nothing prevents that."""
    from isolation.git.repository import Repository
    from runner.plan.stories.sources import load_stories
    from runner.plan.ways_out import verdict
    from runner.plan.ways_out.search import find_ways_out
    from runner.plan.ways_out.way_out import Kind

    try:
        repository = Repository.open(start)
    except IsolationError:
        return  # reported by the check of git
    try:
        stories = load_stories((), top=repository.top, default=settings.stories)
    except RunnerError:
        stories = ()  # reported by the check of stories
    found = find_ways_out(repository, settings, root, stories=stories, environ=environ)
    if write_guard.own_path:
        found = tuple(way for way in found if way.kind is Kind.INSTALLED)  # it has no path to lead by
    elif not found:
        detail = f"none found, though sessions can see the main checkout: {write_guard.in_sight}"
        yield Check(name="ways out", level=Severity.OK, detail=detail)
    refusing = verdict.refused(found, settings, stories)
    for way in found:
        level = Severity.FAIL if way in refusing else Severity.WARN
        yield Check(name="way out", level=level, detail=way.detail, hint=f"{way.kind.remedy}.")


def _agents(settings: Settings, environ: dict[str, str]) -> Check:
    own = {name: agent.argv or agent.acp for name, agent in settings.agents.items()}
    own = {name: command for name, command in own.items() if command}
    missing = [name for name, command in own.items() if not _program(command[0])]
    if missing:
        return Check(
            name="agents",
            level=Severity.WARN,
            detail=f"configured, but not found: {', '.join(missing)}",
            hint="check `argv` or `acp` under [agents] in autopilot-multi.toml.",
        )
    installed = list(find_installed(environ))
    found = [agent.description for agent in installed] + [f"{name} (configured)" for name in own]
    if not found:
        return Check(
            name="agents",
            level=Severity.WARN,
            detail="none found on PATH; stories with a `command` of their own still run",
            hint="install claude or codex, or describe one under [agents]; `autopilot-multi init` shows how.",
        )
    signed_in = bool(own) or any(agent.sign_in for agent in installed)
    return Check(
        name="agents",
        level=Severity.OK if signed_in else Severity.WARN,
        detail=", ".join(found),
        hint="" if signed_in else "sign in to one of them, or set its API key; its own help explains how.",
    )


def _agent_conflicts(start: Path, settings: Settings, root: Path, environ: dict[str, str]) -> Iterator[Check]:
    """Yield the installed agents that would not work here as they are configured."""
    from isolation.git.repository import Repository

    described = {
        found.name: settings.agents.get(found.name, AgentSettings()) for found in find_installed(environ)
    }
    agents = [KNOWN[name](agent) for name, agent in described.items() if not (agent.argv or agent.acp)]
    try:
        repository = Repository.open(start)
        found = agent_conflicts(agents, repository, enforcement_of(repository, settings, root).means)
    except (IsolationError, RunnerError):
        return  # a run with these settings is refused, with an error of its own
    for conflict in found:
        yield Check(
            name=f"agent {conflict.agent}",
            level=Severity.WARN,
            detail=conflict.detail,
            hint=f"{conflict.hint}.",
        )


def _program(name: str) -> bool:
    # A path with a folder is relative to the story's workspace, which does not exist yet.
    return os.sep in name or shutil.which(name) is not None


def _machine(sample: ResourceSample, settings: Settings) -> Check:
    allowed = at_start(sample, settings)
    good = allowed.tier in {Tier.GREEN, Tier.UNKNOWN} and allowed.stories == settings.max_stories
    return Check(
        name="machine",
        level=Severity.OK if good else Severity.WARN,
        detail=window(allowed.stories, settings.max_stories, allowed.tier, allowed.reason),
        hint=""
        if good
        else "fewer stories or agents will run in parallel; close other programs that use the machine.",
    )


def _signals(sample: ResourceSample) -> Iterator[Check]:
    """Show each signal alone; the tier says what they mean together."""
    free = _words(sample.pressure_free_percent, "{:.0f} % free of pressure", " (only macOS reports it)")
    stalls = {"memory": sample.memory_stall, "processor": sample.cpu_stall, "disk": sample.io_stall}
    waited = ", ".join(f"for {name} {_words(value, '{:.1f} %')}" for name, value in stalls.items())
    peers = sample.peers
    details = {
        "memory": _words(_gigabytes(sample.memory_available), "{:.1f} GB free"),
        "swap": _words(_gigabytes(sample.swap_used), "{:.1f} GB in use"),
        "pressure": free,
        "load": _words(sample.load_per_cpu, "{:.2f} per available processor, last minute"),
        "waiting": f"{waited} of the last 10 seconds",
        "other agents": _words(peers, count(peers or 0, "session") + " besides ours"),
    }
    for name, detail in details.items():
        yield Check(name=name, level=Severity.OK, detail=detail)


def _words(value: float | None, form: str, why_unknown: str = "") -> str:
    return f"unknown{why_unknown}" if value is None else form.format(value)


def _gigabytes(number: int | None) -> float | None:
    return None if number is None else number / GB


def _worktrees(paths: RepositoryPaths, settings: Settings) -> Path:
    if not settings.worktree_root:
        return worktree_root(paths.common_dir)
    return worktree_root(paths.common_dir, paths.top / Path(settings.worktree_root).expanduser())


def _disk(sample: ResourceSample, root: Path) -> Check:
    free, inodes = sample.disk_free, sample.inodes_free
    level = max(
        _level_of(free, scarce=_SCARCE_DISK, least=_LEAST_DISK),
        _level_of(inodes, scarce=_SCARCE_INODES, least=_LEAST_INODES),
        key=list(Severity).index,
    )
    space = _words(_gigabytes(free), "{:.1f} GB free", " free space")
    files = _words(inodes, "room for {:,} files", " number of files")
    hint = "" if level is Severity.OK else "free some space, or set `worktree-root` to another disk."
    return Check(name="disk", level=level, detail=f"{space}, {files}, at {root}", hint=hint)


def _level_of(amount: int | None, *, scarce: int, least: int) -> Severity:
    if amount is None or amount >= scarce:
        return Severity.OK
    return Severity.WARN if amount >= least else Severity.FAIL


def _open_files() -> Check:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or limit >= _SCARCE_FILES:
        return Check(name="open files", level=Severity.OK, detail=f"limit {limit}")
    return Check(
        name="open files",
        level=Severity.WARN,
        detail=f"limit {limit}",
        hint="raise it with `ulimit -n 4096`.",
    )


def _journal(common_dir: Path) -> Check:
    path = journal_path(common_dir)
    try:
        with Journal.open_readonly(path) as journal:
            runs = len(journal.runs())
        require_sound(path)
    except NotFoundError:
        return Check(name="journal", level=Severity.OK, detail="none yet")
    except RunnerError as error:
        return Check(name="journal", level=Severity.FAIL, detail=error.message, hint=error.hint)
    return Check(name="journal", level=Severity.OK, detail=f"sound, {count(runs, 'run')}")


def _pool(start: Path, settings: Settings) -> Iterator[Check]:
    """Show which worktrees are ready for stories, and how many there may be."""
    from isolation.git.repository import Repository
    from isolation.worktree.pool.pool import size_of
    from isolation.worktree.pool.seals import load_seals

    try:
        repository = Repository.open(start)
    except IsolationError:
        return  # the check of git has said so
    seals, most = load_seals(repository.common_dir), size_of(repository, settings.pool, settings.max_stories)
    ready = f"{count(len(seals), 'spare worktree')} ready for stories, at most {most} are kept"
    if not seals and not most:
        ready = "no spare worktrees are kept; worktrees of this repository are made quickly enough"
        ready = ready if settings.pool is None else "no spare worktrees are kept, as `pool` says"
    gone = [seal.path for seal in seals if not Path(seal.path).is_dir()]
    if gone:
        hint = "the next run forgets it."
        yield Check(name="pool", level=Severity.WARN, detail=f"{ready}; {gone[0]} is gone", hint=hint)
    else:
        yield Check(name="pool", level=Severity.OK, detail=ready)


def _coordinator(common_dir: Path) -> Iterator[Check]:
    holder = read_holder(common_dir)
    if holder_is_alive(common_dir):
        who = f"run {holder.run_id}, pid {holder.pid}, since {clock(holder.since)}" if holder else "unnamed"
        yield Check(name="coordinator", level=Severity.OK, detail=who)
        return
    if holder and not holder.run_id.startswith(LEASE):
        yield Check(
            name="coordinator",
            level=Severity.WARN,
            detail=f"run {holder.run_id} was killed",
            hint=f"continue it with `autopilot-multi resume {holder.run_id}`.",
        )
    else:
        yield Check(name="coordinator", level=Severity.OK, detail="none")
    yield from _landings(common_dir)
    # Every keeper holds this lock as long as it lives, so its holders are what a killed run has left.
    left = _holders_of(keepers_lock_path(common_dir))
    if left:
        pids = " ".join(map(str, left))
        yield Check(
            name="processes",
            level=Severity.FAIL,
            detail=f"left over from a killed run: {pids}",
            hint=f"they exit by themselves within seconds; if not: kill {pids}",
        )


def _landings(common_dir: Path) -> Iterator[Check]:
    """Name landings that a killed process has left between their beginning and their end."""
    try:
        with Journal.open_readonly(journal_path(common_dir)) as journal:
            left = [each for each in journal.landings() if not each.state.final]
    except RunnerError:
        return  # the check of the journal says so
    for each in left:
        yield Check(
            name="landing",
            level=Severity.WARN,
            detail=f"landing {each.id} on {each.onto} was interrupted",
            hint="`autopilot-multi resume` finishes or abandons it.",
        )


def _sessions(paths: RepositoryPaths) -> Iterator[Check]:
    """List the other sessions in this repository, in any of its worktrees."""
    from isolation.git.registrations import checkouts
    from isolation.git.repository import Repository

    now = time.time()
    locks = locked(checkouts(Repository(paths=paths, version=())), now)
    for session in locks:
        alone = runs_alone(session.mode)
        yield Check(
            name="session",
            level=Severity.WARN if alone else Severity.OK,
            detail=session.description,
            hint="until it has ended, stories ask or wait; if it is over, remove its lock." if alone else "",
        )
    try:
        active = Registry(paths.common_dir).active(now)
    except OSError as error:
        hint = "make the folder readable, or remove it while nothing runs."
        yield Check(name="sessions", level=Severity.WARN, detail=f"the registry: {error}", hint=hint)
        return
    if not active and not locks:
        yield Check(name="sessions", level=Severity.OK, detail="none")
    for entry in active:
        detail = f"{entry.description}, last heartbeat {span(now - entry.heartbeat)} ago"
        level, hint = Severity.OK, ""
        if runs_alone(entry.mode):
            level, hint = Severity.WARN, "until it has ended, stories ask or wait before they start."
        elif entry.flaw:
            level, detail, hint = (
                Severity.WARN,
                entry.flaw,
                "it is ignored after 15 minutes; or remove the file.",
            )
        yield Check(name="session", level=level, detail=detail, hint=hint)


def _holders_of(path: Path) -> list[int]:
    """Return the processes that have a file open."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            opened = any(link.samefile(path) for link in (process / "fd").iterdir() if link.exists())
        except OSError:
            continue
        if opened:
            found.append(int(process.name))
    return sorted(found)
