"""What a reviewer says, and what follows from it. Pure.

Its word never overrides a gate: it is asked about work that has passed all of them, and on the last attempt
these decide alone. What cannot be read is no opinion, and is named.
"""

from msgspec import Struct

from runner.agents.json_line import load
from runner.core.events import candidates as cd
from runner.core.events import events as ev
from runner.core.model import Outcome, StorySnapshot
from runner.core.text.names import one_line
from runner.core.text.screen import shorten
from runner.story.session.session import SessionVerdict

ACCEPT, AGAIN, NONE = "accept", "again", "none"
_REASON, _WORDS = 300, 4000


class Opinion(Struct, frozen=True, kw_only=True):
    """What a reviewer said; with `NONE`, why that is nothing."""

    verdict: str
    because: str = ""


def opinion_of(ended: SessionVerdict) -> Opinion:
    """Read the answer of a reviewer from its result, or from the last line of what it printed."""
    if ended.outcome is not Outcome.OK:
        return Opinion(verdict=NONE, because=f"its session {ended.outcome}: {ended.detail}".rstrip(": "))
    verdict, because = ended.result.review, ended.result.because
    if not verdict:
        verdict, because = _printed(ended.output)
    match verdict:
        case "accept":
            return Opinion(verdict=ACCEPT, because=because)
        case "again" if because.strip():
            return Opinion(verdict=AGAIN, because=because)
        case "again":
            return Opinion(verdict=NONE, because="it asks for another attempt without saying why")
        case "":
            return Opinion(verdict=NONE, because=ended.result.complaint or "it gave no answer")
        case _:
            return Opinion(
                verdict=NONE, because=f"its answer is neither accept nor again: {one_line(verdict)}"
            )


def review_consequences(opinion: Opinion, by: str, now: StorySnapshot) -> tuple[ev.Body, ...]:
    """Return what follows from an opinion: on all but the last attempt, *again* is a failed one."""
    because = shorten(one_line(opinion.because), _REASON)
    counts = opinion.verdict == AGAIN and now.progress.attempt < now.max_attempts
    given = cd.ReviewGiven(story_id=now.id, by=by, verdict=opinion.verdict, because=because, counts=counts)
    if counts:
        words = f"Your work passes its commands, but a reviewer says:\n{opinion.because[:_WORDS].strip()}"
        failed = ev.AttemptFailed(
            story_id=now.id, attempt=now.progress.attempt, reason=f"review by {by}: {because}", output=words
        )
        return given, failed
    if opinion.verdict == ACCEPT:
        return (given,)
    said = "it would try again" if opinion.verdict == AGAIN else "no opinion"
    return given, ev.Noted(story_id=now.id, message=f"review by {by}: {said}: {because}")


def _printed(output: str) -> tuple[str, str]:
    """Return the last answer in an output; empty if there is none."""
    for line in reversed(output.splitlines()):
        text = line.strip().strip("`").strip()
        if not text.startswith("{") or '"review"' not in text:
            continue
        found = load(text.encode(errors="replace"))
        if found is not None and "review" in found:
            return str(found["review"]), str(found.get("because") or "")
    return "", ""
