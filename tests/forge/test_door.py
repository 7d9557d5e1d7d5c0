"""The door to services: clean environment, bounds, errors in words, patience, page by page."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from isolation.errors import CommandLimitError
from isolation.keeper.unconfined import run_bounded
from runner.forge.errors import ForgeError, OutageError, ProgramMissingError, RefusedError, SignInError
from runner.forge.github import graphql, open_github
from runner.forge.patience import ATTEMPTS
from runner.forge.programs import GH, Door
from runner.forge.rest import Rest
from tests.forge.conftest import ScriptedGitHub
from tests.forge.github_api import REPO, TOKEN
from tests.forge.scripted_server import CUT, HALF, Fault, Request

KINDS = ("stand-in", pytest.param("real", marks=pytest.mark.forge))


@pytest.fixture(params=KINDS)
def scripted(request: pytest.FixtureRequest) -> ScriptedGitHub:
    """Return the scripted GitHub with the stand-in, or with the real `gh` over TLS."""
    found: ScriptedGitHub = request.getfixturevalue(
        "github" if request.param == "stand-in" else "real_github"
    )
    return found


def opened(env: Mapping[str, str]) -> tuple[Rest, list[float], list[str]]:
    """Open the door with a clock that does not wait; return also the pauses and what was said about them."""
    pauses: list[float] = []
    said: list[str] = []
    return open_github(env, pause=pauses.append, say=said.append), pauses, said


def _second(request: Request) -> bool:
    return request.query.get("page") == "2"


def test_a_list_is_read_page_by_page_although_pages_fail(scripted: ScriptedGitHub) -> None:
    """Three pages with a limit, an outage, a cut connection and half an answer: every issue, each once."""
    api = scripted.api
    for number in range(1, 251):
        api.add_issue(f"issue {number}")
    api.faults += [
        Fault(kind=429, headers={"Retry-After": "7"}),
        Fault(kind=502, when=_second),
        Fault(kind=CUT, when=_second),
        Fault(kind=HALF, when=_second),
    ]
    github, pauses, said = opened(scripted.env)
    path = f"repos/{REPO}/issues?state=open&direction=asc&per_page=100"
    numbers = [each["number"] for each in github.pages(path, asked="read the issues")]
    assert numbers == list(range(1, 251))
    assert pauses == [7, 1, 2, 4]
    assert len(said) == 4
    assert "HTTP 429 (scripted fault); trying again in 7 s" in said[0]
    assert len(api.asked("GET")) == 3 + 4


def test_what_writes_is_not_repeated_unless_nothing_was_done(scripted: ScriptedGitHub) -> None:
    """After a lost answer the comment is there once, and the caller must look; a limit is waited for."""
    number = scripted.api.add_issue("one")
    path = f"repos/{REPO}/issues/{number}/comments"
    github, pauses, _ = opened(scripted.env)
    scripted.api.faults += [Fault(kind=429, headers={"Retry-After": "3"}), Fault(kind=CUT, done=True)]
    with pytest.raises(OutageError, match="cannot comment on #1: GitHub: no answer"):
        github.json("POST", path, {"body": "hello"}, asked="comment on #1")
    assert pauses == [3]
    assert [each["body"] for each in scripted.api.repo.comments[number]] == ["hello"]
    made = github.json("POST", path, {"body": "again"}, asked="comment on #1")
    assert made["body"] == "again"


def test_refusals_name_what_was_asked_and_why(scripted: ScriptedGitHub) -> None:
    """A refusal is no outage: it is not repeated, and says what the service says."""
    github, pauses, _ = opened(scripted.env)
    with pytest.raises(RefusedError, match="cannot read the issues of no/where: GitHub: HTTP 404") as caught:
        list(github.pages("repos/no/where/issues", asked="read the issues of no/where"))
    assert caught.value.status == 404
    body = {"head": "absent", "base": "main", "title": "t"}
    with pytest.raises(RefusedError, match=r"HTTP 422 \(Validation Failed: head invalid\)"):
        github.json("POST", f"repos/{REPO}/pulls", body, asked="open a draft")
    assert pauses == []


def test_a_wrong_token_is_a_sign_in_error_that_does_not_show_it(scripted: ScriptedGitHub) -> None:
    """A refused sign-in names the command to sign in, and never the token."""
    scripted.api.token = "of-somebody-else"  # noqa: S105  it is none
    github, _, _ = opened(scripted.env)
    with pytest.raises(SignInError) as caught:
        github.json("GET", "user", asked="read who is signed in")
    assert "gh auth login" in caught.value.hint
    assert TOKEN not in str(caught.value)
    unsigned = {name: value for name, value in scripted.env.items() if name != "GH_ENTERPRISE_TOKEN"}
    with pytest.raises(SignInError) as caught:
        opened(unsigned)[0].json("GET", "user", asked="read who is signed in")
    assert "gh auth login" in caught.value.hint


def test_patience_ends(scripted: ScriptedGitHub) -> None:
    """A service that stays away is an outage after six attempts; a limit of hours is not waited for."""
    scripted.api.faults.append(Fault(kind=503, times=100))
    github, pauses, _ = opened(scripted.env)
    with pytest.raises(OutageError, match="cannot read it: GitHub: HTTP 503"):
        github.json("GET", "user", asked="read it")
    assert len(pauses) == ATTEMPTS - 1
    spent = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "99999999999"}
    scripted.api.faults[:] = [Fault(kind=403, headers=spent)]
    with pytest.raises(OutageError, match="allows no more requests for"):
        github.json("GET", "user", asked="read it")


def test_queries_return_data_or_say_why_not(scripted: ScriptedGitHub) -> None:
    """GraphQL answers with 200 also when it refuses."""
    github, _, _ = opened(scripted.env)
    found = graphql(github, "query { viewer { login } }", {}, asked="read who is signed in")
    assert found == {"viewer": {"login": "robot"}}
    with pytest.raises(RefusedError, match="Could not resolve to a node"):
        graphql(
            github, "mutation { markPullRequestReadyForReview }", {"id": "PR_9"}, asked="mark it as ready"
        )


def test_a_missing_program_is_named_with_its_install_command(tmp_path: Path) -> None:
    """Without `gh` the error says what was asked, and how to get it."""
    github, _, _ = opened({"PATH": str(tmp_path)})
    with pytest.raises(ProgramMissingError, match="cannot read it: `gh` is not installed") as caught:
        github.json("GET", "user", asked="read it")
    assert "apt install gh" in caught.value.hint


def test_the_environment_is_clean(tmp_path: Path) -> None:
    """A program gets the named variables, no others, and its arguments hold no body."""
    program = tmp_path / "gh"
    program.write_text('#!/bin/sh\nenv > "$HOME/env"\necho "$@" > "$HOME/argv"\ncat > "$HOME/stdin"\n')
    program.chmod(0o755)
    environ = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "GH_TOKEN": TOKEN,
        "AWS_SECRET_ACCESS_KEY": "of somebody else",
        "LD_PRELOAD": "",
        "GH_DEBUG": "api",
    }
    Door(program=GH, environ=environ).run("api", asked="look", stdin=b"the body")
    lines = (tmp_path / "env").read_text().splitlines()
    names = {line.partition("=")[0] for line in lines} - {"PWD", "SHLVL", "_", "OLDPWD"}
    assert names == {"PATH", "HOME", "GH_TOKEN", *GH.fixed}
    assert (tmp_path / "argv").read_text() == "api\n"
    assert (tmp_path / "stdin").read_text() == "the body"


def test_what_a_failed_call_prints_is_shown_without_secrets(tmp_path: Path) -> None:
    """A program that prints its token on failure does not bring it into our error."""
    program = tmp_path / "gh"
    program.write_text('#!/bin/sh\necho "error: bad request with token $GH_TOKEN" >&2\nexit 1\n')
    program.chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "GH_TOKEN": "plain-secret-of-no-known-form"}
    with pytest.raises(ForgeError, match=r"bad request with token \[redacted\]"):
        opened(environ)[0].json("GET", "user", asked="read it")


def test_a_command_that_hangs_or_floods_is_ended_with_its_group(tmp_path: Path) -> None:
    """The limits on time and output end the command and what it started."""
    hang = ("sh", "-c", "sleep 1000 & echo $! > pid; wait")
    with pytest.raises(CommandLimitError, match=r"sh took longer than 0\.5 s"):
        run_bounded(hang, env=os.environ, cwd=tmp_path, seconds=0.5, most=1000)
    pid = int((tmp_path / "pid").read_text())
    stat = Path(f"/proc/{pid}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"
    with pytest.raises(CommandLimitError, match="wrote more than"):
        run_bounded(("yes",), env=os.environ, cwd=tmp_path, seconds=60, most=1000)
    left = ("sh", "-c", "sleep 1000 & cat; echo bad >&2; exit 3")
    ended = run_bounded(left, env=os.environ, cwd=tmp_path, stdin=b"x" * 200_000, seconds=60, most=1_000_000)
    assert (ended.returncode, len(ended.stdout), ended.stderr) == (3, 200_000, b"bad\n")
