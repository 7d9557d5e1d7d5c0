"""What a session is told: the story, where it stands, what went wrong last, and what counts as done."""

from dataclasses import dataclass
from pathlib import Path

from runner.core.model import MAX_RETRIES, Step, Story


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFacts:
    """Everything that the prompt of one session is made of."""

    story: Story
    step: Step
    attempt: int
    verify: tuple[str, ...]
    result_file: Path
    step_prompt: str = ""
    answers: tuple[str, ...] = ()
    last_failure: str = ""
    interrupted: bool = False


def render(facts: PromptFacts) -> str:
    """Write the prompt; the story's own words come first."""
    story = facts.story
    body = story.prompt.strip()
    heading = f"# {story.title}"
    parts = [body if body.startswith(heading) else f"{heading}\n\n{body}".strip()]
    parts.append(
        f"Story {story.id}, step {facts.step.number} ({facts.step.name}), "
        f"attempt {facts.attempt} of {MAX_RETRIES + 1}."
    )
    if facts.step_prompt:
        parts.append(f"What this step is for:\n\n{facts.step_prompt}")
    if facts.answers:
        parts.append("A person has decided:\n" + "\n".join(f"- {answer}" for answer in facts.answers))
    if story.owns:
        parts.append("Change only paths that match:\n" + _bullets(story.owns))
    if facts.verify:
        parts.append("Your work counts when these commands pass here:\n" + _bullets(facts.verify))
    if facts.interrupted:
        parts.append("An earlier session of this step was cut off; its unfinished changes are still here.")
    if facts.last_failure:
        parts.append("The attempt before this one failed:\n\n" + _quoted(facts.last_failure))
    parts.append(
        "Leave the work in this folder, committed or not; what is not committed is committed for you. "
        f"You may write a result as JSON to {facts.result_file}."
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def _bullets(items: tuple[str, ...]) -> str:
    return "\n".join(f"- `{item}`" for item in items)


def _quoted(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines())
