"""Agents in one shared tree, told by small fakes on PATH that do what the real ones were seen to do."""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance.program import Ran, run, write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import require

SHARED = ("--bg-isolation", "none", "--deconflict-paths", "packages/{id}/**", "--max-stories", "3")
CODEX = """#!{python}
import json, os, pathlib, re, sys
story = os.environ["AUTOPILOT_STORY_ID"]
words = " ".join(sys.argv)
table = re.search(r"permissions[.]autopilot[.]filesystem=[{{](.*?)[}}]", words)
folders = re.findall(r'"(/[^"]*)" = "write"', table[1]) if table else [os.getcwd()]
print(json.dumps({{"type": "thread.started", "thread_id": story}}))
sys.stdin.read()
try:
    # A sandbox hides some names in each folder that it opens; when others use it too, they stay.
    for folder in folders:
        for name in (".agents", ".aws", ".codex"):
            (pathlib.Path(folder) / name).mkdir(exist_ok=True)
    for name in ("packages/" + story + "/made", "node_modules/" + story):
        if not any(pathlib.Path(name).resolve().is_relative_to(folder) for folder in folders):
            raise OSError(name + " is closed")
        pathlib.Path(name).write_text("made")
except OSError as error:
    print(json.dumps({{"type": "item.completed", "item": {{"type": "agent_message", "text": str(error)}}}}))
print(json.dumps({{"type": "turn.completed", "usage": {{"input_tokens": 1}}}}))
"""


AIDER = """#!/bin/sh
mkdir .aider.tags.cache.v4 && echo x > .aider.tags.cache.v4/cache.db
echo made > packages/$AUTOPILOT_STORY_ID/made
echo 'Tokens: 1k sent, 10 received.'
"""


@pytest.fixture
def tree(make_repository: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository of packages, one of them yet to be made, and a fake codex."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for program, text in (("codex", CODEX.format(python=sys.executable)), ("aider", AIDER)):
        (folder / program).write_text(text)
        (folder / program).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    root = make_repository(
        files={f"packages/{name}/x": name for name in "ab"} | {".gitignore": "node_modules\n"}
    )
    (root / "node_modules").mkdir()
    return root


def _stories(root: Path, agent: str, *names: str) -> None:
    for name in names:
        write_story(root, name, agent=agent, verify=[f"test -f packages/{name}/made"])


def _reasons(ran: Ran) -> dict[str, str]:
    return {story["id"]: f"{story['status']}: {story['reason']}" for story in ran.data["stories"]}


@pytest.fixture(params=["divert", "deny", "detect"])
def level(request: pytest.FixtureRequest) -> str:
    """Return each level of enforcement; one that the machine lacks is skipped."""
    name: str = request.param
    if name != "detect":
        require(EnforcementLevel(name), Means.MOUNTS)
    return name


def test_a_sandbox_of_the_agents_own_is_opened_where_its_story_may_write(tree: Path, level: str) -> None:
    """Three stories of codex: its marks are no foreign changes, a folder that is new can be written to."""
    _stories(tree, "codex", "a", "b", "new")
    ran = run(tree, *SHARED, "--enforce", level, "--window", "fixed", "--json")
    assert ran.code == 0, _reasons(ran)
    for name in ("a", "b", "new"):
        assert ran.story(name)["attempt"] == 1, ran.err
        assert git(tree, "diff", "--name-only", "main", f"autopilot/{name}").split() == [
            f"packages/{name}/made"
        ]
        assert (tree / "node_modules" / name).is_file()
    assert not [name for name in (".agents", ".aws", ".codex") if (tree / name).exists()]


def test_what_an_agent_leaves_about_is_no_foreign_change(tree: Path, level: str) -> None:
    """Two stories of aider, which keeps a cache at the top: nobody's work, and nobody fails for it."""
    _stories(tree, "aider", "a", "b")
    ran = run(tree, *SHARED, "--enforce", level, "--window", "fixed", "--json")
    assert ran.code == 0, _reasons(ran)
    for name in ("a", "b"):
        assert ran.story(name)["attempt"] == 1, ran.err
        assert git(tree, "diff", "--name-only", "main", f"autopilot/{name}").split() == [
            f"packages/{name}/made"
        ]
    assert (tree / ".aider.tags.cache.v4").exists() is (level == "detect")


def test_the_prompt_says_who_commits(tree: Path) -> None:
    """In a shared tree an agent is told what is its own, and to leave git alone."""
    _stories(tree, "codex", "a")
    alone = run(tree, "prompt", "a", "--json").data["prompt"]
    assert "committed or not" in alone
    settings = 'bg-isolation = "none"\ndeconflict-paths = ["packages/{id}/**"]\n'
    (tree / "autopilot-multi.toml").write_text(settings)
    shared = run(tree, "prompt", "a", "--json").data["prompt"]
    assert "Change only paths that match:\n- `packages/a/**`" in shared
    assert "use git for looking only: do not commit, stage, stash, switch or restore" in shared
    assert "committed or not" not in shared


def test_a_session_in_a_shared_tree_is_told_so(tree: Path) -> None:
    """What the session itself reads is what `prompt` shows: git is for looking only."""
    write_story(tree, "a", command="cp $AUTOPILOT_PROMPT_FILE packages/a/prompt")
    assert run(tree, *SHARED[:4], "--max-stories", "1", "--enforce", "detect").code == 0
    told = git(tree, "show", "autopilot/a:packages/a/prompt")
    assert "use git for looking only" in told
    assert "committed or not" not in told


def test_sandboxes_that_would_meet_at_the_top_are_told_of(tree: Path) -> None:
    """Two stories of codex that own no folder: the plan says what comes of it, and nothing when it is one."""
    for name, glob in (("a", "**/*.md"), ("b", "**/*.txt")):
        write_story(tree, name, agent="codex", owns=[glob])
    shared = ("--bg-isolation", "none", "--deconflict-paths", "**", "--enforce", "detect", "--max-stories")
    words = "codex: 2 of its stories may own paths anywhere in the tree"
    two = run(tree, "plan", *shared, "2")
    assert (two.code, f"warning: {words}" in two.err) == (0, True), two.err
    assert f"note: {words}" in run(tree, "run", *shared, "2").err
    assert words not in run(tree, "plan", *shared, "1").err
    write_story(tree, "b", agent="codex", owns=["docs/**"])
    assert words not in run(tree, "plan", *shared, "2").err


def test_a_program_that_cannot_be_started_has_tried_nothing(tree: Path) -> None:
    """A refusal to execute is not taken for one to write, though it names the tree."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    (tree / "autopilot-multi.toml").write_text('[agents.mine]\nargv = ["./packages"]\n')
    _stories(tree, "mine", "a")
    ran = run(tree, *SHARED, "--enforce", "deny", "--json")
    reason = ran.story("a")["reason"]
    assert "cannot start ./packages" in reason
    assert "Permission denied" in reason
    assert "tried to write" not in reason
