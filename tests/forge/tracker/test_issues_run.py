"""Whole runs whose work items are issues: on GitHub with `gh`, on GitLab with `glab` or a token alone."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Ran, run
from tests.conftest import git
from tests.forge import gh_stand_in
from tests.forge.authority import Authority
from tests.forge.conftest import ScriptedGitHub, stand_in
from tests.forge.github_api import TOKEN
from tests.forge.merge_requests import PROJECT, GitLabApi
from tests.forge.programs import with_glab, without_glab
from tests.forge.projects import Project, make_clone, make_project
from tests.forge.scenes import killed_at, well
from tests.forge.scripted_server import Request, serving
from tests.forge.tracker.scenes import STATE, ended_at_decompose, epics, planned_story, tasks

TITLES = ["Storage", "Shop window", "Initial structure", "Tables", "Pages"]


def settle(repo: Path, tracker: str) -> None:
    """Let the settings name the tracker."""
    with (repo / "autopilot-multi.toml").open("a") as file:
        file.write(f'tracker = "{tracker}"\n')
    planned_story(repo)


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.forge)])
def project(request: pytest.FixtureRequest, tmp_path: Path, repo: Path) -> Project:
    """Return a clone of the scripted GitHub whose story plans and decomposes."""
    name = "github" if request.param == "stand-in" else "real_github"
    github: ScriptedGitHub = request.getfixturevalue(name)
    project = make_project(tmp_path, repo, github)
    settle(repo, "github")
    return project


def require_once(project: Project) -> None:
    """Each work item and each relation exists once, and the files name them."""
    hosted = project.api.repo
    assert [one["title"] for one in hosted.issues.values()] == TITLES
    assert hosted.parts == {1: [3, 4], 2: [5]}
    assert hosted.blocked_by == {4: [3], 5: [3, 4]}
    found = tasks(project.repo)
    assert list(found) == [
        "GH-3_initial_structure.md",
        "GH-4_tables.md",
        "GH-5_pages.md",
        "dependencies.md",
    ]
    assert "Tracker: GH-4\n" in found["GH-4_tables.md"]
    assert "Dependencies: GH-3, GH-4_tables.md\n" in found["GH-5_pages.md"]
    assert "## Epic: Storage\n\nTracker: GH-1\n" in epics(project.repo)
    assert TOKEN.encode() not in project.everything_written()


def creating(path: str, number: int) -> Callable[[Request], bool]:
    """Return whether a request is the one of this number that creates something."""
    counted = iter(range(1, 1000))

    def when(request: Request) -> bool:
        return request.method == "POST" and request.path.endswith(path) and next(counted) == number

    return when


def test_issues_are_created_once_although_the_run_is_killed(project: Project) -> None:
    """Killed at an epic, at a task and at a link, each of which exists then, while its answer was lost."""
    killed_at(project, creating("/issues", 2))
    killed_at(project, creating("/issues", 2), "resume")
    killed_at(project, creating("/sub_issues", 2), "resume")
    ended_at_decompose(project.run("resume", "--json"))
    require_once(project)
    assert "tracker: github" in git(project.repo, "show", f"autopilot/a:{STATE}")


def test_denied_skipped_and_synced_later(project: Project) -> None:
    """The gate names the sign-in; without it files are pending, and `tracker sync` creates all, once."""
    right, project.env["GH_ENTERPRISE_TOKEN"] = project.env["GH_ENTERPRISE_TOKEN"], "ghp_" + "wrong0" * 6
    ran = project.run("--json")
    assert "Tracker authentication failed" in ran.story("a")["reason"]
    assert "HTTP 401 (Bad credentials)" in ran.err
    assert "Retry authentication (gh auth login)" in well(project.run("decide")).out
    well(project.run("decide", "a", "B"))
    ended_at_decompose(project.run("resume", "--json"))
    assert epics(project.repo).count("Tracker: pending") == 2
    assert "HTTP 401" in well(project.run("tracker", "sync"), 1).err
    project.env["GH_ENTERPRISE_TOKEN"] = right
    would = well(project.run("tracker", "sync", "--dry-run"))
    assert "a: would create task 'Pages' in GitHub\n" in would.out
    assert "a: would link task 'Pages' to epic 'Shop window'\n" in would.out
    assert project.outward() == []
    killed_at(project, creating("/issues", 3), "tracker", "sync")
    well(project.run("tracker", "sync"))
    require_once(project)
    assert well(project.run("tracker", "sync")).out == "nothing is pending\n"


@pytest.fixture(params=[pytest.param("glab", marks=pytest.mark.forge), "curl", "stand-in"])
def gitlab(
    request: pytest.FixtureRequest, tmp_path: Path, repo: Path, authority: Authority
) -> Iterator[tuple[GitLabApi, Callable[..., Ran]]]:
    """Serve a scripted GitLab; yield it, and the program on a clone that reaches it in one of three ways."""
    api = GitLabApi()
    api.token = "glpat-" + "scripted0" * 3
    env = with_glab() if request.param == "glab" else without_glab()
    if request.param == "stand-in":
        folder = stand_in(tmp_path / "programs", "glab", gh_stand_in.__file__)
        env["PATH"] = f"{folder}{os.pathsep}{env['PATH']}"
    elif request.param == "curl" and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    with serving(api, None if request.param == "stand-in" else authority) as host:
        make_clone(tmp_path, repo, f"https://{host}/{PROJECT}.git")
        settle(repo, "gitlab")
        env |= {
            "GITLAB_HOST": host,
            "GITLAB_TOKEN": api.token,
            "NO_PROXY": "localhost",
            "no_proxy": "localhost",
        }
        env |= {"CURL_CA_BUNDLE": str(authority.ca), "SSL_CERT_FILE": str(authority.ca)}
        yield api, lambda *arguments: run(repo, *arguments, env=env)


def test_issues_on_gitlab(repo: Path, gitlab: tuple[GitLabApi, Callable[..., Ran]]) -> None:
    """Epics have lists of their tasks, tasks what they wait for; a second look creates nothing."""
    api, program = gitlab
    ended_at_decompose(program("--json"))
    assert [one["title"] for one in api.issues.values()] == TITLES
    assert api.issues[1]["description"].endswith("- [ ] #3\n- [ ] #4")
    assert api.blocked_by == {4: [3], 5: [3, 4]}
    assert "Dependencies: GL-3, GL-4_tables.md\n" in tasks(repo)["GL-5_pages.md"]
    assert well(program("tracker", "sync")).out == "nothing is pending\n"
    everything = b"".join(path.read_bytes() for path in repo.rglob("*") if path.is_file())
    assert api.token.encode() not in everything
