"""All sources that can hold settings, for the tests that read them."""

from pathlib import Path

import pytest

from runner.core.errors import RunnerError
from runner.plan.settings.load import Loaded, load_settings


class Sources:
    """All sources that can hold settings, empty at first."""

    def __init__(self, folder: Path) -> None:
        self.top = folder / "top"
        self.home = folder / "home"
        self.environ = {"HOME": str(self.home)}
        self.top.mkdir()

    def project(self, text: str, name: str = "autopilot-multi.toml") -> None:
        """Write the project's settings file."""
        self.write(self.top / name, text)

    def user(self, text: str) -> None:
        """Write the user's settings file."""
        self.write(self.home / ".config/autopilot-multi/config.toml", text)

    def block(self, *lines: str, name: str = "AGENTS.md") -> None:
        """Write an `autopilot:` block."""
        self.write(self.top / name, "\n".join(["# Agents", "", "autopilot:", *(f"  {x}" for x in lines), ""]))

    def load(self, **flags: str | tuple[str, ...]) -> Loaded:
        """Load with these flags, underscores standing for hyphens."""
        given = {name.rstrip("_").replace("_", "-"): value for name, value in flags.items()}
        return load_settings(top=self.top, flags=given, environ=self.environ)

    def error(self, **flags: str | tuple[str, ...]) -> RunnerError:
        """Load, and return the error."""
        with pytest.raises(RunnerError) as caught:
            self.load(**flags)
        assert caught.value.hint, "every error says what to do"
        return caught.value

    @staticmethod
    def write(path: Path, text: str) -> None:
        """Write a file and the folders above it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
