"""The live view of a landing: right at any size, and deterministic for a state and a clock."""

import io

from rich.console import Console

from runner.core.progress.landing import Batch, LandingProgress, LandingState, LeftBehind
from runner.core.text.screen import cells
from runner.report.terminal.train import landing_lines, render

NOW = 1000.0


def drawn(one: LandingProgress, *, width: int = 80, height: int = 24) -> list[str]:
    console = Console(width=width, height=height, file=io.StringIO(), color_system=None, force_terminal=True)
    with console.capture() as capture:
        console.print(render(one, now=NOW, width=width, height=height, hint="Ctrl-C: stop"))
    return [line.rstrip() for line in capture.get().splitlines()]


def train(count: int = 5) -> LandingProgress:
    names = tuple(f"s{number}" for number in range(1, count + 1))
    return LandingProgress(
        id="20260102-1",
        onto="main",
        tip="abc",
        started_at=NOW - 65,
        train=names,
        verify_runs=4,
        conflicts=names[-1:],
        batches=(
            Batch(number=1, stories=names[:1], started_at=NOW - 60, ended_at=NOW - 50, outcome="green"),
            Batch(
                number=2,
                stories=(names[0], names[1]),
                started_at=NOW - 50,
                ended_at=NOW - 40,
                outcome="red",
                command="make \x1b[31mtest",
                detail="exit code 2",
            ),
            Batch(number=3, stories=(names[0], names[2]), started_at=NOW - 2),
            Batch(number=4, stories=names[2:3], started_at=NOW - 1),
        ),
    )


def test_whole_picture_at_80_columns() -> None:
    """Order, what is verified now, and what is known of each story."""
    assert drawn(train()) == [
        "autopilot-multi · landing on main · 4 verify runs                           1:05",
        "verifying 2 stories (s1 … s3) for 2.0 s",
        "verifying s3 for 1.0 s",
        "",
        "1  ● s1  verifying",
        "2  ✗ s2  red        make test: exit code 2",
        "3  ● s3  verifying",
        "4  · s4  waiting",
        "5  ≠ s5  conflict",
        "",
        "Ctrl-C: stop",
    ]


def test_it_fits_any_size() -> None:
    """Of many stories those that something happens to are shown, and how many are not."""
    for width, height in ((40, 12), (80, 10), (200, 50), (20, 5)):
        lines = drawn(train(100), width=width, height=height)
        assert len(lines) <= max(height, 8)
        assert all(cells(line) <= width for line in lines)
    assert any("… 9" in line for line in drawn(train(100), height=12))


def test_the_lines_of_a_landing() -> None:
    """What status and reports say of it, while it runs, after a kill, and at its end."""
    one = train()
    assert landing_lines(one, now=NOW, alive=True) == [
        "landing 20260102-1 on main: verifying for 1 min 05 s, 4 verify runs",
        "verifying now: 2 stories (s1 … s3)",
        "verifying now: s3",
        "red: s2",
        "conflict: s5",
        "waiting: s4",
    ]
    killed = landing_lines(one, now=NOW, alive=False)
    assert not any("verifying" in line for line in killed)
    assert killed[0] == "landing 20260102-1 on main: interrupted; finish it with `autopilot-multi resume`"
    left = {"s2": LeftBehind(story="s2", why="red", reason="it is red")}
    ended = LandingProgress(
        id="x",
        onto="main",
        tip="abc",
        started_at=0.0,
        ended_at=3.0,
        state=LandingState.LANDED,
        train=("s1", "s2"),
        landed=("s1",),
        left=left,
        after="0123456789abcdef",
        verify_runs=1,
    )
    assert landing_lines(ended, now=NOW, alive=False) == [
        "landing x on main: 1 story landed at 0123456789 in 3.0 s, 1 verify run",
        "landed: s1",
        "not landed: s2: it is red",
    ]
    assert len(landing_lines(ended, now=NOW, alive=False, besides={"s2"})) == 2
