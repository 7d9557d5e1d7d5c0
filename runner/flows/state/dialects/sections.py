"""Sections of bullets after the current step, as all dialects write them; pointer and autodev have one.

A step that the user skipped leaves no artifact, so the folders cannot show it. Rich keeps it among its
completed steps. The other two have no history; this one section of theirs makes a skip hold in every clone.
"""

from collections.abc import Sequence

from runner.flows.state.model import Problem, skipped_number
from runner.flows.state.text.block import Location
from runner.flows.state.text.codec import encode_bullet
from runner.flows.state.text.edits import Edit, apply, insert_after
from runner.flows.state.text.layout import CURRENT_STEP, Section, Span, line_number
from runner.flows.state.text.listing import bullets, change, read_bullets

SKIPPED = "skipped steps"
LIGHT_SECTIONS = {SKIPPED: "Skipped Steps"}
"""The sections of pointer and autodev, by their titles in lower case."""


def bullets_of(text: str, location: Location, title: str) -> tuple[str, ...]:
    """Read the bullets of a section; empty if there is no such section."""
    section = location.sections.get(title)
    if section is None:
        return ()
    return tuple(bullets(text, section, location.hidden))


def write_bullets(
    text: str, location: Location, title: str, values: Sequence[str], sections: dict[str, str]
) -> str:
    """Change the bullets of a section; `sections` are those of the dialect, in their usual order."""
    lines = [encode_bullet(value) for value in values]
    section = location.sections.get(title)
    if section is None:
        return apply(text, [new_section(text, location, title, lines, sections)])
    listing = read_bullets(text, section, location.hidden)
    return apply(text, change(text, listing, values, lines, empty="- none"))


def new_section(
    text: str, location: Location, title: str, lines: Sequence[str], sections: dict[str, str]
) -> Edit:
    """Insert a missing section after the nearest one that usually precedes it."""
    order = [CURRENT_STEP, *sections]
    before: list[Section] = [
        location.sections[name] for name in order[: order.index(title)] if name in location.sections
    ]
    whole = Span(before[-1].start, before[-1].end) if before else location.region
    start, end = whole.start, whole.end
    last = max(start, start + len(text[start:end].rstrip()) - 1)
    hashes = "#" * (before[-1].level if before else 2)
    return insert_after(text, text.rfind("\n", 0, last + 1) + 1, ["", f"{hashes} {sections[title]}", *lines])


def section_problems(text: str, location: Location, sections: dict[str, str]) -> list[Problem]:
    """Return a problem for each repeated section of a dialect: only the first one is read."""
    return [
        Problem(
            line=line_number(text, section.start),
            key=section.title,
            message=f"a second section '{sections[section.title]}'; only the first one is read",
            hint="merge the two",
            fatal=False,
        )
        for section in location.repeated
        if section.title in sections
    ]


def skipped_problems(text: str, location: Location, skipped: Sequence[str]) -> list[Problem]:
    """Return a problem for each bullet of Skipped Steps that names no step by its number."""
    section = location.sections.get(SKIPPED)
    return [
        Problem(
            line=line_number(text, section.start),
            key=SKIPPED,
            value=bullet,
            message=f"skipped step '{bullet}' does not begin with the number of a step",
            allowed="bullets such as `3 — Plan (2026-11-17)`",
            hint="without its number the step counts as not skipped",
            fatal=False,
        )
        for bullet in skipped
        if section is not None and not skipped_number(bullet)
    ]
