"""The live view: right at any size, deterministic for a snapshot and a clock, gone afterwards."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from runner.core.events import events as ev
from runner.core.events import landing as ld
from runner.core.events.fold import apply
from runner.core.model import RunSnapshot, StoryId
from runner.core.outlook.left import Sample, outlook
from runner.core.text.screen import cells
from runner.report.terminal.dashboard import Dashboard, render
from runner.report.terminal.live_table import DROPPED
from runner.report.terminal.picture import Filter, PaneText, Picture
from runner.run.signals import ctrl_c
from runner.story.context.stop import Level, StopControl
from tests.records.sample_runs import START, done, event, mixed_events, snapshot, started, working

NOW = START + 120
HINT = "Ctrl-C: start nothing new"
PLAIN = Picture()


def drawn(run: RunSnapshot, *, width: int = 80, height: int = 24, picture: Picture = PLAIN) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None, force_terminal=True)
    with console.capture() as capture:
        console.print(render(run, now=NOW, width=width, height=height, hint=HINT, picture=picture))
    return capture.get().splitlines()


def large(total: int = 40, *, running: int = 2, finished: int = 6) -> RunSnapshot:
    names = [f"pkg-{number:02}" for number in range(total)]
    events = [started(*names)]
    for number in range(finished + running):
        events += working(names[number], number)
    for number in range(finished):
        events += done(names[number], 20 + number)
    return snapshot(events)


def test_whole_picture_at_80_columns() -> None:
    """Header, bar, machine, stories, footer: exactly this."""
    run = apply(
        snapshot(mixed_events()),
        event(
            60,
            ev.OutputSeen(story_id=StoryId("docs-2"), line="Editing a.md", tools=23, zone="caution"),
        ),
    )
    lines = [line.rstrip() for line in drawn(run)]
    assert lines[0] == "autopilot-multi · run 20260102-120311-ab12" + " " * 34 + "2:00"
    assert lines[1].endswith("  3 of 6 finished")
    assert lines[2:] == [
        "$0.50 · 2.1k tokens · 1 done, 1 failed, 1 skipped, 1 queued, 1 waiting",
        "1 running · 3 of 3 slots · machine OK, 12.1 GB free",
        "",
        "STORY          STATUS   ATTEMPT  TIME   COST",
        "✓ api-3        done     1 of 4   0:12  $0.25  autopilot/api-3: 2 commits, verif…",
        "✗ checkout-17  failed   4 of 4   0:45  $0.25  verify failed: `pytest -q service…",
        "⊘ web-1        skipped                        checkout-17 failed, and this stor…",
        "● docs-2       running  1 of 4   1:13         Implement (23 tools, caution): Ed…",
        "○ ops-1        queued                         waits for its turn",
        "· ui-4         waiting                        waits for docs-2",
        "",
        f"{HINT} · no open decisions",
    ]


def test_titles_at_120_columns() -> None:
    """A wide terminal shows what each story is about."""
    assert any("The work of docs-2" in line for line in drawn(snapshot(mixed_events()), width=140))


def test_columns_give_way_in_their_order() -> None:
    """Title, step, left, cost, attempt, time: each narrower terminal shows a part of the wider one."""
    run = snapshot(mixed_events())
    past = [Sample(story_id=name, agent="claude", seconds=900.0) for name in run.stories]
    picture = Picture(outlook=outlook(run, past, NOW))
    seen: list[tuple[str, ...]] = []
    for width in range(200, 30, -1):
        titles = drawn(run, width=width, picture=picture)[4:6]
        names = " ".join(titles).split()
        left = tuple(name for name in DROPPED if name in names)
        if "STORY" in names and (not seen or seen[-1] != left):
            seen.append(left)
    shown = [name for name in DROPPED if name != "REPO"]  # that is for runs in several repositories
    assert seen == [tuple(shown[number:]) for number in range(len(seen))]
    assert len(seen) >= len(shown)


def test_what_is_left_and_what_it_will_cost_stand_at_the_top() -> None:
    """Both of the run, and the time of each story that works."""
    run = snapshot(mixed_events())
    past = [Sample(story_id=name, seconds=900.0, cost_usd=1.0) for name in run.stories]
    lines = drawn(run, width=140, picture=Picture(outlook=outlook(run, past, NOW)))
    assert lines[2].startswith("~29 min left · $0.50 of ~$3.50 · 2.1k tokens · 1 done")
    assert any("docs-2" in line and "~14 min" in line for line in lines)


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 50), (40, 12)])
def test_a_pane_is_below_the_table_and_nothing_of_it_is_cut(width: int, height: int) -> None:
    """The selected story stays in sight; long lines go on in the next one; a log shows its end."""
    path = "/srv/" + "very-long-folder/" * 12 + "docs-2"
    log = [f"line {number}" for number in range(300)]
    pane = PaneText(title="docs-2", head=(path,), lines=log, follows=True)
    chosen = Picture(keys="? help", selected=StoryId("docs-2"), pane=pane)
    lines = drawn(snapshot(mixed_events()), width=width, height=height, picture=chosen)
    assert len(lines) == height
    assert any(line.startswith("▸ ● docs-2") for line in lines)
    assert any(line.rstrip() == "line 299" for line in lines)
    if height > 12:
        assert path in "".join(line.rstrip() for line in lines)
    back = replace(chosen, pane=replace(pane, scroll=100))
    lines = drawn(snapshot(mixed_events()), width=width, height=height, picture=back)
    assert any(line.rstrip() == "line 199" for line in lines)
    assert not any(line.rstrip() == "line 200" for line in lines)


def test_a_filter_shows_only_what_it_names() -> None:
    """By what a story does, and by a text in its id or its title."""
    run = snapshot(mixed_events())
    ended = drawn(run, picture=Picture(filter=Filter.ENDED))
    assert [line.split()[1] for line in ended if line[:2] in {"✓ ", "✗ ", "⊘ ", "● "}] == [
        *("api-3", "checkout-17", "web-1")
    ]
    assert not any("api-3" in line for line in drawn(run, picture=Picture(text="DOCS"))[5:-3])
    assert any("no story matches" in line for line in drawn(run, picture=Picture(text="nothing like it")))


def test_more_stories_than_fit() -> None:
    """Running stories come first, then the newest finished, then a count of the rest."""
    lines = drawn(large(), height=16)
    assert len(lines) <= 16
    ids = [line.split()[1] for line in lines if "pkg-" in line]
    assert ids[:4] == ["pkg-06", "pkg-07", "pkg-05", "pkg-04"]
    assert any(line.startswith(f"… {40 - len(ids)} more") for line in lines)


def test_the_rows_around_the_selected_story_are_in_the_order_of_the_run() -> None:
    """The arrow keys walk them in this order, so the next row is the one that the next key selects."""
    lines = drawn(large(), height=16, picture=Picture(keys="? help", selected=StoryId("pkg-05")))
    ids = [line.removeprefix("▸").split()[1] for line in lines if "pkg-" in line]
    assert "pkg-05" in ids[1:-1]
    assert ids == sorted(ids), "and not by what needs a look most"


def test_rest_is_counted_by_status() -> None:
    """When the rest is mixed, each kind is counted."""
    lines = drawn(large(), height=11)
    assert any(line.rstrip() == "… 34 more: 2 done, 32 queued" for line in lines)


@pytest.mark.parametrize("width", [1, 5, 20, 40, 79, 80, 81, 100, 120, 300])
@pytest.mark.parametrize("height", [1, 3, 8, 24, 60])
def test_no_size_breaks_it(width: int, height: int) -> None:
    """Whatever the terminal is resized to, it draws, and no line is too wide."""
    for run in (large(), snapshot(mixed_events()), snapshot([started()])):
        assert all(cells(line) <= width for line in drawn(run, width=width, height=height))
    if height >= 8 and width >= 80:
        assert len(drawn(large(), width=width, height=height)) <= height


def test_hostile_output_is_only_text() -> None:
    """Escapes, markup and control characters of a session do not reach the terminal."""
    hostile = "\x1b[2J\x1b]0;owned\x07[red]markup[/red]\u202e"
    run = snapshot([started("a"), *working("a", 1)])
    story = replace(run.stories[StoryId("a")], last_line=hostile, title=hostile)
    lines = drawn(replace(run, stories={story.id: story}), width=120)
    assert "\x1b" not in "".join(lines)
    assert any("Implement" in line and "[red]markup[/red]" in line for line in lines)


def test_kill_switch_and_decisions_are_told() -> None:
    """What ends the run, and how many people are waited for, stands in the footer."""
    parked = ev.StoryFinished(story_id=StoryId("a"), verdict="parked", reason="which colour?")
    switch = ev.AdmissionEnded(name="user-abort", detail="stopped by you (Ctrl-C)", hint="resume later.")
    lines = drawn(snapshot([started("a"), event(1, parked), event(2, switch)]))
    assert "stopping: user-abort: stopped by you (Ctrl-C)" in lines[-3]
    assert "resume later." in lines[-2]
    assert lines[-1].rstrip().endswith("· 1 open decision")


class Terminal(io.StringIO):
    """A file that says that it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_live_view_draws_on_demand_and_leaves_a_clean_screen() -> None:
    """Nothing is drawn between refreshes; a resize is followed; the end wipes the view away."""
    screen = Terminal()
    console = Console(file=screen, width=80, height=24, force_terminal=True, color_system=None)
    with Dashboard(large(), console=console, hint=HINT) as dashboard:
        dashboard.refresh(NOW)
        first = screen.getvalue()
        assert "6 of 40 finished" in first
        dashboard.update(snapshot(mixed_events()))
        assert screen.getvalue() == first
        console.size = console.size._replace(width=30, height=6)
        dashboard.refresh(NOW)
        assert "… 5 more" in screen.getvalue().removeprefix(first)
    ending = screen.getvalue()[-200:]
    assert ending.endswith("\x1b[1A\x1b[2K"), "the last line that was drawn is erased"
    assert "\x1b[?25h" in ending, "the cursor is back"


def test_a_smaller_screen_is_cleared_and_drawn_anew_with_what_was_said() -> None:
    """Nobody knows what a terminal made of the rows that were there; what a person must read stays."""
    screen = Terminal()
    console = Console(file=screen, width=80, height=24, force_terminal=True, color_system=None)
    clear = "\x1b[2J\x1b[H"
    with Dashboard(large(), console=console, hint=HINT) as dashboard:
        dashboard.refresh(NOW)
        console.print("stopping: nothing new starts")
        console.size = console.size._replace(width=120)
        dashboard.refresh(NOW)
        assert clear not in screen.getvalue(), "more room disturbs nothing"
        for width, height in ((60, 24), (60, 10), (120, 30)):
            console.size = console.size._replace(width=width, height=height)
            before = screen.getvalue()
            dashboard.refresh(NOW)
            _, cleared, drawn_anew = screen.getvalue().removeprefix(before).partition(clear)
            assert cleared
            lines = drawn_anew.splitlines()
            assert lines[0] == "stopping: nothing new starts"
            assert lines[1].startswith("autopilot-multi · run ")
            assert len(lines) <= height + 1
        before = screen.getvalue()
        dashboard.refresh(NOW)
        assert clear not in screen.getvalue().removeprefix(before), "once is enough"


def test_a_line_that_is_said_after_a_resize_finds_the_new_size() -> None:
    """It may come before the next refresh, and draws the picture, too."""
    screen = Terminal()
    console = Console(file=screen, width=80, height=24, force_terminal=True, color_system=None)
    with Dashboard(large(), console=console, hint=HINT) as dashboard:
        dashboard.refresh(NOW)
        console.size = console.size._replace(width=40, height=12)
        console.print("stopping: nothing new starts")
        lines = screen.getvalue().partition("\x1b[2J\x1b[H")[2].splitlines()
    assert lines[0] == "stopping: nothing new starts"
    assert all(cells(line) <= 40 for line in lines[1:12])


def test_the_clock_keeps_its_distance_on_a_narrow_screen() -> None:
    """The id of the run gives way."""
    assert drawn(snapshot(mixed_events()), width=46)[0].endswith("… 2:00")


async def test_the_foot_tells_of_the_next_level_at_every_level() -> None:
    """Acceptance 39: what a first, a second and a third Ctrl-C would do, and that a fourth does nothing."""
    control = StopControl()
    told = [ctrl_c(control)]
    for level in (Level.FINISH, Level.STOP, Level.KILL):
        control.raise_run(level)
        told.append(ctrl_c(control))
    wanted = (
        "let running sessions end",
        "ask the running sessions to end",
        "immediately",
        "all sessions are being ended",
    )
    assert [words in line for words, line in zip(wanted, told, strict=True)] == [True] * 4
    assert ["Ctrl-C: " in line for line in told] == [True, True, True, False]


@pytest.mark.parametrize("height", [12, 24])
def test_a_foreseen_conflict_takes_one_line_and_fits(height: int) -> None:
    """It is there only when there is one, also on a small terminal."""
    quiet = large()
    assert not any("will conflict" in line for line in drawn(quiet, height=height))
    clash = {"stories": ["pkg-00", "pkg-01"], "files": ["shared.py"]}
    body = ld.ConflictsForeseen(clashes=(clash,), order=("pkg-00", "pkg-01"), onto="main")
    lines = drawn(apply(quiet, event(60, body)), height=height)
    assert sum("will conflict: pkg-00 and pkg-01: shared.py" in line for line in lines) == 1
    assert len(lines) <= height
