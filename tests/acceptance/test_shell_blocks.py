"""Every shell block of the README, the tutorial and the how-to guides is run, in throwaway repositories."""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sysconfig
import venv
from pathlib import Path

import pytest

from isolation.paths import EXCHANGE
from tests.acceptance.program import (
    LIMIT,
    command,
    commit_stories,
    run,
    started,
    wait_until,
    write_story,
    writes,
)
from tests.acceptance.shell_blocks import Reader, Scene, blocks_of
from tests.conftest import git

ROOT = Path(__file__).resolve().parents[2]
_FOUND = (path for kind in ("tutorial", "how-to") for path in (ROOT / "docs" / kind).glob("*.md"))
PAGES = {path.relative_to(ROOT).as_posix(): path for path in (ROOT / "README.md", *sorted(_FOUND))}
PARKED = 5
STATE = """# Autodev State

## Current Step
flow: greenfield
step: 6
name: Implement
status: in_progress
sub_step:
  phase: 0
  name: awaiting-invocation
  detail: ""
retry_count: 0
cycle: 1
tracker: local
"""
# Enough of everything, so that the tier of the machine that runs the tests is not part of a page.
_PLENTY = "memory-gb = 0, disk-gb = 0, inodes = 0, pressure-free-percent = 0"
_LITTLE = "swap-gb = 999999, peers = 999999, memory-stall-percent = 100, load-per-cpu = 999999"
GENEROUS = f"""
memory-per-story-gb = 0
[tiers]
green = {{ {_PLENTY}, {_LITTLE}, cpu-stall-percent = 100, io-stall-percent = 100 }}
warn = {{ {_PLENTY}, {_LITTLE} }}
degraded = {{ {_PLENTY}, {_LITTLE} }}
"""


FLOW = """
summary = "plan, then build"
[[steps]]
number = 1
name = "Plan"
prompt = "Plan it."
artifacts = ["_docs/Plan.md"]
[[steps]]
number = 2
name = "Build"
prompt = "Build it."
artifacts = ["_docs/Build.md"]
"""
QUESTION = {
    "status": "needs-decision",
    "decision": {
        "question": "Which payment provider?",
        "options": ["Stripe", "Adyen"],
        "recommendation": "B",
        "reason": "the contract is signed",
    },
}


def _empty(place: Path) -> None:
    """Make a repository with one commit."""
    git(place, "init", "-q", "-b", "main")
    (place / "README.md").write_text("# shop\n")
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "Begin")


def _nothing(place: Path) -> None:
    """Leave the folder empty: the page makes its own repository."""


def _remote(place: Path) -> None:
    """Finish two stories of a clone."""
    origin = place.parent / "origin"
    git(place.parent, "init", "-q", "--bare", str(origin))
    _finished(place)
    git(place, "remote", "add", "origin", str(origin))


def _venv(place: Path) -> None:
    """Make an environment that has the project, as an editable install, and the pytest of these tests."""
    venv.create(place / ".venv", symlinks=True)
    (packages,) = (place / ".venv" / "lib").glob("python*/site-packages")
    (packages / "greeter.pth").write_text(f"{place}/src\n{sysconfig.get_path('purelib')}\n")


def _backlog(place: Path) -> None:
    """Write two stories that have not run."""
    _empty(place)
    write_story(place, "checkout-17", command=writes("checkout.txt"), verify=["test -s checkout.txt"])
    write_story(place, "api-3", command=writes("api.txt"), verify=["test -s api.txt"])
    commit_stories(place)


def _finished(place: Path) -> None:
    """Run two stories that are done then."""
    _backlog(place)
    assert run(place).code == 0


def _failed(place: Path) -> None:
    """Run two stories that fail; their worktrees are kept."""
    _backlog(place)
    for name in ("checkout-17", "api-3"):
        write_story(place, name, command=writes(f"{name}.txt"), verify=["false"], max_attempts=1)
    assert run(place).code == 3


def _corrected(place: Path) -> None:
    """Correct the files of stories that failed."""
    _failed(place)
    for name in ("checkout-17", "api-3"):
        write_story(place, name, command=writes(f"{name}.txt", "better"), verify=["true"])


def _asking(place: Path) -> None:
    """Write a story that asks something in its first session."""
    _empty(place)
    ask = f"echo '{json.dumps(QUESTION)}' > $AUTOPILOT_RESULT_FILE"
    marker = place.parent / "asked"
    asks = f"if test -f {marker}; then {writes('paid.txt')}; else touch {marker}; {ask}; fi"
    write_story(place, "checkout-17", command=asks, verify=["test -s paid.txt"])
    commit_stories(place)


def _parked(place: Path) -> None:
    """Run a story until it waits for an answer."""
    _asking(place)
    assert run(place).code == 5


def _merged(place: Path) -> None:
    """Merge a story that is done."""
    _finished(place)
    git(place, "merge", "-q", "autopilot/checkout-17")


def _session(place: Path) -> dict[str, str]:
    """Work in a session of a story with a state file."""
    _empty(place)
    (place / "state.md").write_text(STATE)
    (place / EXCHANGE).mkdir()
    return {
        "AUTOPILOT_STATE_FILE": "state.md",
        "AUTOPILOT_RESULT_FILE": str(place / EXCHANGE / "result.json"),
    }


def _flow(place: Path) -> None:
    """Carry a story through a flow with a step called Plan, and merge it with its state file."""
    _empty(place)
    (place / "flows").mkdir()
    (place / "flows" / "small.toml").write_text(FLOW)
    step = 'mkdir -p _docs; echo "$AUTOPILOT_STEP" > "_docs/${AUTOPILOT_STEP#* }.md"'
    write_story(place, "checkout-17", flow="small", command=step, verify=["true"])
    commit_stories(place)
    assert run(place).code == 0
    git(place, "merge", "-q", "autopilot/checkout-17")


def _at_a_step(place: Path) -> None:
    """Let a story stop at its first step, which does not succeed."""
    _empty(place)
    (place / "flows").mkdir()
    (place / "flows" / "small.toml").write_text(FLOW)
    step = 'case "$AUTOPILOT_STEP" in *Plan) exit 1 ;; esac; mkdir -p _docs; echo x > _docs/Build.md'
    write_story(place, "checkout-17", flow="small", command=step, verify=["true"], max_attempts=1)
    commit_stories(place)
    assert run(place).code == PARKED


def _states(place: Path) -> None:
    """Let a pipeline leave state files."""
    _empty(place)
    (place / "artifacts" / "one" / "_docs").mkdir(parents=True)
    (place / "artifacts" / "one" / "_docs" / "_autodev_state.md").write_text(STATE)
    shutil.copytree(place / "artifacts" / "one" / "_docs", place / "_docs")


def _quarantine(place: Path) -> None:
    """Let a story write outside its claim."""
    _empty(place)
    strays = f"mkdir -p packages/auth && {writes('packages/auth/a.txt')}; {writes('elsewhere.txt')}"
    write_story(place, "auth", owns=["packages/auth/**"], command=strays)
    commit_stories(place)
    assert run(place, "--bg-isolation=none", "--enforce=detect", "--max-stories=1").code == 3


def _interrupted(place: Path) -> None:
    """Kill a run."""
    _backlog(place)
    go = place.parent / "go"
    write_story(
        place, "checkout-17", command=f"test -e {go} || {{ touch {go}; sleep 60; }}; {writes('a.txt')}"
    )
    with started(place) as running:
        wait_until(go.exists, what="the session runs")
        running.send(signal.SIGKILL)
        running.finish()


def _jobs(place: Path) -> None:
    """Stand in a job of a pipeline; the stage before it left no shard."""
    _backlog(place)
    (place / "shards").mkdir()


def _shards(place: Path) -> None:
    """Download the shard of a job whose story asks something."""
    job = place.parent / "job" / "shop"
    job.mkdir(parents=True)
    _asking(job)
    git(place.parent, "clone", "-q", str(job), str(place))
    shard = place / "shards" / "checkout-17"
    assert run(job, "--only=checkout-17", "--shard-out", str(shard)).code == 5


def _running(place: Path) -> None:
    """Start a run whose stories work until they are stopped, by the page or after it."""
    _backlog(place)
    begun = place.parent / "begun"
    for name in ("checkout-17", "api-3"):
        write_story(place, name, command=f"touch {begun}-{name}; sleep 600")
    RUNNING.append(
        (place, subprocess.Popen(command(), cwd=place, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    )
    wait_until(Path(f"{begun}-api-3").exists, what="the session runs", limit=LIMIT)


def _end_running() -> None:
    """End the runs that a page left at work: nobody waits for their sessions."""
    while RUNNING:
        place, process = RUNNING.pop()
        if process.poll() is None:
            run(place, "stop", "--now")
        process.wait(LIMIT)


def _agent(place: Path) -> None:
    """Describe an agent that does something."""
    _empty(place)
    (place / "tools").mkdir()
    agent = place / "tools" / "agent"
    agent.write_text("#!/bin/sh\ncat > /dev/null\necho 'MIT license' >> README.md\n")
    agent.chmod(0o755)
    (place / "autopilot-multi.toml").write_text('[agents.mine]\nargv = ["./tools/agent"]\n')
    commit_stories(place)


def _monorepo(place: Path) -> None:
    """Make two packages and the tools that change them."""
    shutil.copytree(ROOT / "examples" / "monorepo", place, dirs_exist_ok=True)
    (place / "autopilot-multi.toml").unlink()
    shutil.rmtree(place / "stories")
    _empty(place)


def _one_tree(place: Path) -> None:
    """Run two stories in the one checkout."""
    _monorepo(place)
    for name in ("auth", "billing"):
        package = f"packages/{name}"
        write_story(
            place,
            name,
            owns=[f"{package}/**"],
            command=f"sh tools/set-engine.sh {package}",
            verify=[f"sh tools/check-package.sh {package}"],
        )
    commit_stories(place)
    paths = "--deconflict-paths=packages/{id}/**"
    assert run(place, "--bg-isolation=none", "--enforce=detect", paths).code == 0


_RUST = {"RUSTUP_HOME": ".rustup", "CARGO_HOME": ".cargo"}
RUNNING: list[tuple[Path, "subprocess.Popen[bytes]"]] = []
SCENES: dict[str, Scene] = {
    "nothing": _nothing,
    "venv": _venv,
    "remote": _remote,
    "empty": _empty,
    "backlog": _backlog,
    "finished": _finished,
    "merged": _merged,
    "failed": _failed,
    "corrected": _corrected,
    "asking": _asking,
    "parked": _parked,
    "session": _session,
    "flow": _flow,
    "at a step": _at_a_step,
    "states": _states,
    "quarantine": _quarantine,
    "interrupted": _interrupted,
    "jobs": _jobs,
    "shards": _shards,
    "running": _running,
    "agent": _agent,
    "monorepo": _monorepo,
    "one-tree": _one_tree,
}


@pytest.mark.parametrize("page", PAGES)
def test_every_shell_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    """Each is pasted where the one before it left off, and does what the page says."""
    settings = tmp_path / "home" / ".config" / "autopilot-multi" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(GENEROUS)
    monkeypatch.setenv("TMUX_TMPDIR", str(tmp_path))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the project of a page needs no plugin of ours
    # rustup finds its toolchains by these, or in the home folder, which is another one here.
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    for variable in ("RUSTUP_HOME", "CARGO_HOME"):
        monkeypatch.setenv(variable, os.environ.get(variable) or str(home / _RUST[variable]))
    reader = Reader(tmp_path, SCENES)
    try:
        for block in blocks_of(PAGES[page]):
            reader.follow(block)
    finally:
        if shutil.which("tmux"):
            subprocess.run(["tmux", "kill-server"], check=False, capture_output=True)
        _end_running()


def test_few_blocks_are_not_run() -> None:
    """Each has a reason, and they are these; a block in a language that no test runs is not a way around."""
    not_run = [page for page, path in PAGES.items() for each in blocks_of(path) if each.not_run]
    assert not_run == [
        "README.md",
        "README.md",
        "docs/how-to/drive-it-from-an-agent.md",
        "docs/how-to/drive-it-from-an-agent.md",
        *["docs/how-to/from-branches-to-pull-requests.md"] * 3,
        "docs/how-to/get-notified.md",
        "docs/how-to/metrics-and-traces.md",
        "docs/how-to/metrics-and-traces.md",
        "docs/how-to/python-project.md",
        "docs/how-to/run-in-ci.md",
        *["docs/how-to/run-on-a-cluster.md"] * 6,
        "docs/how-to/steer-a-run.md",
        "docs/how-to/take-stories-from-a-tracker.md",
    ]
    for path in PAGES.values():
        assert not re.search(r"^ *```(?:bash|shell|zsh)?\n *\$ ", path.read_text(), re.MULTILINE), path
