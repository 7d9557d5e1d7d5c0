"""One repository of a plan: what its stories start from, and which settings hold there."""

from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from isolation.git.repository import Repository
from isolation.paths import worktree_root
from runner.core.errors import UsageError
from runner.core.progress.repositories import HOME, RepositoryInfo
from runner.core.settings import Settings
from runner.core.trust import Demand
from runner.plan.settings.json_form import to_json


class Site(Struct, frozen=True, kw_only=True):
    """A repository in which stories of a plan work, with the commit that they start from.

    `name` is what its stories call it, `HOME` for the repository of the run; `label` is its name for people.
    `settings` are those of the run, with its own where the repository decides. `url` is where it was cloned
    from. `demands` is what its files ask for, `named_by` what the stories ask for that name it.
    """

    name: str
    label: str
    repository: Repository
    settings: Settings
    base: str
    url: str = ""
    demands: tuple[Demand, ...] = ()
    named_by: tuple[Demand, ...] = ()

    @property
    def is_home(self) -> bool:
        """Whether it is the repository of the run."""
        return self.name == HOME

    @property
    def worktree_root(self) -> Path:
        """The folder of the worktrees of its stories."""
        return worktree_root_of(self.repository, self.settings)

    @property
    def info(self) -> RepositoryInfo:
        """The repository as the journal keeps it; the settings of the run are there already."""
        return RepositoryInfo(
            name=self.label,
            path=str(self.repository.top),
            base=self.base,
            url=self.url,
            settings={} if self.is_home else to_json(self.settings),
        )


def worktree_root_of(repository: Repository, settings: Settings) -> Path:
    """Return the folder of the story worktrees; a configured one is relative to the repository."""
    if not settings.worktree_root:
        return worktree_root(repository.common_dir, None)
    return worktree_root(repository.common_dir, repository.top / Path(settings.worktree_root).expanduser())


def label_of(repository: Repository) -> str:
    """Return the name of a repository for people: that of its folder."""
    return (repository.main_checkout or repository.common_dir).name.removesuffix(".git")


def require_one_repository(sites: Mapping[str, Site], what: str) -> None:
    """Raise if stories work in several repositories, which `what` does not know."""
    others = [site.label for site in sites.values() if not site.is_home]
    if others:
        raise UsageError(
            f"{what} works with one repository, and stories of this backlog work in others: "
            f"{', '.join(others)}",
            hint="run the stories of each repository by themselves, with --only or a backlog of their own.",
        )
