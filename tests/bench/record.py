"""Every comparison of `make bench` as one row: ratios of one run, their spread, their gate, the last run.

A benchmark calls `compare` for each of its ratios, one value for each repetition, and `point` for what is
drawn as a curve. `make bench` prints the table at the end, stores it as JSON in the user's cache folder, and
shows beside each ratio what it was when it was last stored there.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

FORMAT = 1
SAME = 0.15
"""A difference that is no larger than this may be noise, so it is not called one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One comparison; without ratios it was left out, for the reason in `note`."""

    bench: str
    name: str
    ratios: list[float] = field(default_factory=list)
    gate: float | None = None
    note: str = ""

    @property
    def held(self) -> bool:
        """Whether the gate was held; a row without a gate holds."""
        return self.gate is None or not self.ratios or median(self.ratios) <= self.gate


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What something cost at one size, in processor milliseconds: a point of a curve."""

    curve: str
    size: int
    cost: float


ROWS: list[Row] = []
POINTS: list[Point] = []


def compare(bench: str, name: str, ratios: Sequence[float], gate: float | None = None) -> None:
    """Add the ratios of one comparison, one for each repetition."""
    ROWS.append(Row(bench=bench, name=name, ratios=list(ratios), gate=gate))


def left_out(bench: str, name: str, reason: str) -> None:
    """Say why a comparison was not made."""
    ROWS.append(Row(bench=bench, name=name, note=reason))


def point(curve: str, size: int, cost: float) -> None:
    """Add a point of a curve."""
    POINTS.append(Point(curve=curve, size=size, cost=cost))


def store_path() -> Path:
    """Return where results are stored."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "autopilot-multi" / "bench.json"


def store(path: Path) -> None:
    """Store what was measured; comparisons and curves that were not measured this time stay as they were."""
    earlier = load(path)
    rows = {(row["bench"], row["name"]): row for row in (*earlier["rows"], *map(asdict, ROWS))}
    points = {(each["curve"], each["size"]): each for each in (*earlier["points"], *map(asdict, POINTS))}
    path.parent.mkdir(parents=True, exist_ok=True)
    found = {"format": FORMAT, "rows": list(rows.values()), "points": list(points.values())}
    path.write_text(json.dumps(found, indent=1) + "\n")


def load(path: Path) -> dict[str, list[dict[str, object]]]:
    """Return what was stored last; nothing if that cannot be read."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        found = {}
    return found if found.get("format") == FORMAT else {"rows": [], "points": []}


def table(path: Path) -> str:
    """Return all comparisons as one table, beside those that were stored last."""
    last = {(row["bench"], row["name"]): row for row in load(path)["rows"]}
    head = ("comparison", "n", "ratio", "spread", "gate", "", "last", "change")
    lines = [head, *(_cells(row, last.get((row.bench, row.name))) for row in ROWS)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _cells(row: Row, last: dict[str, object] | None) -> tuple[str, ...]:
    name = f"{row.bench}: {row.name}"
    if not row.ratios:
        return (name, "0", "", "", "", f"left out: {row.note}", "", "")
    now = median(row.ratios)
    spread = f"{min(row.ratios):.3g} to {max(row.ratios):.3g}"
    gate = "" if row.gate is None else f"{row.gate:g}"
    verdict = "" if row.gate is None else "held" if row.held else "MISSED"
    return (name, str(len(row.ratios)), f"{now:.3g}", spread, gate, verdict, *_beside(now, last))


def _beside(now: float, last: dict[str, object] | None) -> tuple[str, str]:
    ratios = last.get("ratios") if last else None
    if not isinstance(ratios, list) or not ratios:
        return "", ""
    before = median(ratios)
    change = now / before - 1 if before else 0.0
    return f"{before:.3g}", "same" if abs(change) <= SAME else f"{change:+.0%}"
