"""What sessions are told: their contract, and where the last one stopped; `prompt` and `plan` foresee it."""

import json
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

from runner.core.flow import Edition
from runner.flows.catalog import load_flow
from tests.acceptance import literal_agent
from tests.acceptance.flow_stories import AUTODEV, AUTOPILOT, story
from tests.acceptance.program import run, started, wait_until, write_story
from tests.conftest import git

PLACEHOLDER = re.compile(r"\{(docs|id|cycle|baseline)\b")
PARTIAL = json.dumps({"status": "partial", "notes": "one left"})
LITERAL = [sys.executable, "-I", "-S", literal_agent.__file__]
SAME_CAP = "".join(f"[tiers.{tier}]\nagents = 3\n" for tier in ("warn", "degraded"))
"""The same cap of agents however busy the machine is."""
BUSY = "[tiers]\ngreen.memory-gb = 99999\nwarn.memory-gb = 99998\ndegraded = { memory-gb = 0, agents = 0 }\n"
"""Every machine is degraded, where sessions work alone."""
ALL_EDITIONS = {
    "greenfield": ("rich", "pointer", "autodev"),
    "existing-code": ("rich", "pointer", "autodev"),
    "meta-repo": ("autodev",),
}
EDITIONS = {"greenfield": ("pointer",), "existing-code": ("rich", "autodev"), "meta-repo": ("autodev",)}
"""Every flow and every dialect, but not each with each."""


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder in which the literal agent keeps its prompts."""
    folder = tmp_path / "prompts"
    folder.mkdir()
    monkeypatch.setenv("LITERAL_AGENT_KEEPS", str(folder))
    return folder


def prompts(repo: Path, name: str = "a") -> list[str]:
    """Read the prompts of a story whose worktree was kept, in their order."""
    return [path.read_text() for path in sorted(_exchange(repo, name).glob("*.prompt.md"))]


def _exchange(repo: Path, name: str) -> Path:
    return repo.parent / f"{repo.name}.worktrees" / name / ".orchestrator"


def commit(repo: Path) -> None:
    """Commit all that is there."""
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "more")


def shown(repo: Path, name: str = "a", *args: str) -> str:
    """Return what `prompt` prints."""
    ran = run(repo, "prompt", name, *args)
    assert ran.code == 0, ran.err
    return ran.out


def asks(question: str = "Which database?") -> str:
    """Return a shell command that asks as the prompt shows it."""
    told = {
        "status": "needs-decision",
        "decision": {
            "question": question,
            "options": ["Postgres", "SQLite"],
            "recommendation": "B",
            "reason": "nothing to operate",
        },
    }
    return f"echo {shlex.quote(json.dumps(told))} > $AUTOPILOT_RESULT_FILE"


@pytest.mark.protocol("003.1", "003.3", "003.22", "003.23", "003.54", "003.59")
@pytest.mark.parametrize(
    "editions", [EDITIONS, pytest.param(ALL_EDITIONS, marks=pytest.mark.slow)], ids=["sample", "all"]
)
def test_every_flow_is_carried_to_its_end_by_the_prompts_alone(
    repo: Path, kept: Path, editions: dict[str, tuple[str, ...]]
) -> None:
    """An agent that knows nothing but its prompts takes every flow, in every dialect, from start to done.

    It saves with the command that it is given, and reports as it is told. Without a tracker task and epic
    files are marked, also those of a cycle, and no other file is.
    """
    for flow, dialects in editions.items():
        for dialect in dialects:
            write_story(
                repo, f"{flow}-{dialect}", flow=flow, dialect=dialect, command=LITERAL, max_attempts=1
            )
    commit(repo)
    unattended = ("--cross-boundaries", "--decide-default=recommended", "--max-stories=4", "--json")
    ran = run(repo, *unattended, limit=240)
    if ran.story("meta-repo-autodev")["status"] == "parked":
        _confirm(Path(ran.story("meta-repo-autodev")["workspace"]))
        ran = run(repo, "resume", "--json", limit=240)
    assert {one["id"]: one["status"] for one in ran.data["stories"]} == {
        f"{flow}-{dialect}": "done" for flow, dialects in editions.items() for dialect in dialects
    }, ran.err
    for flow, dialects in editions.items():
        for dialect in dialects:
            for step in load_flow(flow, Edition(dialect)).steps:
                prompt = (kept / f"{flow}-{dialect} {step.number} {step.name}").read_text()
                _check_contract(prompt, step.breaks)
                assert ("`Tracker: pending`" in prompt) is step.tracker, "numbering is told where it matters"
    branches = ("autopilot/greenfield-pointer", "autopilot/existing-code-autodev")
    marked = git(repo, "grep", "-l", "^Tracker: pending$", *branches, "--", "_docs").splitlines()
    assert [line.partition("/02_")[2] for line in marked] == [
        *("document/epics.md", "tasks/01_first.md"),
        *("tasks/cycle1/01_first.md", "tasks/tests/01_first.md"),
    ]


def _confirm(workspace: Path) -> None:
    """Do what Config Review waits for."""
    (config,) = workspace.glob("_docs/**/_repo-config.yaml")
    config.write_text(config.read_text() + "confirmed_by_user: true\n")


def _check_contract(prompt: str, breaks: str) -> None:
    assert not PLACEHOLDER.search(prompt), prompt
    for status in ("`done`", "`partial`", "`failed`", "`needs-decision`"):
        assert f"- {status}: " in prompt, "what each status leads to"
    for field in ("agent_summary", "effectiveness", "usage", "notes", "recommendation", "reason"):
        assert field in prompt
    assert "Ask instead of guessing" in prompt
    assert "stop for a confirmation" in prompt, "blocking gates of a skill are questions, too"
    assert "What is on disk is your memory" in prompt
    assert "Do not read all documents at once" in prompt
    assert "belong to the runner" in prompt
    assert "do not overwrite them unless a decision above says so" in prompt
    assert ("Good places to end this session early: " in prompt) is bool(breaks)
    assert breaks in prompt


@pytest.mark.protocol("000.24", "002.14", "003.32", "003.55")
def test_a_session_is_told_where_the_last_one_stopped(repo: Path, tmp_path: Path) -> None:
    """Saved sub-step and the reason: an answered question, a partial end, a failed attempt, an interruption.

    What `prompt` shows before a session is its prompt, byte for byte.
    """
    script, waits = tmp_path / "step.sh", tmp_path / "waits"
    write_story(repo, "a", flow="greenfield", command=["sh", str(script)])
    commit(repo)
    save, report = "$AUTOPILOT_MULTI state sub-step", "> $AUTOPILOT_RESULT_FILE"
    first = shown(repo)
    assert "Saved last" not in first
    assert " state sub-step 1 short-name " in first

    script.write_text(f"{save} 1 read-notes 'half of them'; {asks()}\n")
    assert run(repo).code == 5
    assert "it asks first: Which database?" in run(repo, "prompt", "a").err
    assert run(repo, "decide", "a", "B").code == 0
    second = shown(repo)
    assert "Decided so far:\n- Which database?: B) SQLite" in second
    assert "asked the user; the answer is above" in second
    assert "Saved last: sub-step 1 — read-notes (half of them). Continue there" in second
    assert " state sub-step 2 short-name " in second, "the numbering continues"

    script.write_text(
        "case $AUTOPILOT_RESULT_FILE in\n"
        f"*/02-*) {save} 2 write-problem; echo '{PARTIAL}' {report};;\n"
        f"*/03-*) {save} 3 write-criteria; echo no more paper; exit 3;;\n"
        f"*) touch {waits}; sleep 60;;\n"
        "esac\n"
    )
    with started(repo, "resume") as program:
        wait_until(waits.exists, what="the session after the failed attempt works")
        program.send(signal.SIGKILL)
    cut_off = shown(repo)
    assert "An earlier session of this step was cut off" in cut_off
    script.write_text(f"{asks('Go on?')}\n")
    assert run(repo, "resume").code == 5
    told = prompts(repo)
    assert told[:2] == [first, second]
    assert "The last session of this step ended before the step was complete: one left." in told[2]
    assert "Saved last: sub-step 2 — write-problem. " in told[2]
    assert "The attempt before this one failed:\n\n" in told[3]
    assert "\n    no more paper\n" in told[3]
    assert "Saved last: sub-step 3 — write-criteria. " in told[3]
    assert "attempt 2 of 4" in told[3]
    assert told[4] == cut_off


@pytest.mark.parametrize("dialect", ["rich", "pointer"])
@pytest.mark.protocol("000.9", "002.14")
def test_sub_steps_of_the_older_dialects_have_numbers_with_letters(
    repo: Path, tmp_path: Path, dialect: str
) -> None:
    """`1b — Test Case Generation` is saved by the command, kept in the file, and told; `b1` is refused.

    A new run is told as well, and why the last session ended.
    """
    save, told = "$AUTOPILOT_MULTI state sub-step", tmp_path / "told"
    script = f"! {save} b1 wrong 2> {told} && {save} 1b 'Test Case Generation' && exit 7"
    write_story(repo, "a", flow="greenfield", dialect=dialect, command=script, max_attempts=1)
    commit(repo)
    assert run(repo).code == 5, "it asks whether to try again"
    assert "PHASE must be a number such as 4 or 1b, not 'b1'" in told.read_text()
    state = _exchange(repo, "a").parent / "_docs/stories/a" / AUTOPILOT
    assert "sub_step: 1b — Test Case Generation\n" in state.read_text()
    run(repo, "decide", "a", "A")
    foreseen = shown(repo)
    assert "Saved last: sub-step 1b — Test Case Generation. Continue there" in foreseen
    assert " state sub-step 2 short-name " in foreseen
    in_new_run = shown(repo, "a", "--new-run")
    assert "The last session of this step failed: exit code 7." in in_new_run
    assert "Saved last: sub-step 1b — Test Case Generation. Continue there" in in_new_run
    run(repo, "resume" if dialect == "rich" else "run")
    assert (foreseen if dialect == "rich" else in_new_run) in prompts(repo)


@pytest.mark.protocol("004.30")
def test_agents_learn_how_many_helpers_they_may_have(repo: Path) -> None:
    """The cap follows the settings and the machine; a plain command is not told, since it has none."""
    mine = "[agents.mine]\nargv = ['false']\n"
    (repo / "autopilot-multi.toml").write_text(f"agents-per-wave = 3\n{mine}{SAME_CAP}")
    write_story(repo, "a", agent="mine", max_attempts=1)
    write_story(repo, "b", command="false", max_attempts=1)
    commit(repo)
    foreseen = shown(repo)
    assert "Start at most 3 helper agents at a time.\n" in foreseen
    assert run(repo).code == 3
    assert prompts(repo) == [foreseen]
    assert "helper agents at a time" not in prompts(repo, "b")[0]
    (repo / "autopilot-multi.toml").write_text(mine + BUSY)
    assert "Work alone: start no helper agents." in shown(repo)


@pytest.mark.protocol("003.19")
def test_the_gate_of_the_tracker_is_passed_once(repo: Path, kept: Path, tmp_path: Path) -> None:
    """Before Plan the tracker is asked for access; once it grants it, no later step asks again."""
    entered = tmp_path / "entered"
    (repo / "autopilot-multi.toml").write_text(
        f'tracker = "jira"\ntracker-auth = "echo >> {entered}; test -e {tmp_path}/open"\n'
    )
    write_story(repo, "a", flow="greenfield", command=LITERAL, max_attempts=1)
    commit(repo)
    ran = run(repo, "--json")
    assert ran.story("a")["step"]["name"] == "Plan"
    assert "Tracker authentication failed" in ran.story("a")["reason"]
    assert sorted(path.name for path in kept.iterdir()) == ["a 1 Problem", "a 2 Research"]
    (tmp_path / "open").touch()
    assert run(repo, "decide", "a", "A").code == 0
    foreseen = shown(repo)
    ran = run(repo, "resume", "--json")
    assert "Decompose complete" in ran.story("a")["reason"], (
        "the second step that needs it is not gated again"
    )
    assert entered.read_text().count("\n") == 2, "asked before Plan, once more after the answer, then never"
    plan = (kept / "a 3 Plan").read_text()
    assert plan == foreseen
    assert "Work items are kept in Jira." in plan
    assert "Work items are kept in Jira." in (kept / "a 5 Decompose").read_text()
    assert "Work items" not in (kept / "a 2 Research").read_text()
    assert "Tracker" not in git(repo, "show", "autopilot/a:_docs/stories/a/02_tasks/01_first.md")


@pytest.mark.protocol("004.27")
@pytest.mark.usefixtures("memory")
def test_a_plan_shows_the_steps_that_would_run_and_writes_nothing(repo: Path) -> None:
    """Flow, step and the steps up to the next boundary: of a new story, and of one that stands at Implement.

    The folders win over a state file that is wrong, which stays as it is. After the worktree is gone the
    branch says where the story is.
    """
    story(repo, "a", "fail:Implement:1", max_attempts=1)
    story(repo, "b")
    write_story(repo, "q", command="true")
    commit(repo)
    assert run(repo, "a").code == 5, "it stops at the boundary"
    state = _exchange(repo, "a").parent / "_docs/stories/a" / AUTODEV
    right = state.read_text()
    state.write_text(right.replace("step: 6\nname: Implement", "step: 2\nname: Research"))
    before = _everything(repo)
    planned = run(repo, "plan", "--json")
    assert "step 6 (Implement)" in shown(repo)
    assert _everything(repo) == before
    a, b, q = (planned.story(name) for name in "abq")
    assert (a["flow"], b["flow"], q["flow"]) == ("greenfield", "greenfield", "quick")
    assert a["step"] == {"number": "6", "name": "Implement"}
    assert [step["number"] for step in a["steps"]] == ["6", "7", "8", "9", "10", "11"]
    assert a["boundary"] == ""
    assert b["step"] == {"number": "1", "name": "Problem"}
    assert [step["name"] for step in b["steps"]] == ["Problem", "Research", "Plan", "UI Design", "Decompose"]
    assert b["boundary"] == "Decompose"
    text = run(repo, "plan").out
    assert "flow greenfield, at step 6 (Implement)" in text
    assert (
        "runs Implement, Run Tests, Security Audit, Performance Test, Deploy, Retrospective, to its end"
        in (" ".join(text.split()))
    )
    assert "runs Problem, Research, Plan, UI Design, Decompose, then asks" in " ".join(text.split())
    state.write_text(right)
    crossing = run(repo, "run", "--dry-run", "--cross-boundaries", "--json").story("b")
    assert len(crossing["steps"]) == 11

    assert run(repo, "decide", "a", "A").code == 0
    foreseen = shown(repo)
    assert "step 6 (Implement)" in foreseen
    git(repo, "worktree", "unlock", str(_exchange(repo, "a").parent))
    git(repo, "worktree", "remove", "--force", str(_exchange(repo, "a").parent))
    assert run(repo, "plan", "--json").story("a")["step"]["number"] == "6"
    assert shown(repo) == foreseen, "the branch says the same as the worktree"
    assert _everything(repo) != before, "the test itself sees a change"
    assert run(repo, "resume").code == 5
    assert prompts(repo) == [foreseen]


@pytest.mark.usefixtures("memory")
def test_a_story_at_its_end_has_no_next_prompt(repo: Path) -> None:
    """That its flow is done is said instead."""
    story(repo, "a", flow="meta-repo")
    assert run(repo, "--cross-boundaries").code == 0
    done = run(repo, "prompt", "a")
    assert done.code == 1
    assert "no session of story a comes next: its flow is done" in done.err


def _everything(repo: Path) -> dict[str, bytes]:
    """Read all files of the repository and its worktrees; the journal's shared memory is no file of ours."""
    places = (repo, repo.parent / f"{repo.name}.worktrees")
    files = (path for place in places for path in place.rglob("*") if path.is_file())
    return {str(path): path.read_bytes() for path in files if not path.name.endswith("-shm")}


@pytest.mark.protocol("003.1", "003.6")
def test_decisions_of_a_rich_file_are_told_in_a_later_run(repo: Path) -> None:
    """Key Decisions reach every later session, once each."""
    write_story(repo, "a", flow="greenfield", dialect="rich", command=asks(), max_attempts=1)
    commit(repo)
    assert run(repo).code == 5
    assert run(repo, "decide", "a", "A").code == 0
    run(repo, "resume")
    write_story(repo, "a", flow="greenfield", dialect="rich", command="false", max_attempts=1)
    run(repo)
    told = prompts(repo)[0]
    assert told.count("Which database?: A) Postgres") == 1
    assert "Decided so far:\n- Which database?: A) Postgres" in told


def test_the_program_is_named_as_the_session_can_call_it(repo: Path, tmp_path: Path) -> None:
    """By its name where `PATH` has it, else by its path; claude may call it without being asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    claude = folder / "claude"
    claude.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {tmp_path}/argv\nexit 1\n")
    claude.chmod(0o755)
    write_story(repo, "a", flow="greenfield", agent="claude", max_attempts=1)
    commit(repo)
    paths = [str(folder), os.environ["PATH"]]
    env = {"PATH": os.pathsep.join(paths), "ANTHROPIC_API_KEY": "none"}
    script = str(Path(sys.executable).with_name("autopilot-multi"))
    assert f"    {script} state sub-step 1 " in run(repo, "prompt", "a", env=env).out
    (folder / "autopilot-multi").symlink_to(script)
    foreseen = run(repo, "prompt", "a", env=env).out
    assert "    autopilot-multi state sub-step 1 " in foreseen
    assert "When your context fills up, the save command and the file " in foreseen
    run(repo, env=env)
    assert prompts(repo) == [foreseen]
    allowed = (tmp_path / "argv").read_text()
    assert "Bash(autopilot-multi state sub-step:*)" in allowed
    assert "Bash(autopilot-multi state install-merge-driver" not in allowed
