"""A run's settings in the journal, so that a resume uses the same ones.

Secrets among an agent's variables, hidden verify commands and the URLs of notifications are not written,
since sessions can read the journal; a resume takes them from the current settings.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import ValidationError, to_builtins
from msgspec.structs import replace

from isolation.decoding import from_values
from isolation.git.remotes import secrets_of_git
from isolation.git.repository import Repository
from isolation.model import IsolationMode
from runner.core.agent_settings import AgentSettings
from runner.core.errors import JournalError, SettingsError
from runner.core.notices.notice import kept_url
from runner.core.settings import Settings
from runner.core.text.redaction import REDACTED, Redactor, is_secret
from runner.core.tier_settings import TierSettings
from runner.core.trust import is_imported

_COUNTS, _LOOP = "max_sessions_counts", "loop"
_OLD_DEFAULT = 5
"""What an earlier version wrote for `max_sessions` if it was not set: it counted those of a step."""


def to_json(settings: Settings) -> dict[str, Any]:
    """Turn settings into JSON values."""
    agents = {name: _redacted(agent) for name, agent in settings.agents.items()}
    hidden = (REDACTED,) * len(settings.hidden_verify)
    urls = tuple(kept_url(url) for url in settings.notify_urls)
    kept = replace(settings, agents=agents, hidden_verify=hidden, notify_urls=urls)
    values: dict[str, Any] = to_builtins(kept)
    return values | {_COUNTS: _LOOP}


def redactor_for(
    settings: Settings, environ: Mapping[str, str], repository: Repository | None = None
) -> Redactor:
    """Return the redactor of the secrets that sessions of this run can know.

    With the repository, that includes what git sends to its remotes.
    """
    known = dict(environ)
    for number, agent in enumerate(settings.agents.values()):
        # Two agents may have different values under one name.
        known |= {f"{number}_{name}": value for name, value in agent.env.items()}
    headers = secrets_of_git(repository) if repository else ()
    return Redactor(known, named=settings.secret_variables, also=headers)


def _redacted(agent: AgentSettings) -> AgentSettings:
    env = {name: REDACTED if is_secret(name) else value for name, value in agent.env.items()}
    return replace(agent, env=env)


def from_json(values: Mapping[str, Any], *, top: Path | None = None) -> Settings:
    """Read what `to_json` wrote; secrets come from the settings files under `top`.

    A run that came by shards has the settings of now and of here: what another machine has written says
    neither which commands run nor what may be left unguarded.
    """
    if is_imported(values) and top is not None:
        return _current(values, top)
    known = dict(values)
    if values.get(_COUNTS) != _LOOP and known.get("max_sessions") == _OLD_DEFAULT:
        del known["max_sessions"]
    if isinstance(known.get("tiers"), Mapping):
        known["tiers"] = _completed(known["tiers"])
    try:
        # A setting that a later version dropped is no reason to refuse the run: what is unknown is ignored.
        settings = from_values(known, Settings, strict=False)
    except ValidationError as error:
        raise JournalError(
            "cannot read the settings of this run from the journal",
            hint=f"start a new run; the journal is unchanged ({error}).",
        ) from error
    redacted = [name for name, agent in settings.agents.items() if REDACTED in agent.env.values()]
    if top is not None and (redacted or settings.hidden_verify or settings.notify_urls):
        return _restored(settings, redacted, top)
    return settings


def _current(values: Mapping[str, Any], top: Path) -> Settings:
    from runner.plan.settings.load import load_settings

    settings = load_settings(top=top, flags={}, environ=os.environ).settings
    # Its branches are those of worktrees, which a shared tree could not continue.
    worktrees = values.get("bg_isolation") == IsolationMode.WORKTREE
    return replace(settings, bg_isolation=IsolationMode.WORKTREE) if worktrees else settings


def _restored(settings: Settings, names: list[str], top: Path) -> Settings:
    """Fill in the secrets from the current settings; those of agents that are gone stay absent."""
    from runner.plan.settings.load import load_settings

    now = load_settings(top=top, flags={}, environ=os.environ).settings
    if settings.hidden_verify and not now.hidden_verify:
        raise SettingsError(
            "this run has hidden verify commands, which are not in your settings any more",
            hint="set `hidden-verify` again, in your own settings file or in the environment.",
        )
    # Only those that the run had: another URL needs the consent that a new run asks for.
    known = {kept_url(url): url for url in now.notify_urls}
    urls = tuple(known[url] for url in settings.notify_urls if url in known)
    settings = replace(settings, hidden_verify=now.hidden_verify, notify_urls=urls)
    current = now.agents
    agents = dict(settings.agents)
    for name in names:
        fresh = current[name].env if name in current else {}
        kept = {key: value for key, value in agents[name].env.items() if value != REDACTED}
        secret = {key: fresh[key] for key in agents[name].env if key not in kept and key in fresh}
        agents[name] = replace(agents[name], env={**kept, **secret})
    return replace(settings, agents=agents)


def _completed(tiers: Mapping[str, Any]) -> dict[str, Any]:
    """Add the thresholds that did not exist in the version that wrote the table of tiers."""
    completed: dict[str, Any] = to_builtins(TierSettings())
    for tier, row in tiers.items():
        completed[tier] = completed.get(tier, {}) | row if isinstance(row, dict) else row
    return completed
