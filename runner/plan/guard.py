"""The write guard of a run in worktrees: what keeps sessions out of the main checkout and other worktrees."""

import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.errors import IsolationError
from isolation.git.repository import Repository
from isolation.guard.guard import READ_ONLY, for_worktree, supported, worktree_support
from isolation.guard.network import network_gap
from isolation.guard.seal import Seal
from isolation.guard.view import View, view_of
from isolation.model import Confinement, IsolationMode, Means, Network, Workspace
from isolation.network.presets import expanded
from isolation.paths import RepositoryPaths, autopilot_dir, git_place
from runner.core.settings import Settings

_PROXIES = ("HTTPS_PROXY", "ALL_PROXY", "HTTP_PROXY")
_UV = "UV_PROJECT_ENVIRONMENT"
WRITES, SECRETS, FULL = "writes", "secrets", "full"
UNGUARDED = "sessions can write into the main checkout and into each other's worktrees"


class WriteGuard(Struct, frozen=True, kw_only=True):
    """The write guard of a run. Without `means` there is none, and `note` says why; else what it leaves open.

    With a `view` a session's own tree stands at the place of the main checkout; without one `in_sight` says
    why sessions can still read that. `seal` is how sessions are kept from what is private to the user; it
    exists for a shared tree too. Without one, `unsealed` says why. `beside` are the folders of other
    repositories in which stories of the run work.
    """

    means: Means | None = None
    note: str = ""
    view: View | None = None
    in_sight: str = ""
    seal: Seal | None = None
    unsealed: str = ""
    beside: tuple[Path, ...] = ()

    @property
    def sealing(self) -> str:
        """What sessions cannot reach, for plans and reports."""
        if self.seal is None:
            return WRITES
        return SECRETS if self.seal.network is None else FULL

    @property
    def own_path(self) -> bool:
        """Whether sessions see their own tree under the repository's path."""
        return self.view is not None

    @property
    def enforcement(self) -> str:
        """The enforcement level, for plans and reports."""
        return "none" if self.means is None else READ_ONLY.level.value

    def around(
        self,
        workspace: Workspace,
        *,
        repository: Repository,
        root: Path,
        settings: Settings,
        hook: str = "",
    ) -> Confinement | None:
        """Return the confinement of a session, or of a hook, in a worktree; `root` holds all. Blocks."""
        if self.means is None:
            return None
        shared, view = settings.symlink_directories, self.view.for_command(hook) if self.view else None
        return for_worktree(
            repository,
            workspace,
            means=self.means,
            root=root,
            shared=shared,
            view=view,
            beside=self.beside,
        )

    @property
    def variables(self) -> dict[str, str]:
        """What sessions find in their environment because of the view.

        An activated environment is read-only to them. uv would synchronize it before each command, so it is
        sent to one of the worktree's own, as it makes where none is activated.
        """
        borrowed = self.view is not None and ".venv" in self.view.lent
        return {} if not borrowed or _UV in os.environ else {_UV: ".venv-story"}

    def inside(self, path: Path, tree: Path) -> Path:
        """Return where a session whose worktree is `tree` sees a path."""
        return self.view.inside(path, tree) if self.view else path


def probe_ahead(repository: Repository, settings: Settings) -> None:
    """Start to ask the machine and git in a thread what a run must know, while the plan is being made.

    Both answers are cached. Code that needs one before it has arrived waits for it.
    """
    guarded = settings.bg_isolation == IsolationMode.WORKTREE and settings.guard

    def ask() -> None:
        with suppress(OSError, IsolationError):  # raised again when the answer is needed
            _ = repository.has_identity
            if guarded:
                supported(READ_ONLY)

    threading.Thread(target=ask).start()


def write_guard_of(paths: RepositoryPaths, settings: Settings, root: Path) -> WriteGuard:
    """Find out what guards a run with these settings. Blocks for a moment at the first call."""
    if settings.bg_isolation != IsolationMode.WORKTREE:
        return WriteGuard()
    found = _without_seal(paths, settings, root)
    return sealed(found, found.means, paths, settings, root)


def sealed(
    guard: WriteGuard, means: Means | None, paths: RepositoryPaths, settings: Settings, root: Path
) -> WriteGuard:
    """Return the guard with the seal that the settings ask for, as far as these means can do it."""
    if settings.seal == WRITES:
        return replace(guard, unsealed="the setting `seal` leaves them open")
    if means is not Means.MOUNTS:
        why = "this machine cannot mount for a session" if means else "nothing confines sessions"
        return replace(guard, unsealed=why)
    gap = network_gap() if settings.seal == FULL else ""
    if gap:
        return replace(guard, unsealed=f"a session cannot have a network of its own here ({gap})")
    seal = Seal(
        folder=autopilot_dir(paths.common_dir) / "seal",
        needed=tuple(
            dict.fromkeys(
                Path(os.path.realpath(path))
                for path in (paths.top, paths.main_checkout, paths.common_dir, root, git_place(root))
                if path
            )
        ),
        shows=settings.seal_shows,
        network=_network(settings, os.environ) if settings.seal == FULL else None,
    )
    return replace(guard, seal=seal)


def _network(settings: Settings, environ: Mapping[str, str]) -> Network:
    """Return the network of sessions: what all of them reach, through the proxy that the user has, if any."""
    named = (environ.get(name) or environ.get(name.lower()) for name in _PROXIES)
    direct = environ.get("NO_PROXY") or environ.get("no_proxy") or ""
    return Network(
        allowed=expanded(settings.seal_network),
        upstream=next(filter(None, named), ""),
        direct=tuple(filter(None, re.split(r"[,\s]+", direct))),
    )


def _without_seal(paths: RepositoryPaths, settings: Settings, root: Path) -> WriteGuard:
    if not settings.guard:
        note = f"the write guard is switched off: {UNGUARDED}"
        return WriteGuard(note=note, in_sight="the write guard is switched off")
    support = worktree_support(paths.main_checkout or paths.common_dir, root)
    if support.means is None:
        note = f"no write guard is available here, so {UNGUARDED} ({support.reason})"
        return WriteGuard(note=note, in_sight="no write guard is available here")
    if support.means is not Means.MOUNTS:
        in_sight = "this machine cannot mount for a session"
        return WriteGuard(means=support.means, note=support.gap, in_sight=in_sight)
    match view_of(paths, root, os.environ):
        case View() as view:
            return WriteGuard(means=support.means, note=support.gap, view=view)
        case reason:
            return WriteGuard(means=support.means, note=support.gap, in_sight=reason)
