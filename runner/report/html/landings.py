"""The landings of a run in the HTML report: what reached the target branch, what did not, and why."""

from html import escape

from runner.core.progress.landing import Car, LandingProgress, LandingState
from runner.core.text.instants import span
from runner.core.text.screen import neutral
from runner.core.text.words import count
from runner.report.html.instants import instant
from runner.report.html.output import prose
from runner.report.report_data import ReportData

_LONGEST = 600
PILLS = {
    Car.LANDED: ("done", "✓"),
    Car.GREEN: ("done", "✓"),
    Car.RED: ("failed", "✗"),
    Car.LEFT: ("failed", "✗"),
    Car.CONFLICT: ("parked", "≠"),
    Car.VERIFYING: ("running", "●"),
    Car.WAITING: ("waiting", "·"),
}


def landings(data: ReportData) -> str:
    """Return the section; nothing for a run of which no story was ever to land."""
    shown = [_landing(data, one) for one in reversed(data.run.landings)]
    return "<h2>Landings</h2>\n" + "\n".join(shown) if shown else ""


def _landing(data: ReportData, one: LandingProgress) -> str:
    active = one.id == data.landing
    one = one if active else one.at_rest()
    state = one.state.value if active or one.state.final else "interrupted"
    word = "nothing landed" if one.state is LandingState.NOTHING else state
    pill = "done" if one.state is LandingState.LANDED else "stopped" if one.state.final else "running"
    facts = [
        f"onto <code>{_t(one.onto)}</code>",
        f"at <code>{_t(one.after[:12])}</code>" if one.after else "",
        instant(one.started_at),
        f"took {span(one.ended_at - one.started_at)}" if one.ended_at else "",
        count(one.verify_runs, "verify run"),
        f"rebuilt {count(one.rebuilds, 'time')}" if one.rebuilds else "",
    ]
    reason = f"<p>{prose(one.reason, _LONGEST)}</p>" if one.reason else ""
    rows = "".join(_row(one, number, *car) for number, car in enumerate(one.cars().items(), 1))
    head = (
        f'<summary><span class="pill {pill}">{word}</span><span class="id">{_t(one.id)}</span>'
        f'<span class="more">{" · ".join(fact for fact in facts if fact)}</span></summary>'
    )
    table = f'<div class="scroll"><table>{rows}</table></div>'
    return f'<details class="story landing" open>{head}\n<div class="body">{reason}{table}</div></details>'


def _row(one: LandingProgress, number: int, story: str, car: Car) -> str:
    color, mark = PILLS[car]
    reason = prose(one.left[story].reason, _LONGEST) if story in one.left else ""
    return (
        f'<tr><td class="n nowrap">{number}</td><td class="nowrap">{_t(story)}</td>'
        f'<td class="nowrap"><span class="pill {color}">{mark} {car.value}</span></td>'
        f'<td class="wide">{reason}</td></tr>'
    )


def _t(text: str) -> str:
    return escape(neutral(text))
