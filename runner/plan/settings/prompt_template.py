"""The template of prompts, the built-in or the user's; an unusable one is refused early."""

from functools import cache
from pathlib import Path
from string import Template

from runner.core.errors import SettingsError
from runner.core.text.names import did_you_mean

DEFAULT_TEMPLATE = Path(__file__).with_name("default_prompt.md")
PARTS = (
    "story",
    "title",
    "prompt",
    "id",
    "step_number",
    "step_name",
    "attempt",
    "attempts",
    "step_prompt",
    "answers",
    "owns",
    "verify",
    "tracker",
    "agents",
    "continue",
    "interrupted",
    "last_failure",
    "state",
    "breaks",
    "context",
    "contract",
    "ending",
    "result_file",
)
"""The names that a template can contain."""
_NEEDED = frozenset({"story", "prompt"})


def load_template(path: Path | None = None) -> str:
    """Read the template of prompts; an unusable one is refused, with the reason."""
    return _load(path) if path else _default()


@cache
def _default() -> str:
    """Return the built-in template, which is a part of the program; the user's may change at any time."""
    return _load(DEFAULT_TEMPLATE)


def _load(chosen: Path) -> str:
    try:
        text = chosen.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(
            f"prompt-template: cannot read {chosen}: {reason}",
            hint="name a file relative to the top of the repository, or omit the setting.",
        ) from error
    template = Template(text)
    if not template.is_valid():
        raise SettingsError(
            f"prompt-template: {chosen} has a `$` without a name after it",
            hint="write a dollar sign as `$$`.",
        )
    names = set(template.get_identifiers())
    for name in sorted(names - set(PARTS)):
        hint = did_you_mean(name, PARTS) or f"known names: {', '.join(PARTS)}."
        raise SettingsError(f"prompt-template: {chosen} has the unknown name ${name}", hint=hint)
    if not names & _NEEDED:
        raise SettingsError(
            f"prompt-template: {chosen} has neither $story nor $prompt",
            hint="without one of them an agent does not know what to do.",
        )
    return text
