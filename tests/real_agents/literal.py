"""What a model does that obeys its prompt to the letter, and does nothing else."""

import re
from typing import Any

from tests.acceptance.literal_agent import WORDS

_PLACE = re.compile(r"^Story .+, step (?:.+) \((.+)\), attempt", re.MULTILINE)
_NAMED = re.compile(r"`([^`\s]+\.(?:md|yaml|json))`")
_SAVE = re.compile(r"save where you are:\n\n    (.+)\n")
_RESULT = re.compile(r"write the result as JSON to `(.+/(\.orchestrator/.+))`:\n\n    (.+)\n")
_QUESTION = re.compile(r"then end with:\n\n    (.+)\n")


def literal_acts(script: dict[str, Any], prompt: str) -> list[dict[str, Any]]:
    """Return the acts that a prompt asks for, in its order."""
    place, result, question = _PLACE.search(prompt), _RESULT.search(prompt), _QUESTION.search(prompt)
    if place is None or result is None:
        return [{"say": "The prompt does not say what to do."}]
    step = place[1]
    if step == script.get("fails") and "Retry with fresh context" not in prompt:
        return [{"say": "I could not find a way."}]
    if step == script.get("asks") and question and "Which database?: " not in prompt:
        return [{"write": [result[2], question[1]]}]
    _, _, task = prompt.partition("What this step is for:\n\n")
    task, *_ = task.split("\n\n")
    acts: list[dict[str, Any]] = []
    for name in dict.fromkeys(_NAMED.findall(task)):
        for placeholder, word in WORDS.items():
            name = name.replace(placeholder, word)  # noqa: PLW2901  the same name, filled in
        if f"Compare the code with `{name}`" not in task and not _is_read(name, task):
            acts.append({"write": [name, f"{step}, as the prompt says.\n"]})
    save = _SAVE.search(prompt)
    if save and step == script.get("crowded") and "its context was full" not in prompt:
        return [*[{"sh": "true"}] * 26, {"sh": save[1]}, *[{"sh": "true"}] * 40]
    acts += [{"sh": save[1]}] if save else []
    return [*acts, {"write": [result[2], result[3]]}]


def _is_read(name: str, task: str) -> bool:
    """Whether the step only reads a file that an earlier one has written."""
    return f"Plan how `{name}` is built" in task or f"If `{name}` is not there" in task
