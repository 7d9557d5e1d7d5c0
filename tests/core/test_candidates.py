"""Best of N: when the next candidate starts, which one wins, and what the events make of a story."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from runner.core.events import candidates as cd
from runner.core.events.folds.story_fold import requeued, story_after
from runner.core.model import (
    SessionKind,
    SessionRecord,
    Status,
    StepProgress,
    Story,
    StoryId,
    StorySnapshot,
    Usage,
)
from runner.core.progress.candidates import Candidate, Review, next_number, winner
from runner.core.progress.workspace import WorkspaceInfo
from runner.core.schedule.candidates import candidate_notes, most_candidates
from runner.core.settings import Settings
from runner.core.text.candidates import candidate_lines, review_line

A = StoryId("a")


def candidate(number: int, verdict: str = "done", **more: object) -> Candidate:
    """Return a candidate by number and verdict."""
    fields = {"agent": "x", "reason": "r", "branch": "autopilot/a", **more}
    return Candidate(number=number, verdict=verdict, **fields)  # type: ignore[arg-type]


CANDIDATES = st.lists(
    st.builds(
        Candidate,
        number=st.just(1),
        agent=st.just(""),
        verdict=st.sampled_from(["done", "failed", "no_work", "stopped"]),
        reason=st.just(""),
        branch=st.just(""),
        hidden=st.sampled_from(["", "passed", "failed"]),
        lines=st.integers(0, 5),
        files=st.integers(0, 2),
    ),
    min_size=1,
    max_size=5,
).map(lambda found: [replace(one, number=number) for number, one in enumerate(found, 1)])


@given(CANDIDATES)
def test_the_winner_has_no_failing_gate_and_none_is_smaller(candidates: list[Candidate]) -> None:
    """If any passes, one wins; it passes, too, and has the fewest lines."""
    best = winner(candidates)
    passing = [one for one in candidates if one.verdict == "done" and one.hidden != "failed"]
    assert (best is None) == (not passing)
    if best is not None:
        assert best in passing
        assert best.lines == min(one.lines for one in passing)


@pytest.mark.parametrize(
    ("ended", "when", "following"),
    [
        ([candidate(1, "failed")], "failed", 2),
        ([candidate(1)], "failed", None),
        ([candidate(1)], "always", 2),
        ([candidate(1, weak=True)], "failed", 2),
        ([candidate(1, hidden="failed")], "failed", 2),
        ([candidate(1, "failed", final=True)], "always", None),
        ([candidate(1, "failed"), candidate(2, "failed"), candidate(3, "failed")], "always", None),
    ],
)
def test_when_the_next_one_starts(ended: list[Candidate], when: str, following: int | None) -> None:
    """Only while none has passed, unless always; never beyond the number, nor where it cannot help."""
    assert next_number(ended, most=3, when=when) == following


def test_a_candidate_begins_as_if_there_had_been_none() -> None:
    """Attempts, conversation and commits are those of the candidate; base, sessions and money stay."""
    session = SessionRecord(
        id="s",
        kind=SessionKind.WORK,
        step=StorySnapshot(id=A, title="", status=Status.RUNNING).step,
        attempt=2,
        started_at=1.0,
        log="l",
        usage=Usage(cost_usd=2.0),
    )
    story = StorySnapshot(
        id=A,
        title="t",
        status=Status.RUNNING,
        workspace=WorkspaceInfo(branch="autopilot/a", base="b", head="h", commit="c", commits=3),
        progress=StepProgress(attempt=5, implemented=True),
        sessions=(session,),
        reason="gave up",
        loop_sessions=4,
        refusal=("x", "y"),
    )
    ended = cd.CandidateEnded(
        story_id=A, number=1, agent="x", verdict="failed", reason="r", branch="autopilot/a", cost_usd=2.0
    )
    story = story_after(story, ended, 2.0)
    assert story_after(story, ended, 3.0).candidates == story.candidates, "recorded twice, it counts once"
    begun = story_after(story, cd.CandidateStarted(story_id=A, number=2, kept="kept/1"), 3.0)
    assert (begun.candidate, begun.own_sessions, begun.usage.cost_usd) == (2, (), 2.0)
    assert (begun.progress, begun.loop_sessions, begun.refusal) == (StepProgress(attempt=1), 0, None)
    assert (begun.workspace.base, begun.workspace.commit, begun.workspace.commits) == ("b", None, 0)
    assert [one.branch for one in begun.candidates] == ["kept/1"]
    second = replace(ended, number=2, verdict="done")
    done = story_after(
        story_after(begun, second, 4.0), cd.CandidateChosen(story_id=A, number=1, kept="kept/2"), 5.0
    )
    assert [(one.branch, one.chosen) for one in done.candidates] == [("autopilot/a", True), ("kept/2", False)]
    assert candidate_lines(done)[1] == "candidate 2 by x: done, 0 files, 0 lines, $2.00; kept/2"
    again = requeued(replace(done, status=Status.FAILED))
    assert [one.number for one in again.candidates] == [1], "what continues is judged again"
    assert len(requeued(done).candidates) == 2


def test_what_a_reviewer_says_is_shown() -> None:
    """An opinion that counts leaves the work unread; others do not."""
    story = StorySnapshot(id=A, title="t", status=Status.RUNNING)
    assert review_line(story) == ""
    given_ = cd.ReviewGiven(story_id=A, by="r", verdict="again", because="why", counts=True)
    story = story_after(story, given_, 1.0)
    assert (story.review, story.progress.reviewed) == (Review(by="r", verdict="again", because="why"), False)
    assert review_line(story) == "review by r: would try again: why"
    assert story_after(story, replace(given_, counts=False), 2.0).progress.reviewed


def test_candidates_need_a_worktree_and_no_flow() -> None:
    """Where they are impossible a story has one, and is told so if it asks for more itself."""
    plain, led = (
        Story(id=A, title="", prompt="", best_of=3),
        Story(id=A, title="", prompt="", flow="greenfield"),
    )
    assert most_candidates(plain, Settings()) == 3
    assert most_candidates(replace(plain, best_of=None), Settings(best_of=2)) == 2
    assert most_candidates(led, Settings(best_of=2)) == 1
    assert most_candidates(plain, Settings(bg_isolation="none")) == 1
    assert candidate_notes([plain, led], Settings()) == ()
    assert candidate_notes([replace(led, best_of=2)], Settings()) == (
        "story a: best_of has no effect: it follows the flow greenfield",
    )
    assert "one tree" in candidate_notes([plain], Settings(bg_isolation="none"))[0]
    assert (
        candidate_lines(StorySnapshot(id=A, title="", status=Status.DONE, candidates=(candidate(1),))) == ()
    )
