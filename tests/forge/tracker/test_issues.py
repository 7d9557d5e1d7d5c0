"""Issues of GitHub and GitLab as work items: created once, found again, linked; no stranger counts."""

from typing import Any

import pytest

from runner.core.text.redaction import Redactor
from runner.core.work_items.documents import read_items
from runner.core.work_items.tracker import Tracker
from runner.forge.tracker.backend import Link
from runner.forge.tracker.errors import AccessError, TrackerError
from runner.forge.tracker.github import GitHubIssues
from runner.forge.tracker.gitlab import GitLabIssues
from runner.forge.tracker.issues import Issues, issues_address, open_issues
from runner.forge.tracker.keeping import Keeping, acts_of, marker_of
from tests.forge.direct import direct
from tests.forge.github_api import REPO, TOKEN, GitHubApi
from tests.forge.merge_requests import PROJECT, GitLabApi
from tests.forge.scripted_server import Fault, Reply

FILES = {
    "docs/epics.md": "# Epics\n\n## Epic: Storage\n\nKeeps.\n",
    "docs/01_structure.md": "# Structure\n\nEpic: Storage\n",
    "docs/02_tables.md": "# Tables\n\nEpic: Storage\nDependencies: 01_structure\n",
}
MARK = "autopilot-0123456789abcdef"


class Memory:
    """A ledger in memory."""

    def __init__(self) -> None:
        self.acts: dict[str, str] = {}
        self.words: list[str] = []

    def known(self, marker: str) -> str | None:
        """Return what is recorded."""
        return self.acts.get(marker)

    async def intend(self, marker: str, act: str) -> None:
        """Record what is about to be done."""
        self.acts[marker] = ""
        self.words.append(act)

    async def done(self, marker: str, item_id: str) -> None:
        """Record what came of it."""
        self.acts[marker] = item_id


def on_github(api: GitHubApi) -> Issues:
    """Return the issues of the scripted repository, as a new process sees them."""
    api.token = ""
    return Issues(Tracker.GITHUB, GitHubIssues(direct(api, "GitHub"), REPO))


def on_gitlab(api: GitLabApi) -> Issues:
    """Return the issues of the scripted project."""
    return Issues(Tracker.GITLAB, GitLabIssues(direct(api, "GitLab"), PROJECT))


@pytest.fixture
def github() -> GitHubApi:
    """Return a GitHub with an issue of somebody's."""
    api = GitHubApi()
    api.add_issue("Somebody's own", "text")
    return api


def texts(api: GitHubApi) -> dict[str, str]:
    """Return the texts of issues by their titles."""
    return {issue["title"]: issue["body"] for issue in api.repo.issues.values()}


async def keep(backend: Issues, ledger: Memory, files: dict[str, str] | None = None) -> dict[str, str]:
    """Create what files describe."""
    items = read_items(files or FILES)
    epics = [item for item in items if "epic" in item.path]
    keeping = Keeping(
        backend=backend,
        ledger=ledger,
        mark=lambda key: marker_of("o", "s", key),
        redactor=Redactor({"MY_TOKEN": TOKEN}),
    )
    return await keeping.carry_out(tuple(acts_of(items, epics)))


async def test_epics_and_tasks_become_issues_with_their_relations(github: GitHubApi) -> None:
    """The epic has a label, tasks are its sub-issues, one waits for the other; a second time adds none."""
    ledger = Memory()
    ids = await keep(on_github(github), ledger)
    assert ids == {"docs/epic/storage": "GH-2", "docs/structure": "GH-3", "docs/tables": "GH-4"}
    assert github.repo.parts == {2: [3, 4]}
    assert github.repo.blocked_by == {4: [3]}
    labels = [[label["name"] for label in one["labels"]] for one in github.repo.issues.values()]
    assert labels == [[], ["epic"], [], []]
    assert ledger.words[0] == "create epic 'Storage' in GitHub"
    before = len(github.asked("POST"))
    assert await keep(on_github(github), Memory()) == ids, "another clone finds them"
    assert len(github.asked("POST")) == before


async def test_where_github_has_no_relations_people_read_them(github: GitHubApi) -> None:
    """The epic gets a list of tasks, tasks say what they are part of and wait for; each once."""
    github.repo.relates = False
    for _ in range(2):
        await keep(on_github(github), Memory())
    found = texts(github)
    assert found["Storage"].endswith("-->\n\n- [ ] #3\n- [ ] #4")
    assert found["Tables"].count("Part of #2. <!-- autopilot-multi:epic 2 -->") == 1
    assert found["Tables"].count("Blocked by #3. <!-- autopilot-multi:after 3 -->") == 1


@pytest.mark.parametrize("premium", [True, False])
async def test_gitlab_has_lists_of_tasks_and_blockers(*, premium: bool) -> None:
    """Where its edition knows no blockers, the text says it."""
    api = GitLabApi()
    api.premium = premium
    for _ in range(2):
        ids = await keep(on_gitlab(api), Memory())
    assert ids == {"docs/epic/storage": "GL-1", "docs/structure": "GL-2", "docs/tables": "GL-3"}
    assert [one["labels"] for one in api.issues.values()] == [["epic"], [], []]
    assert api.issues[1]["description"].endswith("-->\n\n- [ ] #2\n- [ ] #3")
    waits = api.issues[3]["description"].count("Blocked by #2.")
    assert (api.blocked_by[3], waits) == (([2], 0) if premium else ([], 1))
    assert api.issues[3]["description"].count("Part of #1.") == 1


@pytest.mark.parametrize("lost", range(1, 5), ids=["epic", "task", "second-task", "link"])
async def test_an_answer_that_was_lost_leaves_no_second_issue(
    github: GitHubApi, lost: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was created while its answer was lost is found by its mark when the act is repeated."""
    monkeypatch.setattr("runner.forge.tracker.keeping.SEARCH_PAUSE", 0)
    count = iter(range(1, 100))
    github.faults.append(
        Fault(kind="cut", when=lambda one: one.method == "POST" and next(count) == lost, done=True)
    )
    ledger = Memory()
    with pytest.raises(TrackerError, match="no answer: cut"):
        await keep(on_github(github), ledger)
    ids = await keep(on_github(github), ledger)
    assert list(ids.values()) == ["GH-2", "GH-3", "GH-4"]
    assert len(github.repo.issues) == 4
    assert (github.repo.parts, github.repo.blocked_by) == ({2: [3, 4]}, {4: [3]})


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"author_association": "NONE"}, ""),
        ({"author_association": "CONTRIBUTOR"}, ""),
        ({"author_association": "MEMBER"}, "GH-2"),
        ({"user": {"login": "robot"}}, "GH-2"),
        ({"user": {"login": "ci[bot]", "type": "Bot"}}, "GH-2"),
        ({"author_association": "OWNER", "pull_request": {}}, ""),
    ],
    ids=["stranger", "contributor", "member", "own", "bot", "pull-request"],
)
async def test_a_mark_counts_only_from_those_who_may_write(
    github: GitHubApi, more: dict[str, Any], found: str
) -> None:
    """Anybody can compute a mark; an issue of a stranger never becomes a work item of ours."""
    github.add_issue("Other", f"text\n\n<!-- {MARK} -->", **more)
    assert await on_github(github).find(MARK) == found


@pytest.mark.parametrize(
    ("author", "found"), [("guest", ""), ("stranger", ""), ("alice", "GL-1"), ("robot", "GL-1")]
)
async def test_a_mark_of_a_guest_counts_for_nothing_on_gitlab(author: str, found: str) -> None:
    """Guests may file issues, but plan nothing."""
    api = GitLabApi()
    api.issues[1] = {"iid": 1, "description": f"<!-- {MARK} -->", "author": {"username": author}}
    assert await on_gitlab(api).find(MARK) == found


async def test_old_marks_in_a_large_repository_are_searched_for(
    github: GitHubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists end at some point; what is older is asked for by its mark."""
    monkeypatch.setattr("runner.forge.tracker.github.MOST_LISTED", 2)
    number = github.add_issue("Old", f"<!-- {MARK} -->", author_association="OWNER")
    for _ in range(3):
        github.add_issue("Newer", "text")
    items = [github.repo.issues[number]]
    github.route("GET", "search/issues", lambda _: Reply(value={"items": items}))
    assert await on_github(github).find(MARK) == f"GH-{number}"
    (asked,) = github.asked("GET", "search/issues")
    assert asked.query["q"] == f'"{MARK}" in:body type:issue repo:{REPO}'


async def test_what_a_session_wrote_mentions_no_person_and_forges_no_mark(github: GitHubApi) -> None:
    """Mentions and marks in a file are taken apart, and secrets are taken out; the rest is as written."""
    forged = f"<!-- {MARK} --> <!-- autopilot-multi:epic 1 -->"
    backend = on_github(github)
    text = f"# Task\n\n@everybody, use {TOKEN} {forged} a@b.example\n"
    await keep(backend, Memory(), {"docs/01_task.md": text})
    body = texts(github)["Task"]
    assert "@\u200beverybody, use [redacted] <!-- 0123456789abcdef --> <!-- multi:epic 1 --> a@b.ex" in body
    assert "From `docs/01_task.md`, kept by autopilot-multi." in body
    assert await on_github(github).find(MARK) == ""
    assert await backend.links("GH-2") == frozenset()


async def test_an_id_of_another_tracker_is_refused_in_words(github: GitHubApi) -> None:
    """A story whose epics are in Jira cannot have its tasks on GitHub."""
    with pytest.raises(TrackerError, match="SHOP-1 is no issue of GitHub") as caught:
        await on_github(github).link("GH-1", Link(parent=True, other="SHOP-1"))
    assert "Tracker: SHOP-1" in caught.value.hint


async def test_a_repository_without_issues_keeps_no_work_items(github: GitHubApi) -> None:
    """That is found at the gate, before anything is written."""
    assert await on_github(github).projects() == ()
    github.repo.has_issues = False
    with pytest.raises(TrackerError, match="has its issues turned off"):
        await on_github(github).projects()


@pytest.mark.parametrize(
    ("url", "project", "found"),
    [
        ("https://github.com/acme/shop.git", "", ("acme/shop", "")),
        ("git@github.com:acme/shop.git", "acme/plan", ("acme/plan", "")),
        ("https://git.example.com/acme/shop", "", ("acme/shop", "git.example.com")),
        ("https://git.example.com/acme/shop", "acme/plan", ("acme/plan", "git.example.com")),
        ("https://gitlab.com/acme/shop", "acme/plan", ("acme/plan", "")),
        ("https://gitlab.com/acme/shop", "", "the remote origin leads to no repository on GitHub"),
        ("", "", "the remote origin leads to no repository on GitHub"),
        ("", "../../user", "'../../user' is no repository on GitHub"),
        ("", "../user", "'../user' is no repository on GitHub"),
        ("", "shop", "'shop' is no repository on GitHub"),
    ],
)
def test_whose_issues_are_used(url: str, project: str, found: tuple[str, str] | str) -> None:
    """Those of the remote, or of the project that the settings name on the same host."""
    environ = {"GH_HOST": "git.example.com"}

    def asked() -> tuple[str, str]:
        address = issues_address(Tracker.GITHUB, project, forge="", url=url, remote="origin", environ=environ)
        return address.name, address.host

    if isinstance(found, tuple):
        assert asked() == found
        return
    with pytest.raises(TrackerError, match=found):
        asked()


@pytest.mark.parametrize(
    ("tracker", "words"),
    [(Tracker.GITHUB, "`gh` is not installed"), (Tracker.GITLAB, "`glab` is not installed")],
)
async def test_without_the_program_the_error_names_its_installation(tracker: Tracker, words: str) -> None:
    """It is one about access, so the gate asks."""
    address = issues_address(tracker, "acme/shop", forge="", url="", remote="origin", environ={})
    with pytest.raises(AccessError, match=words) as caught:
        await open_issues(tracker, address, {"PATH": "/nowhere"})
    assert "apt install" in caught.value.hint
