"""The result file that a session may leave; absent or unreadable it never fails a story."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from runner.core.model import Usage

MAX_RESULT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a session said of itself; `status` is empty when it said nothing."""

    status: str = ""
    summary: Mapping[str, int] = field(default_factory=dict)
    effectiveness: Mapping[str, float] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    question: str = ""
    notes: str = ""
    complaint: str = ""


class _Part(BaseModel):
    # Fields of a newer contract are ignored: an agent must not fail for knowing more than we do.
    model_config = ConfigDict(extra="ignore")


class _Usage(_Part):
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None


class _Document(_Part):
    status: Literal["done", "partial", "failed", "needs-decision"] | None = None
    agent_summary: dict[str, int] = {}
    effectiveness: dict[str, float] = {}
    usage: _Usage = _Usage()
    decision: dict[str, object] = {}
    notes: str = ""


def load_result(path: Path) -> Result:
    """Read a result file; what is wrong with it is in `complaint`."""
    try:
        if path.stat().st_size > MAX_RESULT_BYTES:
            return Result(complaint=f"result file is larger than {MAX_RESULT_BYTES} bytes: ignored")
        document = _Document.model_validate(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return Result()
    except (OSError, ValueError, ValidationError, RecursionError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        return Result(complaint=f"result file cannot be used: {first}")
    question = document.decision.get("question") or document.decision.get("context") or document.notes
    return Result(
        status=document.status or "",
        summary=document.agent_summary,
        effectiveness=document.effectiveness,
        usage=Usage(**document.usage.model_dump()),
        question=str(question or ""),
        notes=document.notes,
    )
