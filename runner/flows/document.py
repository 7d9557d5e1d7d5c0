"""Turns the data of a flow file into flows, one per edition, and collects all of its problems."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runner.core.choose import Question, QuestionError, QuestionKind, lettered
from runner.core.flow import DetectRule, Edition, Flow, FlowProblem, FlowStep, number_key
from runner.core.model import SessionKind
from runner.core.text.names import one_line, shown

if TYPE_CHECKING:
    from runner.flows.entries import LoopEntry, QuestionEntry, RuleEntry, StepEntry


class Document(Struct, frozen=True, kw_only=True):
    """What a flow file holds; if there are problems, the flows must not be used."""

    flows: Mapping[Edition, Flow]
    problems: tuple[FlowProblem, ...]


class _Parts(Struct, frozen=True, kw_only=True):
    """The tables that could be read; `whole`: every step could."""

    name: str
    summary: str
    steps: "Sequence[StepEntry]"
    rules: "Sequence[RuleEntry]"
    loop: "LoopEntry | None"
    whole: bool


def read(data: Mapping[str, Any], name: str) -> Document:
    """Read the data of a flow file whose flow is called `name`."""
    problems: list[FlowProblem] = []
    parts = _parts(data, name, problems)
    used = {edition for step in parts.steps for edition in step.number}
    flows = {edition: _flow(parts, edition) for edition in Edition if edition.value in used}
    for flow in flows.values():
        problems.extend(_flow_problems(flow, whole=parts.whole))
    if Edition.ANY in flows and len(flows) > 1:
        message = "some steps have one number, others a table with one for each edition"
        problems.append(
            FlowProblem(where="", message=message, hint="write 'number' the same way everywhere.")
        )
    return Document(flows=flows, problems=tuple(problems))


def _parts(data: Mapping[str, Any], name: str, problems: list[FlowProblem]) -> _Parts:
    # Here, since most plans have no flow to read, and pydantic takes longer to load than a plan.
    from runner.flows.entries import LoopEntry, RuleEntry, StepEntry, Top, validated

    top = validated(Top, data, "", problems)
    if top is None:
        # Wrong or unknown keys at the top must not hide what is wrong in the steps.
        lists = {key: data.get(key) for key in ("steps", "detect")}
        top = Top.model_validate({key: value for key, value in lists.items() if isinstance(value, list)})
    elif not top.steps:
        problems.append(FlowProblem(where="", message="the flow has no steps", hint="add a [[steps]] table."))
    if top.name not in {"", name}:
        message = f"the flow is called '{top.name}', but its file '{name}'"
        problems.append(FlowProblem(where="", message=message, hint="rename one of them."))
    steps = []
    for place, raw in enumerate(top.steps, start=1):
        where = _where(place, raw)
        step = validated(StepEntry, raw, where, problems)
        if step is not None:
            steps.append(step)
            problems.extend(_step_problems(where, step))
    rules = [
        validated(RuleEntry, raw, f"rule {place}", problems) for place, raw in enumerate(top.detect, start=1)
    ]
    return _Parts(
        name=name,
        summary=top.summary,
        steps=steps,
        rules=[rule for rule in rules if rule is not None],
        loop=None if top.loop is None else validated(LoopEntry, top.loop, "loop", problems),
        whole=len(steps) == len(top.steps),
    )


def _where(place: int, raw: Any) -> str:
    name = raw.get("name") if isinstance(raw, dict) else None
    return f"step {place} ({one_line(name)})" if isinstance(name, str) and name.strip() else f"step {place}"


def _flow(parts: _Parts, edition: Edition) -> Flow:
    loop = parts.loop if parts.loop is not None and _applies(parts.loop.editions, edition) else None
    return Flow(
        name=parts.name,
        edition=edition,
        summary=parts.summary,
        steps=tuple(_step(step, edition) for step in parts.steps if edition.value in step.number),
        detect=tuple(
            DetectRule(every=tuple(rule.every), some=tuple(rule.some), none=tuple(rule.none))
            for rule in parts.rules
            if _applies(rule.editions, edition)
        ),
        loop_from=loop.start if loop else None,
        loop_to=loop.to if loop else None,
    )


def _applies(editions: Sequence[str], edition: Edition) -> bool:
    return not editions or edition.value in editions


def _step(step: "StepEntry", edition: Edition) -> FlowStep:
    question = None if step.question is None else _question(step.question, step.artifacts)
    return FlowStep(
        number=step.number[edition.value],
        name=step.name.get(edition.value) or step.name.get(Edition.ANY.value, ""),
        prompt=step.prompt.strip(),
        artifacts=tuple(step.artifacts),
        kind=SessionKind(step.kind),
        session_boundary=step.session_boundary,
        optional=step.optional,
        tracker=step.tracker,
        work_items=tuple(step.work_items),
        breaks=step.breaks,
        baseline=step.baseline,
        command=tuple(step.command) if step.command else None,
        boundary_question=question if isinstance(question, Question) else None,
    )


def _question(entry: "QuestionEntry", artifacts: Sequence[str]) -> Question | QuestionError:
    try:
        return Question(
            kind=QuestionKind.BOUNDARY,
            title=entry.title,
            options=lettered(entry.options),
            recommendation=entry.recommendation,
            why=entry.reason,
            pauses=entry.pauses,
            until=tuple(artifacts) if entry.pauses else (),
        )
    except QuestionError as error:
        return error


def _step_problems(where: str, step: "StepEntry") -> Iterator[FlowProblem]:
    """Find problems that involve more than one value of a step."""
    if step.kind == "verify" and (step.prompt or step.command):
        message = "a verify step runs the story's own verify commands: its prompt or command has no effect"
        yield FlowProblem(where=where, message=message, hint='remove it, or remove kind = "verify".')
    if step.kind == "work" and not (step.prompt or step.command):
        message = "the step has neither a prompt nor a command"
        yield FlowProblem(
            where=where, message=message, hint="say what the agent should do, or add a command."
        )
    for edition in step.number:
        if edition not in step.name and Edition.ANY.value not in step.name:
            message = f"'number' has an entry for {edition}, 'name' has none"
            yield FlowProblem(where=where, message=message, hint=f"add {edition} to 'name'.")
    if step.work_items and not step.tracker:
        message = "the step has work items, but creates none"
        yield FlowProblem(where=where, message=message, hint="add tracker = true, or remove work_items.")
    if step.question is None:
        return
    if not step.session_boundary:
        message = "the step has a question, but no session boundary at which it is asked"
        yield FlowProblem(where=where, message=message, hint="add session_boundary = true, or remove it.")
    if isinstance(error := _question(step.question, step.artifacts), QuestionError):
        hint = "a question has 2 to 4 one-line options, and recommends one by its letter."
        yield FlowProblem(where=where, message=f"'question': {error}", hint=hint)


def _flow_problems(flow: Flow, *, whole: bool) -> Iterator[FlowProblem]:
    """Find problems that involve more than one step; if a step was unreadable, only the certain ones."""
    where = "" if flow.edition is Edition.ANY else f"edition {flow.edition}"
    numbers = [step.number for step in flow.steps]
    for number in dict.fromkeys(one for one in numbers if numbers.count(one) > 1):
        message = f"the number {number} is used {numbers.count(number)} times"
        yield FlowProblem(where=where, message=message, hint="give every step its own number.")
    for before, after in pairwise(numbers):
        if (number_key(before) or (0, "")) > (number_key(after) or (0, "")):
            message = f"step {after} comes after step {before}"
            yield FlowProblem(where=where, message=message, hint="order the steps by their numbers.")
    for number in numbers if flow.edition is not Edition.RICH else ():
        if not number.isdecimal() or int(number) == 0:
            message = f"step {number}: only the rich edition numbers steps with letters or from 0"
            yield FlowProblem(where=where, message=message, hint="use whole numbers from 1.")
    if whole and flow.steps[-1].session_boundary:
        message = f"the last step, {flow.steps[-1].name}, has a session boundary, but nothing comes after it"
        yield FlowProblem(where=where, message=message, hint="remove session_boundary from it.")
    if whole and flow.loop_from is not None:
        yield from _loop_problems(flow, where, numbers)


def _loop_problems(flow: Flow, where: str, numbers: Sequence[str]) -> Iterator[FlowProblem]:
    known = f"the steps are {', '.join(numbers)}."
    if flow.loop_from != numbers[-1]:
        message = f"the loop starts from step {shown(flow.loop_from)}, which is not the last one"
        yield FlowProblem(where=where, message=message, hint=known)
    if flow.loop_to not in numbers:
        message = f"the loop leads to step {shown(flow.loop_to)}, which does not exist"
        yield FlowProblem(where=where, message=message, hint=known)
