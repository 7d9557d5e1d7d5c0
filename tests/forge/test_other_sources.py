"""GitLab, Jira, Azure DevOps and checklists become stories as GitHub's issues do."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from runner.core.errors import RunnerError, UsageError
from runner.core.model import Story
from runner.core.text.redaction import Redactor
from runner.forge.errors import ForgeError, ProgramMissingError, SignInError
from runner.forge.intake.checklist import parse_checklist
from runner.forge.intake.issue import make_issue, priority_of, references, story_id
from runner.forge.intake.source import parse_source
from runner.plan.intake.imported_story import Imported
from runner.plan.intake.reading import load_imported
from tests.forge import az_stand_in, gh_stand_in
from tests.forge.authority import Authority
from tests.forge.conftest import stand_in
from tests.forge.other_trackers import TOKEN, GitLabApi, JiraApi
from tests.forge.scripted_server import CUT, HALF, Fault, serving

LOOPBACK = {"NO_PROXY": "localhost", "no_proxy": "localhost"}
GITLAB = "gitlab:acme/tools/shop?label=autopilot"


def imported(source: str, env: Mapping[str, str], cwd: Path = Path("/")) -> Imported:
    """Import without waiting."""
    return load_imported([source], env, cwd=cwd, pause=lambda _: None, say=lambda _: None)


def by_id(found: Imported) -> dict[str, Story]:
    """Return the stories by their ids."""
    return {str(story.id): story for story in found.stories}


def fill(api: GitLabApi) -> None:
    """Add issues over three pages: some blocked by a link, some by a sentence."""
    api.page = 50
    for number in range(1, 121):
        body = f"Depends on #{number - 1}" if number % 40 == 0 else "text"
        api.add_issue(f"Issue {number}", body, "autopilot", *(["P1"] if number == 7 else []))
    api.add_issue("other", None)
    api.blocks = {3: [5, 6]}


@pytest.mark.parametrize("program", ["glab", "curl"])
def test_gitlab_by_its_program_or_by_the_thin_door(
    program: str, tmp_path: Path, authority: Authority
) -> None:
    """120 issues over three pages with links, after faults: by `glab` if it is there, else by curl."""
    api = GitLabApi()
    with serving(api, authority if program == "curl" else None) as host:
        fill(api)
        api.faults += [Fault(kind=429, headers={"Retry-After": "2"}), Fault(kind=CUT), Fault(kind=HALF)]
        path = os.environ["PATH"]
        if program == "glab":
            path = f"{stand_in(tmp_path / 'programs', 'glab', gh_stand_in.__file__)}{os.pathsep}{path}"
        elif shutil.which("curl") is None:
            pytest.skip("curl is not installed")
        ours = {"PATH": path, "HOME": str(tmp_path), "GITLAB_HOST": host, "SSL_CERT_FILE": str(authority.ca)}
        found = by_id(imported(GITLAB, ours | LOOPBACK | {"GITLAB_TOKEN": TOKEN}))
    assert len(found) == 120
    assert found["shop-5"].depends_on == found["shop-6"].depends_on == ("shop-3",)
    assert found["shop-40"].depends_on == ("shop-39",)
    assert (found["shop-7"].priority, found["shop-7"].labels) == (10, ("autopilot", "P1"))
    assert found["shop-1"].origin == "gitlab:acme/tools/shop#1"
    assert len(api.asked("GET", ".*/issues")) == 3 + 3
    assert len(api.asked("GET", ".*/links")) == 1


def test_gitlab_without_program_and_token_names_the_install_command(tmp_path: Path) -> None:
    """Neither `glab` nor a token: the error says how to get one."""
    with pytest.raises(ProgramMissingError) as caught:
        imported(GITLAB, {"PATH": str(tmp_path)})
    assert "glab auth login" in caught.value.hint


@pytest.mark.parametrize("cloud", [True, False], ids=["cloud", "server"])
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_jira_by_its_search(cloud: bool, tmp_path: Path, authority: Authority) -> None:  # noqa: FBT001  a parameter
    """A query of three pages, with links, priorities and labels; the sign-in is that of `~/.netrc`."""
    api = JiraApi(cloud=cloud)
    blocked = {"type": {"inward": "is blocked by"}, "inwardIssue": {"key": "SHOP-1"}}
    with serving(api, authority) as host:
        for number in range(1, 121):
            links = [blocked] if number == 2 else []
            api.add_issue(
                f"SHOP-{number}",
                f"Issue {number}",
                "depends on SHOP-1" if number == 3 else "text",
                priority={"name": "Highest" if number == 4 else "Medium"},
                labels=["autopilot"],
                issuelinks=links,
                reporter={"displayName": "Some Body"},
            )
        api.token = "dXNlcjpzM2NyM3Q="  # noqa: S105  user:s3cr3t, as curl encodes it
        (tmp_path / ".netrc").write_text("machine localhost login user password s3cr3t\n")
        ours = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "JIRA_URL": f"https://{host}"}
        env = ours | LOOPBACK | {"SSL_CERT_FILE": str(authority.ca)}
        found = by_id(imported("jira:project = SHOP", env))
        assert {request.query["jql"] for request in api.book} == {"project = SHOP"}
        (tmp_path / ".netrc").unlink()
        with pytest.raises(SignInError, match="cannot search Jira for `project = SHOP`: Jira: HTTP 401"):
            imported("jira:project = SHOP", env)
        token = {"JIRA_USERNAME": "user", "JIRA_API_TOKEN": "s3cr3t"}
        assert len(imported("jira:project = SHOP", env | token).stories) == 120
    assert len(found) == 120
    assert found["shop-2"].depends_on == found["shop-3"].depends_on == ("shop-1",)
    assert found["shop-4"].priority == 20
    assert f"(Some Body), taken from jira:SHOP-1, https://{host}/browse/SHOP-1." in found["shop-1"].prompt


def test_azure_devops_by_az(tmp_path: Path) -> None:
    """The work items of a query in batches, with predecessors, tags and HTML as text, after an outage."""
    config = tmp_path / "config"
    config.mkdir()
    relation = {"rel": "System.LinkTypes.Dependency-Reverse", "url": "https://x/_apis/wit/workItems/1"}
    items = [
        {
            "id": number,
            "url": f"https://dev.azure.com/acme/_apis/wit/workItems/{number}",
            "relations": [relation] if number == 2 else None,
            "fields": {
                "System.Title": f"Item {number}",
                "System.Description": "<div>do <b>this</b><script>no()</script></div><ul><li>a &amp; b</ul>",
                "System.Tags": "autopilot; later",
                "Microsoft.VSTS.Common.Priority": 1 if number == 3 else 2,
                "System.CreatedBy": {"displayName": "Some Body"},
            },
        }
        for number in range(1, 251)
    ]
    (config / "items.json").write_text(json.dumps({"down": 2, "items": items}))
    programs = stand_in(tmp_path / "programs", "az", az_stand_in.__file__)
    env = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "AZURE_CONFIG_DIR": str(config)}
    found = by_id(imported("ado:Shared Queries/Autopilot", env))
    assert len(found) == 250
    assert found["ado-2"].depends_on == ("ado-1",)
    assert (found["ado-3"].priority, found["ado-3"].labels) == (20, ("autopilot", "later"))
    assert found["ado-1"].prompt.endswith("> Item 1\n>\n> do this\n> - a & b")
    assert "https://dev.azure.com/acme/_workitems/edit/1" in found["ado-1"].prompt
    calls = [json.loads(line) for line in (config / "calls").read_text().splitlines()]
    assert [call[:2] for call in calls] == [["boards", "query"]] * 3 + [["devops", "invoke"]] * 2
    (config / "items.json").write_text(json.dumps({"down": 9, "items": []}))
    with pytest.raises(ForgeError, match=r"cannot run the query 'Select \[Id\]': az: ERROR: TF400733"):
        imported("ado:Select [Id]", env)


def test_a_checklist_is_a_source(tmp_path: Path) -> None:
    """Open items of the top level are stories; their details and what is nested are their text."""
    text = "# Todo\n- [ ] First thing\n  details\n  - [ ] nested\n\n- [x] done\n"
    text += "* [ ] Second (depends on: first-thing)\n1. [ ] First thing\n- no item\n"
    (tmp_path / "TODO.md").write_text(text)
    for source in ("checklist:TODO.md", "TODO.md"):
        found = by_id(imported(source, {}, tmp_path))
        assert list(found) == ["first-thing", "second", "first-thing-2"]
        assert found["first-thing"].prompt.endswith("> First thing\n>\n> details\n> - [ ] nested")
        assert (found["second"].title, found["second"].depends_on) == ("Second", ("first-thing",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("github:", "names nothing after"),
        ("github:acme", "'acme' in 'github:acme' is not a project"),
        ("github:acme/../x", "is not a project"),
        ("github:a/b?state=opened", "state is open, closed or all"),
        ("gitlab:a/b?limit=0", "limit is a number from 1 to 1000"),
        ("github:a/b?labels=x", "unknown parameter 'labels'"),
        ("github://-bad host/a/b", "is not the name of a host"),
        ("nothing.md", "is neither a source of stories nor a file"),
    ],
)
def test_a_bad_source_is_refused_with_the_reason(text: str, words: str, tmp_path: Path) -> None:
    """Before anything is asked, and with what to write instead."""
    with pytest.raises(UsageError) as caught:
        parse_source(text, cwd=tmp_path)
    assert words in caught.value.message


def test_jira_needs_an_address(tmp_path: Path) -> None:
    """Without JIRA_URL, or with one that is not secure, nothing is asked."""
    with pytest.raises(SignInError, match="JIRA_URL is not set"):
        imported("jira:x", {}, tmp_path)
    with pytest.raises(RunnerError, match="is not one that begins with https"):
        imported("jira:x", {"JIRA_URL": "http://jira.example.com"}, tmp_path)


def test_what_texts_say_about_links_and_priorities() -> None:
    """The sentences, labels and names that are understood, and those that are not."""
    text = "Blocked by: #1, #2 and acme/shop#3. It depends on SHOP-4! (depends on #5)\nblocked by nothing #6"
    assert list(references(text)) == ["#1", "#2", "acme/shop#3", "SHOP-4", "#5"]
    assert [
        priority_of([label]) for label in ("P0", "priority: high", "prio/P3", "lowest", "1", "highway")
    ] == [*(20, 10, -10, -20, 0, 0)]
    assert [story_id(name) for name in ("shop-1", "SHOP-12", "My Shop!-3", "..-4", "x" * 80 + "-5")] == [
        *("shop-1", "shop-12", "my-shop-3", "story-4", "x" * 40 + "-5")
    ]


def test_a_token_in_an_issue_is_taken_out_where_the_text_is_cut() -> None:
    """No part of a token survives the cut of a long text."""
    token = "ghp_" + "Zz9" * 12
    issue = make_issue(
        origin="x#1", name="x-1", title="t", body="w" * (64 * 1024 - 10) + " " + token, redactor=Redactor()
    )
    assert "ghp_" not in issue.body
    assert issue.kept


def test_parsing_a_checklist_ends_at_what_is_not_indented() -> None:
    """A paragraph, a heading or another list ends an item."""
    found = parse_checklist(
        "- [ ] a\n  more\nparagraph\n  not its\n- [ ]  b\n# heading\n", "T.md", Redactor()
    )
    assert [(issue.title, issue.body) for issue in found] == [("a", "more"), ("b", "")]
