"""The contract in the words of a prompt: how a session ends, how it asks, what it saves and what it reads.

Each function returns one part of the prompt, empty where it does not apply. The parts are short, since
every session reads them.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from runner.core.limits.context_zone import Zone
from runner.core.model import Outcome, SessionRecord
from runner.core.text.words import count
from runner.core.work_items.tracker import TITLES

DONE_EXAMPLE = {"status": "done", "notes": "one line about what you did"}
ASK_EXAMPLE = {
    "status": "needs-decision",
    "decision": {
        "question": "Which database?",
        "options": ["Postgres", "SQLite"],
        "recommendation": "B",
        "reason": "nothing to operate",
    },
}

_COUNTS = (
    "Optional numbers, if you know them: `agent_summary` (`complete`, `partial`, `failed`, `spiral`: how "
    "your helper agents ended), `effectiveness` (`planned_issues`, `completed`, `carryover`: tasks), `usage` "
    "(`input_tokens`, `output_tokens`, `cost_usd`)."
)
_LEAVE = "Leave the work in this folder, committed or not; what is not committed is committed for you."
_LEAVE_SHARED = (
    "Leave the work in the files. Others work in this folder, too, so use git for looking only: do not "
    "commit, stage, stash, switch or restore. What is yours is committed for you."
)


class StateFacts(Struct, frozen=True, kw_only=True):
    """What a story's state file says when a session starts, and what its step asks of the session.

    `sub_step` is what the last session saved, empty before the first save; `next_save` is the number of the
    next one. `tracker` is where work items are kept, empty in steps that create none; `tracker_by_agent`
    means that the agent creates them. `decisions` are those in the file. `breaks` says where the session may
    end early.
    """

    sub_step: str = ""
    next_save: int = 1
    tracker: str = ""
    tracker_by_agent: bool = False
    decisions: tuple[str, ...] = ()
    breaks: str = ""


def leaving(*, shared: bool) -> str:
    """Say what becomes of the work."""
    return _LEAVE_SHARED if shared else _LEAVE


def result(path: Path, *, in_flow: bool) -> str:
    """Say how a session reports its result, and how it asks the user; in short form for `quick`."""
    if not in_flow:
        return (
            f"Before you end, write the result as JSON to `{path}`:\n\n{_shown(DONE_EXAMPLE)}\n\n"
            "Other values of `status`: `partial` (save what you have; another session continues), `failed` "
            "(`notes` say why; the next attempt reads them). If the user must decide, ask instead of "
            f"guessing; the next session gets the answer:\n\n{_shown(ASK_EXAMPLE)}\n\n"
            f"Give 2 to 4 options, and recommend one. {_COUNTS}"
        )
    return (
        f"Before you end, write the result as JSON to `{path}`:\n\n{_shown(DONE_EXAMPLE)}\n\n"
        "- `done`: the step is complete. Its files and, where there are any, the verify commands are "
        "checked.\n"
        "- `partial`: there is more to do. What you have is committed, and a fresh session continues.\n"
        "- `failed`: `notes` say why. The next attempt reads them.\n"
        "- `needs-decision`: the user must decide. The story waits, and the next session gets the answer.\n\n"
        "Ask instead of guessing when the choice is hard to undo, when neither the documents nor earlier "
        "decisions imply the answer, or when instructions that you follow stop for a confirmation. Save "
        f"first, then end with:\n\n{_shown(ASK_EXAMPLE)}\n\n"
        "Give 2 to 4 options of one line, recommend one, and say why. Do not ask what is decided above.\n"
        f"{_COUNTS}"
    )


def state(path: Path, facts: StateFacts, *, program: str) -> str:
    """Say which file is the session's memory, what of it belongs to the runner, and how to save."""
    return (
        f"The state file is `{path}`. What is on disk is your memory: read the file first, then the "
        "instructions of the skill that you use, if any, then only the documents that this part of the step "
        "needs. Do not read all documents at once; search long ones and read the sections that you need.\n\n"
        "After each part of the work, save where you are:\n\n"
        f'    {program} state sub-step {facts.next_save} short-name "where you are, in a few words"\n\n'
        "The number starts at 1 and rises by one with each save, the name is in kebab-case. `step`, "
        "`status`, `retry_count` and `cycle` belong to the runner: do not change them. If you cannot run "
        "commands, edit `sub_step` in the file and nothing else.\n"
        "Files of this step that exist already are earlier work: continue them, and do not overwrite them "
        "unless a decision above says so."
    )


def resuming(last: SessionRecord | None, sub_step: str, *, explained: bool = False) -> str:
    """Say how the last session of this step ended, and where it stopped.

    `explained` means that another part of the prompt says why it failed.
    """
    known = explained and last is not None and last.outcome is Outcome.FAILED
    lines = [_ending_of(last)] if last is not None and not known else []
    if sub_step:
        lines.append(f"Saved last: sub-step {sub_step}. Continue there; do not repeat what came before it.")
    return "\n".join(filter(None, lines))


def _ending_of(last: SessionRecord) -> str:  # noqa: PLR0911  one return per outcome
    detail = f": {last.detail}" if last.detail else ""
    match last.outcome:
        case None | Outcome.STOPPED | Outcome.STALLED:
            return "An earlier session of this step was cut off; its unfinished changes are still here."
        case Outcome.FAILED:
            return f"The last session of this step failed{detail}."
        case Outcome.PARTIAL if last.zone in {Zone.CAUTION, Zone.DANGER}:
            return "The last session of this step ended since its context was full; this one is fresh."
        case Outcome.PARTIAL:
            return f"The last session of this step ended before the step was complete{detail}."
        case Outcome.ASKS:
            return "The last session of this step asked the user; the answer is above, its changes are here."
        case Outcome.STUCK:
            return f"The last session of this step was ended because it made no progress{detail}."
        case Outcome.OK:
            return ""


def tracker(name: str, *, by_agent: bool = False) -> str:
    """Say where the work items of this step are kept, and how their files are named."""
    if not name:
        return ""
    title = next((words for one, words in TITLES.items() if one == name), "")
    if title and not by_agent:
        return (
            f"Work items are kept in {title}. The runner creates them from your files when the "
            "step is complete, so create none yourself. Begin the names of task files with numbers, such as "
            "`01_initial_structure.md`; it puts ids in their place. In each task file write a line "
            "`Epic: <name>` and, if it waits for other tasks, a line `Dependencies: <file names>`. Begin the "
            "heading of each epic with `## Epic:`."
        )
    if title:
        return (
            f"Work items are kept in {title}. Create one for each epic or task file with your tools, link "
            "tasks to their epics, begin the name of a task file with the id of its work item, and put a "
            "line `Tracker: <id>` below the heading of each file."
        )
    return (
        "No work item tracker is used. Begin the names of task files with numbers, such as "
        "`01_initial_structure.md`, and put the line `Tracker: pending` below the heading of each epic or "
        "task file."
    )


def agents(most: int | None) -> str:
    """Say how many helper agents may work at once; nothing to a session that has none."""
    if most is None:
        return ""
    if most == 0:
        return "Work alone: start no helper agents."
    return f"Start at most {count(most, 'helper agent')} at a time."


def breaks(where: str) -> str:
    """Say where a session may end early, so that a fresh one continues."""
    if not where:
        return ""
    return (
        f"Good places to end this session early: {where}. Save, write the status `partial`, and end; a fresh "
        "session continues there."
    )


def context(file: str) -> str:
    """Say where the session finds how full its context is."""
    if not file:
        return ""
    return (
        f"When your context fills up, the save command and the file `{file}` say so: caution or danger. Then "
        "finish the part that you are in, save, write the status `partial`, and end."
    )


def decided(answers: tuple[str, ...], recorded: tuple[str, ...]) -> tuple[str, ...]:
    """Return all decisions once: those of the state file first, then answers that it does not have."""
    only_there = [text for text in recorded if not any(answer.startswith(text) for answer in answers)]
    return tuple(dict.fromkeys((*only_there, *answers)))


def _shown(example: Mapping[str, object]) -> str:
    return f"    {json.dumps(example)}"
