"""What a landing leaves out: recorded with its evidence, and as a question to the user."""

from collections.abc import Sequence

from msgspec import Struct, field, structs

from runner.core.choose import to_json
from runner.core.events import events as ev
from runner.core.events import landing as ld
from runner.core.events.fold import fold
from runner.core.landing.question import chosen, question_about
from runner.core.left_out.evidence import LeftOut
from runner.core.model import RunId, RunSnapshot, StoryId
from runner.land.candidates import Candidate, Candidates
from runner.land.verification.verifier import Verdict
from runner.records.journal import Journal


class NotLanded(Struct, frozen=True, kw_only=True):
    """A story that stays on its branch, and why: `conflict`, `red`, `red-together` or `dependency`."""

    story: StoryId
    why: str
    reason: str
    files: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    verdict: Verdict = field(default_factory=lambda: Verdict(green=True))


def left_out_events(
    journal: Journal, onto: str, landing_id: str, candidates: Candidates, left: Sequence[NotLanded]
) -> list[tuple[RunId, ev.Body]]:
    """Return the events of stories that were left out, each for its run. Blocking."""
    runs: dict[RunId, RunSnapshot] = {}
    events: list[tuple[RunId, ev.Body]] = []
    for each in left:
        one = candidates[each.story]
        run = runs.setdefault(one.run_id, fold(one.run_id, journal.events(one.run_id)))
        evidence = _evidence(each, one, onto, landing_id)
        events.append((one.run_id, _event(each.story, evidence)))
        asked = _asked(run, each.story, one, evidence)
        events += [(one.run_id, asked)] if asked is not None else []
    return events


def _evidence(each: NotLanded, one: Candidate, onto: str, landing_id: str) -> LeftOut:
    return LeftOut(
        landing_id=landing_id,
        onto=onto,
        tip=one.tip,
        why=each.why,
        reason=each.reason,
        files=each.files,
        others=each.others,
        command=each.verdict.command,
        output=each.verdict.output,
        log=str(each.verdict.log) if each.verdict.log else "",
        fork=one.fork if one.replayed else "",
    )


def _event(story_id: StoryId, left: LeftOut) -> ld.StoryNotLanded:
    fields = structs.asdict(left)
    del fields["retry"]
    return ld.StoryNotLanded(story_id=story_id, **fields)


def _asked(run: RunSnapshot, story_id: StoryId, one: Candidate, left: LeftOut) -> ev.DecisionAsked | None:
    """Return the question about a story; the same one that is open or answered is not asked again."""
    question, story = question_about(left, one.story.title), run.stories[story_id]
    if question is None:
        return None
    before = story.workspace.left_out
    known = story.decision is not None and before is not None and before.tip == left.tip
    if known and before is not None and before.reason == left.reason and not chosen(story):
        return None
    return ev.DecisionAsked(
        story_id=story_id,
        decision_id=f"{story_id}-landing-{left.landing_id}",
        question=to_json(question),
    )
