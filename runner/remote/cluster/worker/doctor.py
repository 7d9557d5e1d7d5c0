"""What would stop stories on a worker: its machine, and each of its clones once stories work there."""

import os
from collections.abc import Iterator, Sequence

from msgspec import structs

from runner.core.model import Story
from runner.plan.repositories.site import Site
from runner.run.doctor.check import Check, Severity
from runner.run.doctor.repository import readiness

_OWN = {"coordinator", "journal"}
"""Checks that find this run itself."""


def machine_findings(home: Site, stories: Sequence[Story]) -> list[str]:
    """Return what is wrong on this machine, and in the clone of the run's own repository. Blocks."""
    from runner.run.doctor.examination import examine  # a worker that begins need not wait for it

    environ, own = dict(os.environ), list(_readiness(home, stories))
    # Of the repository, what the run brings counts, and not what the clone's files would say.
    known = _OWN | {check.name for check in own}
    found = [check for check in examine(home.repository.top, environ) if check.name not in known]
    return _failures([*found, *own])


def clone_findings(site: Site, stories: Sequence[Story]) -> list[str]:
    """Return what is wrong in the clone of another repository, whose commits are there by now. Blocks."""
    return _failures(_readiness(site, stories))


def _readiness(site: Site, stories: Sequence[Story]) -> Iterator[Check]:
    own = [story for story in stories if story.repo == site.name]
    settings = structs.replace(site.settings, base=site.base)  # branches of the coordinator are not here
    return readiness(site.repository.top, settings, site.worktree_root, dict(os.environ), stories=own)


def _failures(checks: Sequence[Check] | Iterator[Check]) -> list[str]:
    return [f"{check.name}: {check.detail}" for check in checks if check.level is Severity.FAIL]
