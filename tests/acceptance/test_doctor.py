"""`doctor`: what this machine and this repository offer, found out by trying."""

import re
from pathlib import Path
from typing import Any

import pytest

from isolation.paths import find_repository, journal_path
from runner.core.events import events as ev
from tests.acceptance.written_runs import autopilot, coordinator, document, write_events
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
    monkeypatch.setenv("OPENAI_API_KEY", "sk-something-of-a-key")
    found = checks(repo)["agents"]
    assert found["level"] == "ok"
    assert f"codex 1.2.3 ({agent}; signed in with OPENAI_API_KEY)" in found["detail"]
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
