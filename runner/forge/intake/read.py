"""Reads the issues of a source: all of them, or an error; never a part."""

import os
import time
from collections.abc import Callable, Mapping

from runner.core.text.redaction import Redactor
from runner.forge.intake.issue import Issue
from runner.forge.intake.source import Service, Source
from runner.forge.rest import quiet


def read_issues(
    source: Source,
    environ: Mapping[str, str],
    *,
    pause: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = quiet,
) -> tuple[Issue, ...]:
    """Return every issue that a source names. Blocks; `say` says why that takes long."""
    redactor = Redactor(environ)
    match source.service:
        case Service.GITHUB:
            from runner.forge.github import open_github
            from runner.forge.intake.github_issues import read_github

            github = open_github(environ, host=source.host, pause=pause, say=say)
            return read_github(github, source, redactor)
        case Service.GITLAB:
            from runner.forge.gitlab import open_gitlab
            from runner.forge.intake.gitlab_issues import read_gitlab

            gitlab = open_gitlab(environ, host=source.host, pause=pause, say=say)
            return read_gitlab(gitlab, source, redactor)
        case Service.JIRA:
            from runner.forge.intake.jira_issues import read_jira
            from runner.forge.jira import open_jira

            return read_jira(open_jira(environ, pause=pause, say=say), source, redactor)
        case Service.ADO:
            from runner.forge.intake.azure_items import read_azure
            from runner.forge.programs import AZ, Door

            return read_azure(Door(program=AZ, environ=environ), source, redactor, pause=pause)
        case Service.CHECKLIST:
            from runner.forge.intake.checklist import read_checklist

            return read_checklist(source.path, os.path.basename(source.text), redactor)  # noqa: PTH119  a name
