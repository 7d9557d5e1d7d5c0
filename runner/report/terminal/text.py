"""A run for people: the status table, and the report at its end.

Each story has a row, then, where they matter, its reason and the next command to type. Whatever
agents wrote into reasons and notes is made harmless first.
"""

from runner.core.model import RunSnapshot, Status, StorySnapshot
from runner.core.text.instants import span
from runner.core.text.screen import neutral
from runner.core.text.words import COLORS, SYMBOLS, attempt, count, doing, elapsed, label, machine, tally
from runner.report.run_document import settled
from runner.report.terminal.table import Cell, Column, Look, layout

SHARED = "none"
_INDENT = 4
_TITLES_FROM = 100
_FEW = 5


def report(run: RunSnapshot, *, look: Look) -> str:
    """Give the report of a run that has come to its end."""
    ended = run.started_at if run.ended_at is None else run.ended_at
    lines = _stories(run, look, now=ended)
    lines += ["", look.paint(f"{tally(run)} in {span(ended - run.started_at)}", "bold")]
    return "\n".join([*lines, *_ending(run, look)]) + "\n"


def status(run: RunSnapshot, *, look: Look, now: float, alive: bool) -> str:
    """Give the state of a run; without a living coordinator it is no longer running."""
    shown = settled(run, alive=alive and not run.ended)
    until = now if shown.ended_at is None else shown.ended_at
    if shown.ended:
        state = f"ended after {span(until - shown.started_at)}"
    elif alive:
        state = f"running for {span(until - shown.started_at)}"
    else:
        state = "interrupted"
    head = f"run {shown.run_id} · {state} · {tally(shown)}"
    lines = look.wrapped(head, colour="bold")
    if alive and not shown.ended:
        lines += look.wrapped(
            f"{count(shown.count(Status.RUNNING), 'story', 'stories')} running · {machine(shown)}",
            colour="dim",
        )
    urgent = _needs_a_person(shown, look)
    lines += [*(["", *urgent] if urgent else []), "", *_stories(shown, look, now=now)]
    tail = _ending(shown, look)
    if not shown.ended and not alive:
        tail.append(f"hint: `autopilot-multi resume {shown.run_id}` goes on with it.")
    return "\n".join([*lines, *(["", *tail] if tail else [])]) + "\n"


def _needs_a_person(run: RunSnapshot, look: Look) -> list[str]:
    """Give what a person should see first: open questions, blockers, and what was retried before them."""
    lines = []
    for story in run.open_decisions:
        title = neutral(str(story.decision.question.get("title", ""))) if story.decision else ""
        lines += look.wrapped(
            f"decision: {story.id}: {title} (autopilot-multi decide {story.id})", colour="yellow"
        )
    for story in run.stories.values():
        if story.status is Status.FAILED:
            told = [memory for memory in story.memories if memory.topic in {"blocker", "retry"}]
            for memory in sorted(told, key=lambda memory: memory.topic):
                lines += look.wrapped(f"{memory.topic}: {story.id}: {neutral(memory.text)}", colour="yellow")
    return lines


def _stories(run: RunSnapshot, look: Look, *, now: float) -> list[str]:
    """Give the table of stories, each with the lines that explain it."""
    titled = look.width is not None and look.width >= _TITLES_FROM
    columns = [
        Column(title="STORY", limit=28),
        *([Column(title="TITLE", limit=26)] if titled else []),
        Column(title="STATUS"),
        Column(title="ATTEMPT"),
        Column(title="TIME", right=True),
        Column(),
    ]
    stories = list(run.stories.values())
    head, *rows = layout(columns, [_row(story, look, now, titled=titled) for story in stories], look)
    many = run.count(Status.DONE) > _FEW
    lines = [head]
    for row, story in zip(rows, stories, strict=True):
        lines += [row, *_explained(story, look, brief=many and story.status is Status.DONE)]
    return lines


def _row(story: StorySnapshot, look: Look, now: float, *, titled: bool) -> list[Cell]:
    colour = COLORS[story.status]
    mark = f"{SYMBOLS[story.status]} " if look.marks else ""
    ran = elapsed(story, now)
    return [
        Cell(text=mark + story.id, colour=colour),
        *([Cell(text=neutral(story.title))] if titled else []),
        Cell(text=label(story.status), colour=colour),
        Cell(text=attempt(story)),
        Cell(text="" if ran is None else span(ran)),
        Cell(text=doing(story), colour="dim" if story.status is Status.WAITING else ""),
    ]


def _explained(story: StorySnapshot, look: Look, *, brief: bool) -> list[str]:
    lines = []
    if story.reason and story.status is Status.RUNNING:
        lines += look.wrapped(f"last attempt: {neutral(story.reason)}", _INDENT, "yellow")
    elif story.reason and story.status is not Status.DONE:
        lines += look.wrapped(neutral(story.reason), _INDENT)
    if story.status.final and story.next and not brief:
        lines += look.wrapped(f"next: {neutral(story.next)}", _INDENT, "dim")
    return lines


def _ending(run: RunSnapshot, look: Look) -> list[str]:
    """Give what is told once, after the table."""
    lines = []
    if run.kill_switch:
        switch = run.kill_switch
        lines += look.wrapped(f"ended by {switch.name}: {neutral(switch.detail)}", colour="yellow")
        lines += look.wrapped(f"hint: {neutral(switch.hint)}") if switch.hint else []
    done = [story for story in run.stories.values() if story.status is Status.DONE and story.next]
    if len(done) > _FEW:
        lines += look.wrapped(f"next: {neutral(done[0].next)}, and so on for each done story")
    for story in run.stories.values():
        if story.status.final and story.workspace and run.isolation != SHARED:
            lines.append(f"kept: {neutral(story.workspace)} ({story.id})")
    told: dict[str, list[str]] = {}
    for note in run.notes:
        told.setdefault(note.message, []).append(note.story_id or "")
    for message, about in told.items():
        names = ", ".join(dict.fromkeys(name for name in about if name))
        lines += look.wrapped(f"note: {names + ': ' if names else ''}{neutral(message)}")
    return lines
