"""What events about drafts do to a story."""

from typing import assert_never

from msgspec.structs import replace

from runner.core.events import drafts as df
from runner.core.model import Conversation, SessionKind, StorySnapshot
from runner.core.progress.draft import Draft, item_from


def with_draft(story: StorySnapshot, body: df.DraftBody) -> StorySnapshot:
    """Return the story with what is known of its draft after an event; another attempt is not begun here."""
    draft = draft_after(story.workspace.draft or Draft(), body)
    return replace(story, workspace=replace(story.workspace, draft=draft))


def draft_after(draft: Draft, body: df.DraftBody) -> Draft:  # noqa: PLR0911  one arm per event
    """Return a draft after one more event."""
    match body:
        case df.DraftPlanned():
            return replace(draft, planned=body.commit)
        case df.DraftPublished():
            same = draft.number == body.number
            return replace(
                draft,
                number=body.number,
                url=body.url,
                base=body.base,
                commit=body.commit,
                digest=body.digest,
                verdict=body.verdict,
                planned="",
                queued=draft.queued and same,
            )
        case df.DraftRefused():
            return replace(draft, planned="", queueing=False)
        case df.ReviewTaken():
            items = tuple(item_from(entry) for entry in body.items)
            handled = dict.fromkeys((*draft.handled, *(item.id for item in items)))
            return replace(
                draft,
                taken=items,
                before=body.before,
                advice=body.advice,
                handled=tuple(handled),
                rounds=draft.rounds + 1,
            )
        case df.ReviewAnswered():
            left = tuple(item for item in draft.taken if item.id not in body.items)
            handled = dict.fromkeys((*draft.handled, *body.items))
            return replace(draft, taken=left, handled=tuple(handled))
        case df.DraftQueuePlanned():
            return replace(draft, queueing=True)
        case df.DraftQueued():
            return replace(draft, queueing=False, queued=True)
        case _:
            assert_never(body)


def last_conversation(story: StorySnapshot) -> Conversation | None:
    """Return the conversation of the newest work session; None if it had none."""
    worked = [one for one in story.sessions if one.kind is SessionKind.WORK and one.conversation]
    return Conversation(id=worked[-1].conversation, agent=worked[-1].agent) if worked else None
