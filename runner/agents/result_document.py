"""The schema of a result file. Imported only when a session left one, since pydantic is slow to import."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from runner.core.text.amounts import whole_amount


class ResultDocument(BaseModel):
    """A result as an agent writes it; every field may be absent. Amounts are checked one by one later."""

    # Fields of a newer contract are ignored: an agent must not fail because it knows more than we do.
    model_config = ConfigDict(extra="ignore")

    status: Literal["done", "partial", "failed", "needs-decision"] | None = None
    agent_summary: dict[str, object] = {}
    effectiveness: dict[str, object] = {}
    usage: dict[str, object] = {}
    decision: dict[str, object] = {}
    notes: str = ""
    review: object = None
    because: object = None
    # Only copied into the records, so an unknown form must not make the rest unusable.
    total_waves: object = None
    waves: object = None

    def count_waves(self) -> int | None:
        """Return how many waves it reports, as a number or as a list."""
        for reported in (self.total_waves, self.waves):
            if isinstance(reported, int) and (count := whole_amount(reported)) is not None:
                return count
        return len(self.waves) if isinstance(self.waves, list) else None


def problem_of(error: ValueError) -> str:
    """Return one line that says what is wrong, and where."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else first["msg"]
