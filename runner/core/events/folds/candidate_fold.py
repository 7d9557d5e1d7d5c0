"""What the events of candidates and reviews make of a story."""

from typing import assert_never

from msgspec import structs
from msgspec.structs import replace

from runner.core.events import candidates as cd
from runner.core.model import (
    IMPLEMENT,
    Outage,
    StepHistory,
    StepProgress,
    StorySnapshot,
)
from runner.core.progress.candidates import Candidate, Review


def after_candidate(story: StorySnapshot, body: cd.CandidateBody) -> StorySnapshot:
    """Return the story after one of these events."""
    match body:
        case cd.CandidateEnded():
            fields = structs.asdict(body)
            ended = Candidate(**{name: fields[name] for name in fields if name != "story_id"})
            before = tuple(one for one in story.candidates if one.number != ended.number)
            return replace(story, candidates=(*before, ended))
        case cd.CandidateStarted():
            return _begun(story, body)
        case cd.CandidateChosen():
            return _chosen(story, body)
        case cd.ReviewGiven():
            review = Review(by=body.by, verdict=body.verdict, because=body.because)
            return replace(story, review=review, progress=replace(story.progress, reviewed=not body.counts))
        case _:
            assert_never(body)


def _begun(story: StorySnapshot, body: cd.CandidateStarted) -> StorySnapshot:
    """Return the story as new, but for its base, its past sessions and what the user has decided."""
    return replace(
        story,
        candidate=body.number,
        candidates=tuple(_on(one, body.kept, of=body.number - 1) for one in story.candidates),
        before_candidate=len(story.sessions),
        workspace=replace(
            story.workspace, path=None, head=None, commit=None, commits=0, unchanged=False, markers=()
        ),
        place=IMPLEMENT,
        step=IMPLEMENT,
        progress=StepProgress(attempt=1),
        step_history=StepHistory(),
        outage=Outage(),
        loop_sessions=0,
        review=None,
        ending=None,
        refusal=None,
        reason="",
        mode="",
        selected=None,
        confidence=1.0,
    )


def _chosen(story: StorySnapshot, body: cd.CandidateChosen) -> StorySnapshot:
    own = story.workspace.branch or ""
    marked = tuple(
        replace(one, branch=own, chosen=True)
        if one.number == body.number
        else replace(_on(one, body.kept, of=story.candidate), chosen=False)
        for one in story.candidates
    )
    return replace(story, candidates=marked)


def _on(candidate: Candidate, kept: str, *, of: int) -> Candidate:
    return replace(candidate, branch=kept) if kept and candidate.number == of else candidate
