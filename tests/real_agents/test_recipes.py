"""The recipes of the page about agents of your own, with the real programs."""

import json
import os
import re
import tomllib
from pathlib import Path

import pytest

from tests.acceptance.program import run, write_story
from tests.conftest import git
from tests.real_agents.acp_programs import PROGRAMS, acp_environment, acp_folder
from tests.real_agents.model import scripted_model
from tests.real_agents.programs import ROOT, CannotInstallError
from tests.real_agents.stories import PATIENCE, work_sessions

pytestmark = pytest.mark.agents
PAGE = (ROOT / "docs" / "how-to" / "use-your-own-agent.md").read_text()


def recipe(name: str) -> str:
    """Return the settings of a recipe, as the page has them."""
    blocks = re.findall(r"^```toml\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if name in tomllib.loads(block).get("agents", {})]
    return str(found)


@pytest.mark.parametrize("name", ["copilot", "pi"])
def test_a_recipe_works_and_its_retry_resumes(repo: Path, tmp_path: Path, name: str) -> None:
    """The story is done in the second attempt, in the conversation of the first."""
    program, model, tokens = {"copilot": ("copilot-acp", "", None), "pi": ("pi", "scripted/m-1", 2000)}[name]
    try:
        folder = acp_folder(program)
    except CannotInstallError as error:
        pytest.skip(str(error))
    settings = f'agent = "{name}"\nmodel = "{model}"\nbase-check = "off"\npeer-abort = 1000\n'
    tiers = "".join(f"[tiers.{tier}]\nmemory-gb = 0.1\n" for tier in ("green", "warn", "degraded"))
    (repo / "autopilot-multi.toml").write_text(f"{settings}{recipe(name)}{tiers}")
    acts, again = [{"sh": "echo made > a.txt"}], [{"sh": "echo made > b.txt"}]
    script = {"id": "a", "acts": acts, "told": ["attempt 2 of", again]}
    write_story(repo, "a", body=f"Do as you are told.\n\nPLAY {json.dumps(script)}")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "settings")
    with scripted_model() as (url, scene):
        env = {"PATH": f"{folder}:{os.environ['PATH']}", **acp_environment(program, url, tmp_path / "home")}
        # Pi names the variable of its key in a file, which no rule of ours knows.
        arguments = ["--verify=test -f b.txt", "--seal=writes", "--json"]
        ran = run(repo, *arguments, env=env, limit=PATIENCE)
    assert PROGRAMS[program].command[0] == name
    assert (ran.story("a")["status"], ran.story("a")["attempt"]) == ("done", 2), ran.err
    first, second = work_sessions(repo)
    assert first["conversation"] == second["conversation"]
    assert first["input_tokens"] == tokens
    assert scene.requests_of("a")[-1]["scripts"] == 2
