"""What each key does, as values: a state and a key in, a state and a request out."""

from msgspec.structs import replace

from runner.cli.live.keys import PASTE
from runner.cli.live.panes import about, pane_text, prompt_of
from runner.cli.live.state import (
    SETTLE_SECONDS,
    Act,
    Asks,
    Leave,
    LiveState,
    OpenPage,
    Pane,
    Postpone,
    Send,
    Surroundings,
    follow,
    press,
)
from runner.core.events.fold import apply
from runner.core.events.steering import AdmissionPaused
from runner.core.model import RunSnapshot, StoryId
from runner.report.terminal.picture import Filter
from runner.run.control.requests import Answer, ControlRequest, Pause, Retry, Stop, Unpause
from tests.records.sample_runs import START, event, mixed_events, snapshot, started, working
from tests.report.asking import COLOUR, DELETE, answered, asks

NOW = START + 100
MIXED = snapshot(mixed_events())
ASKING = snapshot([started("a", "b"), *working("b", 1), *asks("a", 2, COLOUR)])
A = StoryId("a")


def after(
    keys: str | list[str],
    run: RunSnapshot = MIXED,
    *,
    state: LiveState | None = None,
    attached: bool = False,
    most: int = 0,
) -> tuple[LiveState, Act | None]:
    """Press keys one after the other; return the state, and what the last one asked for."""
    now, act = state or LiveState(), None
    for key in keys:
        around = Surroundings(run=run, now=NOW, page=10, most=most, attached=attached)
        now, act = press(now, key, around)
    return now, act


def asked_of_the_run(act: Act | None) -> ControlRequest | None:
    return act.request if isinstance(act, Send) else None


def test_arrows_select_and_an_open_pane_follows() -> None:
    """The first key selects what works; at both ends it stays; a log goes along with the selection."""
    first, _ = after("j")
    assert first.selected == "docs-2"
    assert after(["down"] * 9)[0].selected == "ui-4"
    assert after(["k"] * 9)[0].selected == "api-3"
    moved, _ = after(["enter", "k"])
    assert (moved.pane, moved.selected) == (Pane.LOG, "web-1")


def test_panes_open_close_and_scroll() -> None:
    """A key opens its pane and closes it; a log counts from its end, the others from their start."""
    assert after(["enter"])[0].pane is Pane.LOG
    assert after(["enter", "enter"])[0].pane is Pane.NONE
    assert after(["d", "esc"])[0].pane is Pane.NONE
    assert after(["enter", "pageup"], most=100)[0].scroll == 9
    assert after(["enter", "g"], most=100)[0].scroll == 100
    assert after(["enter", "g", "G"], most=100)[0].scroll == 0
    assert after(["d", " "], most=100)[0].scroll == 9
    assert after(["d", "G"], most=100)[0].scroll == 100
    assert after(["d", "pageup"], most=100)[0].scroll == 0


def test_stop_asks_first() -> None:
    """Only y and x stop; what was pasted never does."""
    asked, act = after(["j", "s"])
    assert (asked.asks, act) == (Asks.STOP, None)
    assert "stop docs-2?" in prompt_of(asked, MIXED)
    docs = StoryId("docs-2")
    assert asked_of_the_run(after("jsy")[1]) == Stop(story_id=docs)
    assert asked_of_the_run(after("jsx")[1]) == Stop(story_id=docs, now=True)
    assert after(["j", "s", "enter"])[1] is None
    assert after(["j", "s", PASTE + "y"])[1] is None
    ended, act = after(["k", "k", "k", "s"])
    assert (ended.asks, act) == (Asks.NOTHING, None)
    assert ended.message == "checkout-17 has ended; there is nothing to stop"


def test_pause_is_a_toggle_and_retry_takes_a_note() -> None:
    """Both go to the run as requests; a retry only for what has ended and is not done."""
    assert asked_of_the_run(after("p")[1]) == Pause()
    paused = apply(MIXED, event(99, AdmissionPaused(by="person")))
    assert asked_of_the_run(after("p", paused)[1]) == Unpause()
    failed = LiveState(selected=StoryId("checkout-17"))
    typed, _ = after(["r", *"use qx", "backspace", PASTE + "\x1b[31m pytest", "enter"][:-1], state=failed)
    assert typed.typed == "use q pytest"
    _, act = after(["enter"], state=typed)
    assert asked_of_the_run(act) == Retry(story_id=StoryId("checkout-17"), note="use q pytest")
    assert after(["r", "esc"], state=failed)[1] is None
    assert after("r", state=LiveState(selected=StoryId("docs-2")))[0].message.endswith("nothing to retry")


def test_filters() -> None:
    """F goes through the kinds, / takes a text at once; both are said until Esc shows all."""
    kinds = [after("f" * number)[0].filter for number in range(5)]
    assert kinds == [Filter.ALL, Filter.WORKING, Filter.NEEDS_YOU, Filter.ENDED, Filter.ALL]
    found, _ = after(["/", *"docs"])
    assert found.text == "docs"
    kept, _ = after(["enter"], state=found)
    assert prompt_of(kept, MIXED) == "showing 1 of 6: with 'docs' · Esc: all"
    assert after(["esc"], state=kept)[0].text == ""
    assert after(["esc"], state=found)[0] == LiveState()


def test_a_question_opens_by_itself_and_takes_no_key_meant_for_something_else() -> None:
    """For a moment a letter only says so; then it answers. Esc postpones, and `a` opens it again."""
    opened = follow(LiveState(), ASKING, NOW)
    assert (opened.pane, opened.selected) == (Pane.QUESTION, A)
    early, act = after("b", ASKING, state=opened)
    assert act is None
    assert "press the letter again" in early.message
    settled = replace(opened, opened_at=NOW - SETTLE_SECONDS)
    done, act = after("b", ASKING, state=settled)
    assert asked_of_the_run(act) == Answer(story_id=A, decision="a-1", letter="B")
    assert follow(done, ASKING, NOW).pane is Pane.NONE, "it is on its way"
    later, act = after(["esc"], ASKING, state=settled)
    assert isinstance(act, Postpone)
    assert follow(later, ASKING, NOW).pane is Pane.NONE
    again, _ = after("a", ASKING, state=later)
    assert again.pane is Pane.QUESTION
    assert asked_of_the_run(after("a", ASKING, state=again)[1]) == Answer(
        story_id=A, decision="a-1", letter="A"
    )


def test_an_answer_that_destroys_is_confirmed_and_one_from_elsewhere_closes_the_question() -> None:
    """Y confirms, anything else does not; the question goes when somebody has answered it."""
    run = snapshot([started("a"), *asks("a", 2, DELETE)])
    opened = replace(follow(LiveState(), run, NOW), opened_at=0.0)
    sure, act = after("a", run, state=opened)
    assert (sure.asks, act) == (Asks.SURE, None)
    assert "are you sure?" in prompt_of(sure, run)
    assert asked_of_the_run(after("y", run, state=sure)[1]) == Answer(story_id=A, decision="a-1", letter="A")
    assert after("n", run, state=sure)[0].asks is Asks.NOTHING
    closed = follow(sure, apply(run, answered("a", 9, "B")), NOW)
    assert (closed.pane, closed.asks) == (Pane.NONE, Asks.NOTHING)


def test_leaving_is_for_those_who_watch() -> None:
    """Where the run was started, q says how to stop it or to be able to leave."""
    assert isinstance(after("q", attached=True)[1], Leave)
    here, act = after("q")
    assert act is None
    assert "Ctrl-C" in here.message
    assert "--detach" in here.message
    assert isinstance(after("w")[1], OpenPage)


def test_what_is_to_be_copied_is_in_the_pane_whole() -> None:
    """Branch, folder and the next command of a story, and the question with all its options."""
    lines = "\n".join(about(MIXED.stories[StoryId("checkout-17")], MIXED, NOW))
    assert "branch  autopilot/checkout-17" in lines
    assert "/srv/app.worktrees/checkout-17" in lines
    asked = pane_text(follow(LiveState(), ASKING, NOW), ASKING, (), NOW)
    assert asked is not None
    assert asked.must_show
    assert [line for line in asked.lines if line.startswith(("A)", "B)"))] == ["A) Red", "B) Blue"]
    helped = pane_text(LiveState(pane=Pane.HELP), MIXED, (), NOW)
    assert helped is not None
    assert any("retry" in line or "again" in line for line in helped.lines)
