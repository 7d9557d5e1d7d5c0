"""The prompt of a session: the story, its step, what failed last, and what counts as done.

It is rendered from a template, ours or the user's: `$name` is replaced by a part, `$$` is a dollar. A line of
nothing but an empty part is dropped, with the blank lines after it.
"""

import re
from pathlib import Path
from string import Template

from msgspec import Struct

from isolation.patterns import pattern
from runner.core.model import DEFAULT_ATTEMPTS, SessionRecord, Step, Story
from runner.story.session import contract
from runner.story.session.contract import StateFacts

_ALONE = pattern(r"^[ \t]*\$(?:\{(\w+)\}|(\w+))[ \t]*(?:\n+|\Z)", re.MULTILINE)


class PromptFacts(Struct, frozen=True, kw_only=True):
    """Everything that the prompt of one session is made of.

    `last` is the session of this step before this one. `state` and `state_file` are None in `quick`. `agents`
    is how many helper agents may work at once, None for a plain command. `program` is how a session calls
    this program, and `context_file` tells it how full its context is. `not_landed` says why a story that was
    done is tried again. `earlier_work` is what was done before, for a conversation that does not know it.
    `note` is what the user says to this session, `reviewed` what others say about the
    draft. `whole` is the prompt itself, where no template makes it.
    """

    story: Story
    step: Step
    attempt: int
    verify: tuple[str, ...]
    result_file: Path
    program: str
    attempts: int = DEFAULT_ATTEMPTS
    step_prompt: str = ""
    answers: tuple[str, ...] = ()
    last_failure: str = ""
    last: SessionRecord | None = None
    shared: bool = False
    state: StateFacts | None = None
    state_file: Path | None = None
    agents: int | None = None
    context_file: str = ""
    not_landed: str = ""
    earlier_work: str = ""
    note: str = ""
    reviewed: str = ""
    whole: str = ""


def render(facts: PromptFacts, template: str) -> str:
    """Return the prompt; an empty part leaves no gap."""
    parts = _parts(facts)
    # Before anything is filled in, since the user's own words keep their blank lines.
    shaped = _ALONE.sub(lambda line: line[0] if parts[line[1] or line[2]] else "", template)
    return Template(shaped).substitute(parts).strip() + "\n"


def _parts(facts: PromptFacts) -> dict[str, object]:
    story = facts.story
    body, heading = story.prompt.strip(), f"# {story.title}"
    state = facts.state or StateFacts()
    answers = contract.decided(facts.answers, state.decisions)
    result = contract.result(facts.result_file, in_flow=facts.state_file is not None)
    interrupted = facts.last is not None and facts.last.outcome is None
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
        "answers": _under("Decided so far:", "\n".join(f"- {answer}" for answer in answers)),
        "owns": _under("Change only paths that match:", _bullets(story.owns)),
        "verify": _under("Your work counts when these commands pass here:", _bullets(facts.verify)),
        "tracker": contract.tracker(state.tracker, by_agent=state.tracker_by_agent),
        "agents": contract.agents(facts.agents),
        "continue": "\n\n".join(filter(None, (_resuming(facts, state), facts.earlier_work))),
        "interrupted": contract.resuming(facts.last, "") if interrupted else "",
        "last_failure": "\n\n".join(
            filter(None, (facts.not_landed, facts.reviewed, _failure(facts.last_failure), _said(facts.note)))
        ),
        "state": contract.state(facts.state_file, state, program=facts.program) if facts.state_file else "",
        "breaks": contract.breaks(state.breaks),
        "context": contract.context(facts.context_file),
        "contract": result,
        "ending": f"{contract.leaving(shared=facts.shared)} {result}",
        "result_file": facts.result_file,
    }


def _resuming(facts: PromptFacts, state: StateFacts) -> str:
    explained = bool(facts.last_failure or facts.not_landed or facts.reviewed)
    return contract.resuming(facts.last, state.sub_step, explained=explained)


def _failure(output: str) -> str:
    return _under("The attempt before this one failed:\n", _quoted(output))


def _said(note: str) -> str:
    return _under("The user says:\n", _quoted(note))


def _under(heading: str, text: str) -> str:
    return f"{heading}\n{text}" if text else ""


def _bullets(items: tuple[str, ...]) -> str:
    return "\n".join(f"- `{item}`" for item in items)


def _quoted(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.strip().splitlines())
