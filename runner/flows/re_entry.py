"""What a story that continues finds: its position, how sure that is, and the status that is shown first.

Three witnesses are heard: the state file, the folders, and the journal. The folders win over the file. The
journal only counts where it knows what the folders cannot show: that a step is still being worked on.
"""

from msgspec import Struct

from runner.core import choose
from runner.core.flow import DetectedPosition, Flow, next_step, step
from runner.core.model import FLOW_DONE, Step
from runner.core.text.words import count
from runner.flows.state.model import LastSession, StateFile, StepStatus
from runner.flows.state.transitions import sub_step_words

_STATUS = {
    StepStatus.NOT_STARTED: "not started",
    StepStatus.IN_PROGRESS: "in progress",
    StepStatus.COMPLETED: "done",
    StepStatus.SKIPPED: "skipped",
    StepStatus.FAILED: "failed",
}


class Journaled(Struct, frozen=True, kw_only=True):
    """What the journal knows of a story's position.

    `place` is None before it was determined. `worked` means that a session of this step has begun in this
    run, so that its artifacts do not yet show that it is done. `skipped` are steps that the user skipped in
    this run, `skipped_earlier` those of earlier runs. The rest is what the dialect may have no section for.
    """

    place: Step | None = None
    worked: bool = False
    cycle: int | None = None
    skipped: tuple[str, ...] = ()
    skipped_earlier: tuple[str, ...] = ()
    failure: str = ""
    decisions: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    last_session: str = ""


class Found(Struct, frozen=True, kw_only=True):
    """The position of the story: `question` if the user must decide first, `notes` for the log.

    `retries` are those that the file had counted for the step; `banner` are the lines of the status, empty
    for a story that begins.
    """

    place: Step
    confidence: float
    correction: str = ""
    question: choose.Question | None = None
    notes: tuple[str, ...] = ()
    banner: tuple[str, ...] = ()
    cycle: int = 1
    retries: int = 0


def candidates(flow: Flow, detected: DetectedPosition, recorded: str | None) -> tuple[Step, ...]:
    """Return the steps at which a story may continue when the folders contradict themselves.

    The first gap comes first, then what the state file says, then what follows the last step that looks done.
    """
    ahead = next_step(flow, detected.ahead[-1].number) if detected.ahead else None
    numbers = [
        detected.step.number if detected.step else None,
        recorded,
        ahead.number if ahead else None,
    ]
    found = (step(flow, number) for number in dict.fromkeys(numbers) if number)
    return tuple(Step(number=one.number, name=one.name) for one in found if one is not None)


def banner(story_id: str, flow: Flow, state: StateFile, place: Step, journal: Journaled) -> tuple[str, ...]:
    """Return the status of a story that continues: its steps, and what was decided, ended and blocked."""
    number = next((at for at, one in enumerate(flow.steps, start=1) if one.number == place.number), None)
    where = f"step {number} of {len(flow.steps)} ({place.name})" if number else "all steps done"
    lines = [f"{story_id}: {flow.name}, {where}"]
    width = max(len(one.name) for one in flow.steps)
    passed = place.number == FLOW_DONE.number
    reached = False
    for one in flow.steps:
        here = one.number == place.number
        reached = reached or here
        if here:
            words = _here(state, place)
        elif one.number in journal.skipped:
            words = "skipped"
        else:
            words = "not started" if reached and not passed else "done"
        lines.append(f"{'>' if here else ' '} {one.number:>3} {one.name:<{width}}  {words}")
    decisions = dict.fromkeys((*state.decisions, *journal.decisions))
    lines += [f"decided: {text}" for text in decisions]
    last = last_session_words(state.last_session) or journal.last_session
    lines += [f"last session: {last}"] if last else []
    lines += [f"blocker: {text}" for text in dict.fromkeys((*state.blockers, *journal.blockers))]
    return tuple(lines)


def _here(state: StateFile, place: Step) -> str:
    if state.step != place.number:
        return "not started"
    words = [_STATUS[state.status]]
    if sub_step := sub_step_words(state.sub_step):
        words.append(f"sub-step {sub_step}")
    if state.retry_count:
        words.append(f"retried {count(state.retry_count, 'time')}")
    return ", ".join(words)


def last_session_words(session: LastSession | None) -> str:
    """Return a last session in one line, as it is shown, and kept by the journal; empty without one."""
    if session is None:
        return ""
    how = ": ".join(part for part in (session.reason, session.notes) if part)
    return ", ".join(part for part in (session.date, session.ended_at, how) if part)
