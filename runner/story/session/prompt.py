"""The prompt of a session: the story, its step, what failed last, and what counts as done.

It is rendered from a template, ours or the user's: `$name` is replaced by a part, `$$` is a dollar. A line of
nothing but an empty part is dropped, with the blank lines after it.
"""

import re
from pathlib import Path
from string import Template

from msgspec import Struct

from runner.core.model import DEFAULT_ATTEMPTS, Step, Story

_ENDING = (
    "Leave the work in this folder, committed or not; what is not committed is committed for you. "
    "You may write a result as JSON to {}."
)
_SHARED_ENDING = (
    "Leave the work in the files. Others work in this folder, too, so use git for looking only: do not "
    "commit, stage, stash, switch or restore. What is yours is committed for you. "
    "You may write a result as JSON to {}."
)
_ALONE = re.compile(r"^[ \t]*\$(?:\{(\w+)\}|(\w+))[ \t]*(?:\n+|\Z)", re.MULTILINE)


class PromptFacts(Struct, frozen=True, kw_only=True):
    """Everything that the prompt of one session is made of."""

    story: Story
    step: Step
    attempt: int
    verify: tuple[str, ...]
    result_file: Path
    attempts: int = DEFAULT_ATTEMPTS
    step_prompt: str = ""
    answers: tuple[str, ...] = ()
    last_failure: str = ""
    interrupted: bool = False
    shared: bool = False


def render(facts: PromptFacts, template: str) -> str:
    """Return the prompt; an empty part leaves no gap."""
    parts = _parts(facts)
    # Before anything is filled in, since the user's own words keep their blank lines.
    shaped = _ALONE.sub(lambda line: line[0] if parts[line[1] or line[2]] else "", template)
    return Template(shaped).substitute(parts).strip() + "\n"


def _parts(facts: PromptFacts) -> dict[str, object]:
    story = facts.story
    body, heading = story.prompt.strip(), f"# {story.title}"
    return {
        "story": body if body.startswith(heading) else f"{heading}\n\n{body}".strip(),
        "title": story.title,
        "prompt": body,
        "id": story.id,
        "step_number": facts.step.number,
        "step_name": facts.step.name,
        "attempt": facts.attempt,
        "attempts": facts.attempts,
        "step_prompt": _under("What this step is for:\n", facts.step_prompt),
        "answers": _under("The user has decided:", "\n".join(f"- {answer}" for answer in facts.answers)),
        "owns": _under("Change only paths that match:", _bullets(story.owns)),
        "verify": _under("Your work counts when these commands pass here:", _bullets(facts.verify)),
        "interrupted": "An earlier session of this step was cut off; its unfinished changes are still here."
        if facts.interrupted
        else "",
        "last_failure": _under("The attempt before this one failed:\n", _quoted(facts.last_failure)),
        "ending": (_SHARED_ENDING if facts.shared else _ENDING).format(facts.result_file),
        "result_file": facts.result_file,
    }


def _under(heading: str, text: str) -> str:
    return f"{heading}\n{text}" if text else ""


def _bullets(items: tuple[str, ...]) -> str:
    return "\n".join(f"- `{item}`" for item in items)


def _quoted(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines())
