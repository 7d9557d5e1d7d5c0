"""Every statement of the protocols has a test that names it, and every named statement exists."""

import ast
from pathlib import Path

from tests.protocols.statements import STATEMENTS

TESTS = Path(__file__).parent.parent


def _named() -> set[str]:
    """Return the numbers in all markers `protocol(...)`, also those of a whole file."""
    found: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        if "mark.protocol(" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.protocol":
                found.update(str(arg.value) for arg in node.args if isinstance(arg, ast.Constant))
    return found


def test_every_statement_is_proven_by_a_test() -> None:
    """A promise without a test is one that nobody has tried."""
    named = _named()
    assert named - set(STATEMENTS) == set(), "these are not in the list"
    assert set(STATEMENTS) - named == set(), "these have no test"
