"""A run as text: the status table, and the report at its end.

Each story has a row and, where it helps, the reason and the next command to type. Control characters
in reasons and notes are removed.
"""

from collections.abc import Mapping, Sequence

from runner.core.model import RunSnapshot, Status, StoryId, StorySnapshot
from runner.core.outlook.left import Outlook, left_words
from runner.core.outlook.spent import spent_words
from runner.core.outlook.waiting import waiting
from runner.core.schedule.offers import contained, is_offered, lands, next_command, without_offers
from runner.core.text.amounts import dollars
from runner.core.text.candidates import candidate_lines, review_line
from runner.core.text.conflicts import conflict_line
from runner.core.text.instants import span
from runner.core.text.screen import neutral
from runner.core.text.words import (
    COLORS,
    SYMBOLS,
    at_work,
    attempt,
    because,
    doing,
    machine,
    recovery,
    state,
    tally,
    waited,
    worked,
)
from runner.core.text.words import phase as phase_of
from runner.report.run_document import settled
from runner.report.terminal.failures import failures
from runner.report.terminal.table import Cell, Column, Look, layout

SHARED = "none"
_INDENT = 4
_TITLES_FROM = 100
_FEW = 5


def report(run: RunSnapshot, *, look: Look) -> str:
    """Return the report of a run that has ended."""
    ended = run.started_at if run.ended_at is None else run.ended_at
    lines = _stories(run, look, now=ended)
    lines += ["", look.paint(f"{tally(run)} in {span(ended - run.started_at)}", "bold")]
    return "\n".join([*lines, *_ending(run, look), *failures(run, look)]) + "\n"


def status(
    run: RunSnapshot,
    *,
    look: Look,
    now: float,
    alive: bool,
    urgent: Sequence[str] = (),
    landing: Sequence[str] = (),
    outlook: Outlook | None = None,
) -> str:
    """Return the state of a run; `alive`: its coordinator is still running.

    `urgent` are lines about stories that are blocked or were retried; they follow the open decisions.
    `landing` are lines about the landing that is in progress, or the last one; they follow the stories.
    `outlook` is what is expected of a run that is active.
    """
    shown = settled(run, alive=alive and not run.ended)
    if alive and not shown.ended:  # nothing can land before the run has ended
        shown = without_offers(shown)
    until = now if shown.ended_at is None else shown.ended_at
    if shown.ended:
        phase = f"ended after {span(until - shown.started_at)}"
    elif alive:
        phase = f"running for {span(until - shown.started_at)}"
    else:
        phase = "interrupted"
    head = f"run {shown.run_id} · {phase} · {tally(shown)}"
    lines = look.wrapped(head, color="bold")
    expected = None
    if alive and not shown.ended:
        expected = outlook or Outlook()
        lines += look.wrapped(_now_line(shown, expected), color="dim")
    first = [*_open_decisions(shown, look), *urgent]
    lines += [*(["", *first] if first else []), "", *_stories(shown, look, now=now, outlook=expected)]
    lines += ["", *(row for line in landing for row in look.wrapped(line))] if landing else []
    tail = _ending(shown, look)
    if not shown.ended and not alive:
        tail.append(f"hint: continue with `autopilot-multi resume {shown.run_id}`.")
    return "\n".join([*lines, *(["", *tail] if tail else []), *failures(shown, look)]) + "\n"


def _now_line(run: RunSnapshot, outlook: Outlook) -> str:
    """Return what an active run does, has spent and will still take."""
    left = left_words(outlook.left)
    parts = (
        "paused, nothing starts" if run.paused else "",
        at_work(run, noun=True),
        spent_words(run.usage, outlook.cost_usd),
        f"{left} left" if left else "",
        machine(run),
    )
    return " · ".join(part for part in parts if part)


def _open_decisions(run: RunSnapshot, look: Look) -> list[str]:
    lines = []
    for story in run.open_decisions:
        title = neutral(str(story.decision.question.get("title", ""))) if story.decision else ""
        lines += look.wrapped(
            f"decision: {story.id}: {title} (autopilot-multi decide {story.id})", color="yellow"
        )
    return lines


def _stories(run: RunSnapshot, look: Look, *, now: float, outlook: Outlook | None = None) -> list[str]:
    """Return the table of stories, each followed by the lines that explain it.

    With an `outlook` the run is active: what stories wait for and how long they still take is shown, too.
    """
    titled = look.width is not None and look.width >= _TITLES_FROM
    stories = list(run.stories.values())
    costs = any(_cost(story) for story in stories)
    columns = [
        Column(title="STORY", limit=28),
        *([Column(title="REPO", limit=16)] if run.repos else []),
        *([Column(title="TITLE", limit=26)] if titled else []),
        Column(title="STATUS"),
        Column(title="ATTEMPT"),
        Column(title="TIME", right=True),
        *([Column(title="COST", right=True)] if costs else []),
        *([Column(title="LEFT", right=True)] if outlook and outlook.stories else []),
        Column(),
    ]
    cells = [
        [
            *_row(run, story, look, now, titled=titled),
            *([Cell(text=_cost(story))] if costs else []),
            *([Cell(text=left_words(outlook.stories.get(story.id)))] if outlook and outlook.stories else []),
            _doing(story, run, now, active=outlook is not None),
        ]
        for story in stories
    ]
    head, *rows = layout(columns, cells, look)
    inside = contained(run)
    many = len([story for story in _offered(run, inside) if not lands(story)]) > _FEW
    lines = [head]
    for row, story in zip(rows, stories, strict=True):
        lines += [row, *_waits(story, look, now), *_compared(story, look)]
        if story.status is Status.DONE:
            lines += [*_taken(story, inside.get(story.id), look, brief=many)]
        else:
            lines += [*_explained(story, run, look)]
    return lines


def _waits(story: StorySnapshot, look: Look, now: float) -> list[str]:
    """Return how long a story has waited; its time in the table is only that of its work."""
    waits, works = waited(story, now), worked(story, now)
    if works is None or waits < 1:
        return []
    return look.wrapped(f"worked {span(works)}, waited {span(waits)}", _INDENT, "dim")


def _offered(run: RunSnapshot, inside: Mapping[StoryId, StoryId]) -> list[StorySnapshot]:
    return [story for story in run.stories.values() if is_offered(story) and story.id not in inside]


def _taken(story: StorySnapshot, inside: StoryId | None, look: Look, *, brief: bool) -> list[str]:
    """Return how to take the work of a story; nothing if it is taken."""
    if not is_offered(story):
        return []
    if lands(story):  # all of them by one command, which is at the end
        left = story.workspace.unlanded
        return look.wrapped(f"not landed: {neutral(left)}", _INDENT, "yellow") if left else []
    if inside is not None:
        return look.wrapped(f"comes with {inside}, whose branch contains it", _INDENT, "dim")
    return [] if brief else look.wrapped(f"next: {neutral(story.next)}", _INDENT, "dim")


def _row(run: RunSnapshot, story: StorySnapshot, look: Look, now: float, *, titled: bool) -> list[Cell]:
    color = COLORS[phase_of(story)]
    mark = f"{SYMBOLS[phase_of(story)]} " if look.marks else ""
    ran = worked(story, now)
    return [
        Cell(text=mark + story.id, color=color),
        *([Cell(text=run.repo_name(story.repo))] if run.repos else []),
        *([Cell(text=neutral(story.title))] if titled else []),
        Cell(text=state(story), color=color),
        Cell(text=attempt(story)),
        Cell(text="" if ran is None else span(ran)),
    ]


def _cost(story: StorySnapshot) -> str:
    usage = story.usage
    return "" if usage.cost_usd is None else dollars(usage.cost_usd, about=usage.estimated)


def _doing(story: StorySnapshot, run: RunSnapshot, now: float, *, active: bool) -> Cell:
    """Return what a story does or waits for; nothing waits in a run that is not active."""
    found = waiting(story, run, now) if active else None
    if found is not None:
        return Cell(text=f"{found.words}: {found.detail}" if found.detail else found.words, color="dim")
    return Cell(text=doing(story), color="dim" if story.status is Status.WAITING else "")


def _compared(story: StorySnapshot, look: Look) -> list[str]:
    """Return the candidates of a story, one below the other, and what its reviewer said."""
    said = filter(None, (*candidate_lines(story), review_line(story)))
    return [line for text in said for line in look.wrapped(neutral(text), _INDENT)]


def _explained(story: StorySnapshot, run: RunSnapshot, look: Look) -> list[str]:
    """Return why a story is where it is; one that failed has a block of its own at the bottom.

    A kill-switch of the whole run is named with its hint below the table, once for all stories.
    """
    lines: list[str] = []
    if story.status is Status.FAILED:
        return lines
    own = story.kill_switch if story.kill_switch != run.kill_switch else None
    if story.reason and story.status is Status.RUNNING:
        lines += look.wrapped(f"last attempt: {because(story)}", _INDENT, "yellow")
    elif story.reason:
        lines += look.wrapped(because(story) if own else neutral(story.reason), _INDENT)
    lines += look.wrapped(f"hint: {recovery(own)}", _INDENT) if own else []
    if story.status.final and story.next:
        lines += look.wrapped(f"next: {neutral(story.next)}", _INDENT, "dim")
    return lines


def _all_of(run: RunSnapshot) -> str:
    """Return one command that takes the work of all stories; where each needs its own, the first."""
    offered = [story for story in _offered(run, contained(run)) if not lands(story)]
    if len(offered) > _FEW:
        return f"{neutral(offered[0].next)}, and so on for each done story"
    return neutral(next_command(run))


def _ending(run: RunSnapshot, look: Look) -> list[str]:
    """Return what follows the table."""
    lines = []
    if run.kill_switch:
        switch = run.kill_switch
        lines += look.wrapped(f"ended by {switch.name}: {neutral(switch.detail)}", color="yellow")
        lines += look.wrapped(f"hint: {recovery(switch)}") if switch.hint else []
    if conflicts := conflict_line(run):
        lines += look.wrapped(f"{conflicts} (autopilot-multi forecast)", color="yellow")
    if command := _all_of(run):
        lines.append(f"next: {command}")  # not wrapped, so that it can be copied
    for story in run.stories.values():
        own = run.isolation != SHARED or story.workspace.apart
        if story.status.final and story.workspace.path and own:
            lines.append(f"kept: {neutral(story.workspace.path)} ({story.id})")
        if story.workspace.ports:
            ports = ", ".join(map(str, story.workspace.ports))
            lines.append(f"leased: ports {ports}; database {story.workspace.database} ({story.id})")
    notes: dict[str, list[str]] = {}
    for note in run.notes:
        notes.setdefault(note.message, []).append(note.story_id or "")
    for message, about in notes.items():
        names = ", ".join(dict.fromkeys(name for name in about if name))
        lines += look.wrapped(f"note: {names + ': ' if names else ''}{neutral(message)}")
    return lines
