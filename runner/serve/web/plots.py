"""Past runs as plots: cost and success over time, as SVG that the server draws."""

from collections.abc import Callable, Sequence
from html import escape

from msgspec import Struct

from runner.core.past_runs import PastRun
from runner.core.text.instants import date_and_time
from runner.core.text.screen import neutral

HEIGHT = 120
_TOP, _FLOOR = 14, 102
_FULL = 100.0
_MOST_WIDE = 6.0


class Bar(Struct, frozen=True, kw_only=True):
    """One run in a plot; a run without a value has a gap."""

    value: float | None
    title: str
    tone: str = ""


def cost_plot(runs: Sequence[PastRun]) -> str:
    """Return what each run has cost, oldest first."""
    bars = [
        Bar(value=run.cost_usd, title=f"{_name(run)}: {_money(run.cost_usd)}", tone="cost")
        for run in reversed(runs)
    ]
    return _plot(bars, label="Cost of each run, oldest first", top=_money)


def success_plot(runs: Sequence[PastRun]) -> str:
    """Return the share of the started stories that each run has done, oldest first."""
    bars = [
        Bar(value=run.success_rate, title=f"{_name(run)}: {_share(run.success_rate)} done", tone=_tone(run))
        for run in reversed(runs)
    ]
    return _plot(bars, label="Share of stories done in each run, oldest first", top=_share, most=1.0)


def _plot(bars: Sequence[Bar], *, label: str, top: Callable[[float], str], most: float | None = None) -> str:
    known = [bar.value for bar in bars if bar.value is not None]
    if not known:
        return '<p class="none">No run has reported any.</p>'
    highest = most or max(known, default=0.0) or 1.0
    step = min(_FULL / max(1, len(bars)), _MOST_WIDE)
    parts = [
        f'<svg class="plot" height="{HEIGHT}" width="100%" role="img" aria-label="{escape(label)}">',
        f'<line class="grid" x1="0" y1="{_TOP}" x2="100%" y2="{_TOP}"/>',
        f'<line class="axis" x1="0" y1="{_FLOOR}" x2="100%" y2="{_FLOOR}"/>',
        f'<text class="tick" x="0" y="{_TOP - 3}">{escape(top(highest))}</text>',
    ]
    for place, bar in enumerate(bars):
        if bar.value is None:
            continue
        tall = max(2.0, bar.value / highest * (_FLOOR - _TOP))
        parts.append(
            f'<rect class="bar {bar.tone}" x="{place * step + step * 0.1:.2f}%" y="{_FLOOR - tall:.1f}" '
            f'width="{step * 0.8:.2f}%" height="{tall:.1f}" rx="2">'
            f"<title>{escape(neutral(bar.title))}</title></rect>"
        )
    return "\n".join([*parts, "</svg>"])


def _name(run: PastRun) -> str:
    return run.id if run.started_at is None else f"{run.id}, {date_and_time(run.started_at)}"


def _money(number: float | None) -> str:
    return "unknown" if number is None else f"${number:,.2f}"


def _share(number: float | None) -> str:
    return "unknown" if number is None else f"{number:.0%}".replace("%", " %")


def _tone(run: PastRun) -> str:
    rate = run.success_rate
    return "" if rate is None else "good" if rate >= 1 else "bad" if rate <= 0 else "mixed"
