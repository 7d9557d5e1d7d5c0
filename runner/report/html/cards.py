"""One story as a card of the HTML report: result, sessions, retries, decisions, changes, last output."""

from collections.abc import Iterable, Sequence
from html import escape

from isolation.git.diffstat import ChangedPath
from runner.core.model import Decision, Outcome, SessionRecord, Status, StorySnapshot
from runner.core.schedule.offers import contained, lands
from runner.core.text.candidates import candidate_lines, review_line, size_of, spent_by, verdict_of
from runner.core.text.instants import span
from runner.core.text.screen import neutral
from runner.core.text.words import SYMBOLS, count, phase, state, waited
from runner.report.html.instants import clock_time
from runner.report.html.output import folded_diff, prose, session_output
from runner.report.html.timeline import tone
from runner.report.report_data import BAD, ReportData, decisive_session, seconds, usage_text

MOST_CHANGES = 40
MOST_SESSIONS = 60
_LONGEST = 600
_BLOCKS = 20
_SIGNS = {"ok": "✓", "ask": "?", "bad": "✗", "halted": "■", "run": SYMBOLS[Status.RUNNING]}


def card(data: ReportData, story: StorySnapshot, *, most_tail: int, most_diff: int) -> str:
    """Return the card, expanded if the story needs attention."""
    status = story.status
    more = [
        span(data.duration(story)) if story.started_at else "",
        f"waited {span(waits)}" if (waits := waited(story, data.until)) >= 1 and story.started_at else "",
        count(len(story.sessions), "session") if story.sessions else "",
        count(story.workspace.commits, "commit") if story.workspace.commits else "",
        usage_text(story.usage),
    ]
    head = (
        f'<summary><span class="pill {phase(story).value}">{SYMBOLS[phase(story)]} {state(story)}</span>'
        f'<span class="id">{_t(story.id)}</span><span class="title">{_t(story.title)}</span>'
        f'<span class="more">{" · ".join(_t(part) for part in more if part)}</span></summary>'
    )
    body = "\n".join(part for part in _body(data, story, most_tail, most_diff) if part)
    open_ = " open" if status in BAD else ""
    inside = f'{head}\n<div class="body">\n{body}\n</div>'
    return f'<details class="story" id="story-{_t(story.id)}"{open_}>{inside}</details>'


def _t(text: str, most: int = _LONGEST) -> str:
    plain = neutral(text)
    return escape(plain if len(plain) <= most else plain[: most - 1] + "…")


def _body(data: ReportData, story: StorySnapshot, most_tail: int, most_diff: int) -> Iterable[str]:
    yield f'<p class="narrow">{_t(story.title)}</p>'
    yield f"<p>{prose(story.reason, _LONGEST)}</p>" if story.reason else ""
    yield _next(data, story)
    if story.kill_switch:
        hint = prose(_sentence(story.kill_switch.hint), _LONGEST)
        yield f"<p>Kill-switch <b>{_t(story.kill_switch.name)}</b>. {hint}</p>"
    if story.workspace.branch:
        ends = " → ".join(
            f"<code>{_t(one[:12])}</code>" for one in (story.workspace.base, story.workspace.commit) if one
        )
        there = f" in <code>{_t(story.repo)}</code>" if story.repo else ""
        yield f"<p>Branch <code>{_t(story.workspace.branch)}</code>{there} {ends}</p>"
    if story.depends_on:
        yield f"<p>Depends on {_t(', '.join(story.depends_on))}</p>"
    output = _output(data, story, most_tail)
    yield output if story.status in BAD else ""
    yield _candidates(story)
    yield _sessions(data, story)
    yield _memories(story)
    yield _decisions(story)
    yield _changes(data.changes.get(story.id, ()))
    yield folded_diff(data.diff(story), most_diff, diff_command(story))
    yield "" if story.status in BAD else output


def _next(data: ReportData, story: StorySnapshot) -> str:
    if story.workspace.merged:
        return f"<p>Landed on <code>{_t(story.workspace.merged)}</code></p>"
    if lands(story):  # all of them by one command, which is at the top
        left = story.workspace.unlanded
        return f"<p>Not landed: {prose(left, _LONGEST)}</p>" if left else ""
    inside = contained(data.run).get(story.id)
    if inside is not None:
        return f'<p>Comes with <a href="#story-{_t(inside)}">{_t(inside)}</a>, whose branch contains it.</p>'
    return f"<p>Next: <code>{_t(story.next)}</code></p>" if story.next else ""


def _output(data: ReportData, story: StorySnapshot, most: int) -> str:
    session = decisive_session(story)
    tail = data.tail(session, most) if session else ""
    if not session or not tail:
        return ""
    number = story.sessions.index(session) + 1
    return f"<h3>End of the output of session {number}</h3>\n{session_output(tail, most)}"


def _candidates(story: StorySnapshot) -> str:
    """Return the candidates side by side, and what the reviewer said."""
    review = f"<p>{prose(_sentence(review_line(story)), _LONGEST)}</p>" if story.review else ""
    if not candidate_lines(story):
        return review
    rows = "".join(
        f"<tr><td>{one.number}{' (chosen)' if one.chosen else ''}</td><td>{_t(one.agent)}</td>"
        f"<td>{_t(verdict_of(one))}</td><td>{size_of(one)}</td><td>{spent_by(one)}</td>"
        f"<td><code>{_t(one.branch)}</code></td><td>{_t(one.reason)}</td></tr>"
        for one in story.candidates
    )
    titles = ("candidate", "by", "result", "size", "spent", "branch", "")
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f'<h3>Candidates</h3><div class="scroll"><table><tr>{head}</tr>{rows}</table></div>{review}'


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def diff_command(story: StorySnapshot) -> str:
    """Return the command that shows everything a story changed."""
    return f"git diff {(story.workspace.base or '')[:12]} {(story.workspace.commit or '')[:12]}"


def _sessions(data: ReportData, story: StorySnapshot) -> str:
    sessions = story.sessions
    if not sessions:
        return ""
    left_out = max(0, len(sessions) - MOST_SESSIONS)
    spent = any(usage_text(session.usage) for session in sessions)
    rows = [
        _session(data, story, number, one, spent=spent)
        for number, one in enumerate(sessions, 1)
        if number > left_out
    ]
    note = f"<p>{count(left_out, 'earlier session')} left out</p>" if left_out else ""
    titles = ("session", "ended", "took", "attempt", "by", "started", *(["spent"] * spent), "")
    head = "".join(f"<th>{title}</th>" for title in titles)
    table = f"<table><tr>{head}</tr>{''.join(rows)}</table>"
    return f'<h3>Steps and sessions</h3>{note}<div class="scroll sessions">{table}</div>'


def _session(
    data: ReportData, story: StorySnapshot, number: int, session: SessionRecord, *, spent: bool
) -> str:
    running = data.is_running(story, session)
    ended = data.until if running else session.ended_at
    seen = tone(data, story, session)
    code = f" ({session.exit_code})" if session.exit_code else ""
    cells = (
        _t(f"{number} {session.step.name}"),
        f'<span class="{seen}">{_SIGNS[seen]} {_t(data.outcome(story, session))}{code}</span>',
        _t(span(seconds(session.started_at, ended))) if ended else "",
        f"{session.attempt} of {story.max_attempts}",
        _t((session.worker or session.kind.value) + " (escalated)" * session.escalated),
        clock_time(session.started_at),
        *([_t(usage_text(session.usage))] if spent else []),
    )
    detail = "" if session.outcome is Outcome.OK else _t(session.detail)
    nowrap = "".join(f'<td class="nowrap">{cell}</td>' for cell in cells)
    return f'<tr>{nowrap}<td class="wide">{detail}</td></tr>'


def _memories(story: StorySnapshot) -> str:
    relevant = [memory for memory in story.memories if memory.topic in {"retry", "blocker"}]
    if not relevant:
        return ""
    items = "".join(f"<li>{_t(memory.topic)}: {_t(memory.text)}</li>" for memory in relevant)
    return f"<h3>Retries and blockers</h3><ul>{items}</ul>"


def _decisions(story: StorySnapshot) -> str:
    asked = [*story.decided, *([story.decision] if story.decision else [])]
    if not asked:
        return ""
    return f"<h3>Decisions</h3><ul>{''.join(_decision(one) for one in asked)}</ul>"


def _decision(decision: Decision) -> str:
    title = _t(str(decision.question.get("title", decision.id)))
    answer = f"{_t(decision.letter)}, by {_t(decision.by)}" if decision.letter else "open"
    return f"<li>{title} <b>{answer}</b></li>"


def _changes(changes: Sequence[ChangedPath]) -> str:
    if not changes:
        return ""
    added = sum(change.added or 0 for change in changes)
    removed = sum(change.removed or 0 for change in changes)
    most = max((change.added or 0) + (change.removed or 0) for change in changes) or 1
    rows = "".join(_change(change, most) for change in changes[:MOST_CHANGES])
    left_out = len(changes) - MOST_CHANGES
    note = f"<p>and {count(left_out, 'more path')}</p>" if left_out > 0 else ""
    files = count(len(changes), "file")
    return f'<h3>{files} changed, +{added} -{removed}</h3><table class="changes">{rows}</table>{note}'


def _change(change: ChangedPath, most: int) -> str:
    if change.added is None or change.removed is None:
        counts, bars = "binary", ""
    else:
        counts = f"+{change.added} -{change.removed}"
        plus = -(-change.added * _BLOCKS // most)
        minus = -(-change.removed * _BLOCKS // most)
        bars = f'<span class="plus">{"▮" * plus}</span><span class="minus">{"▮" * minus}</span>'
    path = f'<td class="wide"><code>{_t(change.path)}</code></td>'
    return f'<tr>{path}<td class="n nowrap">{counts}</td><td class="bars">{bars}</td></tr>'
