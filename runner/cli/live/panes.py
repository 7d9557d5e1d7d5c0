"""The contents of the panes: a story's log and diff, a question, the keys. Values in, text out."""

from collections.abc import Sequence

from runner.cli.live.keys import BINDINGS
from runner.cli.live.state import Asks, LiveState, Pane, asked_now, chosen
from runner.core import choose
from runner.core.model import RunSnapshot, StorySnapshot
from runner.core.outlook.waiting import waiting
from runner.core.text.screen import neutral
from runner.core.text.words import because, label, phase, recovery
from runner.report.conversation import has_agent
from runner.report.terminal.picture import Filter, PaneText, shown_stories


def pane_text(state: LiveState, run: RunSnapshot, content: Sequence[str], now: float) -> PaneText | None:
    """Return what is open below the table; `content` are the lines of the log or the diff."""
    story = chosen(state, run)
    match state.pane:
        case Pane.NONE:
            return None
        case Pane.HELP:
            return PaneText(title="keys", lines=help_lines(), scroll=state.scroll, must_show=True)
        case Pane.QUESTION:
            return _question(state, run)
        case Pane.LOG if story is not None:
            return PaneText(
                title=_log_title(story),
                head=about(story, run, now),
                lines=content or ("nothing was printed yet",),
                scroll=state.scroll,
                follows=True,
            )
        case Pane.DIFF if story is not None:
            return PaneText(
                title=f"changes of {story.id}",
                lines=content or ("nothing has changed yet",),
                scroll=state.scroll,
                colored=True,
            )
        case _:
            return None


def help_lines() -> list[str]:
    """Return the keys and what they do."""
    width = max(len(one.shown) for one in BINDINGS.values())
    return [f"{one.shown:<{width}}  {one.help}" for one in BINDINGS.values()]


def about(story: StorySnapshot, run: RunSnapshot, now: float) -> tuple[str, ...]:
    """Return what there is to copy or to know of a story; nothing of it is cut."""
    found = waiting(story, run, now)
    reason = f"{because(story)}; {recovery(story.kill_switch)}".removesuffix("; ") if story.reason else ""
    facts = (
        ("title", neutral(story.title)),
        ("repository", run.repo_name(story.repo)),
        ("branch", story.workspace.branch or ""),
        ("folder", neutral(story.workspace.path or "")),
        ("next", neutral(story.next) if story.status.final else ""),
        ("state", label(phase(story)) + (f": {found.words}" if found else "")),
        ("why", neutral(found.detail) if found else reason if story.status.final else ""),
        ("earlier", "" if story.status.final or found else reason),
    )
    return tuple(f"{name:<7} {text}" for name, text in facts if text)


def prompt_of(state: LiveState, run: RunSnapshot) -> str:
    """Return the line that says what is typed, asked or was answered."""
    match state.asks:
        case Asks.STOP:
            return f"stop {state.selected}? y: after its current session · x: now · any other key: no"
        case Asks.SEARCH:
            return f"show stories with: {state.typed}_   (Enter: keep · Esc: all)"
        case Asks.NOTE:
            return f"note for {state.selected}: {state.typed}_   (Enter: retry · Esc: no)"
        case Asks.SURE:
            asked = asked_now(state, run)
            text = asked.question.option(state.letter).text if asked else ""
            return f"{state.letter}) {text}: are you sure? y: yes · any other key: no"
        case Asks.NOTHING:
            return state.message or _filter_words(state, run)


def _filter_words(state: LiveState, run: RunSnapshot) -> str:
    """Say that not all stories are shown, for as long as that is so."""
    kinds = [state.filter.value] if state.filter is not Filter.ALL else []
    words = [*kinds, *([f"with '{state.text}'"] if state.text else [])]
    shown = len(shown_stories(run, state.filter, state.text))
    return f"showing {shown} of {len(run.stories)}: {', '.join(words)} · Esc: all" if words else ""


def _log_title(story: StorySnapshot) -> str:
    if not story.sessions:
        return f"{story.id} · no session yet"
    newest = story.sessions[-1]
    by = f" by {neutral(newest.worker)}" if has_agent(newest) else ""
    number = len(story.sessions)
    return f"{story.id} · session {number}: {neutral(newest.step.name)}, attempt {newest.attempt}{by}"


def _question(state: LiveState, run: RunSnapshot) -> PaneText | None:
    asked = asked_now(state, run)
    if asked is None:
        return None
    letters = ", ".join(option.letter for option in asked.question.options)
    others = len(run.open_decisions) - 1
    more = f" ({others} more open)" if others else ""
    warning = (asked.question.warning,) if asked.question.warning and state.asks is Asks.SURE else ()
    return PaneText(
        # In the title, how to answer is seen even where the question itself must be scrolled.
        title=f"{asked.story_id} asks{more} · {letters}: answer · Esc: later",
        # The rules between its parts would take the lines of the table.
        lines=(
            *(line for line in choose.render(asked.question).split("\n") if line != choose.RULE),
            *warning,
        ),
        scroll=state.scroll,
        must_show=True,
    )
