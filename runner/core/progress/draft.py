"""The pull request of a story, as a value."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from isolation.decoding import from_values


class ReviewItem(Struct, frozen=True, kw_only=True):
    """Something that others say about a draft: a comment, or a check that failed.

    `kind` is `comment` for one at a line, `review` for the text of a review, `note` for one in the
    conversation, `check` for a failed check. `thread` is where an answer goes; empty: to the conversation.
    """

    id: str
    kind: str
    text: str
    author: str = ""
    path: str = ""
    line: int = 0
    thread: str = ""


class Draft(Struct, frozen=True, kw_only=True):
    """What is known of a story's draft; `number` is 0 before it is open.

    `digest` is of its title and text, `verdict` the status that its commit has. `planned` is the commit of
    an intent that was not acknowledged. `taken` was given to a session and is not answered yet; `before` is
    the commit that its authors saw, `advice` what the user has decided about it. `handled` are the ids of
    all that is not looked at again, `rounds` counts attempts that reviews led to. `queueing` is the intent
    to hand it to the queue of the forge, `queued` that this is done.
    """

    number: int = 0
    url: str = ""
    base: str = ""
    commit: str = ""
    digest: str = ""
    verdict: str = ""
    planned: str = ""
    taken: tuple[ReviewItem, ...] = ()
    handled: tuple[str, ...] = ()
    rounds: int = 0
    before: str = ""
    advice: str = ""
    queueing: bool = False
    queued: bool = False


def item_from(entry: Mapping[str, Any]) -> ReviewItem:
    """Read an item as an event keeps it."""
    return from_values(dict(entry), ReviewItem)
