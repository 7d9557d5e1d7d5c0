"""Files that many stories change and none owns, above all the lock files of package managers.

In a shared tree, such a file must not be open to all: each story would write its own version, and the last
one would win. It belongs to one last story, which depends on all others.
"""

from collections.abc import Sequence
from pathlib import PurePosixPath

from isolation.claims import globs as claims
from isolation.git.repository import Repository
from isolation.model import IsolationMode
from isolation.paths import folds_case
from runner.core.errors import SettingsError
from runner.core.model import Story
from runner.core.settings import SHARED_WRITABLE, Settings

LOCK_FILES = {
    "package-lock.json": "npm install --package-lock-only",
    "npm-shrinkwrap.json": "npm shrinkwrap",
    "yarn.lock": "yarn install",
    "pnpm-lock.yaml": "pnpm install --lockfile-only",
    "bun.lock": "bun install --lockfile-only",
    "deno.lock": "deno install",
    "Cargo.lock": "cargo update --workspace",
    "poetry.lock": "poetry lock",
    "uv.lock": "uv lock",
    "pdm.lock": "pdm lock",
    "Pipfile.lock": "pipenv lock",
    "go.sum": "go mod tidy",
    "Gemfile.lock": "bundle lock",
    "composer.lock": "composer update --lock",
    "mix.lock": "mix deps.get",
    "Podfile.lock": "pod install",
    "pubspec.lock": "dart pub get",
    "packages.lock.json": "dotnet restore --force-evaluate",
    "flake.lock": "nix flake lock",
}
"""Lock files, and the command that writes each of them again from what it locks."""

_FEW = 5


def shared_file_notes(
    repository: Repository, stories: Sequence[Story], settings: Settings
) -> tuple[str, ...]:
    """Refuse tracked files that every story of a shared tree may write to; of default paths only warn.

    What stories write there is in no commit, and of parallel writers the last one wins. Folders of tools are
    open to all by default; a project that tracks such a folder can still work, if it is warned.
    """
    if settings.bg_isolation != IsolationMode.NONE or min(len(stories), settings.max_stories) <= 1:
        return ()
    given = [glob for glob in settings.shared_writable if glob not in SHARED_WRITABLE]
    wrong = _tracked(repository, given)
    if wrong:
        raise SettingsError(
            f"shared-writable contains tracked files: {_listed(wrong)}; what several stories write there is "
            "committed by none of them, and the last one wins",
            hint="remove them from shared-writable, and give them to one story that depends on all others "
            "(`owns`); for lock files see the guide to changes in many packages.",
        )
    found = _tracked(repository, [glob for glob in settings.shared_writable if glob in SHARED_WRITABLE])
    if not found:
        return ()
    return (f"shared-writable contains tracked files: {_listed(found)}; what stories write there is lost",)


def lock_file_advice(repository: Repository, stories: Sequence[Story]) -> tuple[str, ...]:
    """Offer a last story for each lock file that no story of several owns, next to what they own."""
    owning = [story for story in stories if story.owns]
    if len(owning) <= 1:
        return ()
    folding = folds_case(repository.top)
    compiled = [claims.compile(story.owns, folding=folding) for story in owning]
    tracked = _tracked(repository, [f"**/{name}" for name in LOCK_FILES])
    advice = []
    for path in tracked:
        folder = str(PurePosixPath(path).parent)
        beside = folder == "." or any(
            glob.startswith(f"{folder}/") for story in owning for glob in story.owns
        )
        if beside and not any(claim.owns(path) for claim in compiled):
            advice.append(_advice(path, folder, owning))
    return tuple(advice)


def _advice(path: str, folder: str, stories: Sequence[Story]) -> str:
    command = LOCK_FILES[PurePosixPath(path).name]
    moved = command if folder == "." else f"cd {folder} && {command}"
    needs = ", ".join(story.id for story in stories)
    return (
        f"no story owns {path}; if stories change what it locks, add a last story that does, for example as "
        f"lock-file.md:\n---\ndepends_on: [{needs}]\nowns: [{path}]\ncommand: {moved}\n"
        "allow_no_change: true\n---\n\n# Update the lock file"
    )


def _tracked(repository: Repository, globs: Sequence[str]) -> tuple[str, ...]:
    if not globs:
        return ()
    return repository.run("ls-files", "-z", "--", *(f":(top,glob){glob}" for glob in globs)).fields()


def _listed(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - _FEW} more" if len(paths) > _FEW else ""
    return ", ".join(paths[:_FEW]) + more
