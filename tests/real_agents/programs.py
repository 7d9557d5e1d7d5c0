"""The real programs: how each is installed into a folder of its own, and led to the scripted model."""

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
NEWEST = os.environ.get("AGENTS") == "newest"
"""Take what npm and PyPI offer today instead of the versions below."""
PREFIX = Path(os.environ.get("AGENTS_PREFIX", ROOT / ".venv" / ("agents-newest" if NEWEST else "agents")))
VERSIONS = {
    "claude": "@anthropic-ai/claude-code@2.1.197",
    "codex": "@openai/codex@0.166.0",
    "opencode": "opencode-ai@1.18.33",
    "gemini": "@google/gemini-cli@0.61.0",
    "qwen": "@qwen-code/qwen-code@0.15.10",
    "aider": "aider-chat==0.86.2",
}
MODELS = {
    "claude": "claude-sonnet-4-5",
    "codex": "gpt-5",
    "opencode": "scripted/m-1",
    "gemini": "gemini-2.5-pro",
    "qwen": "qwen3-coder-plus",
    "aider": "openai/gpt-4.1",
}
KEY = "sk-scripted-0123456789abcdef"
INSTALL_SECONDS = 900
NEW_SECONDS = 6 * 3600
"""For so long what was installed as the newest is taken for that, also by other processes."""


class CannotInstallError(Exception):
    """There is no registry to be reached, or no runtime; says which."""


@cache
def installed(name: str) -> Path:
    """Return the folder of a program; installs it where it is missing."""
    folder = PREFIX / "aider" / "bin" if name == "aider" else PREFIX / "node_modules" / ".bin"
    with due(PREFIX, name, folder / name) as is_due:
        there = (folder / name).exists()
        try:
            for argv in steps(name, newest=NEWEST) if is_due else ():
                _install(name, argv)
        except CannotInstallError:
            if not there:
                raise
    return folder


@contextmanager
def due(prefix: Path, name: str, program: Path) -> Iterator[bool]:
    """Say whether a program is to be installed, while no other process installs into the same folder."""
    prefix.mkdir(parents=True, exist_ok=True)
    stamp = prefix / f".{name}.installed"
    # All but aider share one folder.
    with (prefix / f".{name if name == 'aider' else 'npm'}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        is_new = stamp.exists() and time.time() - stamp.stat().st_mtime < NEW_SECONDS
        is_due = not program.exists() or (NEWEST and not is_new)
        yield is_due
        if is_due:
            stamp.touch()


def steps(name: str, *, newest: bool) -> Sequence[list[str]]:
    """Return the commands that install a program, or bring it up to date."""
    package, version = re.fullmatch(r"(.+?)(@[\d.]+|==[\d.]+)", VERSIONS[name], re.ASCII).groups()  # type: ignore[union-attr]
    if name == "aider":
        home = PREFIX / "aider"
        wanted = ["--upgrade", package] if newest else [package + version]
        pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", *wanted]
        return [sys.executable, "-m", "venv", str(home)], pip
    if shutil.which("npm") is None:
        raise CannotInstallError(f"{name} needs npm, which is not installed")
    wanted = [package + ("@latest" if newest else version)]
    return (["npm", "install", "--prefix", str(PREFIX), "--no-fund", "--no-audit", *wanted],)


def _install(name: str, argv: list[str]) -> None:
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
    if done.returncode:
        raise CannotInstallError(f"{name} cannot be installed: {done.stderr.strip()[-300:]}")


def environment(name: str, url: str, home: Path) -> dict[str, str]:
    """Return what leads a program to the model, and keeps it from asking anybody else."""
    match name:
        case "claude":
            return {
                "ANTHROPIC_BASE_URL": url,
                "ANTHROPIC_API_KEY": "sk-ant-api03-scripted-0123456789",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_TELEMETRY": "1",
            }
        case "codex":
            return {"SCRIPTED_KEY": KEY}
        case "opencode":
            return {
                "OPENCODE_CONFIG_CONTENT": json.dumps(_opencode(url)),
                "OPENCODE_DISABLE_MODELS_FETCH": "1",
                "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
                "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
            }
        case "gemini":
            settings = home / ".gemini" / "settings.json"
            settings.parent.mkdir(parents=True, exist_ok=True)
            chosen = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
            settings.write_text(json.dumps({**chosen, "privacy": {"usageStatisticsEnabled": False}}))
            return {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": url}
        case "qwen":
            # It would sum up what all stories have taught it, in a request that names none of them.
            settings = home / ".qwen" / "settings.json"
            settings.parent.mkdir(parents=True, exist_ok=True)
            settings.write_text(json.dumps({"memory": {"enableManagedAutoDream": False}}))
            return {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": f"{url}/v1"}
        case _:
            more = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "AIDER_ANALYTICS_DISABLE": "true"}
            return {"OPENAI_API_KEY": KEY, "OPENAI_API_BASE": f"{url}/v1", **more}


def _opencode(url: str) -> dict[str, object]:
    model = {"name": "m-1", "limit": {"context": 100_000, "output": 8_000}, "cost": {"input": 1, "output": 2}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "scripted",
        "options": {"baseURL": f"{url}/v1", "apiKey": KEY},
        "models": {"m-1": model},
    }
    return {
        "autoupdate": False,
        "share": "disabled",
        "small_model": MODELS["opencode"],
        "provider": {"scripted": provider},
    }


def arguments(name: str, url: str, codex: Sequence[str] = ()) -> list[str]:
    """Return the arguments that belong into the settings of the run; `codex` are options of its provider."""
    match name:
        case "codex":
            provider = ", ".join(
                (
                    f'name="scripted", base_url="{url}/v1", env_key="SCRIPTED_KEY", wire_api="responses"',
                    *codex,
                )
            )
            args = ["--disable", "plugins", "--disable", "apps", "-c", 'model_provider="scripted"']
            return [*args, "-c", f"model_providers.scripted={{{provider}}}"]
        case "qwen":
            return ["--auth-type", "openai"]
        case "aider":
            return ["--edit-format", "whole"]
        case _:
            return []
