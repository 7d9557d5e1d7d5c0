"""The one printer: stdout is the answer, stderr the narration; one JSON document, one error form."""

import sys
from typing import Any

SCHEMA = 1


def narrate(line: str) -> None:
    """Put one line on stderr; a full disk or a reader that left costs the line, never the run."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:
        pass


class Output:
    """Where a command puts its answer, its narration and its error."""

    def __init__(self, *, command: str, as_json: bool = False, quiet: bool = False) -> None:
        self.command = command
        self.as_json = as_json
        self.quiet = quiet

    def answer(self, text: str) -> None:
        """Print part of the answer for people; nothing in JSON mode."""
        if not self.as_json and text:
            sys.stdout.write(text if text.endswith("\n") else text + "\n")
            sys.stdout.flush()

    def document(self, data: Any, *, success: bool = True) -> None:
        """Print the one JSON document, in JSON mode only."""
        if self.as_json:
            self._json({"schema": SCHEMA, "success": success, "command": self.command, "data": data})

    def say(self, line: str) -> None:
        """Narrate one line."""
        if not self.quiet:
            narrate(line)

    def say_where(self, directory: str) -> None:
        """Tell where the commands of an answer are to be typed, when that is not here."""
        if directory != "." and not self.as_json:
            import shlex
            from pathlib import Path

            there = shlex.quote(str(Path(directory).absolute()))
            self.say(f"before you type one of these commands: cd {there}")

    def warn(self, line: str) -> None:
        """Say what a person should know even when quiet."""
        narrate(f"warning: {line}")

    def error(self, *, code: str, message: str, hint: str = "") -> None:
        """Print an error: what is wrong, where, and what to do next."""
        if self.as_json:
            error = {"code": code, "message": message, "hint": hint}
            self._json({"schema": SCHEMA, "success": False, "command": self.command, "error": error})
            return
        narrate(f"error: {message}")
        if hint:
            narrate(f"hint: {hint}")

    @staticmethod
    def _json(document: dict[str, Any]) -> None:
        import json

        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        sys.stdout.flush()
