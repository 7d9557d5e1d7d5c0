"""Where drafts go and what they link to: the forge of a repository, its branch, the page of a report."""

import os
import time
from collections.abc import Callable, Mapping

from isolation.git.repository import Repository
from isolation.paths import current_branch
from runner.core.errors import UsageError
from runner.core.settings import Settings
from runner.forge.address import Address, address_of
from runner.forge.drafts.github import GitHub
from runner.forge.drafts.gitlab import GitLab
from runner.forge.drafts.hosted import Forge
from runner.forge.github import open_github
from runner.forge.gitlab import open_gitlab


def forge_of(
    repository: Repository,
    settings: Settings,
    *,
    pause: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = lambda _: None,
) -> Forge:
    """Return the forge that a repository's drafts go to; asks nothing of it yet."""
    remote = settings.draft_remote
    url = repository.run("config", "--get", f"remote.{remote}.url", check=False).stdout.strip()
    address = address_of(settings.forge, url, os.environ, remote=remote)
    return _opened(address, pause, say)


def _opened(address: Address, pause: Callable[[float], None], say: Callable[[str], None]) -> Forge:
    if address.kind == "gitlab":
        return GitLab(
            rest=open_gitlab(os.environ, host=address.host, pause=pause, say=say), name=address.name
        )
    rest = open_github(os.environ, host=address.host, pause=pause, say=say)
    return GitHub(rest=rest, name=address.name)


def target_of(repository: Repository, settings: Settings) -> str:
    """Return the branch that drafts are meant for."""
    checkout = repository.main_checkout
    branch = settings.draft_onto or (current_branch(checkout) if checkout is not None else "")
    if not branch:
        raise UsageError(
            "the main checkout is on no branch, so nothing says which one drafts are meant for",
            hint="name it with the setting draft-onto.",
        )
    return branch.removeprefix("refs/heads/")


def report_of(settings: Settings, run_id: str, environ: Mapping[str, str]) -> str:
    """Return where the report of a run can be read: as the settings say, or on the page of the CI job."""
    if settings.report_url:
        return settings.report_url.replace("{run}", run_id)
    server, name, number = (
        environ.get(f"GITHUB_{key}", "") for key in ("SERVER_URL", "REPOSITORY", "RUN_ID")
    )
    if server and name and number:
        return f"{server}/{name}/actions/runs/{number}"
    return environ.get("CI_PIPELINE_URL") or environ.get("CI_JOB_URL") or ""
