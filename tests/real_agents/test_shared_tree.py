"""Real agents in one shared tree: each keeps to its own paths, or is made to, and the coordinator commits."""

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from runner.agents.catalog import KNOWN
from tests.acceptance.people import USERS
from tests.acceptance.program import processes_with, started, wait_until
from tests.acceptance.test_agent_conflicts import SANDBOX
from tests.real_agents.shared_trees import NAMES, Tree, shared_tree
from tests.real_agents.stories import PATIENCE, alive, work_sessions

pytestmark = pytest.mark.agents
EVERY = pytest.mark.parametrize("agent", KNOWN)
TALKING = pytest.mark.parametrize("agent", [name for name in KNOWN if name != "aider"])
NEEDS_BYPASS = frozenset({"claude", "opencode", "gemini", "qwen"})
"""These run no command of the script's without it."""


@pytest.fixture(params=["divert", "deny by mounts"])
def level(request: pytest.FixtureRequest) -> str:
    """Name the levels at which the system keeps stories apart."""
    name: str = request.param
    return name


@pytest.fixture
def who() -> str:
    """Be whoever runs the tests, unless a test says otherwise."""
    return "me"


@pytest.fixture
def tree(agent: str, who: str, level: str) -> Iterator[Tree]:
    """Return the tree."""
    with shared_tree(agent, who, level) as found:
        yield found


@EVERY
@pytest.mark.parametrize("who", USERS)
def test_three_stories_in_parallel_are_done(tree: Tree, agent: str) -> None:
    """Acceptance 20: one commit each, by the agent's own tools; the user's index and HEAD untouched."""
    tree = tree.configure(bypass=agent in NEEDS_BYPASS)
    files = ["edited"] if agent == "aider" else ["d/shell", "edited"]
    for name in NAMES:
        # Codex's own sandbox closes the home to its commands, whatever the tree is.
        outside = "$TMPDIR" if agent == "codex" else "$TMPDIR $HOME"
        shell = f"mkdir packages/{name}/d && echo made > packages/{name}/d/shell"
        shell += f" && for at in {outside}; do echo made > $at/of-{name}; done"
        acts: list[dict[str, Any]] = [{"patch": [f"packages/{name}/edited", "made"]}, {"sh": shell}]
        tree.story(name, tree.stage.play(name, *acts[: len(files)]), *files)
    ran = tree.run()
    assert ran.code == 0, ran.err
    assert ran.data["enforcement"] == tree.ground.level
    for name in NAMES:
        assert ran.story(name)["status"] == "done", ran.err
        # Opencode's first starts get in each other's way, in any tree.
        assert ran.story(name)["attempt"] == 1 or agent == "opencode", ran.err
        assert tree.committed(name) == [f"packages/{name}/{file}" for file in files]
        for place in ("tmp", "home")[: 0 if agent == "aider" else 1 if agent == "codex" else 2]:
            assert (tree.person.folder / place / f"of-{name}").read_text() == "made\n"
    assert agent != "codex" or '"type":"file_change"' in tree.log("a")
    # Aider commits unasked.
    assert agent != "aider" or "index.lock" in tree.log("a")
    assert tree.look() == tree.users


@EVERY
def test_a_foreign_write_fails_and_the_next_attempt_is_told_so(tree: Tree, agent: str) -> None:
    """Acceptance 18: the path is named and nothing of it is in the tree; an agent that is told does right."""
    tree = tree.configure(bypass=agent != "aider")
    right = {"write": ["packages/a/right", "made"]}
    wrong = {"write": ["packages/b/wrong", "made"]}
    tree.story("a", tree.stage.play("a", wrong, told=("outside your claim", [right])), "right")
    ran = tree.run()
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 2), ran.err
    denies = tree.ground.level == "deny"
    words = "tried to change outside its claim" if denies else "changed outside its claim"
    assert f"{words}: packages/b/wrong" in ran.err
    kept = tree.person.run(tree.root, "quarantine", "--json").data["quarantines"]
    paths = [[change["path"] for change in each["changes"]] for each in kept]
    assert paths == ([] if denies else [["packages/b/wrong"]])
    assert tree.committed("a") == ["packages/a/right"]
    assert tree.look() == tree.users
    first, second = work_sessions(tree.root)
    assert first["conversation"] == second["conversation"]
    assert bool(first["conversation"]) is (agent != "aider")


@pytest.mark.parametrize("agent", ["codex"])
@pytest.mark.parametrize("who", USERS)
def test_codexs_own_sandbox_is_opened_for_the_claim_alone(tree: Tree) -> None:
    """Its neighbour is closed to it at any level; at `deny` the attempt is named as well, and fails it."""
    tree = tree.configure()
    right, wrong = ("echo made > packages/" + name for name in ("a/right", "b/wrong"))
    told = ("outside your claim", [{"sh": right}])
    tree.story("a", tree.stage.play("a", {"sh": f"{wrong}; {right}"}, told=told), "right")
    ran = tree.run()
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert "packages/b/wrong: Read-only file system" in tree.log("a")
    denies = tree.ground.level == "deny"
    assert ran.story("a")["attempt"] == (2 if denies else 1), ran.err
    assert ("tried to change outside its claim: packages/b/wrong (refused)" in ran.err) is denies
    assert tree.committed("a") == ["packages/a/right"]
    assert tree.look() == tree.users


@TALKING
def test_a_commit_of_its_own_fails_and_the_story_is_done(tree: Tree, agent: str) -> None:
    """Acceptance 20: an agent that commits all the same is refused; the coordinator commits its own paths."""
    tree = tree.configure(bypass=agent in NEEDS_BYPASS - {"claude"})
    acts: list[dict[str, Any]] = [
        {"write": ["packages/a/made", "made"]},
        {"sh": "git add -A && git commit -q -m work"},
    ]
    tree.story("a", tree.stage.play("a", *acts), "made")
    ran = tree.run()
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    assert "index.lock" in tree.stage.scene.requests_of("a")[-1]["last"]
    assert tree.committed("a") == ["packages/a/made"]
    assert tree.look() == tree.users


@TALKING
def test_no_process_survives_a_stop(tree: Tree) -> None:
    """Acceptance 39: no session leaves the agent or a tool, whatever the tool detached."""
    tree = tree.configure(bypass=True)
    nap = f"timeout 300.{os.getpid()} tail -f /dev/null"
    mark = nap.replace(" ", "\0").partition("\0tail")[0]
    for name in NAMES:
        shell = f"echo made > packages/{name}/made; setsid nohup {nap} > /dev/null 2>&1 & {nap}"
        tree.story(name, tree.stage.play(name, {"sh": shell}), "made")
    with started(tree.root, "run", "--json", tree.stage.model, env=tree.stage.env) as running:
        wait_until(lambda: len(processes_with(mark)) >= 2 * len(NAMES), what="all tools run", limit=PATIENCE)
        running.send(signal.SIGTERM)
        ran = running.finish()
    assert ran.code == 143
    assert [story["status"] for story in ran.data["stories"]] == ["stopped"] * len(NAMES)
    assert alive(ran.data["run_id"]) == []
    assert processes_with(mark) == []
    assert tree.look() == tree.users


@pytest.mark.parametrize("agent", ["codex"])
@pytest.mark.parametrize("level", ["deny by Landlock"])
@pytest.mark.parametrize("bypass", [False, True])
def test_under_landlock_codex_works_without_its_sandbox_alone(tree: Tree, *, bypass: bool) -> None:
    """With it no command runs, which is said before anything starts; without it the level still holds."""
    tree = tree.configure(bypass=bypass)
    right, wrong = ("echo made > packages/" + name for name in ("a/right", "b/wrong"))
    told = ("outside your claim", [{"sh": right}])
    tree.story("a", tree.stage.play("a", {"sh": f"{wrong}; {right}"}, told=told), "right")
    ran = tree.run()
    assert ran.data["enforcement"] == "deny", ran.err
    assert (SANDBOX in ran.err.partition("session 1 started")[0]) is not bypass
    assert (ran.code, ran.story("a")["status"]) == ((0, "done") if bypass else (3, "failed")), ran.err
    assert ("tried to change outside its claim: packages/b/wrong (refused)" in ran.err) is bypass
    assert not (tree.root / "packages/b/wrong").exists()
    assert tree.look() == tree.users
