"""What is asked of the base before the first session, and what follows from the answers. Pure.

A command of the settings is the project's own check: it must pass before anybody works. A command that a
story names for itself says when that story is done: it fails on the base by nature, and if it passes, it
will not show whether the story did anything. A command that cannot start is a fault of the machine for both.
"""

from collections import Counter
from collections.abc import Container, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from runner.core.base.commands import cannot_start, is_of_the_machine, missing_program
from runner.core.events.base import BaseChecked
from runner.core.limits.kill_switches import Switch
from runner.core.model import KillSwitch, Outcome, Step, Story, StoryId

if TYPE_CHECKING:
    from runner.core.settings import Settings

BASE = StoryId("_base")
"""The name of the base where others are named after their story; no story can be called that."""

STEP = Step(number="0", name="Base")
_VARIES = "AUTOPILOT_"
_SHORT = 10


class Mode(StrEnum):
    """What a base that is not ready means."""

    REQUIRE = "require"
    WARN = "warn"
    OFF = "off"


class Answer(StrEnum):
    """What the base answered to a command."""

    PASSES = "passes"
    FAILS = "fails"
    CANNOT_START = "cannot-start"


class Question(Struct, frozen=True, kw_only=True):
    """One command to run on the base, and the stories that it decides about.

    `shared` means that at least one of them has it from the settings.
    """

    command: str
    stories: tuple[StoryId, ...]
    shared: bool


def questions(
    stories: Sequence[Story],
    settings: "Settings",
    *,
    settled: Container[StoryId] = (),
    elsewhere: Container[StoryId] = (),
) -> tuple[Question, ...]:
    """Return what is asked, the project's own commands first, each once.

    Only stories that start from the base are concerned, and only commands that are the same for all of them.
    A story that depends on those `elsewhere`, in other repositories, starts from the base of its own.
    """
    users: dict[str, list[StoryId]] = {}
    shared: set[str] = set()
    for story in stories:
        if story.id in settled or any(name not in elsewhere for name in story.depends_on):
            continue
        for command in dict.fromkeys(story.verify or settings.verify):
            if _VARIES not in command:
                users.setdefault(command, []).append(story.id)
                shared |= set() if story.verify else {command}
    asked = (
        Question(command=command, stories=tuple(ids), shared=command in shared)
        for command, ids in users.items()
    )
    return tuple(sorted(asked, key=lambda question: not question.shared))


def answer_of(outcome: Outcome, exit_code: int | None, output: str) -> Answer:
    """Return what the end of a command on the base means."""
    if outcome is Outcome.OK:
        return Answer.PASSES
    if is_of_the_machine(missing_program(exit_code, output)):
        return Answer.CANNOT_START
    return Answer.FAILS


def refuses(question: Question, answer: Answer) -> bool:
    """Whether no story that this command decides about can succeed."""
    return answer is Answer.CANNOT_START or (question.shared and answer is Answer.FAILS)


def not_ready(check: BaseChecked, base: str, program: str) -> KillSwitch:
    """Return why no story starts: a command of the settings fails on the base, or lacks a program."""
    short = base[:_SHORT]
    if check.answer == Answer.CANNOT_START:
        detail, hint = cannot_start(f"verify `{check.command}`", program, check.exit_code)
        return KillSwitch(name=str(Switch.BASE), detail=f"on the base {short}, {detail}", hint=hint)
    detail = f"verify `{check.command}` already fails on the base {short}: {check.detail}"
    return Switch.BASE.tripped(detail)


def says_nothing(
    stories: Sequence[Story], settings: "Settings", passed: Container[str]
) -> tuple[StoryId, ...]:
    """Return the stories whose own commands all pass on the base, so that passing later shows nothing.

    What several stories name, or the settings, is a check of the project and is meant to pass.
    """
    named = Counter(command for story in stories for command in set(story.verify or settings.verify))
    return tuple(
        story.id
        for story in stories
        if story.verify
        and all(
            command in passed and named[command] == 1 and command not in settings.verify
            for command in story.verify
        )
    )
