"""A repository with files, and the git commands that the program runs on it."""

import pytest

from isolation.git.repository import Repository
from tests.conftest import git
from tests.isolation.git.plain.edits import fill

_MAKES_COMMITS = {
    *("add", "branch", "commit", "commit-tree", "diff-index", "ls-files"),
    *("read-tree", "status", "update-index", "update-ref", "write-tree"),
}


@pytest.fixture
def filled(repository: Repository) -> Repository:
    """Return a repository with files of all kinds."""
    fill(repository.top)
    git(repository.top, "add", "-A")
    git(repository.top, "commit", "-qm", "files")
    return repository


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the git commands of the program, as they run."""
    found: list[str] = []
    real = Repository.run

    def run(self: Repository, *args: str, **more: object) -> object:
        found.extend(_MAKES_COMMITS.intersection(args))
        return real(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Repository, "run", run)
    return found
