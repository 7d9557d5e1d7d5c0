"""A run as one self-contained page: no network, light and dark, no script but one that shows local times.

First the result and what needs attention, then the timeline, then one card per story. Every text of unknown
origin goes through `_t`, and the output of sessions is truncated so that the page stays small.
"""

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

from runner.core.limits.kill_switches import Switch
from runner.core.model import RunSnapshot, Status, StorySnapshot
from runner.core.schedule.offers import next_command
from runner.core.text.conflicts import files_text, open_clashes, sides
from runner.core.text.instants import span
from runner.core.text.screen import neutral
from runner.core.text.words import SYMBOLS, count, label
from runner.report.html.cards import card
from runner.report.html.instants import instant, policy, script
from runner.report.html.landings import landings
from runner.report.html.output import prose
from runner.report.html.timeline import legend, timeline
from runner.report.report_data import ReportData, grouped_notes, listed, seconds, total_usage

TAILS = 1_000_000
"""How many bytes the output of all sessions together may take in a page."""

DIFFS = 400_000
"""How many bytes the diffs of all stories together may take."""

STYLES = ("shared.css", "report.css")
"""The page for browsers shares the first."""

MOST_TAIL, MOST_DIFF = 12_000, 24_000
MOST_NOTES = 3
MOST_CLASHES = 20
_LONGEST = 2000
_CODES = {
    0: ", all is done",
    2: ", ended early or incomplete",
    3: ", no story is done",
    4: ", some stories failed",
    5: ", decisions are open",
    129: ", the terminal was closed",
    130: ", stopped by Ctrl-C",
    143: ", ended by SIGTERM",
}


def html(data: ReportData) -> str:
    """Return the whole page."""
    run = data.run
    folder = resources.files("runner.report.html")
    style = "".join(folder.joinpath(name).read_text(encoding="utf-8") for name in STYLES)
    stories = max(1, len(run.stories))
    tail, diff = min(MOST_TAIL, TAILS // stories), min(MOST_DIFF, DIFFS // stories)
    parts = [
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{_t(_headline(data))} · {_t(run.run_id)}</title>",
        f"<style>\n{style}</style>\n</head>\n<body>",
        *_head(data),
        "<main>",
        *_notices(data),
        "<h2>Timeline</h2>",
        f'<div class="panel">{timeline(data)}{legend(data)}</div>' if run.stories else "",
        *_conflicts(run),
        landings(data),
        "<h2>Stories</h2>",
        *(card(data, story, most_tail=tail, most_diff=diff) for story in _by_urgency(run)),
        "</main>",
        '<footer>Written by autopilot-multi. Times are <span id="zone">UTC</span>. Run',
        f"{_t(run.run_id)}.</footer>",
        f"<script>{script()}</script>",
        "</body>\n</html>\n",
    ]
    return "\n".join(part for part in parts if part)


def _t(text: str) -> str:
    return escape(neutral(text))


def _headline(data: ReportData) -> str:
    run = data.run
    stories = len(run.stories)
    done = run.count(Status.DONE)
    if done == stories:
        return f"All {count(stories, 'story', 'stories')} done" if stories != 1 else "The story is done"
    return f"{done} of {count(stories, 'story', 'stories')} done{' so far' * data.in_progress}"


def _head(data: ReportData) -> Iterable[str]:
    run = data.run
    code = "" if run.exit_code is None else f"{run.exit_code}{_CODES.get(run.exit_code, '')}"
    facts = {
        "run": f"<code>{_t(run.run_id)}</code>",
        "started": instant(run.started_at),
        "in progress for" if data.in_progress else "took": _t(span(seconds(run.started_at, data.until))),
        "base": f"<code>{_t(run.base[:12])}</code>" if run.base else "",
        "spent": _t(total_usage(run.usage)),
        "exit code": _t(code),
    }
    yield f'<header>\n<p class="brand">autopilot-multi</p>\n<h1>{_t(_headline(data))}</h1>'
    pills = (
        f'<span class="pill {status.value}">{SYMBOLS[status]} {run.count(status)} {label(status)}</span>'
        for status in SYMBOLS
        if run.count(status)
    )
    yield f'<div class="tally">{"".join(pills)}</div>'
    shown = (f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in facts.items() if value)
    yield f'<dl class="facts">{"".join(shown)}</dl>\n</header>'


def _notices(data: ReportData) -> Iterable[str]:
    run = data.run
    if data.in_progress:
        looked = instant(data.until)
        yield f'<p class="notice"><b>The run is still in progress.</b> This page shows it as of {looked}.</p>'
    for problem in data.problems:
        yield f'<p class="notice bad">{_t(problem)}</p>'
    if run.kill_switch:
        switch = run.kill_switch
        hint = f" {prose(switch.hint[:1].upper() + switch.hint[1:], _LONGEST)}" if switch.hint else ""
        kind = "notice" if switch.name == Switch.USER_ABORT else "notice bad"
        detail = prose(switch.detail, _LONGEST)
        yield f'<p class="{kind}"><b>Ended by {_t(switch.name)}</b>: {detail}.{hint}</p>'
    if command := "" if data.in_progress or data.landing else next_command(run):
        yield f'<p class="notice">Done stories are on their branches. Next: <code>{_t(command)}</code></p>'
    for story in run.open_decisions:
        title = _t(str(story.decision.question.get("title", ""))) if story.decision else ""
        command = f"<code>autopilot-multi decide {_t(story.id)}</code>"
        yield f'<p class="notice ask"><b>{_t(story.id)}</b> waits for a decision: {title} {command}</p>'
    notes = [_note(message, names) for message, names in grouped_notes(run).items()]
    yield from notes[:MOST_NOTES]
    if notes[MOST_NOTES:]:
        more = count(len(notes) - MOST_NOTES, "more note")
        yield f'<details class="fold"><summary>{more}</summary>{"".join(notes[MOST_NOTES:])}</details>'


def _note(message: str, names: Sequence[str]) -> str:
    return (
        f'<p class="notice">{f"<b>{_t(listed(names))}</b>: " if names else ""}{prose(message, _LONGEST)}</p>'
    )


def _conflicts(run: RunSnapshot) -> Iterable[str]:
    """Return which stories will conflict, and the order in which the fewest are lost."""
    clashes = open_clashes(run)
    if run.forecast is None or not clashes:
        return
    onto = run.forecast.onto
    yield "<h2>Conflicts foreseen</h2>"
    rows = (
        f"<tr><td>{_t(sides(clash, onto))}</td><td><code>{_t(files_text(clash))}</code></td></tr>"
        for clash in clashes[:MOST_CLASHES]
    )
    more = len(clashes) + run.forecast.more - len(clashes[:MOST_CLASHES])
    last = f'<tr><td colspan="2">{count(more, "more pair")}</td></tr>' if more > 0 else ""
    head = "<tr><th>stories</th><th>files</th></tr>"
    order = f"<p>Best order to land: {_t(', '.join(run.forecast.order))}</p>"
    yield f'<div class="panel"><table class="conflicts">{head}{"".join(rows)}{last}</table>{order}</div>'


def _by_urgency(run: RunSnapshot) -> list[StorySnapshot]:
    """Put what needs attention first; otherwise keep the order of the run."""
    order = [Status.FAILED, Status.PARKED, Status.STOPPED, Status.RUNNING, Status.SKIPPED]
    rank = {status: place for place, status in enumerate(order)}
    return sorted(run.stories.values(), key=lambda story: rank.get(story.status, len(order)))
