"""Whether the repository is ready for a run: base, folders, stories, agents, verify, uncommitted files."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from isolation.errors import IsolationError
from isolation.git.repository import Repository
from isolation.model import IsolationMode
from runner.agents.catalog import workers_of
from runner.core.errors import AgentError, RunnerError
from runner.core.model import Story
from runner.core.settings import Settings
from runner.core.text.words import count
from runner.plan.readiness import LFS_SETUP, SUBMODULE_HOOK, missing_programs, unseen_by_stories, unwritable
from runner.plan.stories.sources import load_stories
from runner.run.doctor.check import Check, Severity

_NAMED = 3


def readiness(
    start: Path,
    settings: Settings,
    root: Path,
    environ: dict[str, str],
    *,
    stories: Sequence[Story] | None = None,
) -> Iterator[Check]:
    """Yield what would stop a run of this repository, or surprise its stories.

    These are the stories of its files, unless others are given.
    """
    try:
        repository = Repository.open(start)
    except IsolationError:
        return  # the check of git has said so
    try:
        commit = repository.resolve(settings.base)
        yield Check(
            name="base", level=Severity.OK, detail=f"stories start from {settings.base} ({commit[:10]})"
        )
    except IsolationError as error:
        hint = error.hint if repository.head() else 'git add -A && git commit -m "Initial commit"'
        yield Check(name="base", level=Severity.FAIL, detail=error.message, hint=hint)
    yield from _folders(repository.common_dir, settings, root)
    if stories is None:
        yield from _stories(repository, settings, environ)
    else:
        yield from _carried(repository, settings, stories, environ)
    yield from _unseen(repository, settings)
    if repository.has_identity:
        yield Check(name="identity", level=Severity.OK, detail="commits are made under your name")
    else:
        yield Check(
            name="identity",
            level=Severity.WARN,
            detail="git has no identity here; commits are made under the name autopilot-multi",
            hint='git config user.name "Your Name" && git config user.email you@example.com',
        )


def _folders(common_dir: Path, settings: Settings, root: Path) -> Iterator[Check]:
    needed = {"git directory": common_dir}
    if settings.bg_isolation == IsolationMode.WORKTREE:
        needed["worktrees"] = root
    for name, path in needed.items():
        place = unwritable(path)
        if place is None:
            yield Check(name=name, level=Severity.OK, detail=str(path))
            continue
        another = ", or set `worktree-root` to another folder" if path == root else ""
        yield Check(
            name=name,
            level=Severity.FAIL,
            detail=f"{path}: you cannot write to {place}",
            hint=f"change its permissions or its owner{another}.",
        )


def _stories(repository: Repository, settings: Settings, environ: dict[str, str]) -> Iterator[Check]:
    try:
        stories = load_stories((), top=repository.top, default=settings.stories)
    except RunnerError as error:
        stories = ()
        absent = not (repository.top / settings.stories).exists()
        level = Severity.WARN if absent else Severity.FAIL
        yield Check(name="stories", level=level, detail=error.message, hint=error.hint)
    else:
        yield Check(
            name="stories",
            level=Severity.OK,
            detail=f"{count(len(stories), 'story', 'stories')} in {settings.stories}",
        )
    yield from _carried(repository, settings, stories, environ)


def _carried(
    repository: Repository, settings: Settings, stories: Sequence[Story], environ: dict[str, str]
) -> Iterator[Check]:
    """Yield what stories need and this machine does not have."""
    for story in stories:
        try:
            workers_of(story, settings)
        except AgentError as error:
            yield Check(name="agent", level=Severity.FAIL, detail=error.message, hint=error.hint)
            break  # the same is true of most other stories
    yield from _verify(repository, settings, stories, environ)


def _verify(
    repository: Repository, settings: Settings, stories: Sequence[Story], environ: dict[str, str]
) -> Iterator[Check]:
    groups = dict.fromkeys([settings.verify, *(story.verify for story in stories)])
    missing = {
        each.program: each
        for commands in groups
        for each in missing_programs(commands, repository, settings, environ)
    }
    for each in missing.values():
        detail = f"`{each.command}` cannot run: {each.program} {each.why}"
        yield Check(name="verify", level=Severity.FAIL, detail=detail, hint=each.hint)
    if missing:
        return
    if settings.verify:
        yield Check(name="verify", level=Severity.OK, detail="; ".join(settings.verify))
    elif any(not story.verify for story in stories):
        yield Check(
            name="verify",
            level=Severity.WARN,
            detail="no command; the work of some stories will not be checked",
            hint='set one in autopilot-multi.toml, for example `verify = ["make test"]`.',
        )


def _unseen(repository: Repository, settings: Settings) -> Iterator[Check]:
    unseen = unseen_by_stories(repository, settings)
    if unseen.uncommitted:
        number = count(len(unseen.uncommitted), "uncommitted file")
        yield Check(
            name="checkout",
            level=Severity.WARN,
            detail=f"{number} that stories will not see: {_listed(unseen.uncommitted)}",
            hint="commit what stories need; they start from a commit.",
        )
    if unseen.installed:
        yield Check(
            name="packages",
            level=Severity.WARN,
            detail=f"git does not ignore installed packages: {_listed(unseen.installed)}",
            hint="add them to .gitignore, so that nothing commits them, and stories can share them.",
        )
    if not unseen.uncommitted and not unseen.installed:
        yield Check(
            name="checkout", level=Severity.OK, detail="stories see everything in it that git does not ignore"
        )
    if unseen.submodules:
        yield Check(
            name="submodules",
            level=Severity.WARN,
            detail=f"empty in worktrees: {_listed(unseen.submodules)}",
            hint=f"fill them before the first session: under [hooks], `{SUBMODULE_HOOK}`.",
        )
    if unseen.large_files:
        yield Check(
            name="git-lfs",
            level=Severity.WARN,
            detail=f"{unseen.large_files}: stories see pointers, and commit large files whole",
            hint=f"{LFS_SETUP}.",
        )


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _NAMED} more" if len(paths) > _NAMED else ""
    return ", ".join(paths[:_NAMED]) + more


def overlays(settings: Settings, root: Path) -> Iterator[Check]:
    """Show whether worktrees can be layers over one checkout, if the settings ask for it; by a trial."""
    from isolation.guard.guard import OVERLAID, supported

    if settings.workspace == "worktree":
        return
    where = next(folder for folder in (root, *root.parents) if folder.is_dir())
    found = supported(OVERLAID, where)
    if found.available and settings.guard:
        detail = "the worktrees of stories are layers over one checkout"
        yield Check(name="overlays", level=Severity.OK, detail=detail)
        return
    why = found.reason if settings.guard else "the write guard is off"
    asked = settings.workspace == "overlay"
    yield Check(
        name="overlays",
        level=Severity.FAIL if asked else Severity.WARN,
        detail=f"not available: {why}",
        hint="set `workspace` to `worktree` or `auto`." if asked else "stories get ordinary worktrees.",
    )
