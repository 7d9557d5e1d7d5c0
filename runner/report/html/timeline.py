"""The timeline of a run: what ran when, what the machine allowed, and each story's sessions.

Names are in a column of their own, which stays in place while a narrow screen scrolls the drawing. The
drawing is SVG as text; its x coordinates are percentages, so that no text is scaled. It is readable without
colors: every mark has a title and a symbol.
"""

from collections.abc import Iterable, Sequence
from html import escape

from runner.core.events.events import StoryFinished, StoryStarted, WindowChanged
from runner.core.model import Outcome, SessionKind, SessionRecord, StorySnapshot, Tier, Wait
from runner.core.text.instants import span
from runner.core.text.screen import neutral, shorten
from runner.core.text.words import SYMBOLS, label
from runner.report.report_data import ReportData, seconds

ROW, BAR = 24, 12
MACHINE, AXIS, GAP = 64, 26, 18
FULL = 100.0
_EDGE = 4.0
"""Percent that stay free at both sides, so that the first and the last label of the axis fit."""

_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_TICKS = 9
_SIGN_FROM = 1.4
_NARROWEST = 0.3
_LABEL = 60
_LABEL_OF_ALL = "Stories and sessions over time"
_SIGNS = {"bad": "✗", "halted": "■", "ask": "?"}
_LEGEND = {
    "work": "work session",
    "verify": "verify session",
    "bad": "session that failed ✗",
    "halted": "session that was stopped ■",
    "ask": "session that asked ?",
    "run": "stories running",
}
_TIERS = {"green": "tier green", "warn": "warn", "degraded": "degraded", "critical": "critical"}


class _Scale:
    """Turns instants into x coordinates, in percent of the drawing's width."""

    def __init__(self, start: float, end: float) -> None:
        self.start = start
        self.seconds = max(end - start, 0.001)

    def x(self, at: float) -> float:
        part = min(max((at - self.start) / self.seconds, 0.0), 1.0)
        return round(_EDGE + part * (FULL - 2 * _EDGE), 2)


def timeline(data: ReportData, links: str = "#story-") -> str:
    """Return the column of names and the drawing; a link to a story is `links` and its id."""
    run = data.run
    scale = _Scale(run.started_at, data.until)
    stories = list(run.stories.values())
    top = AXIS + MACHINE + GAP
    height = top + ROW * len(stories) + 8
    parts = [
        '<div class="timeline"><div class="names">',
        *_names(data, stories, links),
        f'</div><svg class="chart" height="{height}" role="group" aria-label="{_LABEL_OF_ALL}">',
        *_axis(scale, height),
        *_machine(data, scale),
    ]
    rests = _rests(data)
    for number, story in enumerate(stories):
        parts += _row(data, story, rests.get(story.id, ()), scale, y=top + number * ROW, links=links)
    return "\n".join([*parts, "</svg></div>"])


def tone(data: ReportData, story: StorySnapshot, session: SessionRecord) -> str:
    """Return how a session is to be seen: `ok`, `run`, `ask`, `bad`, or `halted` if it was not its fault."""
    if data.is_running(story, session):
        return "run"
    match session.outcome:
        case Outcome.OK | Outcome.PARTIAL:
            return "ok"
        case Outcome.ASKS:
            return "ask"
        case Outcome.STOPPED | None:
            return "halted"
        case _:
            return "bad"


def tiers_mattered(data: ReportData) -> bool:
    """Return whether the machine was ever too busy for all slots; otherwise its tier explains nothing."""
    windows = (event.body for event in data.events if isinstance(event.body, WindowChanged))
    return any(
        body.window < data.run.max_stories and body.tier not in {Tier.GREEN, Tier.UNKNOWN} for body in windows
    )


def legend(data: ReportData) -> str:
    """Explain the marks that occur, and no others."""
    sessions = [(story, one) for story in data.run.stories.values() for one in story.sessions]
    seen = {tone(data, story, one) for story, one in sessions} | {one.kind.value for _, one in sessions}
    entries = {name: text for name, text in _LEGEND.items() if name in seen or name == "run"}
    if any(isinstance(event.body, WindowChanged) for event in data.events):
        entries["window"] = "slots"
    if tiers_mattered(data):
        entries |= _TIERS
    items = (f'<span><i class="i-{name}"></i>{text}</span>' for name, text in entries.items())
    return f'<div class="legend">{"".join(items)}</div>'


def _names(data: ReportData, stories: Sequence[StorySnapshot], links: str) -> Iterable[str]:
    windows = [event.body for event in data.events if isinstance(event.body, WindowChanged)]
    yield f'<p class="machine">in parallel<small>{_range(_running(data), windows)}</small></p>'
    for story in stories:
        title = escape(neutral(f"{story.id}: {label(story.status)}. {story.title}"))
        yield (
            f'<a class="{story.status.value}" href="{escape(links + story.id)}" title="{title}">'
            f"<i>{SYMBOLS[story.status]}</i>{escape(shorten(story.id, _LABEL))}</a>"
        )


def _axis(scale: _Scale, height: int) -> Iterable[str]:
    step = next((one for one in _STEPS if scale.seconds / one <= _TICKS), _STEPS[-1])
    if scale.seconds < _STEPS[0]:
        step = 1
    for number in range(int(scale.seconds // step) + 1):
        x = scale.x(scale.start + number * step)
        yield f'<line class="grid" x1="{x}%" y1="{AXIS - 6}" x2="{x}%" y2="{height}"/>'
        yield f'<text class="tick" x="{x}%" y="14" text-anchor="middle">{_tick(number * step)}</text>'


def _tick(seconds_: float) -> str:
    whole = int(seconds_)
    if whole >= 3600:  # noqa: PLR2004  an hour
        return f"{whole // 3600}:{whole % 3600 // 60:02} h"
    return f"{whole // 60}:{whole % 60:02}"


def _machine(data: ReportData, scale: _Scale) -> Iterable[str]:
    """Draw how many stories ran, how many slots there were, and where it mattered the machine's tier."""
    running = _running(data)
    windows = [(event.at, event.body) for event in data.events if isinstance(event.body, WindowChanged)]
    most = max([1, *(number for _, number in running), *(body.window for _, body in windows)])
    floor, roof = AXIS + MACHINE - 8, AXIS + 4

    def y(number: int) -> float:
        return round(floor - number / most * (floor - roof), 1)

    yield f'<text class="small" x="0" y="{y(most) + 4}">{most}</text>'
    yield f'<text class="small" x="0" y="{floor + 2}">0</text>'
    if tiers_mattered(data):
        yield from _tiers(data, windows, scale, floor)
    # A path has no percentages, so it gets a frame of its own that is stretched.
    height = AXIS + MACHINE
    yield f'<svg viewBox="0 0 {FULL:g} {height}" height="{height}" preserveAspectRatio="none">'
    area = _stairs([(scale.x(at), y(number)) for at, number in running], scale.x(data.until))
    left = scale.x(scale.start)
    yield f'<path class="running" d="M{left},{floor} {area} V{floor} Z"><title>stories running</title></path>'
    if windows:
        line = _stairs([(scale.x(at), y(body.window)) for at, body in windows], scale.x(data.until))
        yield f'<path class="window" d="M{line[1:]}"><title>slots</title></path>'
    yield "</svg>"


def _range(running: Sequence[tuple[float, int]], windows: Sequence[WindowChanged]) -> str:
    most = f"at most {max(number for _, number in running)}"
    if not windows:
        return most
    low, high = (pick(body.window for body in windows) for pick in (min, max))
    return f"{most}; slots {low}" + (f" to {high}" if high > low else "")


def _tiers(
    data: ReportData, windows: Sequence[tuple[float, WindowChanged]], scale: _Scale, floor: int
) -> Iterable[str]:
    ends = [at for at, _ in windows[1:]] + [data.until] * bool(windows)
    for (at, body), end in zip(windows, ends, strict=True):
        tier = Tier(body.tier)
        x, width = scale.x(at), max(0.1, round(scale.x(end) - scale.x(at), 2))
        title = escape(neutral(f"tier {tier}, {body.window} slots: {body.reason}"))
        yield (
            f'<rect class="tier {tier}" x="{x}%" y="{floor + 2}" width="{width}%" height="5">'
            f"<title>{title}</title></rect>"
        )


def _running(data: ReportData) -> list[tuple[float, int]]:
    """Count the running stories at every instant at which the count changes."""
    changes: dict[float, int] = {data.run.started_at: 0}
    rests = _rests(data)
    for story in data.run.stories.values():
        if story.started_at is not None:
            steps = [(story.started_at, 1), (story.ended_at or data.until, -1)]
            for since, until in rests.get(story.id, ()):
                steps += [(since, -1), (until, 1)]
            # What waits in its slot does not run.
            for wait in story.waits:
                steps += [(wait.since, -1), (wait.until or data.until, 1)]
            for at, step in steps:
                changes[at] = changes.get(at, 0) + step
    total, series = 0, []
    for at in sorted(changes):
        total += changes[at]
        series.append((at, total))
    return series


def _rests(data: ReportData) -> dict[str, list[tuple[float, float]]]:
    """Return when stories that were tried again, or continued after an answer, had ended in between."""
    ended: dict[str, float] = {}
    found: dict[str, list[tuple[float, float]]] = {}
    for event in data.events:
        if isinstance(event.body, StoryFinished):
            ended[event.body.story_id] = event.at
        elif isinstance(event.body, StoryStarted) and event.body.story_id in ended:
            name = event.body.story_id
            found.setdefault(name, []).append((ended.pop(name), event.at))
    return found


def _stairs(points: Sequence[tuple[float, float]], end: float) -> str:
    """Return a step path: each point's value holds until the next one."""
    path = f"L{points[0][0]},{points[0][1]}"
    for x, y in points[1:]:
        path += f" H{x} V{y}"
    return f"{path} H{end}"


def _row(
    data: ReportData,
    story: StorySnapshot,
    rests: Sequence[tuple[float, float]],
    scale: _Scale,
    *,
    y: int,
    links: str,
) -> Iterable[str]:
    middle = y + ROW // 2
    yield f'<a href="{escape(links + story.id)}"><g>'
    yield f"<title>{escape(neutral(f'{story.id}: {label(story.status)}. {story.title}'))}</title>"
    yield f'<rect class="hit" x="0" y="{y}" width="100%" height="{ROW}"/>'
    if story.started_at is not None:
        left, x = scale.x(scale.start), scale.x(story.started_at)
        end = scale.x(story.ended_at or data.until)
        if x > left:
            yield f'<line class="waits" x1="{left}%" y1="{middle}" x2="{x}%" y2="{middle}"/>'
        yield f'<line class="life" x1="{x}%" y1="{middle}" x2="{max(end, x + 0.2):.2f}%" y2="{middle}"/>'
        for since, until in rests:
            ends = (scale.x(since), scale.x(until))
            yield f'<line class="rest" x1="{ends[0]}%" y1="{middle}" x2="{ends[1]}%" y2="{middle}"/>'
        for wait in story.waits:
            yield _wait(data, wait, scale, middle)
    else:
        said = label(story.status) if data.in_progress else f"{label(story.status)}, never started"
        yield f'<text class="small" x="{scale.x(scale.start)}%" y="{middle + 4}">{escape(said)}</text>'
    for number in range(1, 1 + len(story.sessions)):
        yield from _session(data, story, number, scale, middle)
    yield "</g></a>"


def _wait(data: ReportData, wait: Wait, scale: _Scale, middle: int) -> str:
    """Draw a gap in the life of a story: it had to wait."""
    until = wait.until or data.until
    x, width = scale.x(wait.since), max(0.1, round(scale.x(until) - scale.x(wait.since), 2))
    because = f": {wait.reason}" if wait.reason else ""
    title = escape(neutral(f"waited {span(seconds(wait.since, until))} for {wait.what}{because}"))
    return (
        f'<rect class="wait" x="{x}%" y="{middle - 4}" width="{width}%" height="8" rx="2">'
        f"<title>{title}</title></rect>"
    )


def _session(
    data: ReportData, story: StorySnapshot, number: int, scale: _Scale, middle: int
) -> Iterable[str]:
    session = story.sessions[number - 1]
    running = data.is_running(story, session)
    x = scale.x(session.started_at)
    width = max(_NARROWEST, round(scale.x(session.ended_at or data.until) - x - 0.05, 2))
    seen = tone(data, story, session)
    plain = "work" if session.kind is SessionKind.WORK else "verify"
    outcome = data.outcome(story, session)
    took = span(seconds(session.started_at, data.until if running else session.ended_at))
    attempt = f"attempt {session.attempt} of {story.max_attempts}"
    by = f", escalated to {session.worker}" if session.escalated else ""
    title = f"session {number}, {session.step.name}, {attempt}{by}: {outcome} after {took}"
    yield (
        f'<rect class="session {plain if seen in {"ok", "run"} else seen}" x="{x}%" y="{middle - BAR // 2}" '
        f'width="{width}%" height="{BAR}" rx="2"><title>{escape(neutral(title))}</title></rect>'
    )
    if seen in _SIGNS and width >= _SIGN_FROM:
        place = f'x="{x + width / 2:.2f}%" y="{middle + 4}" text-anchor="middle"'
        yield f'<text class="mark" {place}>{_SIGNS[seen]}</text>'
