"""One landing for each repository in which stories of a journal have worked."""

from collections.abc import Mapping

from msgspec.structs import replace

from isolation.git.repository import Repository
from isolation.paths import journal_path
from runner.core.errors import NotFoundError
from runner.core.text.names import did_you_mean
from runner.land.known import load_known
from runner.land.session import Request
from runner.records.journal import Journal
from runner.run.several.belonging import known_repositories, require_named


def split(request: Request, repo: str | None = None) -> Mapping[str, Request]:
    """Return the landings that a request asks for, by the name of their repository; at least one.

    Without names a repository in which no story has worked is left out, unless it is the only one. With names
    each of them is looked for in all repositories.
    """
    home = Repository.open(request.directory)
    with Journal.open_readonly(journal_path(home.common_dir)) as journal:
        every = known_repositories(home, journal)
        known = require_named(every, repo)
        if len(every) == 1:
            return dict.fromkeys(known, request)
        stories = {name: load_known(journal, there).stories for name, there in known.items()}
    everybody = [story for found in stories.values() for story in found]
    for name in request.names:
        if name not in everybody:
            hint = did_you_mean(name, everybody) or f"there are: {', '.join(sorted(everybody)) or 'none'}."
            raise NotFoundError(f"no story '{name}' has worked in {', '.join(known)}", hint=hint)
    wanted = {
        name: tuple(story for story in request.names if story in found)
        for name, found in stories.items()
        if (not request.names and (found or repo)) or any(story in found for story in request.names)
    }
    return {
        name: replace(request, names=names, repository=None if every[name] is home else every[name])
        for name, names in wanted.items()
    } or dict.fromkeys(known, request)
