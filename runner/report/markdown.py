"""A run as a Markdown page, for the summary of a CI job or a comment.

Text from agents is escaped, or is in a fence that it cannot close. The page stays within the size of a
comment on GitHub, and says what was left out; stories that need attention are left out last.
"""

import re

from isolation.patterns import pattern
from runner.core.model import BUDGET, RunSnapshot, StorySnapshot
from runner.core.schedule.offers import next_command
from runner.core.text.candidates import candidate_lines, review_line, size_of, spent_by, verdict_of
from runner.core.text.conflicts import files_text, open_clashes, sides
from runner.core.text.instants import iso, span
from runner.core.text.screen import neutral, shorten
from runner.core.text.words import (
    SYMBOLS,
    awaited,
    because,
    count,
    label,
    phase,
    recovery,
    state,
    tally,
)
from runner.report.report_data import (
    BAD,
    ReportData,
    decisive_session,
    grouped_notes,
    listed,
    seconds,
    total_usage,
    usage_text,
)
from runner.report.terminal.train import landing_lines

LIMIT = 65_536
"""How many characters a comment on GitHub may have; bytes are counted, which are never fewer."""

_NOTE_ROOM = 300
_TABLE_PART = 0.6
TAIL = 3000
_SPECIAL = pattern(r"([\\`*_{}\[\]<>()#!|~&]|^[-+]|^\d+(?=[.)]))")
_REASON = 300
_MOST_LANDINGS = 3
_NOTE, _MOST_NOTES, _MOST_PROBLEMS = 600, 10, 20
_MOST_CLASHES = 20
_MOST_CANDIDATES = 60


def markdown(data: ReportData) -> str:
    """Return the page: the result, the table, then what needs attention."""
    run = data.run
    took = span(seconds(run.started_at, data.until))
    lines = [
        f"## {tally(run)}, in progress for {took}" if data.in_progress else f"## {tally(run)} in {took}",
        "",
    ]
    facts = [f"run `{run.run_id}`", iso(run.started_at), f"base `{run.base[:12]}`", total_usage(run.usage)]
    lines += [" · ".join(fact for fact in facts if fact), ""]
    if run.kill_switch:
        lines += [f"**Ended by {escaped(run.kill_switch.name)}**: {escaped(run.kill_switch.detail)}", ""]
        lines += [f"Hint: {escaped(recovery(run.kill_switch))}", ""]
    problems = [f"> {escaped(shorten(problem, _NOTE))}" for problem in data.problems]
    lines += [
        *problems[:_MOST_PROBLEMS],
        *([f"> {count(len(problems) - _MOST_PROBLEMS, 'more problem')}"] * (len(problems) > _MOST_PROBLEMS)),
    ]
    lines += ["", "| | story | result | time | sessions | commits | spent |", "|-|-|-|-|-|-|-|"]
    page = "\n".join(lines) + "\n"
    shown, hidden = _rows(data, int(LIMIT * _TABLE_PART) - _size(page))
    page += shown + _candidates(run) + _conflicts(run) + _notes(run) + _landings(data)
    cut = 0
    for story in run.stories.values():
        part = _part(data, story) if story.status in BAD else ""
        if _size(page) + _size(part) < LIMIT - _NOTE_ROOM:
            page += part
        else:
            cut += bool(part)
    return page + _cut(hidden, cut)


def _rows(data: ReportData, room: int) -> tuple[str, int]:
    """Return the rows that fit, in the order of the run, and how many do not."""
    stories = list(data.run.stories.values())
    rows = {story.id: _row(data, story) + "\n" for story in stories}
    kept = set()
    for story in sorted(stories, key=lambda story: story.status not in BAD):
        if _size(rows[story.id]) > room:
            break
        room -= _size(rows[story.id])
        kept.add(story.id)
    return "".join(row for name, row in rows.items() if name in kept), len(rows) - len(kept)


def _size(text: str) -> int:
    return len(text.encode(errors="replace"))


def _cut(rows: int, parts: int) -> str:
    """Say what is missing because the page would be too long."""
    said = [
        f"{count(rows, 'story', 'stories')} of the table" if rows else "",
        f"the details of {count(parts, 'story', 'stories')}" if parts else "",
    ]
    lacking = " and ".join(part for part in said if part)
    if not lacking:
        return ""
    return f"\n> Left out, since the page would be too long: {lacking}. The HTML report shows everything.\n"


def escaped(text: str) -> str:
    """Return text of unknown origin as one line that Markdown shows literally."""
    return _SPECIAL.sub(r"\\\1", neutral(text))


def _row(data: ReportData, story: StorySnapshot) -> str:
    reason = f": {escaped(shorten(because(story), _REASON))}" if story.reason else ""
    cells = (
        SYMBOLS[phase(story)],
        f"**{escaped(story.id)}** {escaped(story.title)}",
        f"{state(story)}{reason}{_waited(data, story)}",
        span(data.duration(story)) if story.started_at else "",
        _sessions(story),
        _commits(story),
        usage_text(story.usage),
    )
    return f"| {' | '.join(cells)} |"


def _commits(story: StorySnapshot) -> str:
    where = f"{story.repo}: " if story.repo else ""
    return (
        f"{story.workspace.commits} on `{where}{story.workspace.branch}`" if story.workspace.commits else ""
    )


def _notes(run: RunSnapshot) -> str:
    """Return what the user must know, such as that a verify command did not test the story's own files."""
    notes = [
        f"- {f'**{escaped(listed(names))}**: ' if names else ''}{escaped(shorten(message, _NOTE))}\n"
        for message, names in grouped_notes(run).items()
    ]
    more = f"- {count(len(notes) - _MOST_NOTES, 'more note')}\n" if notes[_MOST_NOTES:] else ""
    return "\n" + "".join(notes[:_MOST_NOTES]) + more if notes else ""


def _candidates(run: RunSnapshot) -> str:
    """Return the candidates of stories side by side, and what reviewers said."""
    several = [story for story in run.stories.values() if candidate_lines(story)]
    rows = [
        f"| {escaped(story.id)} {one.number} | {escaped(one.agent)} | {verdict_of(one)}"
        f"{': ' + escaped(shorten(one.reason, _REASON)) if not one.passes else ''} | {size_of(one)} "
        f"| {spent_by(one)} | `{one.branch}`{' **chosen**' if one.chosen else ''} |"
        for story in several
        for one in story.candidates
    ]
    head = ["| candidate | agent | result | size | spent | branch |", "|-|-|-|-|-|-|"]
    lines = ["", "### Candidates", "", *head, *rows[:_MOST_CANDIDATES], ""] if rows else []
    if rows[_MOST_CANDIDATES:]:
        lines.append(f"and {count(len(rows) - _MOST_CANDIDATES, 'more candidate')}\n")
    said = [story for story in run.stories.values() if story.review and story.review.verdict != "accept"]
    lines += [f"- **{escaped(one.id)}**: {escaped(shorten(review_line(one), _NOTE))}" for one in said]
    return "\n".join(lines) + "\n" if lines else ""


def _conflicts(run: RunSnapshot) -> str:
    """Return which stories will conflict, and the order in which the fewest are lost."""
    clashes = open_clashes(run)
    if run.forecast is None or not clashes:
        return ""
    onto, order = run.forecast.onto, ", ".join(escaped(name) for name in run.forecast.order)
    lines = ["", "### Conflicts foreseen", "", "| stories | files |", "|-|-|"]
    shown = clashes[:_MOST_CLASHES]
    lines += [f"| {escaped(sides(clash, onto))} | {escaped(files_text(clash))} |" for clash in shown]
    more = len(clashes) + run.forecast.more - len(shown)
    lines += [f"| {count(more, 'more pair')} | |"] if more > 0 else []
    return "\n".join([*lines, "", f"Best order to land: {order}", ""])


def _landings(data: ReportData) -> str:
    """Return what came of the landings of this run, and the command that lands what is left."""
    lines: list[str] = []
    for one in data.run.landings[-_MOST_LANDINGS:]:
        line, *more = landing_lines(one, now=data.until, alive=one.id == data.landing)
        if more[_MOST_NOTES:]:
            more = [*more[:_MOST_NOTES], count(len(more) - _MOST_NOTES, "more line")]
        lines += [f"- {escaped(line)}\n", *(f"  - {escaped(shorten(each, _REASON))}\n" for each in more)]
    if lines:
        lines = ["\n### Landings\n\n", *lines]
    if command := "" if data.in_progress or data.landing else next_command(data.run):
        lines.append(f"\nNext: {_code(command)}\n")
    return "".join(lines)


def _waited(data: ReportData, story: StorySnapshot) -> str:
    """Return what a story waited for in its slot, and for how long, where that was the budget."""
    waits = [wait for wait in story.waits if wait.what == BUDGET]
    if not waits:
        return ""
    total = span(sum(seconds(wait.since, wait.until or data.until) for wait in waits))
    now = f" now, {escaped(waits[-1].reason)}" if waits[-1] is awaited(story) else ""
    return f"; waited {total} for budget{now}"


def _sessions(story: StorySnapshot) -> str:
    """Return how many sessions there were, and to whom the story was escalated."""
    others = dict.fromkeys(session.worker for session in story.sessions if session.escalated)
    by = f", escalated to {', '.join(map(escaped, others))}" if others else ""
    return f"{len(story.sessions) or ''}{by}"


def _part(data: ReportData, story: StorySnapshot) -> str:
    """Explain one story that needs attention."""
    lines = ["", f"### {SYMBOLS[story.status]} {escaped(story.id)}: {label(story.status)}", ""]
    lines += [escaped(because(story)), ""]
    if story.kill_switch:
        lines += [f"Hint: {escaped(recovery(story.kill_switch))}", ""]
    if story.next:
        lines += [f"Next: {_code(story.next)}", ""]
    session = decisive_session(story)
    tail = data.tail(session, TAIL) if session else ""
    if session and tail:
        number = story.sessions.index(session) + 1
        summary = f"End of the output of session {number} of {count(len(story.sessions), 'session')}"
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", tail)), default=0))
        lines += [
            "<details><summary>" + summary + "</summary>",
            "",
            f"{fence}text",
            tail,
            fence,
            "",
            "</details>",
            "",
        ]
    return "\n".join(lines)


def _code(text: str) -> str:
    plain = neutral(text).replace("`", "'")
    return f"`{plain}`"
