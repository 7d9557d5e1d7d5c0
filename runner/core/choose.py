"""The Choose form: one question to the user, with 2 to 4 one-line options and one recommendation.

Every `Question` that exists may be asked: the rules are checked when it is built, and a violation
raises a `QuestionError`. Every text in it is safe for a terminal. Only `why` may contain line
breaks, where a reason needs them.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from isolation.patterns import pattern
from runner.core.errors import UsageError
from runner.core.model import MAX_RETRIES, Step
from runner.core.text.names import one_line, shown
from runner.core.text.screen import neutral

RULE = "═" * 38
LETTERS = "ABCD"
FEWEST = 2
WAIT_FOR_OTHERS, CONTINUE_ANYWAY, LEAVE_UNDONE, MOVE_APART = "ABCD"
"""Answers about other sessions; the second and the last only where they may run in parallel."""

LAST_FAILURE = "Last failure reason: "
ABORT = "Abort — investigate and fix manually"
SKIP_SUB_STEP = "Skip this sub-step with warning"
_ANSWER = pattern(r"\(?([A-Za-z])[).:]?(?:\s+(.+))?")


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
    SKIP = "skip"
    TRACKER = "tracker"
    BOUNDARY = "boundary"
    CONFIDENCE = "confidence"
    BLOCKED = "blocked"
    PROMOTION = "promotion"
    OVERWRITE = "overwrite"
    LANDING = "landing"
    REVIEW = "review"


_DECISION = "DECISION REQUIRED: "
_PREFIXES: Mapping[QuestionKind, str] = {
    QuestionKind.DECISION: _DECISION,
    QuestionKind.FAILURE: "SKILL FAILED: ",
    QuestionKind.RECOVERY: "RECOVERY: ",
    QuestionKind.ROLLBACK: "ROLLBACK: ",
    QuestionKind.SKIP: _DECISION,
    QuestionKind.TRACKER: "",
    QuestionKind.BOUNDARY: _DECISION,
    QuestionKind.CONFIDENCE: _DECISION,
    QuestionKind.BLOCKED: "BLOCKED: ",
    QuestionKind.PROMOTION: _DECISION,
    QuestionKind.OVERWRITE: _DECISION,
    QuestionKind.LANDING: _DECISION,
    QuestionKind.REVIEW: _DECISION,
}


class Option(Struct, frozen=True, kw_only=True):
    """One way to continue; a destructive one is confirmed before it is carried out.

    `step` is the number of the step at which the story continues, where the options are steps. `word` is
    accepted as an answer, too.
    """

    letter: str
    text: str
    destructive: bool = False
    step: str = ""
    word: str = ""


class Question(Struct, frozen=True, kw_only=True):
    """A question that obeys the form. `details` are lines between the title and the options.

    The option `pauses` keeps the story parked until all artifacts in `until` exist. `must_ask` means that
    only the user may answer, whatever the unattended default is.
    """

    kind: QuestionKind
    title: str
    options: tuple[Option, ...]
    recommendation: str
    why: str
    details: tuple[str, ...] = ()
    warning: str = ""
    pauses: str = ""
    until: tuple[str, ...] = ()
    must_ask: bool = False

    def __post_init__(self) -> None:
        if not FEWEST <= len(self.options) <= len(LETTERS):
            raise QuestionError(f"a question has 2 to 4 options, not {len(self.options)}")
        letters = "".join(option.letter for option in self.options)
        if letters != LETTERS[: len(letters)]:
            raise QuestionError(f"options are lettered A, B, C, D in order, not {', '.join(letters)}")
        if self.recommendation not in tuple(letters):
            raise QuestionError(f"the recommendation {shown(self.recommendation)} is none of the options")
        if self.pauses not in {"", *letters}:
            raise QuestionError(f"the option that pauses, {shown(self.pauses)}, is none of the options")
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
    worded = [option.letter for option in question.options if option.word == text.strip().lower()]
    if worded and text.strip():
        return worded[0]
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
        {
            "letter": option.letter,
            "text": option.text,
            "destructive": option.destructive,
            **({"step": option.step} if option.step else {}),
            **({"word": option.word} if option.word else {}),
        }
        for option in question.options
    ]
    rare = {"pauses": question.pauses, "until": list(question.until), "must_ask": question.must_ask}
    return {
        "kind": question.kind.value,
        "title": question.title,
        "details": list(question.details),
        "options": options,
        "recommendation": question.recommendation,
        "why": question.why,
        "warning": question.warning,
        **{key: value for key, value in rare.items() if value},
    }


def from_json(data: Mapping[str, Any]) -> Question:
    """Turn the result of `to_json` back into a question; raise `QuestionError` when it is not one."""
    try:
        return Question(
            kind=QuestionKind(data["kind"]),
            title=str(data["title"]),
            details=tuple(str(line) for line in data["details"]),
            options=tuple(
                Option(
                    letter=str(one["letter"]),
                    text=str(one["text"]),
                    destructive=bool(one["destructive"]),
                    step=str(one.get("step", "")),
                    word=str(one.get("word", "")),
                )
                for one in data["options"]
            ),
            recommendation=str(data["recommendation"]),
            why=str(data["why"]),
            warning=str(data["warning"]),
            pauses=str(data.get("pauses", "")),
            until=tuple(str(one) for one in data.get("until", ())),
            must_ask=bool(data.get("must_ask")),
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


def with_details(question: Question, details: Sequence[str]) -> Question:
    """Return a question with more lines between its title and its options."""
    return replace(question, details=(*question.details, *_lines(details)))


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
                f"{LAST_FAILURE}{reason or 'none recorded'}",
            ]
        ),
        options=lettered(
            [
                "Retry with fresh context (new conversation)",
                "Skip this step with warning",
                ABORT,
            ]
        ),
        recommendation="A",
        why="fresh context often resolves\npersistent failures",
    )


def story_failed(*, title: str, reason: str) -> Question:
    """Ask whether a story without steps, which failed in the run before, is tried once more."""
    return Question(
        kind=QuestionKind.FAILURE,
        title=one_line(f"{title} — failed in the last run"),
        details=_lines([f"{LAST_FAILURE}{reason or 'none recorded'}"]),
        options=lettered(["Retry with fresh context (new conversation)", ABORT]),
        recommendation="A",
        why="fresh context often resolves persistent failures",
        must_ask=True,
    )


def recovery(*, skill: str, step: str, sub_step: str, details: Sequence[str] = ()) -> Question:
    """Ask what to do with a session that runs without making progress."""
    return Question(
        kind=QuestionKind.RECOVERY,
        title=one_line(f"{skill} stuck at {sub_step or f'step {step}'}"),
        details=_lines(details),
        options=lettered(
            [
                "Retry with fresh context (new conversation)",
                SKIP_SUB_STEP if sub_step else "Skip this step with warning",
                "Abort and fix manually",
            ]
        ),
        recommendation="A",
        why="fresh context often resolves stuck loops",
    )


def overwrite(*, number: str, name: str, files: Sequence[str]) -> Question:
    """Ask what becomes of artifacts that exist although their step has not begun."""
    return Question(
        kind=QuestionKind.OVERWRITE,
        title=one_line(f"{name} has not begun, but some of its artifacts exist"),
        details=_lines([f"Step: {number} — {name}", *(f"There is: {file}" for file in files)]),
        options=lettered(
            [
                "Resume — the session completes what is there",
                "Overwrite — the session starts the step over",
                "Skip — leave them as they are and continue with the next step",
            ],
            destructive="B",
        ),
        recommendation="A",
        why="nothing is lost, and the session reads first what is there",
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


def skip(*, number: str, name: str, artifacts: Sequence[str], users: Sequence[str]) -> Question:
    """Ask before a step is skipped; `users` are the later steps that use its artifacts."""
    leaves = f" without {', '.join(artifacts)}" if artifacts else ""
    depend = f"{', '.join(users)} will run{leaves}" if users else f"the flow continues{leaves}"
    return Question(
        kind=QuestionKind.SKIP,
        title=one_line(f"Skip step {number} ({name})?"),
        options=lettered(["Skip the step, and continue with the next one", "Run the step"]),
        recommendation="B" if users else "A",
        why="later steps use what it leaves" if users else "no later step names what it leaves",
        warning=one_line(depend),
    )


def tracker_failed(reason: str = "", *, again: str = "retry mcp_auth") -> Question:
    """Ask how to continue when the work item tracker denies access, or fails for another reason."""
    retry = "Retry" if reason else f"Retry authentication ({again})"
    return Question(
        kind=QuestionKind.TRACKER,
        title=one_line(f"Tracker failed: {reason}") if reason else "Tracker authentication failed",
        options=lettered([retry, "Continue without tracker (tasks saved locally only)"]),
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
    ahead = activity(upcoming)
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


def activity(name: str) -> str:
    """Return the activity of a step: all steps that implement are called implementation."""
    lower = one_line(name).lower()
    return "implementation" if lower.split(" ")[0] == "implement" else lower


def low_confidence(
    *,
    confidence: float,
    threshold: float,
    candidates: Sequence[Step],
    rationale: Sequence[str] = (),
    why: str = "the folders point there",
) -> Question:
    """Ask where to continue when that is unclear; `candidates` are steps, the likeliest first."""
    steps = candidates[: len(LETTERS) - 1]
    texts = [f"Continue at step {one_line(f'{step.number} ({step.name})')}" for step in steps]
    options = lettered([*(texts or ["Start at the first step of the flow"]), "Abort — look and fix manually"])
    return Question(
        kind=QuestionKind.CONFIDENCE,
        title=f"Confidence {confidence:.2f} is below {threshold:.2f} — where to continue?",
        details=_lines(rationale),
        options=tuple(
            replace(option, step=step.number) if step else option
            for option, step in zip_longest(options, steps)
            if option is not None
        ),
        recommendation="A" if steps else "B",
        why=why if steps else "neither state file nor folders name a step",
        must_ask=True,
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
                "Abort — leave this story undone",
                "Move this story into a worktree of its own, and continue there",
            ]
        ),
        recommendation=MOVE_APART,
        why="two sessions in one tree overwrite each other's files",
    )


def _lines(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(line for line in (one_line(text) for text in texts) if line)
