"""What crosses the border between coordinator and workers besides commits and events: settings, logs."""

from pathlib import Path, PurePosixPath
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace

from isolation.decoding import from_values
from runner.core.settings import Settings
from runner.core.text.redaction import is_secret
from runner.remote.cluster.wire.messages import ClusterError, LogPart

MOST_LOG = 64 << 20
"""How much of one log the coordinator keeps."""


def settings_for_workers(settings: Settings) -> dict[str, Any]:
    """Return the settings of a run for its workers: without secrets, unless they are named, or paths of here.

    What only the coordinator does, such as notifying and landing, is left out.
    """
    agents = {
        name: replace(
            agent,
            env={
                key: value
                for key, value in agent.env.items()
                if not is_secret(key) or key in settings.cluster_env
            },
        )
        for name, agent in settings.agents.items()
    }
    kept = replace(
        settings,
        agents=agents,
        cluster="",
        worktree_root="",
        notify="",
        notify_urls=(),
        notify_desktop=False,
        otel_endpoint="",
    )
    values: dict[str, Any] = to_builtins(kept)
    return values


def settings_here(values: dict[str, Any]) -> Settings:
    """Return the settings that a coordinator sent."""
    return from_values(values, Settings, strict=False)


def write_log_part(folder: Path, run_id: str, part: LogPart) -> None:
    """Put a part of a worker's log where a run on this machine would have it."""
    name = PurePosixPath(part.name)
    if name.parts[:2] != ("runs", run_id) or ".." in name.parts or name.suffix != ".log":
        raise ClusterError(f"a worker names a log that is none: {part.name}")
    if part.offset + len(part.data) > MOST_LOG:
        return
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.seek(part.offset)
        file.write(part.data)
