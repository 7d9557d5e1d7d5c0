"""The selector: what it chooses by, what its choice changes, and how its accuracy is learned from."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story
from tests.machine.registering import another_session

STATE = """---
status: completed
recommended-mode: deep
top-priorities: [278, 283]
carryover-ratio: 0.25
completion-rate: 0.75
rationale: "carryover of a quarter"
---
# Session
"""
FOREIGN = [
    '{"id": "l1", "type": "fragile-file", "subject": "a.py",   "confidence": 0.6}',
    '{"type": "mode-selector-accuracy", "subject": "feature-selected-vs-deep", "confidence": 0.5}',
    '{"torn": ',
]


def _metrics(repo: Path) -> Path:
    folder = repo / ".orchestrator" / "metrics"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _selector(tmp_path: Path, *, confidence: object = 0.9, mode: str = "feature") -> str:
    """Return a selector that keeps what it was told, once for each time it is asked."""
    script = tmp_path / "select.sh"
    answer = json.dumps({"mode": mode, "confidence": confidence, "rationale": "so it is"})
    script.write_text(f"cat > {tmp_path}/told-$AUTOPILOT_STORY_ID-$$.json; echo '{answer}'\n")
    return f"sh {script}"


def _told(tmp_path: Path, story_id: str) -> list[dict[str, Any]]:
    """Return what the selector was told about a story, in order."""
    told = [json.loads(path.read_text()) for path in tmp_path.glob(f"told-{story_id}-*.json")]
    return sorted(told, key=lambda one: int(one["sessions"]))


def _learnings(repo: Path) -> list[str]:
    return (_metrics(repo) / "learnings.jsonl").read_text().splitlines()


@pytest.mark.protocol("004.37")
@pytest.mark.protocol("004.38")
@pytest.mark.protocol("004.44")
def test_a_selector_gets_its_signals_and_its_accuracy_is_learned(repo: Path, tmp_path: Path) -> None:
    """Recommendation, sessions, learnings and backlog come in; the mode goes out, is recorded and judged."""
    metrics = _metrics(repo)
    (repo / ".claude").mkdir()
    (repo / ".claude" / "STATE.md").write_text(STATE)
    (metrics / "learnings.jsonl").write_text("\n".join(FOREIGN) + "\n")
    (metrics / "sessions.jsonl").write_text('{"session_id": "by-hand", "session_type": "deep"}\n')
    once = 'test -f a || echo \'{"status": "partial"}\' > $AUTOPILOT_RESULT_FILE; echo $AUTOPILOT_MODE >> a'
    write_story(repo, "a", title="Do it twice", command=once)
    write_story(repo, "b", command="exit 3", depends_on=["a"], max_attempts=1)
    commit_stories(repo)
    ran = run(repo, "--selector", _selector(tmp_path), "--json")
    assert ran.code == 4

    first, second = (told["signals"] for told in _told(tmp_path, "a"))
    assert first["recommendation"] == {
        "file": ".claude/STATE.md",
        "recommended_mode": "deep",
        "top_priorities": [278, 283],
        "carryover_ratio": 0.25,
        "completion_rate": 0.75,
        "rationale": "carryover of a quarter",
    }
    assert first["sessions"] == [{"session_id": "by-hand", "session_type": "deep"}]
    assert [one["type"] for one in first["learnings"]] == ["fragile-file", "mode-selector-accuracy"]
    backlog = {one["id"]: (one["status"], one["depends_on"]) for one in first["backlog"]}
    assert backlog == {"a": ("running", []), "b": ("waiting", ["a"])}
    # What happened since the run began is among the signals of its second session.
    assert [one["session_id"].rpartition("/")[2] for one in second["sessions"]] == [
        "by-hand",
        "01-implement-1",
    ]
    assert (second["learnings"][-1]["chosen"], second["learnings"][-1]["accurate"]) == ("feature", True)

    lines = _learnings(repo)
    assert lines[:3] == FOREIGN, "lines of others stay byte for byte"
    learned = [json.loads(line) for line in lines[3:]]
    assert [(one["type"], one["chosen"], one["confidence"], one["outcome"]) for one in learned] == [
        ("mode-selector-accuracy", "feature", 0.9, "partial"),
        ("mode-selector-accuracy", "feature", 0.9, "ok"),
        ("mode-selector-accuracy", "feature", 0.9, "failed"),
    ]
    assert [one["accurate"] for one in learned] == [True, True, False]
    records = [json.loads(line) for line in (metrics / "sessions.jsonl").read_text().splitlines()]
    worked = [one for one in records if one.get("step") == "Implement"]
    assert [one["mode"] for one in worked] == ["feature"] * 3
    assert {one["source_session"] for one in learned} == {one["session_id"] for one in worked}
    assert run(repo, "resume", "--retry-failed").code == 4
    assert len(_learnings(repo)) == 7, "a resume adds its own and repeats none"


@pytest.mark.protocol("004.38")
def test_an_exclusive_mode_of_the_selector_has_the_repository_to_itself(repo: Path, tmp_path: Path) -> None:
    """A sibling's session ends first, none starts meanwhile, and another program's session is asked about."""
    trace = tmp_path / "trace"
    script = tmp_path / "select.sh"
    # The stories that will run alone choose only when the other works.
    script.write_text(
        f"test $AUTOPILOT_STORY_ID = a || until test -f {trace}; do sleep 0.02; done\n"
        'case $AUTOPILOT_STORY_ID in a) MODE=feature;; *) MODE=housekeeping; touch "$1";; esac\n'
        'echo "{\\"mode\\": \\"$MODE\\", \\"confidence\\": 1}"\n'
    )
    for name in ("a", "b", "c"):
        waits = f"until test -f {tmp_path}/go; do sleep 0.02; done; " if name == "a" else ""
        write_story(
            repo, name, command=f"echo +{name} >> {trace}; {waits}echo -{name} >> {trace}; echo x > {name}"
        )
    asked = tmp_path / "asked"
    with started(repo, "--max-stories=3", f"--selector=sh {script} {asked}", "--no-color") as running:
        wait_until(lambda: trace.exists() and asked.exists(), what="a works, and an exclusive mode is chosen")
        wait_until(lambda: "housekeeping, confidence 1.00" in running.err, what="the choice is recorded")
        assert trace.read_text().split() == ["+a"]
        (tmp_path / "go").touch()
        ran = running.finish()
    assert ran.code == 0, ran.err
    steps = trace.read_text().split()
    assert steps[:2] == ["+a", "-a"]
    assert steps in (["+a", "-a", "+b", "-b", "+c", "-c"], ["+a", "-a", "+c", "-c", "+b", "-b"])


@pytest.mark.protocol("004.38")
def test_an_exclusive_mode_of_the_selector_is_blocked_by_another_session(repo: Path, tmp_path: Path) -> None:
    """The story itself could run beside it; the mode that was chosen cannot, so the user is asked."""
    write_story(repo, "a", command="echo x > a")
    with another_session(repo, mode="feature"):
        assert run(repo, "--selector", _selector(tmp_path)).code == 0
        write_story(repo, "b", command="echo x > b")
        ran = run(repo, "--selector", _selector(tmp_path, mode="housekeeping"), "--json")
    assert (ran.code, ran.story("b")["status"], ran.story("b")["sessions"]) == (5, "parked", 0)
    title = ran.story("b")["decision"]["question"]["title"]
    assert "a story of mode housekeeping runs alone" in title


@pytest.mark.protocol("004.49")
@pytest.mark.protocol("004.37")
def test_low_confidence_stays_parked_unattended_and_a_low_threshold_is_warned_about(
    repo: Path, tmp_path: Path
) -> None:
    """`--decide-default recommended` answers questions, but not for a selector that was not sure."""
    write_story(repo, "a", command="echo x > a")
    selector = ("--selector", _selector(tmp_path, confidence=0.3), "--json")
    ran = run(repo, *selector, "--decide-default", "recommended")
    assert (ran.code, ran.story("a")["status"], ran.story("a")["sessions"]) == (5, "parked", 0)
    assert "below 0.5" not in ran.err
    question = ran.story("a")["decision"]["question"]
    assert "Confidence 0.30 is below 0.85" in question["title"]
    assert question["why"] == "the selector points there"
    lowered = run(repo, *selector, "--confidence-threshold=0.2")
    assert (lowered.code, lowered.story("a")["status"]) == (0, "done")
    assert "confidence-threshold 0.2 is below 0.5: a selection of so little confidence" in lowered.err
    assert "is below 0.5" not in run(repo, "plan", "--confidence-threshold=0.5").err


@pytest.mark.protocol("004.56")
def test_an_automatic_threshold_comes_from_learnings(repo: Path, tmp_path: Path) -> None:
    """With twenty of them it is derived; with nineteen it is 0.85; either way the run says so."""
    write_story(repo, "a", command="echo x > a")
    flags = ("--confidence-threshold=auto", "--selector", _selector(tmp_path, confidence=0.7), "--json")
    learned = [(0.6, False)] * 6 + [(0.7, True)] * 10 + [(0.9, True)] * 3
    path = _metrics(repo) / "learnings.jsonl"
    lines = [
        json.dumps({"type": "mode-selector-accuracy", "confidence": sure, "accurate": right})
        for sure, right in learned
    ]
    path.write_text("\n".join([*FOREIGN, *lines]) + "\n")
    before = run(repo, *flags)
    note = "confidence-threshold auto: 0.85 (the default, with 19 of the 20 accuracy learnings"
    assert note in before.err
    assert before.story("a")["status"] == "parked"
    path.write_text("\n".join([*FOREIGN, *lines, lines[-1]]) + "\n")
    after = run(repo, *flags)
    note = "confidence-threshold auto: 0.7 (from 20 accuracy learnings: 14 of 14 selections at or above it"
    assert note in after.err
    assert after.story("a")["status"] == "done"
    record = (_metrics(repo) / "autopilot.jsonl").read_text().splitlines()[-1]
    assert json.loads(record)["confidence_threshold"] == 0.7
    wrong = run(repo, "plan", "--confidence-threshold=high", "--json")
    assert wrong.document["error"]["message"] == (
        "--confidence-threshold must be a number from 0 to 1, or auto, not 'high'"
    )
