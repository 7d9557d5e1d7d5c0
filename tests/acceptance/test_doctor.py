"""`doctor`: what this machine and this repository offer, found out by trying."""

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from isolation.paths import find_repository, journal_path
from runner.core.events import events as ev
from runner.core.text.shell_words import programs_of
from runner.plan.readiness import unwritable
from tests.acceptance.people import NOBODY
from tests.acceptance.program import write_story
from tests.acceptance.written_runs import autopilot, coordinator, document, write_events
from tests.conftest import git
from tests.records.sample_runs import RUN, ended_events, event, mixed_events


def checks(cwd: Path) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in document(cwd, "doctor")["data"]["checks"]}


def test_sound_repository_passes(repo: Path) -> None:
    """Every check has a level and a detail, and nothing is created."""
    found = checks(repo)
    assert {"python", "git", "merge-tree", "killing", "sandbox", "agents", "machine", "disk"} <= set(found)
    assert {check["level"] for check in found.values()} <= {"ok", "warn"}
    assert found["journal"]["detail"] == "none yet"
    assert all(check["hint"] for check in found.values() if check["level"] != "ok")
    assert not (repo / ".git" / "autopilot").exists()


def test_what_the_machine_can_bear_is_told(repo: Path) -> None:
    """Window, tier and the signal that decided, in the words of the dashboard; too little is a warning."""
    (repo / "autopilot-multi.toml").write_text("tiers.green.disk-gb = 999999\nmemory-per-story-gb = 0\n")
    machine = checks(repo)["machine"]
    assert re.fullmatch(r"\d of 3 slots · tier (warn|degraded|critical), .+", machine["detail"])
    assert (machine["level"], "fewer stories or agents" in machine["hint"]) == ("warn", True)


def test_lines_for_people(repo: Path) -> None:
    """One line a check, its level first; a hint where something is to be done."""
    shown = autopilot(repo, "doctor")
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0].startswith("ok    python        3.")


def test_outside_a_repository_the_machine_is_still_examined(tmp_path: Path) -> None:
    """No repository is a failure of its own; the other checks are still made."""
    shown = autopilot(tmp_path, "doctor")
    assert shown.returncode == 2
    assert "fail  git" in shown.stdout
    assert "machine" in shown.stdout


def test_agents_are_found_on_the_path(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that is installed is named with its path; a configured one that is not, too."""
    (tmp_path / "bin").mkdir()
    agent = tmp_path / "bin" / "codex"
    agent.write_text("#!/bin/sh\n")
    agent.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    found = checks(repo)["agents"]
    assert (found["level"], f"codex ({agent}; no sign-in found)" in found["detail"]) == ("warn", True)
    (agent.parent / "package.json").write_text('{"name": "@openai/codex", "version": "1.2.3"}')
    monkeypatch.setenv("CODEX_API_KEY", "sk-something-of-a-key")
    found = checks(repo)["agents"]
    assert found["level"] == "ok"
    assert (
        f"codex 1.2.3 ({agent}; signed in with CODEX_API_KEY; this version was never tried" in found["detail"]
    )
    (repo / "autopilot-multi.toml").write_text('[agents.mine]\nargv = ["no-such-program"]\n')
    assert (checks(repo)["agents"]["level"], "mine" in checks(repo)["agents"]["detail"]) == ("warn", True)


def test_journal_and_coordinator_are_told(repo: Path) -> None:
    """Health of the journal, who holds the repository, and a run that was killed."""
    write_events(repo, [*mixed_events(), *ended_events()])
    assert checks(repo)["journal"]["detail"] == "sound, 1 run"
    assert checks(repo)["coordinator"]["detail"] == "none"
    with coordinator(repo):
        assert f"run {RUN}, pid" in checks(repo)["coordinator"]["detail"]
    killed = checks(repo)["coordinator"]
    assert killed["level"] == "warn"
    assert killed["hint"] == f"continue it with `autopilot-multi resume {RUN}`."


def test_damage_inside_the_journal_is_found(repo: Path) -> None:
    """A journal that opens and lists its runs, but holds a broken page, is not called sound."""
    write_events(repo, [event(1, ev.Noted(message="x" * 3000)) for _ in range(100)])
    path = journal_path(find_repository(repo).common_dir)
    data = bytearray(path.read_bytes())
    page = data.index(b"x" * 2000) // 4096 * 4096
    data[page : page + 16] = b"\xff" * 16
    path.write_bytes(data)
    assert autopilot(repo, "status").returncode == 2
    assert checks(repo)["journal"]["level"] == "fail"


def test_damaged_journal_and_settings_fail(repo: Path) -> None:
    """What prevents a run is a failure, with exit code 2, and success is false."""
    path = journal_path(find_repository(repo).common_dir)
    path.parent.mkdir()
    path.write_bytes(b"not a database at all\n" * 100)
    (repo / "autopilot-multi.toml").write_text("max-storys = 3\n")
    answer = document(repo, "doctor")
    found = {check["name"]: check["level"] for check in answer["data"]["checks"]}
    assert (found["journal"], found["settings"], answer["success"]) == ("fail", "fail", False)
    assert autopilot(repo, "doctor").returncode == 2


def test_what_will_stop_a_run_is_found(tmp_path: Path) -> None:
    """No commit, a missing program and a missing agent each fail, with what to do; a first commit helps."""
    repo = tmp_path / "new"
    subprocess.run(["git", "init", "-q", str(repo)], check=True)
    write_story(repo, "a", verify=["make test"])
    (repo / "autopilot-multi.toml").write_text(
        'verify = ["pytst -q && true"]\nstories = "stories"\nagent = "gemini"\n'
    )
    found = checks(repo)
    assert {name for name, check in found.items() if check["level"] == "fail"} == {"base", "agent", "verify"}
    assert found["base"]["hint"] == 'git add -A && git commit -m "Initial commit"'
    assert "pytst is not on PATH" in found["verify"]["detail"]
    assert "gemini" in found["agent"]["detail"]
    subprocess.run(["git", "commit", "-q", "--allow-empty", "-m", "begin"], cwd=repo, check=True)
    assert checks(repo)["base"]["level"] == "ok"


def test_what_stories_will_not_see_is_named(repo: Path, tmp_path: Path) -> None:
    """Uncommitted files, empty submodules and ignored programs; a hook or a link answers each."""
    subprocess.run(["git", "clone", "-q", str(repo), str(tmp_path / "library")], check=True)
    git(repo, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(tmp_path / "library"), "lib")
    git(repo, "commit", "-q", "-m", "a submodule")
    tool = repo / ".venv" / "bin" / "tool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (repo / ".gitignore").write_text(".venv/\n")
    write_story(repo, "a", command="true")
    settings = repo / "autopilot-multi.toml"
    settings.write_text('verify = [".venv/bin/tool --quick"]\n')
    found = checks(repo)
    assert "1 uncommitted file that stories will not see: .gitignore" in found["checkout"]["detail"]
    assert found["submodules"]["detail"] == "empty in worktrees: lib"
    assert "is ignored by git" in found["verify"]["detail"]
    assert 'symlink-directories = [".venv"]' in found["verify"]["hint"]
    settings.write_text(
        'verify = [".venv/bin/tool"]\nsymlink-directories = [".venv"]\n[hooks]\n'
        + found["submodules"]["hint"].split("`")[1]
    )
    git(repo, "add", ".gitignore")
    git(repo, "commit", "-q", "-m", "ignore")
    found = checks(repo)
    assert "submodules" not in found
    assert (found["verify"]["level"], found["checkout"]["level"]) == ("ok", "ok")
    for name in ("env/pyvenv.cfg", "env/lib/x.py", "web/node_modules/a/node_modules/b/x.js", "new.py"):
        (repo / name).parent.mkdir(parents=True, exist_ok=True)
        (repo / name).touch()
    found = checks(repo)
    assert found["checkout"]["detail"] == "1 uncommitted file that stories will not see: new.py"
    assert found["packages"]["detail"] == "git does not ignore installed packages: env/, web/node_modules/"


def test_a_folder_that_cannot_be_written_is_found() -> None:
    """The nearest folder that exists counts; asked as an ordinary user, since root may write everywhere."""
    with tempfile.TemporaryDirectory() as made:  # other users cannot reach the folders of pytest
        Path(made).chmod(0o755)
        closed = Path(made, "closed")
        closed.mkdir(mode=0o555)
        pid = os.fork()
        if pid == 0:
            right = False
            try:
                if os.getuid() == 0:
                    os.setuid(NOBODY)
                there = unwritable(closed / "not" / "yet")
                right = there == closed and unwritable(Path(tempfile.gettempdir(), "not", "yet")) is None
            finally:
                os._exit(not right)  # whatever happened: a copy of the test runner must not go on
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize(
    ("command", "programs"),
    [
        ("pytest -q", ["pytest"]),
        ("CI=1 npm test && node check.js | tee out", ["npm", "node", "tee"]),
        ("test -s a.txt", []),
        ("! grep -q x a", []),
        ("grep -q salt b || { echo no; exit 1; }", []),
        ("test $(wc -l < menu.md) -eq 2", []),
        ("tool $(date)", ["tool"]),
        ("cd web && npm test", []),
        ('"$PYTHON" -m pytest', []),
        ("PATH=/opt/x:$PATH tool", []),
        ("make test > log 2>&1; ./check", ["make", "./check"]),
        ("f() { true; }; f", []),
        ("if true; then x; fi", []),
        ("echo 'open", []),
        ("", []),
        ("set -e\nno-such", []),
    ],
)
def test_the_programs_of_a_command(command: str, programs: list[str]) -> None:
    """Only what is certain to run counts: a wrong alarm would stop a run that works."""
    assert list(programs_of(command)) == programs
