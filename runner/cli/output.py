"""The only code that prints: answers go to stdout, progress and errors to stderr, or one JSON document."""

import sys
from typing import Any

SCHEMA = 1


def narrate(line: str) -> None:
    """Print one line to stderr; if that fails, the line is lost but the run continues."""
    try:
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:  # a full disk, or the reader of the pipe has exited
        pass


class Output:
    """Prints the answer, the progress and the error of a command."""

    def __init__(self, *, command: str, as_json: bool = False, quiet: bool = False) -> None:
        self.command = command
        self.as_json = as_json
        self.quiet = quiet

    def answer(self, text: str) -> None:
        """Print part of the answer; nothing in JSON mode."""
        if not self.as_json and text:
            sys.stdout.write(text if text.endswith("\n") else text + "\n")
            sys.stdout.flush()

    def document(self, data: Any, *, success: bool = True) -> None:
        """Print the one JSON document, in JSON mode only."""
        if self.as_json:
            self._json({"schema": SCHEMA, "success": success, "command": self.command, "data": data})

    def say(self, line: str) -> None:
        """Print one line of progress, unless quiet."""
        if not self.quiet:
            narrate(line)

    def say_where(self, directory: str) -> None:
        """Print the folder in which to run the suggested commands, if it is not the current one."""
        if directory != "." and not self.as_json:
            import shlex
            from pathlib import Path

            there = shlex.quote(str(Path(directory).absolute()))
            self.say(f"run these commands in this folder: cd {there}")

    def warn(self, line: str) -> None:
        """Print a warning, even when quiet."""
        narrate(f"warning: {line}")

    def error(self, *, code: str, message: str, hint: str = "") -> None:
        """Print an error: what is wrong, where, and how to fix it."""
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
