"""The result file that a session may leave; a missing or unreadable one never fails a story."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from runner.core.model import Usage

MAX_RESULT_BYTES = 1 << 20


class Result(Struct, frozen=True, kw_only=True):
    """What a session reported; `status` is empty when it reported nothing, `waves` are copied as they are."""

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


def load_result(path: Path) -> Result:
    """Read a result file; `complaint` says what is wrong with it."""
    try:
        if path.stat().st_size > MAX_RESULT_BYTES:
            return Result(complaint=f"result file is larger than {MAX_RESULT_BYTES} bytes: ignored")
        data = path.read_bytes()
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
    question = document.decision.get("question") or document.decision.get("context") or document.notes
    return Result(
        status=document.status or "",
        summary=document.agent_summary,
        effectiveness=document.effectiveness,
        total_waves=document.count_waves(),
        waves=tuple(document.waves) if isinstance(document.waves, list) else None,
        usage=Usage(**document.usage.model_dump()),
        question=str(question or ""),
        decision=document.decision,
        notes=document.notes,
    )
