"""The candidates of a story in words, side by side, and what its reviewer said."""

from runner.core.model import StorySnapshot
from runner.core.progress.candidates import Candidate
from runner.core.text.words import count


def candidate_lines(story: StorySnapshot) -> tuple[str, ...]:
    """Return one line for each candidate that has ended; none for a story that had only one."""
    ended = story.candidates
    return tuple(map(_line, ended)) if len(ended) > 1 or story.candidate > 1 else ()


def verdict_of(candidate: Candidate) -> str:
    """Return how a candidate ended, by what it knew and by what it did not know."""
    hidden = f", hidden verify {candidate.hidden}" if candidate.hidden else ""
    return f"{candidate.verdict}{hidden}"


def size_of(candidate: Candidate) -> str:
    """Return how much a candidate changed."""
    return f"{count(candidate.files, 'file')}, {count(candidate.lines, 'line')}"


def spent_by(candidate: Candidate) -> str:
    """Return what a candidate cost; empty if nothing is known."""
    if candidate.cost_usd is not None:
        return f"${candidate.cost_usd:,.2f}"
    return f"{candidate.tokens:,} tokens" if candidate.tokens is not None else ""


def review_line(story: StorySnapshot) -> str:
    """Return what the reviewer of a story said last; empty if there is none."""
    review = story.review
    if review is None:
        return ""
    said = {"accept": "accepted", "again": "would try again"}.get(review.verdict, "no opinion")
    return f"review by {review.by}: {said}{f': {review.because}' if review.because else ''}"


def _line(candidate: Candidate) -> str:
    who = f" by {candidate.agent}" if candidate.agent else ""
    facts = (verdict_of(candidate), size_of(candidate), spent_by(candidate))
    where = "chosen" if candidate.chosen else candidate.branch
    return f"candidate {candidate.number}{who}: {', '.join(filter(None, facts))}; {where}"
