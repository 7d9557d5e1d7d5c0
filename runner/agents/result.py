"""The result file that a session may leave; a missing or unreadable one never fails a story."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from isolation.files.plain import read_plain
from runner.agents.json_line import number, whole
from runner.core.model import Usage

MAX_RESULT_BYTES = 1 << 20
_TOKENS = ("input_tokens", "output_tokens")
_COST = "cost_usd"


class Result(Struct, frozen=True, kw_only=True):
    """What a session reported; `status` is empty when it reported nothing, `waves` are copied as they are.

    `review` and `because` are the answer of a reviewer.
    """

    status: str = ""
    summary: Mapping[str, int] = field(default_factory=dict)
    effectiveness: Mapping[str, float] = field(default_factory=dict)
    total_waves: int | None = None
    waves: tuple[Any, ...] | None = None
    usage: Usage = field(default_factory=Usage)
    question: str = ""
    decision: Mapping[str, Any] = field(default_factory=dict)
    notes: str = ""
    complaint: str = ""
    review: str = ""
    because: str = ""


def load_result(path: Path) -> Result:
    """Read a result file; `complaint` says what is wrong with it."""
    if path.parent.is_symlink():  # it would lead out of the story's tree
        return Result(complaint="result file cannot be read: its folder is a link")
    try:
        data = read_plain(path, MAX_RESULT_BYTES + 1, follow=False)
        if len(data) > MAX_RESULT_BYTES:
            return Result(complaint=f"result file is larger than {MAX_RESULT_BYTES} bytes: ignored")
    except FileNotFoundError:
        return Result()
    except OSError as error:
        return Result(complaint=f"result file cannot be read: {error.strerror}")
    # Imported here: most sessions leave no result file, and pydantic is slow to import.
    from runner.agents.result_document import ResultDocument, problem_of

    try:
        document = ResultDocument.model_validate_json(data)
    except ValueError as error:
        return Result(complaint=f"result file cannot be used: {problem_of(error)}")
    tokens = {name: whole(document.usage, name) for name in _TOKENS}
    cost = number(document.usage, _COST)
    summary = {name: whole(document.agent_summary, name) for name in document.agent_summary}
    rates = {name: number(document.effectiveness, name) for name in document.effectiveness}
    decision, waves = _finite(document.decision), _finite(document.waves)
    question = decision.get("question") or decision.get("context") or document.notes
    return Result(
        status=document.status or "",
        summary={name: count for name, count in summary.items() if count is not None},
        effectiveness={name: rate for name, rate in rates.items() if rate is not None},
        total_waves=document.count_waves(),
        waves=tuple(waves) if isinstance(waves, list) else None,
        usage=Usage(
            input_tokens=tokens["input_tokens"], output_tokens=tokens["output_tokens"], cost_usd=cost
        ),
        question=str(question or ""),
        decision=decision,
        notes=document.notes,
        review=str(document.review or ""),
        because=str(document.because or ""),
        complaint=_complaint(
            _impossible("usage", document.usage, {**tokens, _COST: cost}),
            _impossible("agent_summary", document.agent_summary, summary),
            _impossible("effectiveness", document.effectiveness, rates),
        ),
    )


def _finite(value: Any) -> Any:
    """Return what is copied as it is without numbers that JSON does not have: other programs read it."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case list():
            return [_finite(each) for each in value]
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case _:
            return value


def _impossible(part: str, given: Mapping[str, object], read: Mapping[str, float | None]) -> list[str]:
    """Return the amounts that were given, but cannot be: negative, absurd, or no number at all."""
    return [
        f"{part}.{name}" for name, amount in read.items() if amount is None and given.get(name) is not None
    ]


def _complaint(*ignored: list[str]) -> str:
    names = [name for part in ignored for name in part]
    return f"result file: not a possible amount, ignored: {', '.join(names)}" if names else ""
