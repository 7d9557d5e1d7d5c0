"""Several stories in one working tree: which paths each owns, and at which level that is enforced.

Only the coordinator commits. If a session tries to, git itself refuses, through a hook that only sessions
see. What the session wrote stays in the tree, and the coordinator commits it.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from isolation.claims import globs as claims
from isolation.claims.globs import Claim
from isolation.claims.owners import ANYBODY, Owners, folders_around, roots
from isolation.errors import ClaimError, GuardError
from isolation.files.disk import replace_file
from isolation.git.repository import Repository, offload
from isolation.guard.guard import Support
from isolation.model import Attempts, Confinement, EnforcementLevel, IsolationMode, Means
from isolation.paths import EXCHANGE, autopilot_dir, folds_case, overlays_path
from isolation.shared_tree.findings import Refusals, Watch, judge
from isolation.shared_tree.levels import LEVELS, Level, SharedTree
from runner.core.errors import SettingsError
from runner.core.flow import STATE_NAMES, docs_folder
from runner.core.model import RunId, Story
from runner.core.settings import Settings
from runner.plan.guard import FULL, SECRETS, WriteGuard, sealed, write_guard_of
from runner.records.deviations import STATE_FILES

if TYPE_CHECKING:
    from runner.plan.ways_out.way_out import WayOut

AUTO = "auto"
_OWN_FILES = ("_docs/_autopilot_multi_state.md", *STATE_FILES)
"""Files that this program itself writes into the tree while stories run, besides their state files."""

_MOST_SHARED = 500
"""How many shared folders a session gets directly, each as a mount. Others go through its overlay."""

_REFUSAL = """#!/bin/sh
# Sessions in a shared working tree find this hook; the coordinator and people do not.
if [ "$1" = prepared ]; then
    echo "autopilot-multi: several stories share this working tree, so its coordinator alone commits." >&2
    echo "Leave your changes in the files; they are committed for you." >&2
    exit 1
fi
"""


class OpenSharedTree(Struct, frozen=True, kw_only=True):
    """The shared tree during one run: its claims, its watch, and what sessions may write to.

    `confine` returns the confinement of a story's sessions, None where the system offers none; `judge` judges
    the writes that the confinement refused. Both block. `admit` takes the claim of a story that joins the
    run, which was proven disjoint from the others, or raises if the level cannot enclose it. `refusal` are
    environment variables that make git refuse commits in sessions. `shared` are folders that every story may
    write to.
    """

    claims: Mapping[str, Claim]
    watch: Watch
    confine: Callable[[str], Confinement | None]
    judge: Callable[[str, Attempts], Refusals]
    admit: Callable[[Story], None]
    refusal: Mapping[str, str]
    overlays: Path
    shared: Sequence[str] = ()

    def folders(self, top: Path, story_id: str) -> tuple[Path, ...]:
        """Create and return the folders that a story may write to: a sandbox only opens existing ones."""
        own = (f"{EXCHANGE}/{story_id}", *(folders_around(self.claims[story_id]) or (".",)))
        for folder in own:
            (top / folder).mkdir(parents=True, exist_ok=True)
        return tuple(top / folder for folder in (*own, *self.shared))

    def activity_paths(self, top: Path, story_id: str) -> tuple[Path, ...]:
        """Return where a story's own changes appear: changes of other stories are not its activity."""
        own = (*roots(self.claims[story_id]), f"{EXCHANGE}/{story_id}")
        anywhere = not roots(self.claims[story_id])
        return (*((top,) if anywhere else (top / path for path in own)), self.overlays / story_id / "upper")


class EnforcementPlan(Struct, frozen=True, kw_only=True):
    """How the stories of a run are kept within their paths: asked of the machine once, then passed down.

    `write_guard` is for worktrees, `level` for a shared tree. `means` is what confines sessions, if anything
    does; `warning` says what is not prevented or not seen, and why. `ways_out` are those by which verify
    commands would use the checkout.
    """

    write_guard: WriteGuard = field(default_factory=WriteGuard)
    level: Level | None = None
    means: Means | None = None
    warning: str = ""
    ways_out: "tuple[WayOut, ...]" = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything that the user must know before the start, a line each."""
        return tuple(filter(None, (self.warning, self._unsealed, *(way.line for way in self.ways_out))))

    @property
    def _unsealed(self) -> str:
        """That sessions see what is private, where they are confined and yet not sealed."""
        why = self.write_guard.unsealed
        return f"sessions can read your keys and other private files: {why}" if self.means and why else ""

    @property
    def name(self) -> str:
        """The enforcement level, for plans and reports."""
        return self.write_guard.enforcement if self.level is None else self.level.name


def enforcement_of(repository: Repository, settings: Settings, root: Path) -> EnforcementPlan:
    """Find out how stories are kept within their paths. Blocks for a moment at the first call."""
    if settings.bg_isolation != IsolationMode.NONE:
        write_guard = write_guard_of(repository.paths, settings, root)
        return EnforcementPlan(write_guard=write_guard, means=write_guard.means, warning=write_guard.note)
    supports = _supports(settings, root, repository.top)
    level = _best(settings, supports)
    why = "" if level.prevents else f" ({_why_unprevented(settings, supports)})"
    support = supports[level]
    guard = sealed(WriteGuard(), support.means, repository.paths, settings, root)
    warning = "; ".join(filter(None, (f"{level.gap()}{why}", support.gap)))
    return EnforcementPlan(write_guard=guard, level=level, means=support.means, warning=warning)


def require_enforcement(
    repository: Repository, settings: Settings, root: Path, stories: Sequence[Story]
) -> EnforcementPlan:
    """Find out how these stories are kept within their paths; refuse claims that the level cannot enclose."""
    plan = _sealed_as_asked(enforcement_of(repository, settings, root), settings)
    if plan.level is not None:
        try:
            plan.level.require_enclosable(repository.top, {story.id: story.owns for story in stories})
        except GuardError as error:
            raise SettingsError(error.message, hint=error.hint) from error
    return _without_ways_out(plan, repository, settings, root, stories)


def enforcement_again(
    repository: Repository, settings: Settings, root: Path, stories: Sequence[Story]
) -> EnforcementPlan:
    """Find out how the stories of a run that continues are kept within their paths."""
    plan = _sealed_as_asked(enforcement_of(repository, settings, root), settings)
    return _without_ways_out(plan, repository, settings, root, stories)


def _sealed_as_asked(plan: EnforcementPlan, settings: Settings) -> EnforcementPlan:
    """Refuse a seal that was asked for by name and is not available."""
    if settings.seal not in {SECRETS, FULL} or plan.write_guard.seal is not None:
        return plan
    raise SettingsError(
        f"seal '{settings.seal}' is not available for this run: {plan.write_guard.unsealed}",
        hint="`autopilot-multi doctor` shows what this machine can do; `--seal auto` seals where it can.",
    )


def _without_ways_out(
    plan: EnforcementPlan, repository: Repository, settings: Settings, root: Path, stories: Sequence[Story]
) -> EnforcementPlan:
    """Look for the ways by which verify commands would use the checkout; refuse them if the settings say so.

    Costs nothing where a session sees its own tree under the path of the checkout.
    """
    if settings.bg_isolation == IsolationMode.NONE or plan.write_guard.own_path:
        return plan
    from runner.plan.ways_out import verdict

    if settings.ways_out == verdict.IGNORE:
        return replace(plan, warning="; ".join(filter(None, (plan.warning, verdict.NOT_LOOKED_FOR))))
    because = plan.write_guard.in_sight
    ways_out = verdict.require_no_way_out(repository, settings, root, stories, because=because)
    if not ways_out:
        return plan
    why = f"verify commands may use the main checkout, which sessions can read ({because})"
    return replace(plan, ways_out=ways_out, warning="; ".join(filter(None, (plan.warning, why))))


def require_level(settings: Settings, root: Path, top: Path) -> Level:
    """Return the level at which claims in a shared tree are enforced: as asked, or the best available.

    Without the system's help a foreign write is only found afterwards. With one story at a time it is clear
    whose write it was; with several the user must consent.
    """
    return _best(settings, _supports(settings, root, top))


def _best(settings: Settings, supports: Mapping[Level, Support]) -> Level:
    best = next((level for level, support in supports.items() if support.available), None)
    if best is None:
        reason = next(iter(supports.values())).reason
        raise SettingsError(
            f"enforcement level '{settings.enforce}' is not available on this machine: {reason}",
            hint="`autopilot-multi doctor` shows what is; `--enforce detect` only finds foreign writes.",
        )
    if settings.enforce == AUTO and not best.prevents and settings.max_stories > 1:
        raise SettingsError(
            "nothing on this machine keeps stories in one tree from writing into each other's paths; "
            f"such writes can only be found afterwards ({_why_unprevented(settings, supports)})",
            hint="consent with `--enforce detect`, or run one story at a time: --max-stories 1.",
        )
    return best


def _supports(settings: Settings, root: Path, top: Path) -> dict[Level, Support]:
    where = _probed(root)
    return {level: level.support_for(top, where) for level in _levels(settings)}


def _why_unprevented(settings: Settings, supports: Mapping[Level, Support]) -> str:
    if settings.enforce != AUTO:
        return f"as enforce '{settings.enforce}' asks for"
    if not settings.guard:
        return "the write guard is switched off"
    missing = (support for support in supports.values() if not support.available)
    return "; ".join(f"{support.level}: {support.reason}" for support in missing)


def _levels(settings: Settings) -> tuple[Level, ...]:
    """Return the levels that the settings allow, the preferred one first."""
    if settings.enforce != AUTO:
        return (LEVELS[EnforcementLevel(settings.enforce)],)
    return tuple(level for level in LEVELS.values() if settings.guard or not level.prevents)


def _probed(root: Path) -> Path | None:
    """Return an existing folder on the disk that overlays will be on; None for any disk."""
    nearest = next(folder for folder in root.parents if folder.is_dir())
    return nearest if os.access(nearest, os.W_OK) else None


def require_shareable(settings: Settings, repository: Repository, base: str) -> None:
    """Refuse unusable globs, and a base other than the commit that is checked out."""
    for key, globs in (
        ("verify-keeps", settings.verify_keeps),
        ("shared-writable", settings.shared_writable),
    ):
        try:
            claims.compile(globs)
        except ClaimError as error:
            raise SettingsError(f"{key}: {error.message}", hint=error.hint) from error
    if settings.bg_isolation != IsolationMode.NONE:
        return
    if base != repository.head():
        raise SettingsError(
            f"base {settings.base!r} is not checked out, and bg-isolation 'none' works on the checkout",
            hint="omit --base, or check that commit out first.",
        )


@asynccontextmanager
async def open_shared_tree(
    repository: Repository,
    run_id: RunId,
    stories: Sequence[Story],
    settings: Settings,
    root: Path,
    *,
    level: Level | None,
    byproducts: Iterable[str] = (),
    beside: Sequence[Path] = (),
) -> AsyncIterator[OpenSharedTree | None]:
    """Prepare a shared tree for a run at a level; None in worktrees, which have no level.

    `byproducts` are names of what agents leave at its top, `beside` the folders of other repositories of the
    run.
    """
    if level is None:
        yield None
        return
    names = [pattern.strip("/") for pattern in byproducts]
    opened = await offload(
        partial(_opened, level=level, byproducts=names), repository, run_id, stories, settings, root
    )
    around = partial(_without, opened.confine, _apart_from(repository.top, beside))
    try:
        yield replace(opened, confine=around) if beside else opened
    finally:
        for folder in (opened.overlays, opened.overlays.parent):
            with suppress(OSError):  # one that still holds something is kept
                folder.rmdir()


def _apart_from(top: Path, beside: Sequence[Path]) -> dict[Path, str]:
    """Return what to close of other repositories, unless one lies around or inside the tree."""
    apart = (path for path in beside if not top.is_relative_to(path) and not path.is_relative_to(top))
    return {path: "another repository" for path in apart if path.is_dir()}


def _without(
    confine: Callable[[str], Confinement | None], closed: Mapping[Path, str], story_id: str
) -> Confinement | None:
    made = confine(story_id)
    return None if made is None else replace(made, read_only={**closed, **made.read_only})


def _opened(
    repository: Repository,
    run_id: RunId,
    stories: Sequence[Story],
    settings: Settings,
    root: Path,
    *,
    level: Level,
    byproducts: Sequence[str],
) -> OpenSharedTree:
    folding = folds_case(repository.top)
    owned = {str(story.id): claims.compile(story.owns, folding=folding) for story in stories}
    overlays = overlays_path(root, run_id)
    writable = claims.compile(settings.shared_writable, folding=folding)
    left = tuple(glob for name in byproducts for glob in (name, f"{name}/**"))
    docs = docs_folder(settings.docs_folder, "*")
    # The folder itself as well: it appears while sessions of other stories run.
    own = (*_OWN_FILES, docs, *(f"{docs}/{name}" for name in STATE_NAMES))
    open_to_all = claims.compile((*settings.shared_writable, *own, *left), folding=folding)
    shared = _shared_folders(repository.top, writable)
    tree = SharedTree(
        repository=repository,
        run_id=run_id,
        claims=owned,
        writable=writable,
        open_to_all=open_to_all,
        folders=shared,
        overlays=overlays,
        byproducts=claims.compile(left, folding=folding) if left else None,
    )
    enforcement = level.open(tree)
    owners = Owners({**owned, ANYBODY: open_to_all})

    def admit(story: Story) -> None:
        level.require_enclosable(repository.top, {story.id: story.owns})
        claim = owned[story.id] = claims.compile(story.owns, folding=folding)
        owners.put(story.id, claim)
        enforcement.watch.admit(story.id, claim)

    return OpenSharedTree(
        claims=owned,
        watch=enforcement.watch,
        confine=enforcement.confine,
        judge=partial(judge, repository, owners),
        admit=admit,
        refusal=_refusal(repository),
        overlays=overlays,
        shared=shared,
    )


def _shared_folders(top: Path, writable: Claim) -> tuple[str, ...]:
    """Find the folders that every story may write to, so that sessions can get them directly."""
    found: list[str] = []
    for folder, names, _ in os.walk(top):
        inside = os.path.relpath(folder, top)
        paths = {name: name if inside == "." else f"{inside}/{name}" for name in names}
        real = {name for name in names if not Path(folder, name).is_symlink()} - (
            {".git", EXCHANGE} if inside == "." else set()
        )
        opened = {name for name in real if writable.owns(paths[name])}
        found += sorted(paths[name] for name in opened)
        names[:] = sorted(real - opened)
    return tuple(found[:_MOST_SHARED])


def _refusal(repository: Repository) -> dict[str, str]:
    """Return the environment in which git refuses to move any ref of this repository."""
    folder = autopilot_dir(repository.common_dir) / "refusing"
    folder.mkdir(parents=True, exist_ok=True)
    replace_file(folder / "reference-transaction", _REFUSAL.encode(), mode=0o755)
    config = folder.with_name("refusing.config")
    replace_file(config, b"[core]\n\thooksPath = " + _quoted(folder) + b"\n")
    already = os.environ.get("GIT_CONFIG_COUNT", "")
    number = int(already) if already.isdigit() else 0
    pattern = "".join(f"\\{char}" if char in "\\*?[" else char for char in str(repository.common_dir))
    environment = {"GIT_CONFIG_COUNT": str(number + 2)}
    for git_dir in (pattern, f"{pattern}/"):  # the checkout's own git directory, and those of worktrees
        environment[f"GIT_CONFIG_KEY_{number}"] = f"includeIf.gitdir:{git_dir}.path"
        environment[f"GIT_CONFIG_VALUE_{number}"] = str(config)
        number += 1
    return environment


def _quoted(path: Path) -> bytes:
    return b'"' + bytes(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"'
