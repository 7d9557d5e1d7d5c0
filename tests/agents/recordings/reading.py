"""What recorded streams are read as."""

from dataclasses import dataclass
from pathlib import Path

from runner.agents.catalog import KNOWN
from runner.agents.listener import OutputListener
from runner.core.agent_settings import AgentSettings
from runner.core.limits.agent_output import Fault

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a stream told, but for names and instants, which are never the same twice."""

    tools: int
    input_tokens: int | None
    output_tokens: int | None
    cost: float | None
    ok: bool | None
    fault: Fault | None = None
    denied: tuple[str, ...] = ()
    talks: bool = True
    dated: bool = False


def hear(agent: str, stream: bytes) -> Heard:
    """Let a session be heard from its beginning to its end."""
    hearing = OutputListener(KNOWN[agent](AgentSettings()))
    hearing.feed(stream, 0.0)
    hearing.end(0.0)
    tally = hearing.tally
    final, usage = tally.final, tally.usage
    return Heard(
        tools=tally.uses,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cost=None if usage.cost_usd is None else round(usage.cost_usd, 4),
        ok=final.ok if final else None,
        fault=final.fault if final else None,
        denied=final.denied if final else (),
        talks=bool(tally.conversation),
        dated=bool(tally.resets_at),
    )
