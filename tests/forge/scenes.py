"""What both the real `gh` and its stand-in must show: whole scenes of drafts and reviews."""

import os
import signal
from collections.abc import Callable
from typing import Any

from tests.acceptance.program import Ran
from tests.acceptance.test_agents import claude
from tests.conftest import git
from tests.forge.github_api import TOKEN
from tests.forge.projects import Project
from tests.forge.scripted_server import Fault, Request


def act(story_id: str, text: str) -> dict[str, Any]:
    """Return a session that writes the file of its story."""
    return {"files": {f"made-{story_id}.txt": f"{text}\n"}, "lines": claude()}


def killed_at(project: Project, when: Callable[[Request], bool], *arguments: str) -> None:
    """Run the program until it sends a request, which is carried out; kill it before it gets the answer."""
    project.api.faults[:] = []
    with project.started(*arguments) as running:

        def strike(request: Request) -> bool:
            if not when(request):
                return False
            os.kill(running.pid, signal.SIGKILL)
            return True

        # The answer is lost, too: what was killed must not be able to read it.
        project.api.faults.append(Fault(kind="cut", when=strike, done=True))
        ended = running.finish()
    assert ended.code == -signal.SIGKILL, ended.err
    with project.api.lock:  # the service carries the request out, although nobody waits for it any more
        project.api.faults[:] = []


def creates(request: Request) -> bool:
    """Whether a request opens a pull request."""
    return request.line == "POST repos/acme/shop/pulls"


def require_no_harm(project: Project) -> None:
    """No branch of a story has two pull requests, nothing was merged, nothing has a token in it."""
    heads = [pull["head"]["label"] for pull in project.pulls.values()]
    assert len(heads) == len(set(heads)), heads
    assert project.api.merges == 0
    assert all(pull["draft"] for pull in project.pulls.values())
    assert TOKEN.encode() not in project.everything_written()
    assert TOKEN not in str(project.pulls) + str(project.api.repo.comments)


def require_shown(project: Project, *stories: str) -> None:
    """Each draft shows what is on the story's branch here, and its commit has a green status."""
    for story_id in stories:
        tip = git(project.repo, "rev-parse", f"autopilot/{story_id}").strip()
        assert git(project.bare, "rev-parse", f"autopilot/{story_id}").strip() == tip
        pull = project.pull_of(story_id)
        body = pull["body"]
        assert "**Done and verified**" in body
        assert f"made-{story_id}.txt (+1, -0)" in body
        assert "`test -f made-$AUTOPILOT_STORY_ID.txt`: passed in" in body
        assert "Cost: " in body
        assert f"Autopilot-Story: {story_id}\n" in body
        (*_, newest) = project.api.repo.statuses[tip]
        assert (newest["context"], newest["state"]) == ("autopilot-multi", "success")


def well(ran: Ran, code: int = 0) -> Ran:
    """Require an exit code."""
    assert ran.code == code, (ran.out, ran.err)
    return ran
