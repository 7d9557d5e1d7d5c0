"""The real program beside other sessions in the same repository: who waits, who asks, who is alone."""

import json
import os
import signal
import time
from pathlib import Path

from isolation.paths import find_repository, sessions_dir
from runner.story.other_sessions import ALONE_SECONDS
from tests.acceptance.program import commit_stories, run, started, wait_until, write_story, writes
from tests.conftest import git
from tests.machine.registering import another_session


def _sessions(repo: Path) -> Path:
    return sessions_dir(find_repository(repo).common_dir)


def test_beside_an_exclusive_session_every_story_asks(repo: Path) -> None:
    """Acceptance 64: both are parked with the question, exit 5; once the other is gone they are finished."""
    for name in ("a", "b"):
        write_story(repo, name, command=writes(f"{name}.txt"))
    with another_session(repo, "housekeeping") as other:
        ran = run(repo, "--json")
        assert ran.code == 5, ran.err
        for name in ("a", "b"):
            assert ran.story(name)["status"] == "parked"
            assert ran.story(name)["sessions"] == 0
        asked = run(repo, "decide", "a").out
        assert "BLOCKED: another session has this repository to itself" in asked
        assert f"housekeeping session cleanup-1 (pid {other.pid} on " in asked
        assert "Recommendation: A" in asked
        assert other.poll() is None, "nothing of another's is ever ended"
    for name in ("a", "b"):
        assert run(repo, "decide", name, "A").code == 0
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 0, resumed.err
    assert git(repo, "show", "autopilot/a:a.txt") == "made\n"


def test_an_other_that_comes_while_the_run_goes_on_stops_the_next_session(repo: Path, tmp_path: Path) -> None:
    """Acceptance 64: the running session reaches its end; what would start after it asks first."""
    here, go = tmp_path / "here", tmp_path / "go"
    write_story(
        repo, "a", command=f"touch {here}; until test -f {go}; do sleep 0.02; done; {writes('a.txt')}"
    )
    write_story(repo, "b", command=writes("b.txt"), depends_on=["a"])
    with started(repo, "run", "--json") as program:
        wait_until(here.exists, what="story a works")
        with another_session(repo.parent / "repo.worktrees" / "a", "bootstrap"):
            time.sleep(ALONE_SECONDS)  # the look before story a counts for so long
            go.touch()
            ran = program.finish()
    assert ran.code == 5, ran.err
    assert ran.story("a")["status"] == "done"
    assert ran.story("b")["status"] == "parked"


def test_who_says_that_it_is_closed_is_asked_again_when_it_is_not(repo: Path) -> None:
    """Acceptance 63: the answer counts once; the registry is believed more than a word."""
    write_story(repo, "a", command="cat > a.txt")
    with another_session(repo, "housekeeping"):
        assert run(repo).code == 5
        assert run(repo, "decide", "a", "B").code == 0
        again = run(repo, "resume", "--json")
        assert again.code == 5, again.err
        assert again.story("a")["status"] == "parked"
    assert run(repo, "decide", "a", "B").code == 0
    assert run(repo, "resume").code == 0
    prompt = git(repo, "show", "autopilot/a:a.txt")
    assert "Do it." in prompt
    assert "look again" not in prompt, "who else was at work is none of the session's business"


def test_abort_leaves_the_story_undone(repo: Path) -> None:
    """Acceptance 63: the third choice ends the story, and nothing else."""
    write_story(repo, "a", command=writes("a.txt"))
    with another_session(repo, "housekeeping") as other:
        assert run(repo).code == 5
        run(repo, "decide", "a", "C")
        ran = run(repo, "resume", "--json")
        assert other.poll() is None
    assert ran.story("a")["status"] == "failed"
    assert "abort" in ran.story("a")["reason"]


def test_unattended_it_waits_and_goes_on_by_itself(repo: Path) -> None:
    """Acceptance 64: with the recommended answer the night is not lost to ten minutes of housekeeping."""
    write_story(repo, "a", command=writes("a.txt"))
    with (
        another_session(repo, "housekeeping") as other,
        started(repo, "run", "--json", "--decide-default=recommended") as program,
    ):
        wait_until(lambda: "waits until this has ended" in program.err, what="it waits")
        assert not git(repo, "log", "--oneline", "main..autopilot/a")
        assert other.stdin is not None
        other.stdin.close()
        ran = program.finish()
    assert ran.code == 0, ran.err
    assert ran.story("a")["status"] == "done"
    assert ran.err.count("waits until this has ended") == 1


def test_a_story_that_waits_can_be_stopped(repo: Path) -> None:
    """Acceptance 39: Ctrl-C ends the waiting at once, and the other session is unharmed."""
    write_story(repo, "a", command=writes("a.txt"))
    with (
        another_session(repo, "housekeeping") as other,
        started(repo, "run", "--json", "--decide-default=recommended") as program,
    ):
        wait_until(lambda: "waits until this has ended" in program.err, what="it waits")
        program.send(signal.SIGINT)
        ran = program.finish()
        assert other.poll() is None
    assert ran.code == 130
    assert ran.story("a")["kill_switch"]["name"] == "user-abort"


def test_a_dead_session_never_blocks(repo: Path) -> None:
    """Killed before it could withdraw, its entry is young and means nothing."""
    write_story(repo, "a", command=writes("a.txt"))
    with another_session(repo, "housekeeping") as other:
        other.kill()
        other.wait(10)
        assert list(_sessions(repo).iterdir())
        assert run(repo).code == 0


def test_a_malformed_file_never_blocks_for_ever(repo: Path) -> None:
    """Young, it is a session of unknown mode: beside it parallel stories work, an exclusive one asks."""
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "b", command=writes("b.txt"), mode="housekeeping")
    _sessions(repo).mkdir(parents=True)
    odd = _sessions(repo) / "odd.json"
    odd.write_text("{")
    ran = run(repo, "--json")
    assert ran.code == 5, ran.err
    assert ran.story("a")["status"] == "done"
    assert ran.story("b")["status"] == "parked"
    assert "odd.json cannot be read" in ran.err
    assert odd.read_text() == "{", "a file of another program is never rewritten"
    quarter = time.time() - 16 * 60
    os.utime(odd, (quarter, quarter))
    assert run(repo, "decide", "b", "A").code == 0
    assert run(repo, "resume").code == 0
    assert odd.exists()
    hour = time.time() - 61 * 60
    os.utime(odd, (hour, hour))
    assert run(repo, "--again").code == 0
    assert not odd.exists()


def test_parallel_and_harmless_sessions_are_no_obstacle(repo: Path) -> None:
    """A story has a worktree of its own, so it works beside others; its own siblings never count."""
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "b", command=writes("b.txt"))
    with another_session(repo, "deep", name="one"), another_session(repo, "brand-new", name="two"):
        ran = run(repo, "--json")
    assert ran.code == 0, ran.err
    assert "mode 'brand-new' is unknown and counts as parallel" in ran.err


def test_others_see_the_run_and_its_sessions(repo: Path) -> None:
    """Run, work and verify are in the registry while they last, and leave it empty."""
    look = "cat $(git rev-parse --git-common-dir)/autopilot/sessions/*.json"
    write_story(repo, "a", command=f"{look} > work.json", verify=[f"{look} > ~/verify.json"], mode="deep")
    ran = run(repo, "--json")
    assert ran.code == 0, ran.err
    run_id = ran.data["run_id"]
    work = git(repo, "show", "autopilot/a:work.json")
    verify = (repo.parent / "home" / "verify.json").read_text()
    for text, name in ((work, "01-implement-1"), (verify, "02-verify-1")):
        entries = {entry["session_id"]: entry for entry in _documents(text)}
        assert set(entries) == {run_id, f"{run_id}/a/{name}"}
        own, session = entries[run_id], entries[f"{run_id}/a/{name}"]
        assert (own["mode"], own["branch"], own["story_id"]) == ("multi-story", "main", "")
        assert (session["mode"], session["branch"], session["story_id"]) == ("deep", "autopilot/a", "a")
        assert own["pid"] == session["pid"]
        assert session["run_id"] == run_id
    assert list(_sessions(repo).iterdir()) == []


def _documents(text: str) -> list[dict[str, str]]:
    """Read JSON documents that stand one behind the other."""
    decoder, found = json.JSONDecoder(), []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found


def test_a_story_of_an_exclusive_mode_never_overlaps_a_sibling(repo: Path, tmp_path: Path) -> None:
    """Acceptance 27: with room for three it runs alone, without asking anybody, and keeps its turn."""
    trace = tmp_path / "trace"
    script = (
        f"echo $AUTOPILOT_STORY_ID start >> {trace}; sleep 0.2; echo x > $AUTOPILOT_STORY_ID;"
        f" echo $AUTOPILOT_STORY_ID end >> {trace}"
    )
    for name in ("a", "b", "d", "e"):
        write_story(repo, name, command=script)
    write_story(repo, "c", command=script, mode="housekeeping")
    commit_stories(repo)
    ran = run(repo, "--max-stories=3", "--json")
    assert ran.code == 0, ran.err
    lines = trace.read_text().splitlines()
    assert len(lines) == 10
    alone = lines.index("c start")
    assert lines[alone + 1] == "c end"
    assert {line.split()[0] for line in lines[:alone]} == {"a", "b"}
    assert sorted(lines[:2]) == ["a start", "b start"], "the others do overlap"


def test_a_story_that_runs_alone_waits_for_what_its_siblings_still_tidy_up(
    repo: Path, tmp_path: Path
) -> None:
    """The hook before a worktree goes belongs to its story, although that has its verdict already."""
    trace = tmp_path / "trace"
    hook = f"echo hook start >> {trace}; sleep 0.3; echo hook end >> {trace}"
    (repo / "autopilot-multi.toml").write_text(f"[hooks]\nbefore_remove = '{hook}'\n")
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "b", command=f"echo b >> {trace}; {writes('b.txt')}", mode="housekeeping")
    ran = run(repo, "--json")
    assert ran.code == 0, ran.err
    assert trace.read_text().split("\n")[:3] == ["hook start", "hook end", "b"]


def test_the_plan_says_who_runs_alone(repo: Path) -> None:
    """Acceptance 21: the story, and those that wait for it, say why; an unknown mode is warned of."""
    write_story(repo, "a", command="true", mode="housekeeping")
    write_story(repo, "b", command="true", mode="housekeping")
    ran = run(repo, "plan", "--json")
    reasons = {row["id"]: row["reason"] for row in ran.data["stories"]}
    assert reasons == {
        "a": "starts immediately, alone (mode housekeeping)",
        "b": "waits for a, which runs alone (mode housekeeping)",
    }
    assert (
        "story b: mode 'housekeping' is unknown and counts as parallel; did you mean 'housekeeping'?"
        in ran.err
    )


def test_doctor_lists_the_live_sessions(repo: Path) -> None:
    """Each other session with its process; one that runs alone, or cannot be read, is worth a warning."""
    assert _checks(repo, "sessions") == [("ok", "none")]
    with (
        another_session(repo, "housekeeping", name="one") as other,
        another_session(repo, "deep", name="two"),
    ):
        (_sessions(repo) / "odd.json").write_text("{")
        found = {detail: level for level, detail in _checks(repo, "session")}
        assert not _checks(repo, "sessions")
    (first,) = [detail for detail in found if detail.startswith("housekeeping session one (pid ")]
    assert f"pid {other.pid}" in first
    assert found[first] == "warn"
    assert [found[detail] for detail in found if detail.startswith("deep session two")] == ["ok"]
    assert [found[detail] for detail in found if "odd.json cannot be read" in detail] == ["warn"]


def _checks(repo: Path, name: str) -> list[tuple[str, str]]:
    checks = run(repo, "doctor", "--json").data["checks"]
    return [(check["level"], check["detail"]) for check in checks if check["name"] == name]
