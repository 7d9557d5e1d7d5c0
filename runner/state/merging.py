"""Joining the state files of two branches: a merge that always succeeds and drops nothing.

Each value follows the side that changed it. Where both moved, the one further along the flow counts;
lists are joined, sections that we do not know are taken from both. A side that cannot be read, or that
speaks another dialect, is kept word for word in a section of its own.
"""

from dataclasses import replace

from runner.state.block import Place, find_place
from runner.state.combine import further, join_lists
from runner.state.edits import newline_of
from runner.state.errors import StateError, UnreadableStateError
from runner.state.layout import CURRENT_STEP
from runner.state.model import StateFile
from runner.state.reading import parse_state
from runner.state.rich import SECTIONS
from runner.state.vocabulary import STANDARD, Vocabulary
from runner.state.writing import render

KEPT = "Kept by the merge"


def merge_states(base: str, ours: str, theirs: str, *, vocabulary: Vocabulary = STANDARD) -> str:
    """Join two versions of a state file that come from `base` ('' when they have no common one)."""
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    mine, others = _read(ours, vocabulary), _read(theirs, vocabulary)
    if mine is None:
        return keep_whole(theirs, KEPT, ours) if others is not None else keep_whole(ours, KEPT, theirs)
    if others is None or others.dialect is not mine.dialect:
        return keep_whole(ours, KEPT, theirs)
    before = _read(base, vocabulary)
    if before is not None and before.dialect is not mine.dialect:
        before = None
    try:
        text = render(_joined(before, mine, others), vocabulary=vocabulary)
    except StateError:
        return keep_whole(ours, KEPT, theirs)
    return _with_sections(text, base if before else "", theirs)


def _joined(before: StateFile | None, mine: StateFile, others: StateFile) -> StateFile:
    """Join the values; the text is ours."""
    winner = further(before, mine, others)
    joined = join_lists(before, mine, others)
    return replace(
        joined,
        flow=winner.flow,
        step=winner.step,
        name=winner.name,
        status=winner.status,
        sub_step=mine.sub_step if winner.sub_step is None else winner.sub_step,
        retry_count=winner.retry_count,
        cycle=winner.cycle,
    )


def keep_whole(text: str, title: str, kept: str) -> str:
    """Add a text word for word, fenced, under a section of its own; once."""
    fence = "```"
    while fence in kept:
        fence += "`"
    newline = newline_of(text)
    body = kept if kept.endswith("\n") or not kept else kept + newline
    block = f"{fence}{newline}{body}{fence}{newline}"
    if block in text:
        return text
    gap = newline if text.endswith("\n") else newline * 2
    return f"{text}{gap}## {title}{newline}{newline}{block}"


def _with_sections(text: str, base: str, theirs: str) -> str:
    """Join the sections that the dialect does not know."""
    before = _foreign(base) if base else {}
    here, there = _foreign(text), _foreign(theirs)
    newline = newline_of(text)
    for title, body in there.items():
        if title not in here:
            if before.get(title) != body:
                text = text.rstrip("\n\r") + newline * 2 + body.rstrip("\n\r") + newline
        elif body != here[title] and body != before.get(title):
            merged = body if here[title] == before.get(title) else _union(here[title], body, newline)
            text = text.replace(here[title], merged, 1)
    return text


def _union(ours: str, theirs: str, newline: str) -> str:
    known = {line.rstrip() for line in ours.splitlines()}
    extra = [line for line in theirs.splitlines() if line.strip() and line.rstrip() not in known]
    if not extra:
        return ours
    tail = ours[len(ours.rstrip()) :] or newline
    return ours.rstrip() + newline + newline.join(extra) + tail


def _foreign(text: str) -> dict[str, str]:
    place = find_place(text)
    known = {CURRENT_STEP, *SECTIONS, *_titles(place)}
    return {
        title: text[section.start : section.body.end]
        for title, section in place.sections.items()
        if title not in known
    }


def _titles(place: Place) -> set[str]:
    """Give the headings that stand before the block: they belong to the page, not to its sections."""
    return {title for title, section in place.sections.items() if section.start < place.block[0].start}


def _read(text: str, vocabulary: Vocabulary) -> StateFile | None:
    try:
        return parse_state(text, vocabulary=vocabulary)
    except UnreadableStateError:
        return None
