"""Makes the fixtures of old formats: real runs of an older version, packed as they were left.

    python -m tests.formats.make_fixtures /path/to/the/old/autopilot-multi

The fixtures in this folder are the work of commit 671ee52, the last before modules, classes and
messages got new names. They are not made again when the code changes: that is their point. A new
format gets a new set beside them.

Everything happens in `/tmp/demo`, the only absolute path inside the fixtures; the tests put their
own in its place. What the killed run left names the machine it ran on, so that is overwritten. What
the old program answered about its own runs is kept in `answers/`, without its sentences, for the new
one to be compared with.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

from tests.acceptance.program import write_story
from tests.conftest import GIT_ENVIRONMENT, git
from tests.formats.test_old_formats import without_sentences

HOME = Path("/tmp/demo")  # noqa: S108  the same on every machine, so that no fixture names one
FIXTURES = Path(__file__).parent / "fixtures"

STEP_SCRIPT = """\
case "${AUTOPILOT_STEP#* }" in
  Problem)            files="00_problem/problem.md 00_problem/acceptance_criteria.md" ;;
  Research)           files="01_solution/solution.md" ;;
  Plan)               files="02_document/architecture.md" ;;
  "UI Design")        files="02_document/ui_design.md" ;;
  Decompose)          files="02_tasks/01_sell.md 02_tasks/dependencies.md" ;;
  Implement)          files="03_implementation/implementation_report_sell.md"; echo 1 > shop.py ;;
  "Run Tests")        files="03_implementation/test_report.md" ;;
  "Security Audit")   files="05_security/security_report.md" ;;
  "Performance Test") files="06_metrics/performance_report.md" ;;
  Deploy)             files="07_deploy/deploy_report.md" ;;
  Retrospective)      files="06_metrics/retrospective.md" ;;
esac
for file in $files; do
  mkdir -p "_docs/${file%/*}"
  echo "$AUTOPILOT_STEP" > "_docs/$file"
done
"""
"""The stand-in for an agent that docs/how-to/follow-a-flow.md is modeled on."""

WAITING = "shared=$(git rev-parse --git-common-dir); until test -f $shared/go; do sleep 0.1; done"
"""Waits until the test lets it go, so that a run can be killed in its midst and still be finished later."""


EVERY_KIND = """
import json
from runner.core import events

def sample(annotation):
    text = str(annotation)
    if "tuple" in text:
        return ({"id": "a"},) if "Mapping" in text else ("a", "b")
    if "Mapping" in text or "dict" in text:
        return {"key": "value", "list": [1, 2]}
    for name, value in (("bool", True), ("float", 1.5), ("int", 3)):
        if name in text.split("|")[0]:
            return value
    return "text"

for kind in events._KINDS.values():
    body = kind(**{field: sample(annotation) for field, annotation in kind.__annotations__.items()})
    name, data = events.encode(body)
    print(json.dumps({"kind": name, "data": data}))
"""
"""Prints one event of every kind as the old program's journal holds it, each field with a value."""


def main(program: str) -> None:
    """Make all fixtures with `program`, which is the old version."""
    os.environ.update(GIT_ENVIRONMENT, HOME=str(HOME / "home"), NO_COLOR="1")
    shutil.rmtree(HOME, ignore_errors=True)
    (HOME / "home").mkdir(parents=True)
    FIXTURES.mkdir(exist_ok=True)
    _finished(program)
    _killed(program)
    _parked(program)
    _dialects(program)
    _pipeline(program)
    _kinds(program)
    shutil.rmtree(HOME)


def _finished(program: str) -> None:
    """Leave a run that is over: stories that are done, failed, skipped and without work."""
    repo = _repository("finished")
    write_story(repo, "greeting", command="echo hello > hello.txt", verify=["grep -q hello hello.txt"])
    write_story(repo, "hopeless", command="date +%N > time.txt", verify=["echo 'never passes'; false"])
    write_story(repo, "after-hopeless", command="echo x > x.txt", depends_on=["hopeless"])
    write_story(repo, "idle", command="true")
    _run(program, repo, "run", expected=4)
    _answer(program, repo, "finished", "status")
    _answer(program, repo, "finished", "history")
    _pack("finished", "finished", "finished.worktrees")


def _killed(program: str) -> None:
    """Leave a run whose coordinator was killed while a session worked."""
    repo = _repository("killed")
    write_story(repo, "first", command="echo first > first.txt")
    write_story(
        repo,
        "middle",
        command=f"{WAITING}; cat first.txt > middle.txt",
        depends_on=["first"],
    )
    write_story(repo, "last", command="cat middle.txt > last.txt", depends_on=["middle"])
    _commit(repo)
    with subprocess.Popen([program, "run", "--quiet"], cwd=repo) as process:
        while not list((repo / ".git" / "autopilot").glob("runs/*/middle/*.log")):
            time.sleep(0.05)
        time.sleep(1.0)
        process.send_signal(signal.SIGKILL)
    time.sleep(2.0)  # the keeper ends the session once its coordinator is gone
    own = repo / ".git" / "autopilot"
    for path in (own / "lease.json", *(own / "sessions").glob("*.json")):
        path.write_text(json.dumps({**json.loads(path.read_text()), "host": "demo", "boot_id": "demo"}))
    _answer(program, repo, "killed", "status")
    _pack("killed", "killed", "killed.worktrees")


def _parked(program: str) -> None:
    """Leave a run that waits for a decision at the session boundary of a flow."""
    repo = _repository("parked")
    (repo / "step.sh").write_text(STEP_SCRIPT)
    write_story(
        repo,
        "shop",
        body="A shop that sells one thing.",
        title="A small shop",
        flow="greenfield",
        command="sh step.sh",
        verify=["test -s shop.py"],
    )
    _run(program, repo, "run", expected=5)
    _keep_state(HOME / "parked.worktrees" / "shop" / "_docs" / "_autodev_state.md", "autodev.md")
    _answer(program, repo, "parked", "status")
    _answer(program, repo, "parked", "decide")
    _pack("parked", "parked", "parked.worktrees")


def _dialects(program: str) -> None:
    """Leave the state files of the other two dialects, after a step that failed."""
    repo = _repository("dialects")
    for dialect in ("rich", "pointer"):
        write_story(repo, dialect, flow="greenfield", dialect=dialect, command="echo no luck; false")
    _run(program, repo, "run", expected=3)
    for dialect in ("rich", "pointer"):
        state = HOME / "dialects.worktrees" / dialect / "_docs" / "_autopilot_state.md"
        _keep_state(state, f"{dialect}.md")


def _pipeline(program: str) -> None:
    """Leave the matrix and the shards of a pipeline, and the repository that its jobs were cloned from."""
    repo = _repository("origin")
    write_story(repo, "base", command="echo base > base.txt", verify=["grep -q base base.txt"])
    write_story(repo, "top", command="cat base.txt > top.txt", depends_on=["base"])
    write_story(repo, "broken", command="echo broken > broken.txt", verify=["false"])
    _commit(repo)
    shards = HOME / "shards"
    shards.mkdir()
    asked = subprocess.run(
        [program, "matrix", "--json"], cwd=repo, check=True, capture_output=True, text=True
    )
    (HOME / "matrix.json").write_text(asked.stdout)
    for stage in json.loads(asked.stdout)["data"]["stages"]:
        for job in stage:
            name = job["name"]
            git(HOME, "clone", "-q", repo.as_uri(), str(HOME / f"job-{name}"))
            arguments = [f"--only={name}", "--shard-in", str(shards), "--shard-out", str(shards / name)]
            _run(program, HOME / f"job-{name}", "run", *arguments, expected=3 if name == "broken" else 0)
    _answer(program, repo, "pipeline", "aggregate", str(shards), "--matrix", str(HOME / "matrix.json"))
    _pack("pipeline", "origin", "shards", "matrix.json")


def _kinds(program: str) -> None:
    """Leave one event of every kind, as lines of JSON."""
    python = str(Path(program).with_name("python"))
    asked = [python, "-c", EVERY_KIND]
    printed = subprocess.run(asked, cwd=HOME, check=True, capture_output=True, text=True).stdout
    (FIXTURES / "every-kind.ndjson").write_text(printed)


def _answer(program: str, repo: Path, name: str, command: str, *arguments: str) -> None:
    """Keep what the old program says about what it left itself; a failed run has its own exit code."""
    asked = [program, command, *arguments, "--json"]
    printed = subprocess.run(asked, cwd=repo, check=False, capture_output=True, text=True).stdout
    (FIXTURES / "answers").mkdir(exist_ok=True)
    answer = json.dumps(without_sentences(json.loads(printed)), indent=1) + "\n"
    (FIXTURES / "answers" / f"{name}-{command}.json").write_text(answer)


def _repository(name: str) -> Path:
    root = HOME / name
    git(HOME, "init", "-q", "-b", "main", "--template=", str(root))
    git(root, "config", "gc.auto", "0")
    (root / "README.md").write_text(f"{name}\n")
    return root


def _commit(repo: Path) -> None:
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "stories")


def _run(program: str, repo: Path, *arguments: str, expected: int) -> None:
    if repo.parent == HOME and not (repo / ".git" / "refs" / "heads" / "main").exists():
        _commit(repo)
    code = subprocess.run([program, *arguments, "--quiet"], cwd=repo, check=False).returncode
    if code != expected:
        raise SystemExit(f"{repo.name}: exit code {code} instead of {expected}")


def _keep_state(path: Path, name: str) -> None:
    (FIXTURES / "state").mkdir(exist_ok=True)
    shutil.copyfile(path, FIXTURES / "state" / name)


def _pack(name: str, *parts: str) -> None:
    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        return member

    with tarfile.open(FIXTURES / f"{name}.tar.xz", "w:xz") as archive:
        for part in parts:
            archive.add(HOME / part, arcname=part, filter=plain)


if __name__ == "__main__":
    main(sys.argv[1])
