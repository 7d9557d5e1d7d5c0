"""Targets for what forges answer about drafts: it becomes a prompt, a question and the text of a draft."""

import json

import trio

from runner.core.drafts.review import contradiction, question_about, take, words_for_session
from runner.core.errors import SettingsError
from runner.core.progress.draft import Draft
from runner.core.work_items.tracker import Tracker
from runner.forge.address import address_of
from runner.forge.answers import Answer
from runner.forge.drafts.github import GitHub
from runner.forge.drafts.gitlab import GitLab
from runner.forge.errors import ForgeError
from runner.forge.rest import Rest
from runner.forge.tracker.errors import TrackerError
from runner.forge.tracker.github import GitHubIssues
from runner.forge.tracker.gitlab import GitLabIssues
from runner.forge.tracker.issues import Issues, Service
from runner.run.drafts.body import joined
from tests.fuzz.registry import target, text_of


@target(ForgeError)
def forge_reviews(data: bytes) -> None:
    """An entry of any list, or any answer, of GitHub and GitLab about a draft."""

    def send(method: str, path: str, body: bytes, *, asked: str) -> Answer:
        assert (method, body, bool(asked)) == ("GET", b"", True)
        listed = "per_page" in path and "check-runs" not in path and not path.endswith("/status?per_page=100")
        return Answer(status=200, headers={}, body=b"[" + data + b"]" if listed else data)

    rest = Rest(service="fuzz", sign_in="", send=send)
    for forge in (GitHub(rest=rest, name="o/r"), GitLab(rest=rest, name="o/r")):
        forge.hosted()
        found = forge.find("branch")
        joined(found.body if found else "", "ours").encode()
        said = forge.said(1, "c" * 40, ("*",))
        items = take(said.items, said.marks)
        words = words_for_session(Draft(taken=items))
        words.encode()
        assert words.count("\nEnd of their words.\n") == bool(items)
        against = contradiction(items)
        if against:
            json.dumps(question_about(against, "title").title)


@target(ForgeError, TrackerError)
def forge_work_items(data: bytes) -> None:
    """An entry of any list, or any answer, of GitHub and GitLab about issues that are work items."""

    def send(method: str, path: str, body: bytes, *, asked: str) -> Answer:
        assert (method, body, bool(asked)) == ("GET", b"", True)
        listed = "per_page" in path and not path.startswith("search/")
        return Answer(status=200, headers={}, body=b"[" + data + b"]" if listed else data)

    rest = Rest(service="fuzz", sign_in="", send=send)
    kept: dict[Tracker, Service] = {
        Tracker.GITHUB: GitHubIssues(rest, "o/r"),
        Tracker.GITLAB: GitLabIssues(rest, "o/r"),
    }
    for tracker, service in kept.items():
        service.check()
        assert service.find("<!-- autopilot-0123456789abcdef -->") >= 0
        service.text(1).encode()
        service.links(1)
        trio.run(Issues(tracker, service).links, f"{'GH' if tracker is Tracker.GITHUB else 'GL'}-1")


@target(SettingsError)
def forge_address(data: bytes) -> None:
    """The address of a remote, and the setting that takes its place."""
    text = text_of(data)
    for setting, url in ((text, ""), ("", text)):
        if setting or url:
            address_of(setting, url, {"GH_HOST": "git.example.org"}, remote="origin")
