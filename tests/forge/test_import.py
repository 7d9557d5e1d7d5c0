"""Issues become stories: page by page, with links, again and again, and never more than words."""

import re
from pathlib import Path

import pytest

from runner.plan.stories.sources import load_stories
from tests.acceptance.program import Ran, run_in
from tests.conftest import git
from tests.forge.conftest import ScriptedGitHub
from tests.forge.github_api import REPO
from tests.forge.scripted_server import CUT, HALF, Fault, Request

SOURCE = f"github:{REPO}?label=autopilot"
AGENT = """
agent = "mine"
[agents.mine]
argv = ["sh", "-c", "cat > seen-$AUTOPILOT_STORY_ID.txt"]
"""


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.forge)])
def scripted(request: pytest.FixtureRequest) -> ScriptedGitHub:
    """Return the scripted GitHub with the stand-in, or with the real `gh` over TLS."""
    found: ScriptedGitHub = request.getfixturevalue(
        "github" if request.param == "stand-in" else "real_github"
    )
    return found


@pytest.fixture
def project(repo: Path) -> Path:
    """Return a repository whose agent writes down its prompt."""
    (repo / "autopilot-multi.toml").write_text(AGENT)
    git(repo, "add", ".")
    git(repo, "commit", "-qm", "settings")
    return repo


def program(scripted: ScriptedGitHub, project: Path, *args: str) -> Ran:
    """Run the program where `gh` finds the scripted GitHub."""
    return run_in(project, *args, environ=scripted.env)


def fill(scripted: ScriptedGitHub, count: int) -> None:
    """Add issues: each third one says what blocks it, some are linked, some have a priority."""
    api = scripted.api
    for number in range(1, count + 1):
        labels = ["autopilot", *(["priority: high"] if number % 10 == 0 else [])]
        body = f"Change number {number}.\n" + (f"Blocked by #{number - 1}.\n" if number % 3 == 0 else "")
        assert api.add_issue(f"Issue {number}", body, labels=labels) == number
        if number % 30 == 0:
            api.repo.blocked_by[number] = [number - 2]
    api.add_issue("Not for us", "without the label")
    api.repo.branches |= {"main": "1" * 40, "topic": "2" * 40}
    api.page = 50


def _on(page: str) -> dict[str, object]:
    def when(request: Request) -> bool:
        return request.path.endswith("/issues") and request.query.get("page", "1") == page

    return {"when": when}


@pytest.mark.parametrize(
    "faults", [pytest.param(False, marks=pytest.mark.forge), True], ids=["well", "faults"]
)
def test_120_issues_over_three_pages_with_their_links(
    scripted: ScriptedGitHub, project: Path, *, faults: bool
) -> None:
    """Every issue becomes one story with its links, priority and labels, also if every page fails first."""
    fill(scripted, 120)
    if faults:
        scripted.api.faults += [
            Fault(kind=429, headers={"Retry-After": "1"}, **_on("1")),  # type: ignore[arg-type]  # its condition
            Fault(kind=502, **_on("2")),  # type: ignore[arg-type]  # as above
            Fault(kind=CUT, **_on("3")),  # type: ignore[arg-type]  # as above
            Fault(kind=HALF, when=lambda request: request.path.endswith("issues/60/dependencies/blocked_by")),
        ]
    shown = program(scripted, project, "import", SOURCE, "--dry-run")
    assert (shown.code, shown.out.splitlines()[-1]) == (0, "would import: 120 new")
    assert not (project / "stories").exists()
    done = program(scripted, project, "import", SOURCE)
    assert (done.code, done.out.splitlines()[-1]) == (0, "imported: 120 new")
    assert shown.err.count("trying again in 1 s") == (4 if faults else 0), shown.err
    stories = {story.id: story for story in load_stories((), top=project, default="stories")}
    assert len(stories) == 120
    for number in range(1, 121):
        story = stories[f"shop-{number}"]  # type: ignore[index]  # a story's id
        wanted = {number - 2} if number % 30 == 0 else set()
        wanted |= {number - 1} if number % 3 == 0 else set()
        assert set(story.depends_on) == {f"shop-{each}" for each in wanted}
        assert story.priority == (10 if number % 10 == 0 else 0)
        assert story.labels[0] == "autopilot"
        assert story.origin == f"github:{REPO}#{number}"
        assert f"> Change number {number}." in story.prompt
    pages = [request.query.get("page", "1") for request in scripted.api.asked("GET", ".*/issues")]
    assert pages == (list("112233") if faults else list("123")) + list("123")
    plan = program(scripted, project, "plan", "--json")
    assert plan.code == 0, plan.err
    assert len(plan.data["stories"]) == 120
    again = program(scripted, project, "import", SOURCE)
    assert again.out.splitlines()[-1] == "imported: 120 unchanged"


def test_an_outage_writes_nothing(scripted: ScriptedGitHub, project: Path) -> None:
    """If the last page is refused, no story of the first two is written."""
    fill(scripted, 120)
    scripted.api.faults.append(Fault(kind=410, **_on("3")))  # type: ignore[arg-type]  # its condition
    ran = program(scripted, project, "import", SOURCE)
    assert ran.code == 1
    assert f"error: cannot read the issues of {REPO}: GitHub: HTTP 410" in ran.err
    assert not (project / "stories").exists()


def test_changed_issues_update_what_has_not_started_and_nothing_else(
    scripted: ScriptedGitHub, project: Path
) -> None:
    """A story that has started, one that was edited and one of another origin are kept, and that is said."""
    for number in range(1, 6):
        scripted.api.add_issue(f"Issue {number}", "first text", labels=["autopilot"])
    assert program(scripted, project, "import", SOURCE).code == 0
    ran = program(scripted, project, "run", "shop-1")
    assert ran.code == 0, ran.err
    edited = project / "stories/shop-2.md"
    edited.write_text(edited.read_text() + "\nAlso think of the docs.\n")
    own = project / "stories/shop-6.md"
    own.write_text("A story of my own.\n")
    before = {path.name: path.read_text() for path in (project / "stories").iterdir()}
    for number in (1, 2, 3):
        scripted.api.repo.issues[number]["body"] = "second text"
    scripted.api.repo.issues[4]["state"] = "closed"
    scripted.api.add_issue("Issue 6", "collides", labels=["autopilot"])
    scripted.api.add_issue("Issue 7", "new", labels=["autopilot"])
    again = program(scripted, project, "import", SOURCE)
    after = {path.name: path.read_text() for path in (project / "stories").iterdir()}
    assert {name for name in after if after[name] != before.get(name)} == {"shop-3.md", "shop-7.md"}
    assert "> second text" in after["shop-3.md"]
    assert again.out.splitlines() == [
        "kept stories/shop-1.md: the issue has changed, but the story has already started",
        "kept stories/shop-2.md: the issue has changed, but you have edited the story",
        "updated stories/shop-3.md: Issue 3",
        "unchanged stories/shop-5.md: Issue 5",
        f"kept stories/shop-6.md: the story shop-6 is not from github:{REPO}#6",
        "new stories/shop-7.md: Issue 7",
        "imported: 1 started, 1 edited, 1 updated, 1 unchanged, 1 taken, 1 new",
    ]


def test_run_from_takes_issues_without_files(scripted: ScriptedGitHub, project: Path) -> None:
    """`run --from` carries the issues in their order, `--from` again finds them done, and no file is left."""
    scripted.api.add_issue("Second", "Depends on: #2 and https://example.com/other", labels=["autopilot"])
    scripted.api.add_issue("First", "go", labels=["autopilot"])
    ran = program(scripted, project, "run", "--from", SOURCE, "--json")
    assert ran.code == 0, ran.err
    assert [story["id"] for story in ran.data["stories"]] == ["shop-2", "shop-1"]
    assert not (project / "stories").exists()
    seen = git(project, "show", "autopilot/shop-1:seen-shop-1.txt")
    assert "somebody else's words (somebody)" in seen
    assert "> Depends on: #2" in seen
    again = program(scripted, project, "run", "--from", SOURCE)
    assert (again.code, "nothing to do" in again.err) == (0, True)


def test_links_that_do_not_fit_are_left_out_and_said(scripted: ScriptedGitHub, project: Path) -> None:
    """Links in a circle, to a closed issue and to itself stop nothing."""
    scripted.api.add_issue("One", "blocked by #2, #1 and #9", labels=["autopilot"])
    scripted.api.add_issue("Two", "blocked by #1", labels=["autopilot"])
    ran = program(scripted, project, "import", SOURCE)
    assert ran.code == 0
    assert f"note: shop-1: blocked by github:{REPO}#9, which is not part of this import" in ran.err
    assert "note: shop-1: does not wait for shop-2, which waits for it" in ran.err
    stories = load_stories((), top=project, default="stories")
    assert [(story.id, story.depends_on) for story in stories] == [("shop-1", ()), ("shop-2", ("shop-1",))]


def test_without_gh_the_install_command_is_named(
    github: ScriptedGitHub, project: Path, tmp_path: Path
) -> None:
    """A machine without `gh` learns how to get it."""
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("git", "sh"):
        (bare / name).symlink_to(Path("/usr/bin") / name)
    ran = run_in(project, "import", SOURCE, environ=github.env | {"PATH": str(bare)})
    assert ran.code == 1
    assert f"error: cannot read the issues of {REPO}: `gh` is not installed" in ran.err
    assert re.search(r"hint: `apt install gh`.*`gh auth login`", ran.err)


def test_a_host_can_be_named_and_no_issue_is_nothing_to_do(scripted: ScriptedGitHub, project: Path) -> None:
    """`github://HOST/…` asks that host; without an issue nothing is written, and a run has nothing to do."""
    env = {name: value for name, value in scripted.env.items() if name != "GH_HOST"}
    source = f"github://{scripted.host}/{REPO}"
    empty = run_in(project, "import", source, environ=env)
    assert (empty.code, empty.out) == (0, "no issue matches\n")
    idle = run_in(project, "run", "--from", source, environ=env)
    assert (idle.code, "nothing to do" in idle.err) == (0, True), idle.err
    scripted.api.add_issue("One", "text")
    ran = run_in(project, "import", source, "--json", environ=env)
    origin = f"github://{scripted.host}/{REPO}#1"
    wanted = {"id": "shop-1", "origin": origin, "path": "stories/shop-1.md", "change": "new"}
    assert ran.data == {"dry_run": False, "stories": [wanted], "notes": []}
    (story,) = load_stories((), top=project, default="stories")
    assert story.origin == origin
