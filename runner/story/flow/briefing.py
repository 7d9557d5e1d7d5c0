"""What a session of a flow learns from its story's state file and from the data of its step."""

import re
from pathlib import Path

from runner.core.flow import FlowStep, artifact_parts, in_cycle
from runner.flows.state.model import Phase, StateFile, SubStep
from runner.flows.state.transitions import sub_step_words
from runner.flows.story_state import StoryState
from runner.story.session.contract import StateFacts


def state_facts(state: StoryState, step: FlowStep | None, *, by_agent: bool = False) -> StateFacts:
    """Return what a session of this step learns from the state file. Blocking."""
    recorded = state.recorded()
    here = recorded is not None and step is not None and recorded.step == step.number
    sub_step = recorded.sub_step if recorded and here else None
    return StateFacts(
        sub_step=sub_step_words(sub_step),
        next_save=_number(sub_step) + 1,
        tracker=_tracker(recorded) if step and step.tracker else "",
        tracker_by_agent=by_agent,
        decisions=recorded.decisions if recorded else (),
        breaks=step.breaks if step else "",
    )


def work_item_files(workspace: Path, step: FlowStep, cycle: int) -> tuple[Path, ...]:
    """List the files of a step that stand for work items; without a declaration, all of its artifacts."""
    globs = (artifact_parts(in_cycle(text, cycle))[0] for text in step.work_items or step.artifacts)
    return tuple(path for glob in globs for path in sorted(workspace.glob(glob)) if path.is_file())


def _tracker(recorded: StateFile | None) -> str:
    return recorded.tracker.value if recorded and recorded.tracker else ""


def _number(sub_step: SubStep) -> int:
    """Return the number of the last save; of `1b` that is 1."""
    if isinstance(sub_step, Phase):
        return sub_step.phase
    digits = re.match(r"\d+", sub_step.number) if sub_step is not None else None
    return int(digits[0]) if digits else 0
