"""The repositories in which the stories of a backlog work: found, opened and checked before a start."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, structs
from msgspec.structs import replace

from isolation.errors import IsolationError
from isolation.git.remotes import without_credentials
from isolation.git.repository import Repository
from isolation.paths import holds_worktrees
from runner.core.errors import BacklogError, SettingsError
from runner.core.model import Story
from runner.core.progress.repositories import HOME
from runner.core.setting_groups.repo_settings import OF_A_REPOSITORY
from runner.core.settings import Settings
from runner.core.text.names import did_you_mean, id_problem, one_line, shown, slug
from runner.core.trust import OF_STORIES, Demand
from runner.plan.repositories.clones import (
    NotClonedError,
    base_in_clone,
    clone_path,
    fetch,
    has_password,
    is_url,
    name_in,
)
from runner.plan.repositories.site import Site, label_of
from runner.plan.settings.load import Loaded, load_settings
from runner.plan.stories.sources import COMMAND_LINE

_BASE = "base"
_AS_CHECKED_OUT = "HEAD"
_NAME_IT = "name them apart in the settings: [repos] NAME = PATH, and write `repo: NAME` into the stories."


class Sites(Struct, frozen=True, kw_only=True):
    """The stories with the name that each one's repository has in the plan, these repositories, and notes."""

    stories: tuple[Story, ...]
    others: Mapping[str, Site]
    notes: tuple[str, ...] = ()


class _Named(Struct, frozen=True, kw_only=True):
    """A repository as a story names it; `listed` means by its short name in the settings.

    `demands` is what the user must agree to: that sessions work in a repository that a file names.
    """

    given: str
    at: str
    base: str
    where: str
    listed: bool
    demands: tuple[Demand, ...] = ()

    def refuse(self, why: str, hint: str) -> BacklogError:
        """Return the error about it."""
        what = f"repos.{self.given}" if self.listed else "repo"
        return BacklogError(f"{self.where}: {what} {shown(self.at)} {why}", hint=hint)


def load_sites(
    home: Repository,
    loaded: Loaded,
    stories: Sequence[Story],
    *,
    flags: Mapping[str, str | tuple[str, ...]],
    fetches: bool = False,
) -> Sites:
    """Open the repositories that stories name; `fetches` brings clones of URLs up to date first.

    Raises for whatever is wrong about them, and `NotClonedError` for a URL without a clone.
    """
    given = {story.repo: _named(story, loaded) for story in reversed(stories) if story.repo}
    if not given:
        return Sites(stories=tuple(stories), others={})
    found: dict[str, Site] = {}
    notes: list[str] = []
    names: dict[str, str] = {}
    for text, named in sorted(given.items(), key=lambda item: (not item[1].listed, item[0])):
        opened = _opened(home, named)
        if opened is None:
            names[text] = HOME
            continue
        same = next(
            (site for site in found.values() if site.repository.common_dir == opened.common_dir), None
        )
        if same is not None and named.listed:
            raise SettingsError(
                f"repos.{text} and repos.{same.name} are the same repository, {opened.top}",
                hint="keep one name for it, and use that in all stories.",
            )
        if same is None:
            if fetches and is_url(named.at):
                fetch(opened, named.at)
            same, said = _site(loaded, named, opened, flags)
            _require_own_name(home, same, named, found)
            found[same.name] = same
            notes += said
        elif not named.listed:
            found[same.name] = same = replace(same, named_by=(*same.named_by, *named.demands))
        names[text] = same.name
    placed = tuple(replace(story, repo=names[story.repo]) if story.repo else story for story in stories)
    return Sites(stories=placed, others=found, notes=tuple(notes))


def settings_there(run: Settings, there: Settings) -> Settings:
    """Return the settings of stories in another repository: its own where it decides, else the run's."""
    # Layers are seen in the repository of the run alone: its process enters their mounts when it starts.
    own = {name: getattr(there, name) for name in OF_A_REPOSITORY} | {"workspace": "worktree"}
    return structs.replace(run, **own)


def _named(story: Story, loaded: Loaded) -> _Named:
    entry = loaded.settings.repos.get(story.repo)
    where = f"story {story.id}" + (f" ({story.source})" if story.source else "")
    if entry is None:
        value = one_line(without_credentials(story.repo))
        asks = () if story.source == COMMAND_LINE else (
            Demand(what=f"{OF_STORIES}repo", value=value, where=story.source),
        )  # fmt: skip
        return _Named(given=story.repo, at=story.repo, base="", where=where, listed=False, demands=asks)
    key = f"repos.{story.repo}."
    asked = tuple(one for one in loaded.demands if one.what.startswith(key))
    return _Named(given=story.repo, at=entry.at, base=entry.base, where=where, listed=True, demands=asked)


def _opened(home: Repository, named: _Named) -> Repository | None:
    """Open the repository that a story names; None if it is that of the run."""
    path = _cloned(named) if is_url(named.at) else _folder(home, named)
    try:
        opened = Repository.open(path)
    except IsolationError as error:
        raise named.refuse(f"cannot be used: {error.message}", error.hint) from error
    real = Path(os.path.realpath(path))
    if real not in {opened.top, opened.common_dir}:
        raise named.refuse(
            f"is not a repository, but a folder of the repository {opened.top}",
            f"name its top, or make it a repository of its own: git init {path}",
        )
    if opened.top != opened.main_checkout and holds_worktrees(opened.common_dir, opened.top.parent):
        raise named.refuse("is the worktree of a story", f"name the repository: {opened.main_checkout}")
    if opened.common_dir != home.common_dir:
        return opened
    if opened.top not in {home.top, home.main_checkout}:
        raise named.refuse(
            f"is a worktree of the repository of the run, {home.top}",
            "leave `repo` out: the story then works there, and --base says from which commit.",
        )
    return None


def _cloned(named: _Named) -> Path:
    if has_password(named.at):
        raise BacklogError(
            f"{named.where}: the URL {without_credentials(named.at)} holds a password",
            hint="let git ask a credential helper, or use ssh; leave the password out of the URL.",
        )
    path = clone_path(named.at, os.environ)
    if (path / ".git").is_dir():
        return path
    raise NotClonedError(
        f"{named.where}: {without_credentials(named.at)} is not cloned yet",
        hint=f"`autopilot-multi run` asks you, then clones it into {path}.",
        url=named.at,
        demands=named.demands,
    )


def _folder(home: Repository, named: _Named) -> Path:
    path = home.top / Path(named.at).expanduser()
    try:
        if path.is_dir():
            return path
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if exists:
        raise named.refuse("is a file, not a repository", "name the folder of a repository.")
    hint = did_you_mean(named.given, _names_near(home, named)) if not named.listed else ""
    raise named.refuse(
        f"does not exist: there is no folder {path}",
        hint or "a path is relative to the repository of the run; [repos] in the settings gives short names.",
    )


def _names_near(home: Repository, named: _Named) -> tuple[str, ...]:
    known = load_settings(top=home.top, flags={}, environ=os.environ).settings.repos
    folder = (home.top / named.at).parent
    beside = (
        [f"{Path(named.at).parent.as_posix()}/{each.name}" for each in folder.iterdir()]
        if folder.is_dir()
        else []
    )
    return (*known, *(each.removeprefix("./") for each in beside))


def _site(
    loaded: Loaded,
    named: _Named,
    repository: Repository,
    flags: Mapping[str, str | tuple[str, ...]],
) -> tuple[Site, tuple[str, ...]]:
    """Read the settings of another repository, and find the commit that its stories start from."""
    # The base of the run is a name in the repository of the run, so neither its flag nor its variable count.
    there = load_settings(
        top=repository.top,
        flags={key: value for key, value in flags.items() if key != _BASE},
        environ={name: value for name, value in os.environ.items() if name != "AUTOPILOT_MULTI_BASE"},
    )
    own = settings_there(loaded.settings, there.settings)
    url = named.at if is_url(named.at) else ""
    try:
        if url:
            wanted = named.base or ("" if own.base == _AS_CHECKED_OUT else own.base)
            base = base_in_clone(repository, wanted)
        else:
            base = repository.resolve(named.base or own.base)
    except IsolationError as error:
        raise named.refuse(f"cannot be used: {error.message}", error.hint) from error
    if named.base:
        own = structs.replace(own, base=named.base)
    keys = {name.replace("_", "-") for name in OF_A_REPOSITORY}
    label = named.given if named.listed else name_in(named.at) if url else label_of(repository)
    name = label if not id_problem(label) else slug(label)
    demands = tuple(one for one in there.demands if one.what.partition(".")[0] in keys)
    notes = tuple(f"{name}: {note}" for note in there.notes if note not in loaded.notes)
    return Site(
        name=name,
        label=name,
        repository=repository,
        settings=own,
        base=base,
        url=without_credentials(url),
        demands=demands,
        named_by=() if named.listed else named.demands,  # those of the settings are asked for anyway
    ), notes


def _require_own_name(home: Repository, site: Site, named: _Named, found: Mapping[str, Site]) -> None:
    """Refuse two repositories that people could not tell apart by their names."""
    if site.name in found:
        other = found[site.name].repository.top
        raise named.refuse(f"is called {site.name}, as is {other}", _NAME_IT)
    if site.name == label_of(home):
        raise named.refuse(f"is called {site.name}, as is the repository of the run, {home.top}", _NAME_IT)
