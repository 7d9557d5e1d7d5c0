"""The table of `make bench`: gates, the run before, what was left out; and the plot of how cost grows."""

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.bench import plot, record


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "ROWS", [])
    monkeypatch.setattr(record, "POINTS", [])


def test_a_second_run_is_shown_beside_the_first(tmp_path: Path) -> None:
    """Each ratio has its spread, its gate and what it was; what was not measured again stays stored."""
    stored = tmp_path / "deep" / "bench.json"
    record.compare("start", "plan / nothing", [10.0, 12.0, 11.0], 15.0)
    record.compare("start", "status / nothing", [8.0], 6.0)
    record.compare("run", "other", [1.0])
    assert record.table(stored).splitlines()[1].split() == (
        ["start:", "plan", "/", "nothing", "3", "11", "10", "to", "12", "15", "held"]
    )
    record.store(stored)
    record.ROWS.clear()
    record.compare("start", "plan / nothing", [22.0, 22.0], 15.0)
    record.compare("start", "status / nothing", [8.5], 6.0)
    record.left_out("stories", "all", "GNU parallel is not installed")
    _, plan, status, out = record.table(stored).splitlines()
    assert plan.split()[-3:] == ["MISSED", "11", "+100%"]
    assert status.split()[-3:] == ["MISSED", "8", "same"]
    assert out.endswith("left out: GNU parallel is not installed")
    record.store(stored)
    rows = {row["name"]: row["ratios"] for row in record.load(stored)["rows"]}
    assert (rows["other"], rows["plan / nothing"]) == ([1.0], [22.0, 22.0])
    stored.write_text("{")
    assert record.load(stored)["rows"] == []


def test_the_plot_has_every_curve(tmp_path: Path) -> None:
    """One line for each way, one circle for each point; the picture is well-formed."""
    for size, cost in ((10, 80.0), (100, 30.0), (1000, 25.0)):
        record.point("worktrees", size, cost)
        record.point("git", size, cost / 2)
    record.store(tmp_path / "bench.json")
    drawn = ET.fromstring(plot.svg(plot.curves_of(tmp_path / "bench.json")))  # noqa: S314  our own
    found = [element.tag.rpartition("}")[2] for element in drawn.iter()]
    assert (found.count("polyline"), found.count("circle")) == (2, 6)


def test_the_words_of_close_curves_are_below_each_other() -> None:
    """Curves that end at nearly the same cost have their words on lines of their own."""
    ends = {"worktrees": 27.0, "shared tree": 25.0, "git": 25.5, "bare": 24.5}
    drawn = ET.fromstring(plot.svg({name: [(10, 80.0), (100, end)] for name, end in ends.items()}))  # noqa: S314
    texts = [each for each in drawn.iter(f"{{{plot.NAMESPACE}}}text") if each.get("fill")]
    heights = sorted(float(each.get("y", "0")) for each in texts)
    assert len(heights) == 7
    assert min(below - above for above, below in pairwise(heights)) >= plot.LINE
