"""Templates of messages: what is refused, and how placeholders are replaced."""

import pytest

from runner.core.landing.message import MERGED, ONE_COMMIT, PLACEHOLDERS, filled, flaw


@pytest.mark.parametrize(
    ("template", "word"),
    [
        ("{nope}", "{nope}"),
        ("{}", "{}"),
        ("{id!r}", "{id!r}"),
        ("{id:>9}", "{id:>9}"),
        ("{id.real}", "{id.real}"),
        ("{id", "partner"),
        ("id}", "partner"),
        (" \n", "no text"),
    ],
)
def test_a_flawed_template_is_named(template: str, word: str) -> None:
    """Nothing but plain placeholders is replaced, so that no value can be reached into."""
    assert word in flaw(template)


def test_every_placeholder_is_replaced() -> None:
    """Doubled braces are text, and values are never read as templates."""
    values = {name: f"<{{{name}}}>" for name in PLACEHOLDERS}
    for template in ("", MERGED, ONE_COMMIT, "{{x}} {id}", " ".join(f"{{{name}}}" for name in PLACEHOLDERS)):
        assert flaw(template) == ""
    assert filled("{{x}} {id}\n\n", values) == "{x} <{id}>\n"
