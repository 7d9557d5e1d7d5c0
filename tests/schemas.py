"""JSON Schema without a parser that nothing here needs: to load that one takes longer than most tests."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

_UNUSED = "rfc3987_syntax"
"""jsonschema loads it for the format "iri" where it is installed; it builds 38 grammars when it is loaded."""


def complaints(schema: dict[str, Any], document: object) -> list[str]:
    """Return what is wrong with a document, nothing if it fits a schema of draft 2020-12."""
    return [error.message for error in _validator(json.dumps(schema)).iter_errors(document)]


@cache
def _validator(text: str) -> Any:
    """Return what checks documents; the schema itself is only checked once, which takes longest."""
    sys.modules.setdefault(_UNUSED, None)  # type: ignore[arg-type]  # as if it were not installed
    from jsonschema import Draft202012Validator

    schema = json.loads(text)
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def check_files(schema: str, *files: Path) -> None:
    """Check files against the schema of a CI system, as `check-jsonschema` does."""
    program = f"import sys; sys.modules['{_UNUSED}'] = None; from check_jsonschema import main; main()"
    more = ["--data-transform", "azure-pipelines", "--regex-variant", "nonunicode"]
    done = subprocess.run(
        [
            *(sys.executable, "-c", program, "--builtin-schema", f"vendor.{schema}"),
            *(more if schema == "azure-pipelines" else []),
            *map(str, files),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
