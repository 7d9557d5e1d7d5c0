"""Merges the state files of two branches; this always succeeds.

Each value follows the side that changed it. If both moved, the one further along the flow counts; lists
are merged, unknown sections are taken from both. A side that cannot be read, or that uses another dialect,
is kept verbatim in its own section. Remarks and unknown keys inside the dialect's sections are ours.
"""

from msgspec.structs import replace

from runner.flows.state.combine import further, join_lists
from runner.flows.state.dialects.rich import SECTIONS
from runner.flows.state.dialects.sections import LIGHT_SECTIONS
from runner.flows.state.errors import StateError, UnreadableStateError
from runner.flows.state.model import Dialect, StateFile
from runner.flows.state.reading import parse_state
from runner.flows.state.text.block import find_location
from runner.flows.state.text.edits import Edit, apply, newline_of
from runner.flows.state.text.layout import CURRENT_STEP, Span
from runner.flows.state.vocabulary import STANDARD, Vocabulary
from runner.flows.state.writing import render

KEPT = "Kept by the merge"


def merge_states(base: str, ours: str, theirs: str, *, vocabulary: Vocabulary = STANDARD) -> str:
    """Merge two versions of a state file with the ancestor `base` ('' if there is none)."""
    if theirs in {ours, base}:
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
        joined = _joined(before, mine, others)
        text = render(joined, vocabulary=vocabulary)
        known = {CURRENT_STEP, *(SECTIONS if mine.dialect is Dialect.RICH else LIGHT_SECTIONS)}
        whole = _with_sections(text, base if before else "", theirs, known)
    except StateError:
        return keep_whole(ours, KEPT, theirs)
    # One of their sections may have an unclosed fence, which would swallow what follows it.
    return whole if _read(whole, vocabulary) == joined else keep_whole(text, KEPT, theirs)


def _joined(before: StateFile | None, mine: StateFile, others: StateFile) -> StateFile:
    """Merge the values; the text is ours."""
    winner = further(before, mine, others)
    joined = join_lists(before, mine, others)
    return replace(
        joined,
        story=winner.story,
        flow=winner.flow,
        step=winner.step,
        name=winner.name,
        status=winner.status,
        sub_step=mine.sub_step if winner.sub_step is None else winner.sub_step,
        retry_count=winner.retry_count,
        cycle=winner.cycle,
    )


def keep_whole(text: str, title: str, kept: str) -> str:
    """Add a text verbatim, fenced, in its own section; at most once."""
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


def _with_sections(text: str, base: str, theirs: str, known: set[str]) -> str:
    """Merge the sections that the dialect does not know."""
    before = {key: span.of(base) for key, span in (_foreign(base, known) if base else {}).items()}
    here, newline = _foreign(text, known), newline_of(text)
    edits, added = [], []
    for key, span in _foreign(theirs, known).items():
        body, common = span.of(theirs), before.get(key)
        if body == common:
            continue
        if key not in here:
            added.append(body)
            continue
        own = here[key]
        ours = own.of(text)
        edits.append(Edit(own.start, own.end, body if ours == common else _union(ours, body, newline)))
    joined = apply(text, edits)
    if not added:
        return joined
    return (newline * 2).join([joined.rstrip("\r\n"), *added]) + newline


def _union(ours: str, theirs: str, newline: str) -> str:
    known = {line.rstrip() for line in ours.split("\n")}
    lines = [line.rstrip("\r") for line in theirs.split("\n")]
    extra = [line for line in lines if line.strip() and line.rstrip() not in known]
    return newline.join([ours, *extra])


def _foreign(text: str, known: set[str]) -> dict[tuple[str, int], Span]:
    """Return the unknown sections after the block, by title and how often it came before."""
    location = find_location(text)
    found: dict[tuple[str, int], Span] = {}
    for section in sorted(
        (*location.sections.values(), *location.repeated), key=lambda section: section.start
    ):
        own = section.title in known and section not in location.repeated
        if section.start > location.block[0].start and not own:
            number = sum(title == section.title for title, _ in found)
            whole = text[section.start : section.end].rstrip()
            found[section.title, number] = Span(section.start, section.start + len(whole))
    return found


def _read(text: str, vocabulary: Vocabulary) -> StateFile | None:
    try:
        return parse_state(text, vocabulary=vocabulary)
    except UnreadableStateError:
        return None
