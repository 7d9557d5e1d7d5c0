"""What a person at the dashboard looks at, and what a key changes about it. Pure: keys in, requests out."""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from runner.cli.live.keys import ACTION_OF, BACKSPACE, ENTER, ESCAPE, PASTE
from runner.core import choose
from runner.core.model import RunSnapshot, Status, StoryId, StorySnapshot
from runner.core.text.screen import neutral
from runner.report.terminal.picture import Filter, shown_stories
from runner.run.control.requests import Answer, ControlRequest, Pause, Retry, Stop, Unpause
from runner.story.flow.decisions import OpenQuestion, open_questions

SETTLE_SECONDS = 1.0
"""How long a question that opened by itself takes no answer: the key may be meant for something else."""
LONGEST_TEXT = 500
_HERE = "this run was started here: Ctrl-C stops it; a run that you can leave starts with `run --detach`"


class Pane(StrEnum):
    """What is open below the table."""

    NONE = ""
    LOG = "log"
    DIFF = "diff"
    QUESTION = "question"
    HELP = "help"


class Asks(StrEnum):
    """What the next keys are for, if not for the dashboard."""

    NOTHING = ""
    STOP = "stop"
    SURE = "sure"
    SEARCH = "search"
    NOTE = "note"


class LiveState(Struct, frozen=True, kw_only=True):
    """What is selected, open and typed. `scroll` counts from the end of a log, and from the start of others.

    `letter` is an answer that must be confirmed. `opened_at` is when a question opened by itself, else 0.
    `message` is what became of the last key.
    """

    selected: StoryId | None = None
    pane: Pane = Pane.NONE
    asks: Asks = Asks.NOTHING
    filter: Filter = Filter.ALL
    text: str = ""
    typed: str = ""
    letter: str = ""
    scroll: int = 0
    opened_at: float = 0.0
    postponed: frozenset[str] = frozenset()
    message: str = ""


class Send(Struct, frozen=True, kw_only=True):
    """Ask something of the run; `done` is what is said when it has agreed."""

    request: ControlRequest
    done: str


class Leave(Struct, frozen=True, kw_only=True):
    """Stop watching."""


class OpenPage(Struct, frozen=True, kw_only=True):
    """Open the run in a browser."""


class Postpone(Struct, frozen=True, kw_only=True):
    """A question stays open, and is no longer waited for here."""


Act: TypeAlias = Send | Leave | OpenPage | Postpone


class Surroundings(Struct, frozen=True, kw_only=True):
    """What a key depends on: the run, the time, and how the pane is shown.

    `page` is the height of the pane, `most` how far it can be scrolled. `attached`: the run is elsewhere.
    """

    run: RunSnapshot
    now: float
    page: int = 10
    most: int = 0
    attached: bool = False


def follow(state: LiveState, run: RunSnapshot, now: float) -> LiveState:
    """Return the state after the run has changed: open a new question, close one that is answered."""
    if state.selected is not None and state.selected not in run.stories:
        state = replace(state, selected=None)
    if state.pane is Pane.QUESTION and asked_now(state, run) is None:
        closed = replace(state, pane=Pane.NONE, asks=Asks.NOTHING, scroll=0, opened_at=0.0)
        state = closed if state.message else replace(closed, message="the question was answered")
    free = state.pane is Pane.NONE and state.asks is Asks.NOTHING
    asked = next_question(run, state.postponed) if free else None
    if asked is None:
        return state
    return replace(
        state,
        selected=asked.story_id,
        pane=Pane.QUESTION,
        scroll=0,
        opened_at=now,
        filter=Filter.ALL,
        text="",
    )


def next_question(run: RunSnapshot, postponed: frozenset[str]) -> OpenQuestion | None:
    """Return the oldest question of a parked story that was not postponed here."""
    waiting = (
        asked
        for asked in open_questions(run)
        if asked.decision_id not in postponed and run.stories[asked.story_id].status is Status.PARKED
    )
    return next(waiting, None)


def asked_now(state: LiveState, run: RunSnapshot) -> OpenQuestion | None:
    """Return the open question of the selected story."""
    return next((asked for asked in open_questions(run) if asked.story_id == state.selected), None)


def chosen(state: LiveState, run: RunSnapshot) -> StorySnapshot | None:
    """Return the story that a key is about: the selected one, else the first at work, else the first."""
    if state.selected is not None:
        return run.stories.get(state.selected)
    stories = shown_stories(run, state.filter, state.text)
    return next((one for one in stories if one.status is Status.RUNNING), stories[0] if stories else None)


def press(state: LiveState, key: str, around: Surroundings) -> tuple[LiveState, Act | None]:
    """Return what a key makes of the state, and what it asks for."""
    state = replace(state, message="")
    if state.asks in {Asks.SEARCH, Asks.NOTE}:
        return _typed(state, key)
    if key.startswith(PASTE):
        return state, None
    if state.asks is Asks.STOP:
        return _stop(state, key)
    if state.pane is Pane.QUESTION and (found := _question(state, key, around)) is not None:
        return found
    return _act(state, ACTION_OF.get(key, ""), around)


def _act(state: LiveState, action: str, around: Surroundings) -> tuple[LiveState, Act | None]:
    """Ask something of the run, or look at something else."""
    match action:
        case "pause":
            return state, _pause(around.run)
        case "stop" | "retry":
            return _about_story(state, action, around.run), None
        case "page":
            return state, OpenPage()
        case "leave":
            return (state, Leave()) if around.attached else (replace(state, message=_HERE), None)
        case _:
            return _looked(state, action, around), None


def _looked(  # noqa: PLR0911  one arm per action
    state: LiveState, action: str, around: Surroundings
) -> LiveState:
    match action:
        case "up" | "down":
            return _moved(state, 1 if action == "down" else -1, around)
        case "back" | "forward" | "first" | "last":
            return _scrolled(state, action, around)
        case "log" | "diff" | "answer" | "help":
            return _opened(state, action, around.run)
        case "close":
            return _closed(state)
        case "filter":
            return replace(state, filter=state.filter.next, selected=None)
        case "search":
            return replace(state, asks=Asks.SEARCH, typed=state.text)
        case _:
            return state


def _pause(run: RunSnapshot) -> Send:
    if run.paused:
        return Send(request=Unpause(), done="stories start again")
    return Send(request=Pause(), done="paused: no new story starts until you press p again")


def _moved(state: LiveState, by: int, around: Surroundings) -> LiveState:
    """Select the next story that is shown, and an open log or diff follows; a question is scrolled."""
    if state.pane in {Pane.QUESTION, Pane.HELP}:
        return replace(state, scroll=min(max(0, state.scroll + by), around.most))
    run = around.run
    names = [story.id for story in shown_stories(run, state.filter, state.text)]
    if not names:
        return state
    current = chosen(state, run)
    at = names.index(current.id) if current is not None and current.id in names else 0
    # The first key selects what a key would be about anyway.
    to = at if state.selected is None else min(max(0, at + by), len(names) - 1)
    return replace(state, selected=names[to], scroll=0)


def _scrolled(state: LiveState, action: str, around: Surroundings) -> LiveState:
    if state.pane is Pane.NONE:
        return state
    step = max(1, around.page - 1) * (1 if action == "forward" else -1)
    if state.pane is Pane.LOG:  # counted from its end
        to = {"first": around.most, "last": 0}.get(action, state.scroll - step)
    else:
        to = {"first": 0, "last": around.most}.get(action, state.scroll + step)
    return replace(state, scroll=min(max(0, to), around.most))


def _opened(state: LiveState, action: str, run: RunSnapshot) -> LiveState:
    pane = Pane({"answer": "question"}.get(action, action))
    if state.pane is pane:
        return replace(state, pane=Pane.NONE, scroll=0)
    if pane is Pane.HELP:
        return replace(state, pane=pane, scroll=0)
    story = _asking(state, run) if pane is Pane.QUESTION else chosen(state, run)
    if story is None:
        message = "no story asks anything" if pane is Pane.QUESTION else "there is no story"
        return replace(state, message=message)
    return replace(state, selected=story.id, pane=pane, scroll=0, opened_at=0.0)


def _asking(state: LiveState, run: RunSnapshot) -> StorySnapshot | None:
    """Return the selected story if it asks something, else the first one that does."""
    asking = [asked.story_id for asked in open_questions(run)]
    if state.selected in asking:
        return run.stories[state.selected]
    return run.stories[asking[0]] if asking else None


def _closed(state: LiveState) -> LiveState:
    """Close one thing after the other: the pane, the filter, the selection."""
    if state.pane is not Pane.NONE:
        return replace(state, pane=Pane.NONE, scroll=0)
    if state.filter is not Filter.ALL or state.text:
        return replace(state, filter=Filter.ALL, text="")
    return replace(state, selected=None)


def _about_story(state: LiveState, action: str, run: RunSnapshot) -> LiveState:
    story = chosen(state, run)
    if story is None:
        return replace(state, message="there is no story")
    if action == "stop":
        if story.status.final:
            return replace(
                state, selected=story.id, message=f"{story.id} has ended; there is nothing to stop"
            )
        return replace(state, selected=story.id, asks=Asks.STOP)
    if not story.status.final or story.status is Status.DONE:
        why = "is done" if story.status.final else "has not ended"
        return replace(state, selected=story.id, message=f"{story.id} {why}; there is nothing to retry")
    return replace(state, selected=story.id, asks=Asks.NOTE, typed="")


def _stop(state: LiveState, key: str) -> tuple[LiveState, Act | None]:
    after = replace(state, asks=Asks.NOTHING)
    if state.selected is None or key not in {"y", "x"}:
        return replace(after, message="not stopped"), None
    now = key == "x"
    when = "now" if now else "after its current session"
    stop = Stop(story_id=state.selected, now=now)
    return after, Send(request=stop, done=f"{state.selected} stops {when}")


def _typed(state: LiveState, key: str) -> tuple[LiveState, Act | None]:
    """Take a line of text: what to search for, which filters at once, or a note."""
    search = state.asks is Asks.SEARCH
    if key == ESCAPE:
        return replace(state, asks=Asks.NOTHING, text="" if search else state.text, typed=""), None
    if key == ENTER:
        after = replace(state, asks=Asks.NOTHING, typed="")
        if search or state.selected is None:
            return after, None
        note = state.typed.strip()
        again = f"{state.selected} is tried again" + (", with your note" if note else "")
        return after, Send(request=Retry(story_id=state.selected, note=note), done=again)
    if key == BACKSPACE:
        typed = state.typed[:-1]
    elif key.startswith(PASTE) or len(key) == 1:
        typed = (state.typed + neutral(key.removeprefix(PASTE)))[:LONGEST_TEXT]
    else:
        return state, None
    if search:
        return replace(state, typed=typed, text=typed, selected=None), None
    return replace(state, typed=typed), None


def _question(state: LiveState, key: str, around: Surroundings) -> tuple[LiveState, Act | None] | None:
    """Answer or postpone the open question; None if the key is not about it."""
    asked = asked_now(state, around.run)
    letter = key.upper()
    if asked is None:
        return None
    if state.asks is Asks.SURE:
        after = replace(state, asks=Asks.NOTHING, letter="")
        return _answered(after, asked, state.letter) if key in {"y", "Y"} else (after, None)
    if key == ESCAPE:
        postponed = state.postponed | {asked.decision_id}
        later = f"postponed; `a` opens it again, also `autopilot-multi decide {asked.story_id} LETTER`"
        return replace(state, pane=Pane.NONE, scroll=0, postponed=postponed, message=later), Postpone()
    if letter not in {option.letter for option in asked.question.options}:
        return None
    return _given(state, asked, letter, around.now)


def _given(state: LiveState, asked: OpenQuestion, letter: str, now: float) -> tuple[LiveState, Act | None]:
    if now - state.opened_at < SETTLE_SECONDS:
        return replace(state, message="a question has just opened; press the letter again to answer"), None
    if choose.must_confirm(asked.question, letter):
        return replace(state, asks=Asks.SURE, letter=letter), None
    return _answered(state, asked, letter)


def _answered(state: LiveState, asked: OpenQuestion, letter: str) -> tuple[LiveState, Act | None]:
    request = Answer(story_id=asked.story_id, decision=asked.decision_id, letter=letter)
    said = f"{asked.story_id}: answered {letter}) {asked.question.option(letter).text}"
    # It may take a moment until the run has it; the question must not open again meanwhile.
    after = replace(state, pane=Pane.NONE, scroll=0, postponed=state.postponed | {asked.decision_id})
    return after, Send(request=request, done=said)
