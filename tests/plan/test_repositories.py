"""Stories that name another repository: which one that is, what holds there, and what is refused."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.errors import RepositoryError
from isolation.git.repository import Repository
from runner.core.errors import RunnerError
from runner.core.events.story_json import digest
from runner.core.model import Story, StoryId
from runner.plan.plan import Backlog, RunRequest, load_backlog, make_plan
from runner.plan.repositories.clones import NotClonedError, clone, clone_path, is_url
from runner.plan.trust.demands import demands_of
from tests.acceptance.program import write_story
from tests.conftest import git

Make = Callable[..., Path]


@pytest.fixture
def app(make_repository: Make) -> Path:
    """Return the repository of the run; one called web is beside it."""
    make_repository("web", {"autopilot-multi.toml": "verify = ['true']\nmax-stories = 9\n"})
    return make_repository("app")


def loaded(app: Path, *sources: str) -> Backlog:
    return load_backlog(RunRequest(directory=app, sources=sources))


def refused(app: Path, *parts: str) -> RunnerError:
    """Return the error of a backlog; it must say all of these."""
    with pytest.raises(RunnerError) as caught:
        loaded(app)
    said = f"{caught.value.message} | {caught.value.hint}"
    assert all(part in said for part in parts), said
    return caught.value


def test_a_path_and_a_name_mean_the_same_repository(app: Path) -> None:
    """By its path, by the name in the settings and by the default of a list: one site, with its own base."""
    (app / "autopilot-multi.toml").write_text("[repos]\nweb = '../web'\n")
    write_story(app, "a", command="true")
    write_story(app, "b", command="true", repo="../web")
    (app / "stories" / "more.yaml").write_text(
        "repo: web\nstories:\n  - {id: c, command: 'true'}\n  - {id: d, repo: ., command: 'true'}\n"
    )
    backlog = loaded(app)
    assert {story.id: story.repo for story in backlog.stories} == {"a": "", "b": "web", "c": "web", "d": ""}
    web = backlog.sites["web"]
    assert web.repository.top == app.parent / "web"
    assert web.base == git(app.parent / "web", "rev-parse", "HEAD").strip()
    assert backlog.base == git(app, "rev-parse", "HEAD").strip()


def test_checks_are_the_repositorys_and_limits_the_runs(app: Path) -> None:
    """Its file says how work is checked there; how many stories run is said where the command was given."""
    (app / "autopilot-multi.toml").write_text("verify = ['false']\nmax-stories = 2\n")
    write_story(app, "b", command="true", repo="../web")
    web = loaded(app).sites["web"]
    assert (web.settings.verify, web.settings.max_stories) == (("true",), 2)


def test_each_repository_is_trusted_by_itself(app: Path) -> None:
    """What its file runs is asked in its own name; where stories work is asked in that of the run."""
    write_story(app, "b", command="true", repo="../web")
    asked = demands_of(make_plan(RunRequest(directory=app)))
    assert [one.content for one in asked["web"]] == [("verify", "true")]
    assert ("story: repo", "../web") in [one.content for one in asked[""]]


def test_a_name_of_the_settings_may_say_the_base(app: Path) -> None:
    """A branch of that repository, not of the run's; --base is about the run's own."""
    web = app.parent / "web"
    git(web, "branch", "stable")
    git(web, "commit", "-q", "--allow-empty", "-m", "newer")
    (app / "autopilot-multi.toml").write_text("[repos.web]\nat = '../web'\nbase = 'stable'\n")
    write_story(app, "b", command="true", repo="web")
    backlog = load_backlog(RunRequest(directory=app, flags={"base": "main"}))
    assert backlog.sites["web"].base == git(web, "rev-parse", "stable").strip()
    (app / "autopilot-multi.toml").write_text("[repos.web]\nat = '../web'\nbase = 'nowhere'\n")
    refused(app, "story b", "unknown base 'nowhere'")


@pytest.mark.parametrize(
    ("repo", "parts"),
    [
        ("../wbe", ("does not exist", "did you mean '../web'")),
        ("plain", ("is not a repository, but a folder of the repository",)),
        ("README.md", ("is a file, not a repository",)),
        ("../linked", ("is a worktree of the repository of the run",)),
        ("../empty", ("cannot be used", "no commits yet")),
        ("https://me:secret@example.org/x.git", ("holds a password", "credential helper")),
        ("ext::sh -c true", ("does not exist",)),
    ],
)
def test_what_is_no_repository_is_refused(app: Path, repo: str, parts: tuple[str, ...]) -> None:
    """Before anything starts, with the story and what to do."""
    (app / "plain").mkdir()
    git(app, "worktree", "add", "-q", "../linked")
    git(app.parent, "init", "-q", "empty")
    write_story(app, "b", command="true", repo=repo)
    error = refused(app, "story b (stories/b.md)", *parts)
    assert "secret" not in error.message


def test_two_names_of_one_repository_are_refused(app: Path) -> None:
    """Their stories would look like those of two."""
    (app / "autopilot-multi.toml").write_text("[repos]\nweb = '../web'\nsite = '../web/../web'\n")
    write_story(app, "b", command="true", repo="web")
    write_story(app, "c", command="true", repo="site")
    refused(app, "repos.web and repos.site are the same repository")


def test_two_repositories_of_one_name_are_refused(app: Path, make_repository: Make) -> None:
    """Nobody could tell them apart; the settings can name them."""
    make_repository("other/web")
    write_story(app, "b", command="true", repo="../web")
    write_story(app, "c", command="true", repo="../other/web")
    refused(app, "is called web, as is", "[repos]")


def test_the_worktree_of_a_story_is_refused(app: Path) -> None:
    """Another story works there."""
    git(app.parent / "web", "worktree", "add", "-q", "../web.worktrees/x")
    write_story(app, "b", command="true", repo="../web.worktrees/x")
    refused(app, "is the worktree of a story")


def test_claims_are_proven_in_each_repository(app: Path) -> None:
    """The same path in two repositories is two files."""
    write_story(app, "a", command="true", owns=["x/**"])
    write_story(app, "b", command="true", owns=["x/**"], repo="../web")
    flags: dict[str, str | tuple[str, ...]] = {"bg-isolation": "none", "deconflict-paths": ("**",)}
    backlog = load_backlog(RunRequest(directory=app, flags=flags))
    assert [story.owns for story in backlog.stories] == [("x/**",), ("x/**",)]


def test_a_url_is_cloned_once_and_then_fetched(app: Path) -> None:
    """A plan clones nothing; the base is the newest commit of the remote's default branch."""
    web = app.parent / "web"
    url = f"file://{web}"
    write_story(app, "b", command="true", repo=url)
    with pytest.raises(NotClonedError) as caught:
        loaded(app)
    assert caught.value.demands[0].content == ("story: repo", url)
    path = clone(Repository.open(app), url, os.environ)
    assert path == clone_path(url, os.environ) == clone(Repository.open(app), url, os.environ)
    git(web, "commit", "-q", "--allow-empty", "-m", "newer")
    old = loaded(app).sites["web"].base
    new = load_backlog(RunRequest(directory=app, fetches=True)).sites["web"].base
    assert old != new == git(web, "rev-parse", "main").strip()
    with pytest.raises(RepositoryError, match="cannot clone file:///nowhere"):
        clone(Repository.open(app), "file:///nowhere/x.git", os.environ)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://example.org/web.git", True),
        ("git@example.org:team/web.git", True),
        ("ssh://git@example.org/web", True),
        ("../web", False),
        ("web", False),
        ("ext::sh -c true", False),
    ],
)
def test_what_is_a_url(text: str, expected: bool) -> None:  # noqa: FBT001  a table
    """Nothing that git would start a program for."""
    assert is_url(text) is expected


def test_a_clone_lies_in_the_folder_for_clones() -> None:
    """Whatever the URL says."""
    folder = clone_path("https://example.org/web.git", os.environ).parents[1]
    for url in ("https://example.org/..", "https://example.org/../../..", "host:..", "https://example.org/"):
        assert clone_path(url, os.environ).resolve().parents[1] == folder.resolve()


def test_a_story_without_a_repository_has_the_digest_it_had() -> None:
    """What earlier versions have finished stays finished; in another repository it is other work."""
    story = Story(id=StoryId("a"), title="a", prompt="Do it.")
    assert digest(story) == "18bfdf45516574119bf1ba5fbe8222f47c85c4ba9e3b288ade747fa4fb156967"
    assert digest(story) != digest(Story(id=StoryId("a"), title="a", prompt="Do it.", repo="web"))
