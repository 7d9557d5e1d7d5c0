"""What reviewers and checks say about drafts: what is new of it, what it leads to, and the answers.

Found here, tried again by the run that the story belongs to (`run/coordinator.py`), answered here. What was
taken up is in the journal before the attempt begins, and each answer has a mark by which it is found again,
so nothing is answered twice.
"""

from collections.abc import Sequence

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from runner.core.choose import QuestionKind, from_json, to_json
from runner.core.drafts.review import contradiction, question_about, take
from runner.core.events import drafts as df
from runner.core.events import events as ev
from runner.core.limits.kill_switches import Switch
from runner.core.model import RunId, SessionKind, Status, StoryId, StorySnapshot
from runner.core.progress.draft import Draft, ReviewItem
from runner.core.text.names import branch_of, one_line
from runner.core.text.screen import shorten
from runner.core.text.words import count
from runner.forge.drafts.hosted import Said, mark_of
from runner.land.drafts.known import Office
from runner.run.drafts.body import inert
from runner.story.flow.answers import words_for

_NOTES, _MOST_FILES = 1500, 10
_STOPPED = "stopped"
"""The mark of the note which says that the limit is reached."""


class Found(Struct, frozen=True, kw_only=True):
    """What one look at all drafts has found.

    `reviews` lead to attempts, by run; `interrupted` are runs whose attempts a killed process has left.
    `asked` are questions to the user, `left` what is not done and why.
    """

    reviews: tuple[tuple[RunId, df.ReviewTaken], ...] = ()
    interrupted: tuple[RunId, ...] = ()
    asked: tuple[tuple[RunId, ev.DecisionAsked], ...] = ()
    dismissed: tuple[tuple[RunId, df.ReviewAnswered], ...] = ()
    left: tuple[tuple[StoryId, str], ...] = ()
    stopped: tuple[StoryId, ...] = ()


class Answered(Struct, frozen=True, kw_only=True):
    """An answer for reviewers: where it goes, its text with its marks, and what it is about."""

    story_id: StoryId
    number: int
    thread: str
    text: str
    items: tuple[str, ...]


def look(office: Office) -> Found:
    """Read the drafts of all stories; decide what follows from what is new. Records nothing. Blocking."""
    found = Found()
    for story_id in office.past.stories:
        draft = office.draft(story_id)
        if not draft.number:
            continue
        story = office.story(story_id)
        if draft.taken and not story.status.final:
            runs = dict.fromkeys((*found.interrupted, office.run_of(story_id).run_id))
            found = replace(found, interrupted=tuple(runs))
        if not story.status.final or story.status is Status.PARKED or draft.taken:
            continue  # an attempt is under way, or waits for the user
        pull = office.forge.find(story.workspace.branch or branch_of(story_id))
        if pull is None or not pull.is_open or pull.number != draft.number:
            continue
        if draft.queued and not pull.draft:
            continue  # it is with the forge's queue
        said = office.forge.said(draft.number, pull.commit, office.settings.review_authors)
        found = _judged(office, found, story, draft, said)
    return found


def _judged(office: Office, found: Found, story: StorySnapshot, draft: Draft, said: Said) -> Found:
    """Add what follows for one draft."""
    if said.strangers:
        strangers = ", ".join(said.strangers)
        found = _leaving(found, story, f"comments by {strangers} do not count; see review-authors")
    run_id, items, advice = office.run_of(story.id).run_id, take(said.items, draft.handled), ""
    decision = story.decision
    if decision is not None and decision.question.get("kind") == QuestionKind.REVIEW:
        if not decision.letter:
            return _leaving(found, story, f"waits for a decision: `autopilot-multi decide {story.id}`")
        question = from_json(decision.question)
        advice = words_for(question, decision.letter)
        if decision.letter == question.options[-1].letter:
            ids = tuple(item.id for item in contradiction(items))
            dismissed = df.ReviewAnswered(story_id=story.id, items=ids, reason=advice)
            found = replace(found, dismissed=(*found.dismissed, (run_id, dismissed)))
            items, advice = tuple(item for item in items if item.id not in ids), ""
    if items and draft.rounds >= office.settings.review_rounds:
        rounds = count(draft.rounds, "attempt")
        uninformed = () if _STOPPED in said.marks else (story.id,)
        found = replace(found, stopped=(*found.stopped, *uninformed))
        return _leaving(found, story, f"has had {rounds} after reviews, and review-rounds allows no more")
    if against := () if advice else contradiction(items):
        asked = ev.DecisionAsked(
            story_id=story.id,
            decision_id=f"{story.id}-review-{draft.number}-{against[0].id}-{against[-1].id}",
            question=to_json(question_about(against, story.title)),
        )
        return replace(found, asked=(*found.asked, (run_id, asked)))
    if not items:
        return found
    taken = df.ReviewTaken(
        story_id=story.id,
        number=draft.number,
        items=tuple(to_builtins(item) for item in items),
        before=story.workspace.commit or "",
        advice=advice,
    )
    return replace(found, reviews=(*found.reviews, (run_id, taken)))


def _leaving(found: Found, story: StorySnapshot, why: str) -> Found:
    return replace(found, left=(*found.left, (story.id, why)))


def keep(office: Office, found: Found) -> None:
    """Record what a look has found besides attempts, and tell reviewers where those end. Blocking."""
    for run_id, asked in found.asked:
        office.record(run_id, asked)
    for run_id, dismissed in found.dismissed:
        office.record(run_id, dismissed)
        story = office.story(dismissed.story_id)
        if story.decision is not None:
            applied = ev.DecisionApplied(story_id=story.id, decision_id=story.decision.id)
            office.record(run_id, applied)
    for story_id in found.stopped:
        rounds = count(office.draft(story_id).rounds, "attempt")
        words = f"This has had {rounds} after reviews, which is the limit; the rest is left to people."
        # First in the journal; whether it was sent is seen by its mark.
        ended = df.ReviewAnswered(story_id=story_id, items=(), reason=words)
        office.record(office.run_of(story_id).run_id, ended)
        office.forge.answer(office.draft(story_id).number, "", f"{words}\n\n{mark_of(_STOPPED)}")


def unanswered(office: Office) -> tuple[StoryId, ...]:
    """Return the stories whose attempt after a review has ended, and whose reviewers wait for an answer."""
    return tuple(
        story_id
        for story_id in office.past.stories
        if office.draft(story_id).taken and _is_over(office.story(story_id))
    )


def _is_over(story: StorySnapshot) -> bool:
    """Whether an attempt has ended for good: one that waits for the user, or was stopped by them, has not."""
    stopped = story.kill_switch is not None and story.kill_switch.name == Switch.USER_ABORT
    return story.status.final and story.status is not Status.PARKED and not stopped


def answers(office: Office, story_id: StoryId) -> tuple[Answered, ...]:
    """Return the answers about a story that are still to be given; those that are there are left out."""
    draft, story = office.draft(story_id), office.story(story_id)
    said = office.forge.said(draft.number, draft.commit, office.settings.review_authors)
    threads: dict[str, list[ReviewItem]] = {}
    for item in draft.taken:
        if f"answer {item.id}" not in said.marks:
            threads.setdefault(item.thread, []).append(item)
    words = _words(office, story, draft)
    return tuple(
        Answered(
            story_id=story_id,
            number=draft.number,
            thread=thread,
            text=office.redactor.text(_about(thread, items, words)) + _marked(items),
            items=tuple(item.id for item in items),
        )
        for thread, items in threads.items()
    )


def give(office: Office, story_id: StoryId, given: Sequence[Answered]) -> None:
    """Answer the reviewers of a story, then record that. Blocking."""
    for answer in given:
        office.forge.answer(answer.number, answer.thread, answer.text)
    taken = tuple(item.id for item in office.draft(story_id).taken)
    run_id = office.run_of(story_id).run_id
    office.record(run_id, df.ReviewAnswered(story_id=story_id, items=taken))


def _about(thread: str, items: Sequence[ReviewItem], words: str) -> str:
    """Return an answer; outside of a thread it begins with what it is about."""
    if thread:
        return words[:1].upper() + words[1:]
    names = (
        f"the check {inert(item.author)}" if item.kind == "check" else f"what {inert(item.author)} said"
        for item in items
    )
    return f"About {', '.join(dict.fromkeys(names))}: {words}"


def _marked(items: Sequence[ReviewItem]) -> str:
    return "\n\n" + "\n".join(mark_of(f"answer {item.id}") for item in items)


def _words(office: Office, story: StorySnapshot, draft: Draft) -> str:
    """Return what another attempt has changed, and how it ended."""
    before, after = draft.before, story.workspace.commit or ""
    worked = [one for one in story.sessions if one.kind is SessionKind.WORK]
    notes = one_line(worked[-1].notes) if worked else ""
    said = f"\n\n> {inert(shorten(notes, _NOTES))}" if notes else ""
    if before == after:
        return f"another attempt has changed nothing.{said}"
    paths = office.repository.changed_paths(before, after) if before else ()
    files = ", ".join(inert(path) for path in paths[:_MOST_FILES])
    more = f" and {len(paths) - _MOST_FILES} more" if len(paths) > _MOST_FILES else ""
    changed = f"changed in {after[:12]}{f': {files}{more}' if files else ''}"
    if story.status is Status.DONE:
        return f"{changed}; verified again.{said}"
    return f"{changed}, but the attempt did not succeed: {inert(shorten(story.reason, _NOTES))}.{said}"
