"""A run's settings as the journal keeps them, so that a resume runs under the same ones.

Secrets among an agent's variables are not kept; a resume takes them from the settings of its own time.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from runner.core.agent_settings import AgentSettings
from runner.core.errors import JournalError
from runner.core.settings import Settings
from runner.core.text.redaction import REDACTED, Redactor, is_secret
from runner.core.tier_settings import TierSettings


def to_json(settings: Settings) -> dict[str, Any]:
    """Turn settings into JSON values."""
    return asdict(replace(settings, agents={name: _veiled(agent) for name, agent in settings.agents.items()}))


def redactor_for(settings: Settings, environ: Mapping[str, str]) -> Redactor:
    """Give what takes out the secrets that sessions of this run can know."""
    known = dict(environ)
    for number, agent in enumerate(settings.agents.values()):
        # Two agents may have different keys under one name.
        known |= {f"{number}_{name}": value for name, value in agent.env.items()}
    return Redactor(known)


def _veiled(agent: AgentSettings) -> AgentSettings:
    env = {name: REDACTED if is_secret(name) else value for name, value in agent.env.items()}
    return replace(agent, env=env)


def from_json(values: Mapping[str, Any], *, top: Path | None = None) -> Settings:
    """Turn what `to_json` made into settings again; secrets come from the settings files under `top`."""
    from pydantic import TypeAdapter, ValidationError

    known = {name: value for name, value in values.items() if name in Settings.__dataclass_fields__}
    if isinstance(known.get("tiers"), Mapping):
        known["tiers"] = _completed(known["tiers"])
    try:
        settings = TypeAdapter(Settings).validate_python(known)
    except ValidationError as error:
        raise JournalError(
            "the settings of this run cannot be read from the journal",
            hint=f"start a new run; the journal is unchanged ({error.error_count()} values do not fit).",
        ) from error
    veiled = [name for name, agent in settings.agents.items() if REDACTED in agent.env.values()]
    return _unveiled(settings, veiled, top) if veiled and top is not None else settings


def _unveiled(settings: Settings, names: list[str], top: Path) -> Settings:
    """Put the secrets of today's settings files where the journal has none; those that are gone stay away."""
    from runner.plan.settings.load import load_settings

    today = load_settings(top=top, flags={}, environ=os.environ).settings.agents
    agents = dict(settings.agents)
    for name in names:
        fresh = today[name].env if name in today else {}
        kept = {key: value for key, value in agents[name].env.items() if value != REDACTED}
        secret = {key: fresh[key] for key in agents[name].env if key not in kept and key in fresh}
        agents[name] = replace(agents[name], env={**kept, **secret})
    return replace(settings, agents=agents)


def _completed(tiers: Mapping[str, Any]) -> dict[str, Any]:
    """Give a table of tiers the thresholds that the version which wrote it did not know."""
    completed: dict[str, Any] = asdict(TierSettings())
    for tier, row in tiers.items():
        completed[tier] = completed.get(tier, {}) | row if isinstance(row, dict) else row
    return completed
