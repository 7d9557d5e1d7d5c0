"""Draws how the cost of a story grows with their number, from stored results: `docs/pictures/growth.svg`.

`python -m tests.bench.plot [RESULTS]` writes it; both axes are logarithmic, so a flat line means that a story
costs the same however many there are.
"""

import sys
from collections.abc import Iterable, Sequence
from math import ceil, floor, log10
from pathlib import Path

from tests.bench import record

TARGET = Path(__file__).parent.parent.parent / "docs" / "pictures" / "growth.svg"
NAMESPACE = "http://www.w3.org/2000/svg"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 420, 70, 190, 40, 55
LINE = 14
CURVES = {
    "worktrees": ("this program, a worktree for each story", "#0b6bcb"),
    "shared tree": ("this program, one shared tree", "#1a8a4f"),
    "git": ("GNU parallel around plain git", "#b3541e"),
    "bare": ("GNU parallel, the bare commands", "#777777"),
}
"""The curves, each with its words and its color."""

Curve = Sequence[tuple[int, float]]


def svg(curves: dict[str, Curve]) -> str:
    """Draw the curves that are known."""
    shown = {name: sorted(curves[name]) for name in CURVES if curves.get(name)}
    sizes = [size for points in shown.values() for size, _ in points]
    costs = [cost for points in shown.values() for _, cost in points]
    across = _Axis(min(sizes), max(sizes), LEFT, WIDTH - RIGHT)
    up = _Axis(min(costs), max(costs), HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
        "<title>Processor time of a story by the number of stories</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        *_grid(across, up),
        *(part for name, points in shown.items() for part in _line(name, points, across, up)),
        *_labels({name: up.at(points[-1][1]) for name, points in shown.items()}),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


class _Axis:
    """Places powers of ten at equal distances; it begins and ends at one."""

    def __init__(self, low: float, high: float, begin: float, end: float) -> None:
        self.first, last = floor(log10(low)), ceil(log10(high))
        self.last = max(last, self.first + 1)
        self._begin, self._step = begin, (end - begin) / (self.last - self.first)

    def at(self, value: float) -> float:
        return round(self._begin + (log10(value) - self.first) * self._step, 1)

    def marks(self) -> list[float]:
        return [10.0**power for power in range(self.first, self.last + 1)]


def _grid(across: _Axis, up: _Axis) -> Iterable[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    for mark in across.marks():
        x = across.at(mark)
        yield f'<line x1="{x}" y1="{TOP}" x2="{x}" y2="{bottom}" stroke="#dddddd"/>'
        yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{mark:,g}</text>'
    for mark in up.marks():
        y = up.at(mark)
        yield f'<line x1="{LEFT}" y1="{y}" x2="{right}" y2="{y}" stroke="#dddddd"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{mark:,g} ms</text>'
    yield f'<text x="{(LEFT + right) / 2}" y="{HEIGHT - 12}" text-anchor="middle">stories in the run</text>'
    yield f'<text x="{LEFT}" y="22">processor time of a story, with its share of the start</text>'


def _line(name: str, points: Curve, across: _Axis, up: _Axis) -> Iterable[str]:
    color = CURVES[name][1]
    places = [(across.at(size), up.at(cost)) for size, cost in points]
    joined = " ".join(f"{x},{y}" for x, y in places)
    yield f'<polyline points="{joined}" fill="none" stroke="{color}" stroke-width="2"/>'
    for (x, y), (size, cost) in zip(places, points, strict=True):
        label = f"<title>{size} stories: {cost:.1f} ms</title>"
        yield f'<circle cx="{x}" cy="{y}" r="3.5" fill="{color}">{label}</circle>'


def _labels(ends: dict[str, float]) -> Iterable[str]:
    """Write the words of each curve beside its end, or below those of another whose end is close."""
    free = 0.0
    for name, end in sorted(ends.items(), key=lambda each: each[1]):
        words, color = CURVES[name]
        lines = words.split(", ")
        top = max(end + 4 - LINE * (len(lines) - 1) / 2, free)
        for number, line in enumerate(lines):
            y = round(top + LINE * number, 1)
            yield f'<text x="{WIDTH - RIGHT + 10}" y="{y}" fill="{color}">{line}</text>'
        free = top + LINE * len(lines)


def curves_of(path: Path) -> dict[str, Curve]:
    """Return the curves that were stored."""
    found: dict[str, list[tuple[int, float]]] = {}
    for each in record.load(path)["points"]:
        found.setdefault(str(each["curve"]), []).append((int(str(each["size"])), float(str(each["cost"]))))
    return dict(found)


def main(arguments: Sequence[str]) -> int:
    """Write the plot; exit 1 if nothing was measured yet."""
    source = Path(arguments[0]) if arguments else record.store_path()
    curves = curves_of(source)
    if not curves:
        sys.stderr.write(f"{source} has no curves yet; `python -m tests.bench stories` measures them\n")
        return 1
    TARGET.write_text(svg(curves))
    sys.stdout.write(f"{TARGET}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
