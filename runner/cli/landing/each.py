"""One answer about several landings: what each of them says is a part of one document."""

from typing import Any

from runner.cli.output import Output


class PartOutput(Output):
    """Prints like its whole, but keeps its document, or its error, for the document of all."""

    def __init__(self, whole: Output, name: str) -> None:
        super().__init__(command=whole.command, as_json=whole.as_json, quiet=whole.quiet)
        self.found: dict[str, Any] = {"repo": name}
        self.success = True

    def document(self, data: Any, *, success: bool = True) -> None:
        """Keep the document."""
        self.found |= data
        self.success = success

    def error(self, *, code: str, message: str, hint: str = "") -> None:
        """Keep the error; people read it at once."""
        self.success = False
        self.found["error"] = {"code": code, "message": message, "hint": hint}
        if not self.as_json:
            super().error(code=code, message=f"{self.found['repo']}: {message}", hint=hint)
