"""The Choose form: one question to the user, with 2 to 4 one-line options and one recommendation.

Every `Question` that exists may be asked: the rules are checked when it is built, and a violation
raises a `QuestionError`. Every text in it is safe for a terminal. Only `why` may contain line
breaks, where a reason needs them.
"""

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import Struct

from runner.core.errors import UsageError
from runner.core.model import MAX_RETRIES
from runner.core.text.names import one_line, shown
from runner.core.text.screen import neutral

RULE = "═" * 38
LETTERS = "ABCD"
FEWEST = 2
WAIT_FOR_OTHERS, CONTINUE_ANYWAY = "A", "B"
"""Answers about other sessions; the second is one only where they may run in parallel."""

_ANSWER = re.compile(r"\(?([A-Za-z])[).:]?(?:\s+(.+))?")


class QuestionError(ValueError):
    """A question breaks a rule of the form, and must not be shown."""


class AnswerError(UsageError):
    """The answer is none of the options."""

    code = "answer"


class QuestionKind(StrEnum):
    """What a question is about; it decides the prefix of the title."""

    DECISION = "decision"
    FAILURE = "failure"
    RECOVERY = "recovery"
    ROLLBACK = "rollback"
    TRACKER = "tracker"
    BOUNDARY = "boundary"
    CONFIDENCE = "confidence"
    BLOCKED = "blocked"
    PROMOTION = "promotion"


_DECISION = "DECISION REQUIRED: "
_PREFIXES: Mapping[QuestionKind, str] = {
    QuestionKind.DECISION: _DECISION,
    QuestionKind.FAILURE: "SKILL FAILED: ",
    QuestionKind.RECOVERY: "RECOVERY: ",
    QuestionKind.ROLLBACK: "ROLLBACK: ",
    QuestionKind.TRACKER: "",
    QuestionKind.BOUNDARY: _DECISION,
    QuestionKind.CONFIDENCE: _DECISION,
    QuestionKind.BLOCKED: "BLOCKED: ",
    QuestionKind.PROMOTION: _DECISION,
}


class Option(Struct, frozen=True, kw_only=True):
    """One way to continue; a destructive one is confirmed before it is carried out."""

    letter: str
    text: str
    destructive: bool = False


class Question(Struct, frozen=True, kw_only=True):
    """A question that obeys the form. `details` are lines between the title and the options."""

    kind: QuestionKind
    title: str
    options: tuple[Option, ...]
    recommendation: str
    why: str
    details: tuple[str, ...] = ()
    warning: str = ""

    def __post_init__(self) -> None:
        if not FEWEST <= len(self.options) <= len(LETTERS):
            raise QuestionError(f"a question has 2 to 4 options, not {len(self.options)}")
        letters = "".join(option.letter for option in self.options)
        if letters != LETTERS[: len(letters)]:
            raise QuestionError(f"options are lettered A, B, C, D in order, not {', '.join(letters)}")
        if self.recommendation not in tuple(letters):
            raise QuestionError(f"the recommendation {shown(self.recommendation)} is none of the options")
        _require_line("the title", self.title)
        for option in self.options:
            _require_line(f"option {option.letter}", option.text)
        for line in (*self.why.split("\n"), *filter(None, [self.warning]), *self.details):
            _require_line("a line of the reason, the warning or the details", line)
        if len({option.text.casefold() for option in self.options}) < len(self.options):
            raise QuestionError("two options say the same")

    def option(self, letter: str) -> Option:
        """Return the option of a letter that `parse_answer` returned."""
        return self.options[LETTERS.index(letter)]


def _require_line(what: str, text: str) -> None:
    if not text.strip():
        raise QuestionError(f"{what} is empty")
    if neutral(text) != text or text != text.strip():
        raise QuestionError(f"{what} is not one plain line: {shown(text)}")


def lettered(texts: Sequence[str], *, destructive: str = "") -> tuple[Option, ...]:
    """Make options from texts; `destructive` holds the letters of those that destroy something."""
    if len(texts) > len(LETTERS):
        raise QuestionError(f"a question has 2 to 4 options, not {len(texts)}")
    pairs = zip(LETTERS, texts, strict=False)
    return tuple(Option(letter=one, text=text, destructive=one in destructive) for one, text in pairs)


def render(question: Question) -> str:
    """Return the question as it is shown, without a final newline."""
    options = [f"{option.letter}) {option.text}" for option in question.options]
    warning = [f"Warning: {question.warning}"] if question.warning else []
    beside = question.kind is QuestionKind.BOUNDARY  # there it belongs to option B, elsewhere to the whole
    blocks = [
        [_PREFIXES[question.kind] + question.title],
        list(question.details),
        options + (warning if beside else []),
        [] if beside else warning,
        [f"Recommendation: {question.recommendation} — {question.why}"],
    ]
    return "\n".join([RULE, *("\n".join([*block, RULE]) for block in blocks if block)])


def parse_answer(question: Question, text: str) -> str:
    """Read an answer such as `a`, `A)` or the whole line of an option; anything else is refused."""
    read = _ANSWER.fullmatch(text.strip())
    letter = read.group(1).upper() if read else ""
    for option in question.options:
        rest = read.group(2) if read else None
        if option.letter == letter and (rest is None or one_line(rest).casefold() == option.text.casefold()):
            return letter
    letters = [option.letter for option in question.options]
    known = f"{', '.join(letters[:-1])} or {letters[-1]}"
    said = f"{shown(text.strip())} is not an answer" if text.strip() else "no answer was given"
    raise AnswerError(f"{said} to: {question.title}", hint=f"answer with {known}.")


def must_confirm(question: Question, letter: str) -> bool:
    """Return whether an answer must be confirmed first: only one that destroys something."""
    return question.option(letter).destructive


def to_json(question: Question) -> dict[str, Any]:
    """Turn a question into JSON values for the journal."""
    options = [
        {"letter": option.letter, "text": option.text, "destructive": option.destructive}
        for option in question.options
    ]
    return {
        "kind": question.kind.value,
        "title": question.title,
        "details": list(question.details),
        "options": options,
        "recommendation": question.recommendation,
        "why": question.why,
        "warning": question.warning,
    }


def from_json(data: Mapping[str, Any]) -> Question:
    """Turn the result of `to_json` back into a question; raise `QuestionError` when it is not one."""
    try:
        return Question(
            kind=QuestionKind(data["kind"]),
            title=str(data["title"]),
            details=tuple(str(line) for line in data["details"]),
            options=tuple(
                Option(letter=str(one["letter"]), text=str(one["text"]), destructive=bool(one["destructive"]))
                for one in data["options"]
            ),
            recommendation=str(data["recommendation"]),
            why=str(data["why"]),
            warning=str(data["warning"]),
        )
    except QuestionError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise QuestionError(f"this is not a recorded question: {type(error).__name__} {error}") from error


def decision(
    title: str, options: Sequence[str], *, recommendation: str, why: str, details: Sequence[str] = ()
) -> Question:
    """Ask for a decision that only the user can make."""
    return Question(
        kind=QuestionKind.DECISION,
        title=one_line(title),
        details=_lines(details),
        options=lettered([one_line(text) for text in options]),
        recommendation=recommendation,
        why=one_line(why),
    )


def skill_failed(
    *, number: str, name: str, sub_step: str, reason: str, skill: str = "", across_runs: bool = False
) -> Question:
    """Ask what to do with a step that used up its retries, or that failed run after run."""
    where = " across runs" if across_runs else ""
    return Question(
        kind=QuestionKind.FAILURE,
        title=one_line(f"{skill or name} — {MAX_RETRIES} consecutive failures{where}"),
        details=_lines(
            [
                f"Step: {number} — {name}",
                f"SubStep: {sub_step or 'none recorded'}",
                f"Last failure reason: {reason or 'none recorded'}",
            ]
        ),
        options=lettered(
            [
                "Retry with fresh context (new conversation)",
                "Skip this step with warning",
                "Abort — investigate and fix manually",
            ]
        ),
        recommendation="A",
        why="fresh context often resolves\npersistent failures",
    )


def recovery(*, skill: str, sub_step: str, details: Sequence[str] = ()) -> Question:
    """Ask what to do with a session that runs without making progress."""
    return Question(
        kind=QuestionKind.RECOVERY,
        title=one_line(f"{skill} stuck at {sub_step}"),
        details=_lines(details),
        options=lettered(
            [
                "Retry with fresh context (new conversation)",
                "Skip this sub-step with warning",
                "Abort and fix manually",
            ]
        ),
        recommendation="A",
        why="fresh context often resolves stuck loops",
    )


def rollback(*, name: str, folders: Sequence[str]) -> Question:
    """Ask before a step is run again and overwrites its earlier artifacts."""
    return Question(
        kind=QuestionKind.ROLLBACK,
        title=one_line(f"Re-run {name}?"),
        options=lettered(
            ["Re-run the step (overwrites current artifacts)", "Stay on current step"], destructive="A"
        ),
        recommendation="B",
        why="nothing is overwritten until you have looked",
        warning=one_line(f"This will overwrite files in {', '.join(folders)}"),
    )


def tracker_failed() -> Question:
    """Ask how to continue when the work item tracker denies access."""
    return Question(
        kind=QuestionKind.TRACKER,
        title="Tracker authentication failed",
        options=lettered(
            [
                "Retry authentication (retry mcp_auth)",
                "Continue without tracker (tasks saved locally only)",
            ]
        ),
        recommendation="A",
        why=(
            "Tracker IDs drive task referencing,\n"
            "dependency tracking, and implementation batching.\n"
            "Without tracker, task files use numeric prefixes instead."
        ),
    )


def session_boundary(
    *, finished: str, upcoming: str, details: Sequence[str] = (), shared: bool = True
) -> Question:
    """Ask whether the next step starts in a new conversation; `shared` uses autodev's own template."""
    ahead = _activity(upcoming)
    fresh = f"Start a new conversation for {ahead} (recommended for context freshness)"
    if shared:
        options = [fresh, "Continue in this conversation (NOT recommended — context may degrade)"]
        why = f"{ahead} is long; fresh context helps"
        warning = (
            f"if context fills mid-{ahead}, state will be saved and you will still be asked to resume "
            "in a new conversation — option B only delays that."
        )
    else:
        options = [fresh, f"Continue {ahead} in this conversation"]
        why, warning = f"{ahead} is the longest phase, fresh context helps", ""
    return Question(
        kind=QuestionKind.BOUNDARY,
        title=one_line(f"{finished} complete — start {ahead}?"),
        details=_lines(details),
        options=lettered([one_line(text) for text in options]),
        recommendation="A",
        why=one_line(why),
        warning=one_line(warning),
    )


def _activity(name: str) -> str:
    """Return the activity of a step: all steps that implement are called implementation."""
    lower = one_line(name).lower()
    return "implementation" if lower.split(" ")[0] == "implement" else lower


def low_confidence(
    *, confidence: float, threshold: float, candidates: Sequence[str], rationale: Sequence[str] = ()
) -> Question:
    """Ask where to continue when that is unclear; `candidates` are steps, the likeliest first."""
    steps = [f"Continue at step {one_line(step)}" for step in candidates[: len(LETTERS) - 1]]
    likely = bool(steps)
    return Question(
        kind=QuestionKind.CONFIDENCE,
        title=f"Confidence {confidence:.2f} is below {threshold:.2f} — where to continue?",
        details=_lines(rationale),
        options=lettered(
            [*(steps or ["Start at the first step of the flow"]), "Abort — look and fix manually"]
        ),
        recommendation="A" if likely else "B",
        why="the folders point there" if likely else "neither state file nor folders name a step",
    )


def blocked(*, others: Sequence[str], mode: str = "") -> Question:
    """Ask what to do about other sessions in the way; `mode` is the story's, if that must run alone."""
    alone = f"a story of mode {mode} runs alone, and other sessions are active in this repository"
    return Question(
        kind=QuestionKind.BLOCKED,
        title=one_line(alone if mode else "another session has this repository to itself"),
        details=_lines(others),
        options=lettered(
            [
                "Wait until it has ended, then continue automatically",
                "It is closed — check again now",
                "Abort — leave this story undone",
            ]
        ),
        recommendation=WAIT_FOR_OTHERS,
        why="waiting loses nothing, and no other session is ended from here",
    )


def promotion_offer(*, others: Sequence[str]) -> Question:
    """Ask what to do about other sessions in the same tree, where a separate tree would help."""
    return Question(
        kind=QuestionKind.PROMOTION,
        title="another session works in the same tree",
        details=_lines(others),
        options=lettered(
            [
                "Wait until it has ended, then continue automatically",
                "Continue anyway, in the same tree",
                "Abort — start again with `--bg-isolation worktree`, in a separate tree",
            ]
        ),
        recommendation=WAIT_FOR_OTHERS,
        why="two sessions in one tree overwrite each other's files",
    )


def _lines(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(line for line in (one_line(text) for text in texts) if line)
