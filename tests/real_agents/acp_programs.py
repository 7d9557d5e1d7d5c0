"""Real programs that speak the Agent Client Protocol: how each is installed, started and led to the model."""

import json
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

from msgspec import Struct

from tests.real_agents.programs import (
    INSTALL_SECONDS,
    MODELS,
    NEWEST,
    ROOT,
    CannotInstallError,
    due,
    environment,
)

_FOLDER = "acp-agents-newest" if NEWEST else "acp-agents"
PREFIX = Path(os.environ.get("ACP_AGENTS_PREFIX", ROOT / ".venv" / _FOLDER))


class AcpProgram(Struct, frozen=True, kw_only=True):
    """A package, the command that it offers, and the known agent whose model it talks to."""

    package: str
    command: tuple[str, ...]
    like: str = ""
    model: str = ""


COPILOT = "@github/copilot@1.0.102"
PROGRAMS = {
    "claude-acp": AcpProgram(
        package="@agentclientprotocol/claude-agent-acp@0.49.0", command=("claude-agent-acp",), like="claude"
    ),
    "qwen-acp": AcpProgram(
        package="@qwen-code/qwen-code@0.24.4",
        command=("qwen", "--acp", "--auth-type", "openai", "--approval-mode", "default"),
        like="qwen",
    ),
    "opencode-acp": AcpProgram(
        package="opencode-ai@1.18.33", command=("opencode", "acp"), like="opencode", model=MODELS["opencode"]
    ),
    "copilot-acp": AcpProgram(package=COPILOT, command=("copilot", "--acp"), like="copilot"),
    "copilot-signed-out": AcpProgram(package=COPILOT, command=("copilot", "--acp")),
    "pi": AcpProgram(package="@mariozechner/pi-coding-agent@0.73.1", command=("pi",), like="pi"),
}


@cache
def acp_folder(name: str) -> Path:
    """Return the folder of a program; installs it where it is missing, or brings it up to date."""
    folder, program = PREFIX / "node_modules" / ".bin", PROGRAMS[name]
    there = (folder / program.command[0]).exists()
    with due(PREFIX, program.command[0], folder / program.command[0]) as is_due:
        if not is_due:
            return folder
        if shutil.which("npm") is None:
            raise CannotInstallError(f"{name} needs npm, which is not installed")
        package = f"{program.package.rpartition('@')[0]}@latest" if NEWEST else program.package
        argv = ["npm", "install", "--prefix", str(PREFIX), "--no-fund", "--no-audit", package]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=INSTALL_SECONDS)
        if done.returncode and not there:
            raise CannotInstallError(f"{name} cannot be installed: {done.stderr.strip()[-300:]}")
    return folder


def acp_environment(name: str, url: str, home: Path) -> dict[str, str]:
    """Return what leads a program to the model."""
    like = PROGRAMS[name].like
    if not like:
        return {}
    if like == "pi":
        return _pi(url, home)
    if like == "copilot":  # with a provider of its own it needs no sign-in
        return {
            "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
            "COPILOT_MODEL": "m-1",
            "COPILOT_OFFLINE": "true",
            "COPILOT_AUTO_UPDATE": "false",
        }
    # Claude refuses to start as root, unless it is told that it cannot do any harm.
    env = environment(like, url, home) | ({"IS_SANDBOX": "1"} if like == "claude" else {})
    if like == "opencode":  # it asks nobody, unless its own settings say so
        settings = json.loads(env["OPENCODE_CONFIG_CONTENT"])
        env["OPENCODE_CONFIG_CONTENT"] = json.dumps(
            {**settings, "permission": {"bash": "ask", "edit": "ask"}}
        )
    return env


def _pi(url: str, home: Path) -> dict[str, str]:
    """Describe the model to pi, which reads its providers from a file."""
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "SCRIPTED_KEY",
        "models": [{"id": "m-1", "contextWindow": 100_000, "maxTokens": 8_000}],
    }
    folder = home / ".pi" / "agent"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "models.json").write_text(json.dumps({"providers": {"scripted": provider}}))
    return {"SCRIPTED_KEY": "sk-scripted-0123456789abcdef", "PI_OFFLINE": "1"}
