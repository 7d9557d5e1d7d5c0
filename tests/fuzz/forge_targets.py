"""Targets for what trackers and forges answer: HTTP, issues of each service, checklists, names of sources."""

import json
from collections.abc import Iterable
from typing import Any

from runner.core.errors import UsageError
from runner.core.model import Story
from runner.core.text.redaction import Redactor
from runner.forge.answers import read_answer
from runner.forge.intake.azure_items import _is_item, azure_item
from runner.forge.intake.checklist import parse_checklist
from runner.forge.intake.github_issues import github_issue, is_issue
from runner.forge.intake.gitlab_issues import _is_issue as is_gitlab_issue
from runner.forge.intake.gitlab_issues import gitlab_issue
from runner.forge.intake.issue import Issue
from runner.forge.intake.jira_issues import _is_issue as is_jira_issue
from runner.forge.intake.jira_issues import jira_issue
from runner.forge.intake.source import Service, Source, parse_source
from runner.forge.patience import is_limited, is_outage, limit_ends
from runner.plan.intake.imported_story import import_issues
from runner.plan.intake.story_file import is_untouched, story_file
from runner.plan.stories.entry import stories_of
from runner.plan.stories.files import markdown_entry, read_text
from tests.fuzz.numbers import require_amounts
from tests.fuzz.registry import folder, target, text_of, written

_REDACTOR = Redactor()
_GITHUB = Source(service=Service.GITHUB, text="", project="acme/shop")
_GITLAB = Source(service=Service.GITLAB, text="", project="acme/tools/shop")


@target()
def forge_answer(data: bytes) -> None:
    answer = read_answer(data)
    if answer is not None:
        assert 100 <= answer.status < 600
        assert (answer.ok, is_outage(answer)) != (True, True)
        assert isinstance(answer.reason + answer.next_url, str)
        if is_limited(answer):
            require_amounts([limit_ends(answer, 0.0)])


@target(ValueError, RecursionError)
def forge_issues(data: bytes) -> None:
    items = json.loads(data)
    _same_after_writing(
        issue for item in (items if isinstance(items, list) else [items]) for issue in _read(item)
    )


def _read(item: Any) -> Iterable[Issue]:
    if is_issue(item):
        yield github_issue(item, _GITHUB, _REDACTOR)
    if is_gitlab_issue(item):
        yield gitlab_issue(item, _GITLAB, _REDACTOR)
    if is_jira_issue(item):
        yield jira_issue(item, _REDACTOR)
    if _is_item(item):
        yield azure_item(item, _REDACTOR)


@target()
def forge_checklist(data: bytes) -> None:
    _same_after_writing(parse_checklist(data.decode("utf-8", "replace"), "TODO.md", _REDACTOR))


@target(UsageError)
def forge_source(data: bytes) -> None:
    assert parse_source(text_of(data), cwd=folder()).limit > 0


def _same_after_writing(issues: Iterable[Issue]) -> None:
    """Require that a story's file says what the issue said, and nothing else."""
    for story in import_issues(list(issues)).stories:
        text = story_file(story)
        assert is_untouched(text)
        path = written(text.encode(), "stories/imported.md")
        (read,) = stories_of([markdown_entry(path, "imported.md", read_text(path, "imported.md"))])
        assert _words(read) == _words(story)
        assert (read.command, read.verify, read.agent, read.owns) == (None, (), None, ())


def _words(story: Story) -> tuple[object, ...]:
    return story.id, story.title, story.prompt, story.priority, story.depends_on, story.labels, story.origin
