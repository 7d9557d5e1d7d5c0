"""What a landing leaves out: the question, the retry by its agent, a resolved conflict, and `run --land`."""

import json
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.acceptance import landing_agent
from tests.acceptance.flow_stories import story as flow_story
from tests.acceptance.landing_project import FILES
from tests.acceptance.program import commit_stories, run, started, wait_until, write_story, writes
from tests.conftest import git

AGENT = Path(landing_agent.__file__)


class Project:
    """A small Python project whose stories are done by the stand-in agent."""

    def __init__(self, repo: Path, memory: Path) -> None:
        self.repo = repo
        self.memory = memory

    def env(self, **more: str) -> Mapping[str, str]:
        """Return what the agent needs in its environment."""
        return {"LANDING_MEMORY": str(self.memory), **more}

    def tip(self, name: str = "main") -> str:
        """Return a commit."""
        return git(self.repo, "rev-parse", name).strip()

    def prompts(self, story: str) -> list[str]:
        """Return the prompts of a story's sessions, oldest first."""
        return [path.read_text() for path in sorted(self.memory.glob(f"{story}-*"))]


@pytest.fixture
def project(make_repository: Callable[..., Path], tmp_path: Path) -> Callable[..., Project]:
    def make(*stories: str, settings: str = "", **keys: object) -> Project:
        agent = (
            f'agent = "mine"\n{settings}\n[agents.mine]\nargv = ["{sys.executable}", "{AGENT}", "{{id}}"]\n'
        )
        files = {
            "autopilot-multi.toml": FILES["autopilot-multi.toml"] + agent,
            ".gitignore": "__pycache__/\n",
        }
        repo = make_repository("shop", files=FILES | files)
        for story in stories:
            write_story(repo, story, title=f"Story {story}", body=f"The work of {story}.", **keys)
        commit_stories(repo)
        memory = tmp_path / "memory"
        memory.mkdir()
        return Project(repo, memory)

    return make


def test_left_out_stories_ask_and_are_retried(project: Callable[..., Project]) -> None:
    """A conflict and a red pair open questions with their evidence; retried by their agents, both land."""
    made = project("a-search", "b-mail", "d-vat", "e-invoice")
    repo, env = made.repo, made.env()
    assert run(repo, "--json", env=env).code == 0
    landed = run(repo, "land", "--json", env=env)
    assert landed.code == 4, landed.err
    assert set(landed.data["landed"]) == {"a-search", "d-vat"}

    status = run(repo, "status", env=env)
    assert "decision: b-mail: Story b-mail did not land on main" in status.out
    asked = {each["story_id"]: each for each in run(repo, "decide", "--json").data["decisions"]}
    assert set(asked) == {"b-mail", "e-invoice"}
    assert [option["word"] for option in asked["b-mail"]["options"]] == ["retry", "resolve", "skip"]
    assert [option["word"] for option in asked["e-invoice"]["options"]] == ["retry", "skip"]
    assert any("CHANGELOG.md" in line for line in asked["b-mail"]["details"])
    evidence = "\n".join(asked["e-invoice"]["details"])
    assert all(word in evidence for word in ("d-vat", "python3 -m unittest -q", "ImportError", "Log: "))

    old = made.tip("autopilot/b-mail")
    answered = run(repo, "decide", "b-mail", "retry")
    assert answered.code == 0, answered.err
    assert "continue with `autopilot-multi resume`" in answered.out
    assert "is to be tried again" in run(repo, "land", "--dry-run").out
    shown = run(repo, "prompt", "b-mail")
    assert "could not land on `main`: conflicts with a-search in CHANGELOG.md" in shown.out
    assert made.tip("autopilot/b-mail") == old
    assert run(repo, "decide", "e-invoice", "A").code == 0
    waiting = run(repo, "status", "--json").story("b-mail")
    assert waiting["next"].startswith("autopilot-multi resume ")
    assert waiting["not_landed"].endswith("(decided: retry)")
    resumed = run(repo, "resume", env=env)
    assert resumed.code == 0, resumed.err
    assert "b-mail     starts again on main" in resumed.err
    assert "with conflicts in CHANGELOG.md" in resumed.err

    first, second = made.prompts("b-mail")
    assert "could not land" not in first
    assert "- CHANGELOG.md" in second
    assert "The other side is story a-search: Story a-search" in second
    _, red = made.prompts("e-invoice")
    assert "This command failed on the joined work: `python3 -m unittest -q`" in red
    assert "ImportError" in red
    assert git(repo, "rev-parse", "autopilot/b-mail^1", "autopilot/b-mail^2").split() == [made.tip(), old]
    assert made.tip(f"refs/autopilot/old/b-mail/{old[:12]}") == old
    again = run(repo, "land", "--json", env=env)
    assert again.code == 0, again.data["not_landed"]
    assert set(again.data["landed"]) == {"b-mail", "e-invoice"}
    assert (repo / "CHANGELOG.md").read_text().splitlines()[-2:] == ["- search", "- mail"]
    assert "<<<<<<<" not in git(repo, "log", "-p", "--first-parent", "-m", "autopilot/b-mail")
    assert run(repo, "decide").out == "no open decisions\n"
    assert "decision:" not in run(repo, "status").out


def test_resolve_gives_a_conflict_to_the_agent(project: Callable[..., Project]) -> None:
    """Refused with markers left, or with a foreign file; resolved, it lands verified, with both parents."""
    made = project("a-search", "b-mail")
    repo = made.repo
    assert run(repo, "--json", env=made.env()).code == 0
    spent = run(repo, "status", "--json").story("b-mail")["sessions"]
    before = made.tip()
    left = run(repo, "land", "--resolve", "--json", env=made.env(LANDING_AGENT="leave"))
    assert left.code == 4, left.err
    assert left.data["landed"] == ["a-search"]
    reason = left.data["not_landed"][0]["reason"]
    assert "its resolution leaves conflict markers in CHANGELOG.md" in reason
    assert reason.startswith("conflicts with a-search in CHANGELOG.md")
    assert run(repo, "undo", "--yes").code == 0
    assert made.tip() == before

    (prompt,) = made.prompts("b-mail")[1:]
    for words in ("b-mail does not merge with a-search", "- CHANGELOG.md", "The work of b-mail."):
        assert words in prompt
    assert "## Story a-search: Story a-search\n\nThe work of a-search." in prompt
    told = run(repo, "status", "--json").story("b-mail")
    assert (told["sessions"], told["usage"]["cost_usd"]) == (spent + 1, 0.25)
    assert "leave it" in run(repo, "logs", "b-mail").out
    records = (repo / ".orchestrator" / "metrics" / "sessions.jsonl").read_text().splitlines()
    assert [json.loads(line)["cost_usd"] for line in records if "-resolve-" in line] == [0.25]
    foreign = run(repo, "land", "--resolve", "--json", env=made.env(LANDING_AGENT="foreign"))
    assert foreign.code == 4, foreign.err
    assert "touches what belongs to neither story: shop/label.py" in foreign.data["not_landed"][0]["reason"]
    tip = made.tip("autopilot/b-mail")

    assert run(repo, "decide", "b-mail", "resolve").out.endswith("continue with `autopilot-multi land`\n")
    landed = run(repo, "land", "--json", env=made.env())
    assert landed.code == 0, landed.err
    assert (landed.data["landed"], landed.data["resolved"]) == (["b-mail"], ["b-mail"])
    assert (repo / "CHANGELOG.md").read_text().splitlines()[-2:] == ["- search", "- mail"]
    assert git(repo, "rev-parse", "main^2").strip() == tip
    assert git(repo, "rev-parse", "main^1").strip() == landed.data["before"]
    assert git(repo, "status", "--porcelain") == ""
    assert run(repo, "decide").out == "no open decisions\n"
    assert [path.name for path in (repo.parent).glob("*_resolve*")] == []


@pytest.mark.parametrize("style", ["squash", "rebase"])
def test_a_resolved_conflict_lands_in_every_style(project: Callable[..., Project], style: str) -> None:
    """As one commit of the story, with its trailers, in a straight line; a killed one leaves nothing."""
    made = project("a-search", "b-mail")
    repo, before = made.repo, made.tip()
    assert run(repo, "--json", env=made.env()).code == 0
    with started(repo, "land", "--resolve", "--style", style, env=made.env(LANDING_AGENT="hang")) as killed:
        wait_until((made.memory / "hangs").exists, what="the agent resolves")
        killed.send(signal.SIGKILL)
        killed.finish()
    assert run(repo, "resume", env=made.env()).code == 0
    assert git(repo, "worktree", "list").count("\n") == 1, "the worktree of the resolution is gone"
    landed = run(repo, "land", "--resolve", "--style", style, "--json", env=made.env())
    assert landed.code == 0, landed.err
    assert (landed.data["landed"], landed.data["resolved"]) == (["a-search", "b-mail"], ["b-mail"])
    assert (repo / "CHANGELOG.md").read_text().splitlines()[-2:] == ["- search", "- mail"]
    assert git(repo, "rev-list", "--merges", f"{before}..main") == ""
    assert git(
        repo, "log", "--format=%(trailers:key=Autopilot-Story,valueonly)", f"{before}..main"
    ).split() == [
        "b-mail",
        "a-search",
    ]
    status = run(repo, "status", "--json")
    assert [status.story(name)["merged"] for name in ("a-search", "b-mail")] == ["main", "main"]
    assert run(repo, "decide").out == "no open decisions\n"
    assert run(repo, "undo", "--yes").code == 0
    assert made.tip() == before


def test_a_skipped_story_is_left_alone_until_something_changes(project: Callable[..., Project]) -> None:
    """`land` says so; a new commit or its name brings it back, and a merge by hand closes the question."""
    made = project("a-search", "b-mail", "c-sms")
    repo, env = made.repo, made.env()
    assert run(repo, "--json", env=env).code == 0
    assert run(repo, "land", env=env).code == 4
    assert run(repo, "decide", "b-mail", "skip").code == 0
    refused = run(repo, "decide", "b-mail", "retry")
    assert refused.code == 1
    assert "already decided by the user: C) Skip" in refused.err
    again = run(repo, "land", "--json", env=env)
    assert again.code == 3, again.err
    assert again.data["held"] == {"b-mail": "skipped by your decision"}
    assert [each["id"] for each in again.data["not_landed"]] == ["c-sms"]
    named = run(repo, "land", "b-mail", "--json", env=env)
    assert [each["id"] for each in named.data["not_landed"]] == ["b-mail"]

    open_ = [each["story_id"] for each in run(repo, "decide", "--json").data["decisions"]]
    assert open_ == ["c-sms", "b-mail"]
    git(repo, "merge", "-q", "-X", "ours", "-m", "by hand", "autopilot/c-sms")
    assert "decision: c-sms" not in run(repo, "status").out
    assert [each["story_id"] for each in run(repo, "decide", "--json").data["decisions"]] == ["b-mail"]
    git(repo, "reset", "-q", "--hard", git(repo, "merge-base", "main", "autopilot/b-mail").strip())
    git(repo, "commit", "-q", "--allow-empty", "-m", "something else")
    git(repo, "cherry-pick", "autopilot/b-mail")
    assert "decision: b-mail" not in run(repo, "status").out, "known by its patch id"
    assert "b-mail" not in [each["story_id"] for each in run(repo, "decide", "--json").data["decisions"]]


def test_none_is_starved_by_newer_stories(repo: Path) -> None:
    """A story that lost to two newer ones lands before the next two, although that loses more."""
    (repo / "autopilot-multi.toml").write_text('verify = ["true"]\n')
    (repo / "notes.txt").write_text("".join(f"{number}\n" for number in range(20)))
    write_story(repo, "old", command="sed -i '1s/$/ old/; 20s/$/ old/' notes.txt")
    for lower, upper in (("n1", "n2"), ("n3", "n4")):
        write_story(repo, lower, command=f"sed -i '1s/$/ {lower}/' notes.txt")
        write_story(repo, upper, command=f"sed -i '20s/$/ {upper}/' notes.txt")
        commit_stories(repo)
        assert run(repo, "--json").code == 0
        landed = run(repo, "land", "--json")
        if lower == "n1":
            assert landed.data["landed"] == ["n1", "n2"], landed.err
            assert run(repo, "decide", "old", "A").code == 0
            assert run(repo, "resume", "--json").story("old")["status"] == "done"
    assert landed.data["landed"] == ["old"], landed.err
    assert [each["with"] for each in landed.data["not_landed"]] == [["old"], ["old"]]
    assert (repo / "notes.txt").read_text().startswith("0 n1 old\n")


def test_a_run_lands_at_its_end(project: Callable[..., Project]) -> None:
    """With --land, what is done is on main when the run ends, and what a retry completes when that ends."""
    made = project("a-search", "b-mail")
    repo, env = made.repo, made.env()
    ran = run(repo, "--land", "--json", env=env)
    assert ran.code == 4, ran.err
    landing = ran.data["landing"]
    assert landing["landed"] == ["a-search"]
    assert [each["id"] for each in landing["not_landed"]] == ["b-mail"]
    assert [each["story_id"] for each in ran.data["decisions"]] == ["b-mail"]
    assert ran.story("a-search")["merged"] == "main"
    assert made.tip() == landing["after"]
    assert run(repo, "decide", "b-mail", "retry").code == 0
    resumed = run(repo, "resume", env=env)
    assert resumed.code == 0, resumed.err
    assert "landed 1 story on main: b-mail" in resumed.out
    assert "git merge" not in resumed.out
    assert (repo / "CHANGELOG.md").read_text().splitlines()[-2:] == ["- search", "- mail"]


@pytest.mark.parametrize("style", ["squash", "rebase"])
def test_a_run_lands_in_its_style_with_several_slots(repo: Path, style: str) -> None:
    """The settings of the run count, flags included: style, slots and verify commands."""
    settings = (
        f'max-stories = 1\nwindow = "fixed"\nland-style = "{style}"\n'
        'land-verify = ["test ! -e b.txt || test ! -e d.txt"]\n'
    )
    (repo / "autopilot-multi.toml").write_text(settings)
    for name in ("a", "b", "c", "d"):
        write_story(repo, name, command=writes(f"{name}.txt"))
    commit_stories(repo)
    before = git(repo, "rev-parse", "main").strip()
    ran = run(repo, "--land", "--max-stories=4", "--verify=sleep 0.2", "--json")
    assert ran.code == 4, ran.err
    landing = ran.data["landing"]
    assert (landing["style"], landing["landed"]) == (style, ["a", "b", "c"])
    assert landing["not_landed"][0]["with"] == ["b"]
    assert landing["unused_runs"] + landing["canceled_runs"] > 0
    assert git(repo, "log", "--reverse", "--format=%s", f"{before}..main").split() == ["a", "b", "c"]
    assert [ran.story(name)["merged"] for name in "abcd"] == ["main", "main", "main", None]


def test_what_a_run_does_not_land(repo: Path, tmp_path: Path) -> None:
    """Nothing without a verify command, after an interruption, or if the base is not what is checked out."""
    write_story(repo, "a", command=writes("a.txt"))
    commit_stories(repo)
    unverified = run(repo, "--land", "--json")
    assert unverified.code == 2, unverified.err
    assert "nothing was landed: no verify command is known" in unverified.err
    assert "no verify command" in unverified.data["landing"]["why_not"]
    git(repo, "branch", "release")
    elsewhere = run(repo, "--land", "--base=release", "--verify=true", "--again")
    assert elsewhere.code == 2, elsewhere.err
    assert "the run started from release, and the main checkout is on main" in elsewhere.err
    assert "--land-onto BRANCH" in elsewhere.err
    landed = run(repo, "--land", "--land-onto=release", "--verify=true", "--again")
    assert landed.code == 0, landed.err
    assert "landed 1 story on release: a" in landed.out
    idle = run(repo, "--land", "--land-onto=release", "--verify=true")
    assert idle.code == 0, idle.err
    assert "already there: a" in idle.out

    ready = tmp_path / "ready"
    write_story(repo, "b", command=f"touch {ready}; sleep 60", depends_on=["a"])
    commit_stories(repo)
    tip = git(repo, "rev-parse", "main").strip()
    with started(repo, "--land", "--verify=true", "--json", "--again") as running:
        wait_until(ready.exists, what="the second story works")
        running.send(signal.SIGTERM)
        ended = running.finish()
    assert ended.code == 143
    assert ended.story("a")["status"] == "done"
    assert ended.data["landing"]["why_not"] == "the run was ended early"
    assert git(repo, "rev-parse", "main").strip() == tip


FLOWING = """case "$AUTOPILOT_STEP" in
    "1 Implement") sed -i -e '/^<<<<<<< /d' -e '/^=======$/d' -e '/^>>>>>>> /d' notes.txt;;
    *) "$@"; grep -q NAME notes.txt || echo NAME >> notes.txt;;
esac"""


@pytest.mark.usefixtures("memory")
def test_commands_and_flows_are_retried(repo: Path, tmp_path: Path) -> None:
    """A command runs again on the files of the target; a flow is tried again in one step, with its documents.

    A retry that is killed continues where it was.
    """
    (repo / "notes.txt").write_text("first\n")
    (repo / "autopilot-multi.toml").write_text('verify = ["true"]\n')
    ready, go = tmp_path / "ready", tmp_path / "go"
    waits = f"test ! -f {ready} || until test -f {go}; do sleep 0.02; done"
    write_story(repo, "a", command="echo a >> notes.txt")
    write_story(repo, "b", command=f"grep -qx b notes.txt || echo b >> notes.txt; {waits}")
    flow_story(repo, "c", flow="greenfield", script=FLOWING.replace("NAME", "c"))
    commit_stories(repo)
    ran = run(repo, "--json", "--cross-boundaries")
    assert ran.code == 0, ran.err
    old = {name: git(repo, "rev-parse", f"autopilot/{name}").strip() for name in "bc"}
    assert run(repo, "land").code == 4
    for name in "bc":
        assert run(repo, "decide", name, "retry").code == 0
    ready.touch()
    with started(repo, "resume") as running:
        wait_until(lambda: git(repo, "rev-parse", "autopilot/b").strip() != old["b"], what="b has moved")
        running.send(signal.SIGKILL)
        running.finish()
    go.touch()
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 0, resumed.err
    for name in "bc":
        assert git(repo, "rev-parse", f"autopilot/{name}^2").strip() == old[name]
        assert git(repo, "rev-parse", f"refs/autopilot/old/{name}/{old[name][:12]}").strip() == old[name]
    assert git(repo, "show", "autopilot/b:notes.txt").split() == ["first", "a", "b"]
    assert git(repo, "show", "autopilot/c:notes.txt").split() == ["first", "a", "c"]
    assert "step: done" in git(repo, "show", "autopilot/c:_docs/stories/c/_autodev_state.md")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGKILL, -9)])
def test_a_landing_that_ends_while_an_agent_resolves(
    project: Callable[..., Project], number: signal.Signals, code: int
) -> None:
    """Whoever ends it, nothing has moved, and the next landing resolves and lands."""
    made = project("a-search", "b-mail", "c-sms")
    repo, before = made.repo, made.tip()
    assert run(repo, "--json", env=made.env()).code == 0
    with started(repo, "land", "--resolve", env=made.env(LANDING_AGENT="hang")) as running:
        wait_until((made.memory / "hangs").exists, what="the agent works")
        running.send(number)
        assert running.finish().code == code
    assert made.tip() == before
    landed = run(repo, "land", "--resolve", "--json", env=made.env())
    assert landed.code == 0, landed.err
    assert landed.data["landed"] == ["a-search", "b-mail", "c-sms"]
    assert landed.data["resolved"] == ["b-mail", "c-sms"]
    assert (repo / "CHANGELOG.md").read_text().splitlines()[-3:] == ["- search", "- mail", "- sms"]
    assert "c-sms does not merge with a-search and b-mail" in made.prompts("c-sms")[-1]
    assert git(repo, "worktree", "list", "--porcelain").count("worktree ") == 1
