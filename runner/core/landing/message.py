"""Messages of landed commits: templates with placeholders, checked when the settings are read. Pure."""

from collections.abc import Mapping
from string import Formatter

PLACEHOLDERS = ("id", "title", "onto", "run", "branch", "landing", "style")
"""What a template may hold, in braces."""

MERGED = "Merge story {id}: {title}"
ONE_COMMIT = "{title}"


def flaw(template: str) -> str:
    """Return what is wrong with a template, as the end of a sentence; empty if nothing is."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError:
        return "has a brace without its partner; write {{ or }} for a brace of the text"
    for _, name, form, conversion in parts:
        if name is None:
            continue
        if name not in PLACEHOLDERS or form or conversion:
            word = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
            return f"has the unknown placeholder {{{word}}}"
    return "" if not template or template.strip() else "has no text"


def filled(template: str, values: Mapping[str, str]) -> str:
    """Return a template with its placeholders replaced; its end is one line break."""
    return template.format_map(values).strip() + "\n"
