"""What a crash has left in a repository, and what `doctor --repair` does about each thing.

Finding changes nothing. What is in the way is moved aside, never deleted; what only a command with a plan of
its own may do is named instead. The caller holds the lease while it applies.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from isolation.errors import IsolationError
from isolation.files.disk import replace_file
from isolation.files.lease import read_holder
from isolation.git.checkout import admin_dir
from isolation.git.registrations import Registration, load_registrations
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir, journal_path, lease_path
from isolation.worktree.checkout_files import is_occupied
from isolation.worktree.gc import survey_root
from isolation.worktree.removal import close_path
from runner.core.errors import JournalError, NotFoundError
from runner.core.events.fold import fold
from runner.core.flow import STATE_NAMES, docs_folder
from runner.core.model import StoryId
from runner.core.settings import Settings
from runner.core.text.names import branch_of
from runner.core.text.words import count
from runner.flows.state.disk.files import load_state, set_aside
from runner.flows.state.errors import StateError
from runner.flows.state.reading import decode, parse_state
from runner.machine.registry import Registry
from runner.records.journal import Journal
from runner.records.journal_file import CorruptJournalError, require_journal, require_sound
from runner.run.doctor.leftovers import LeftProcess, end, left_processes

ASIDE = "aside"
"""The folder, in the program's own, that takes what is moved out of the way."""

_OURS = ("*.index", "*.index.lock", "*.tmp")
_GIT_LOCKS = ("index.lock", "HEAD.lock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """One thing that a crash left: what it is, and what is done about it, or which command would.

    `apply` blocks, and returns what it did.
    """

    what: str
    act: str = ""
    command: str = ""
    apply: Callable[[], str] | None = None


def find_repairs(repository: Repository, settings: Settings, root: Path) -> Iterator[Repair]:
    """Yield what a crash left, in the order in which it is repaired. Blocking."""
    common = repository.common_dir
    runs: list[str] = []
    try:
        require_journal(journal_path(common))
        require_sound(journal_path(common))
        with Journal.open_readonly(journal_path(common)) as journal:
            runs = [str(run_id) for run_id in journal.runs()]
            yield from _unfinished(journal)
    except NotFoundError:
        pass
    except CorruptJournalError as error:
        act = "keep the damaged file beside a new journal; branches and worktrees are not affected"
        yield Repair(what=error.message, act=act, apply=partial(_begin_journal, journal_path(common)))
    except JournalError as error:
        yield Repair(what=error.message, command=error.hint)
    yield from _lease(common)
    if left := left_processes(runs):
        yield from _processes(left)
    ours = [entry for entry in load_registrations(repository)[1:] if entry.run_id is not None]
    yield from _locks(repository, ours)
    yield from _worktrees(repository, root)
    yield from _states(repository, settings, ours)
    yield from _registry(common)


def _unfinished(journal: Journal) -> Iterator[Repair]:
    run_id = journal.newest_run()
    run = fold(run_id, journal.events(run_id))
    if not run.ended:
        yield Repair(
            what=f"run {run_id} was killed before its end", command=f"autopilot-multi resume {run_id}"
        )


def _begin_journal(path: Path) -> str:
    with Journal.open(path) as journal:
        return "; ".join(journal.notes) or "the journal is sound now"


def _lease(common: Path) -> Iterator[Repair]:
    path, holder = lease_path(common), read_holder(common)
    if not path.exists():
        return
    who = f"run {holder.run_id} (pid {holder.pid}), which was killed" if holder else "an unreadable file"
    # Taking the lease settles what its last holder left; the caller has taken it by then.
    yield Repair(what=f"the lease names {who}", act="take it over, and release it", apply=lambda: "released")


def _processes(left: tuple[LeftProcess, ...]) -> Iterator[Repair]:
    for process in left:
        yield Repair(
            what=f"process {process.pid} of run {process.run_id} is still alive: {process.command[:80]}",
            act="end it",
            apply=partial(_end, process),
        )


def _end(process: LeftProcess) -> str:
    return f"process {process.pid} could not be ended" if end((process,)) else f"{process.pid} ended"


def _locks(repository: Repository, ours: list[Registration]) -> Iterator[Repair]:
    own = autopilot_dir(repository.common_dir)
    paths = {path for pattern in _OURS for path in own.glob(pattern) if path.is_file()}
    for entry in ours:
        git_dir = admin_dir(repository, entry.path)
        if git_dir is not None and is_occupied(entry.path) is False:
            paths |= {git_dir / name for name in _GIT_LOCKS if (git_dir / name).exists()}
    for path in sorted(paths):
        yield Repair(
            what=f"{path} was left by a process that was killed",
            act=f"move it to {own / ASIDE}",
            apply=partial(_move_aside, path, own / ASIDE),
        )


def _move_aside(path: Path, folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    place = folder / f"{time.time_ns()}-{path.parent.name}-{path.name}"
    path.rename(place)
    return f"kept as {place.name}"


def _worktrees(repository: Repository, root: Path) -> Iterator[Repair]:
    for finding in survey_root(repository, root):
        if finding.removable and not finding.path.exists():
            yield Repair(
                what=f"{finding.path} is registered as a worktree, but its folder is gone",
                act=f"unregister it; branch {finding.branch} stays" if finding.branch else "unregister it",
                apply=partial(_unregister, repository, finding.path, finding.branch),
            )


def _unregister(repository: Repository, path: Path, branch: str | None) -> str:
    closing = close_path(repository, path, branch)
    return "unregistered" if closing.removed else closing.reason


def _states(repository: Repository, settings: Settings, ours: list[Registration]) -> Iterator[Repair]:
    pattern = docs_folder(settings.docs_folder, "*")
    for top, branch in [(repository.top, None), *((entry.path, entry.branch) for entry in ours)]:
        for path in sorted(path for name in STATE_NAMES for path in top.glob(f"{pattern}/{name}")):
            try:
                load_state(path, copies=False)
            except StateError as error:
                yield Repair(
                    what=f"{path} cannot be read: {error.message}",
                    act="keep a copy beside it, and bring back the last good one that is committed",
                    apply=partial(_restore, repository, top, branch, path),
                )
            except OSError:
                continue


def _restore(repository: Repository, top: Path, branch: str | None, path: Path) -> str:
    copy, name = set_aside(path, path.read_bytes()), path.relative_to(top).as_posix()
    # In a shared tree no branch of a story is checked out; its folder has the name of the story.
    own = branch or branch_of(StoryId(path.parent.name))
    tips = [tip for tip in (repository.branch_tip(own), repository.head(top)) if tip]
    for commit in repository.run("log", "--format=%H", *tips, "--", name, cwd=top).stdout.split():
        found = repository.run("show", f"{commit}:{name}", cwd=top, check=False)
        data = found.stdout.encode(errors="surrogateescape")
        try:
            parse_state(decode(data))
        except StateError:
            continue
        if found.returncode == 0:
            replace_file(path, data)
            return f"that of {commit[:10]} is back; the torn one is {copy.name}"
    path.unlink()  # the copy has all of it
    return f"no good one is committed; the torn one is {copy.name}, and the folders say where the story is"


def _registry(common: Path) -> Iterator[Repair]:
    registry, now = Registry(common), time.time()
    try:
        dead = registry.dead(now)
    except (OSError, IsolationError):
        return
    if dead:

        def sweep() -> str:
            registry.sweep(now)
            return "removed"

        what = f"{count(dead, 'entry', 'entries')} of killed sessions in the registry"
        yield Repair(what=what, act="remove them", apply=sweep)
