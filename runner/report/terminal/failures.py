"""What failed, at the bottom of a report: the command, the lines that say why, and what to type next.

Nothing is cut to the width of the terminal: these lines are what a user acts upon.
"""

from runner.core.base.check import Answer
from runner.core.limits.kill_switches import Switch
from runner.core.model import RunSnapshot, Status, StorySnapshot
from runner.core.text.screen import cells, neutral
from runner.core.text.telling import explaining_output, failing_command, named_reason, telling_lines
from runner.core.text.words import SYMBOLS, count
from runner.report.terminal.table import Look

MOST_STORIES = 10
_INDENT = 4


def failures(run: RunSnapshot, look: Look) -> list[str]:
    """Return a block for what ended the run before its first session, and for each failed story."""
    failed = [story for story in run.stories.values() if story.status is Status.FAILED]
    lines = _base(run, look)
    for story in failed[:MOST_STORIES]:
        lines += ["", *_block(story, look)]
    if failed[MOST_STORIES:]:
        more = count(len(failed) - MOST_STORIES, "more story", "more stories")
        lines += ["", f"{more} failed; `autopilot-multi logs STORY` shows why"]
    return lines


def _base(run: RunSnapshot, look: Look) -> list[str]:
    """Return what the command printed that fails on the base, if the run ended for that."""
    if run.kill_switch is None or run.kill_switch.name != Switch.BASE:
        return []
    lines = []
    for check in run.base_checks:
        if check.shared and check.answer not in {"", Answer.PASSES}:
            lines += ["", *look.wrapped("the base is not ready: verify failed there", color="red")]
            lines += look.wrapped(f"$ {neutral(check.command)}", _INDENT, "bold")
            for line in check.output:
                lines += _kept(neutral(line), look)
            if check.log:
                lines += look.wrapped("`autopilot-multi logs --base` shows all of its output", _INDENT, "dim")
    return lines


def _block(story: StorySnapshot, look: Look) -> list[str]:
    lines = what_failed(story, look)
    if story.next:
        lines += look.wrapped(f"next: {neutral(story.next)}", _INDENT, "dim")
    return lines


def what_failed(story: StorySnapshot, look: Look) -> list[str]:
    """Return why a story failed: the reason, the command, and the lines of its output that tell."""
    command = failing_command(story.reason, story.step_history.last_failure)
    mark = f"{SYMBOLS[Status.FAILED]} " if look.marks else ""
    reason = named_reason(story)
    if command:
        reason = reason.replace(f"verify `{command}`: ", "verify failed, ")
    lines = look.wrapped(f"{mark}{story.id} failed: {neutral(reason)}", color="red")
    if command:
        lines += look.wrapped(f"$ {neutral(command)}", _INDENT, "bold")
    for line in telling_lines(explaining_output(story)):
        lines += _kept(line, look)
    return lines


def _kept(line: str, look: Look) -> list[str]:
    """Indent a line as it is; only one that does not fit is wrapped."""
    if look.width is None or cells(line) + _INDENT <= look.width:
        return [" " * _INDENT + line]
    return look.wrapped(line, _INDENT)
