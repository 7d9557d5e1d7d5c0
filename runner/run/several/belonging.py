"""Which stories of a journal work in which repository: a landing concerns one repository alone."""

import os
from pathlib import Path

from isolation.errors import IsolationError
from isolation.git.repository import Repository
from runner.core.errors import NotFoundError
from runner.core.events.events import RunStarted
from runner.core.model import RunId
from runner.core.progress.repositories import HOME, repositories_of
from runner.core.text.names import did_you_mean
from runner.plan.repositories.site import label_of
from runner.records.journal import Journal


class Belonging:
    """Says of each story of a journal whether it works in one repository."""

    def __init__(self, journal: Journal, repository: Repository) -> None:
        self._is_home = is_home(journal, repository)
        self._elsewhere: dict[RunId, dict[str, bool]] = {}
        own = {os.path.realpath(path) for path in (repository.top, repository.main_checkout) if path}
        for event in journal.events_of("RunStarted"):
            body = event.body
            if isinstance(body, RunStarted) and body.repos:
                found = repositories_of(body.repos)
                here = {name for name, info in found.items() if os.path.realpath(info.path) in own}
                self._elsewhere[event.run_id] = {
                    str(entry["id"]): entry.get("repo", HOME) in here
                    for entry in body.stories
                    if entry.get("repo", HOME) != HOME
                }

    def has(self, run_id: RunId, story_id: str) -> bool:
        """Whether a story of a run works in this repository."""
        return self._elsewhere.get(run_id, {}).get(story_id, self._is_home)


def is_home(journal: Journal, repository: Repository) -> bool:
    """Whether a journal is that of a repository."""
    return os.path.realpath(journal.path.parents[1]) == os.path.realpath(repository.common_dir)


def known_repositories(home: Repository, journal: Journal) -> dict[str, Repository]:
    """Return the repositories in which stories of this journal have worked, by name, its own first.

    The newest run with a name says where that is; one that is gone is left out. Blocking.
    """
    found = {label_of(home): home}
    for event in reversed(journal.events_of("RunStarted")):
        body = event.body
        if not isinstance(body, RunStarted):
            continue
        for name, info in repositories_of(body.repos).items():
            if name == HOME or info.name in found:
                continue
            try:
                there = Repository.open(Path(info.path))
            except IsolationError:
                continue
            if all(there.common_dir != each.common_dir for each in found.values()):
                found[info.name] = there
    return found


def require_named(known: dict[str, Repository], name: str | None) -> dict[str, Repository]:
    """Return the repository that the user has named, or all of them."""
    if name is None:
        return known
    if name not in known:
        hint = did_you_mean(name, known) or f"there are: {', '.join(known)}."
        raise NotFoundError(f"no run here has worked in a repository '{name}'", hint=hint)
    return {name: known[name]}
