"""The template of prompts, the program's or the user's; one that cannot be used is refused early."""

from pathlib import Path
from string import Template

from runner.core.errors import SettingsError
from runner.core.text.names import did_you_mean

DEFAULT_TEMPLATE = Path(__file__).parents[2] / "data" / "prompts" / "default.md"
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
    "interrupted",
    "last_failure",
    "ending",
    "result_file",
)
"""What a template may name."""
_NEEDED = frozenset({"story", "prompt"})


def load_template(path: Path | None = None) -> str:
    """Read the template of prompts; one that cannot be used is refused with what is wrong in it."""
    chosen = path or DEFAULT_TEMPLATE
    try:
        text = chosen.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(
            f"prompt-template: {chosen} cannot be read: {reason}",
            hint="name a file from the top of the repository, or leave the setting out.",
        ) from error
    template = Template(text)
    if not template.is_valid():
        raise SettingsError(
            f"prompt-template: {chosen} has a `$` that begins no name", hint="write a dollar as `$$`."
        )
    names = set(template.get_identifiers())
    for name in sorted(names - set(PARTS)):
        hint = did_you_mean(name, PARTS) or f"known are: {', '.join(PARTS)}."
        raise SettingsError(f"prompt-template: {chosen} names the unknown part ${name}", hint=hint)
    if not names & _NEEDED:
        raise SettingsError(
            f"prompt-template: {chosen} names neither $story nor $prompt",
            hint="without one of them no agent would learn what to do.",
        )
    return text
