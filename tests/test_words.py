"""The words of the house: what users and maintainers read is plain American English."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("runner", "isolation")
OLD_WORDS = (
    # archaic, or shaped after another language
    r"mends?|mended|mending|amiss|anew|aloud|whoever|whosoever|gladly",
    r"told",
    r"nobody(?!`)",
    r"is no (kill|work|success|failure|answer)",
    r"(can|cannot|could|to) be had",
    r"(goes|go|going|went|gone) on",
    r"last words?",
    r"ended well|ends well|went well",
    r"a person asked",
    r"(come|comes|came) to (nothing|together)|what they come to",
    r"(takes?|taken|took|taking) back",
    r"lets? down",
    r"at (his|her) turn",
    r"in the midst",
    r"throw-away",
    r"sees? to it that",
    r"as it stands|where it stands",
    r"(a|one) (suite|case|line|file|row|card|job) an? (story|session|run|stage|agent)",
    # metaphors that were names
    r"purses?|frictions?|attendance|checkups?|heralds?|heralding|crew",
    r"places? in the window",
    r"the machine refused",
    r"coordinates this repository since",
    # British spelling
    r"colours?|coloured|behaviours?|favours?|favourite|neighbours?|neighbouring|judgement|catalogues?",
    r"(recogn|organ|synchron|normal|initial|summar|serial|optim|minim|real)is(e|es|ed|ing|ation)",
)
# For text in small letters: to ignore case makes this search four times slower.
_OLD = re.compile(r"\b(" + "|".join(OLD_WORDS) + r")\b")
_BEGINNING = re.compile(r"(Give|Tell)s?\b")
_QUOTED_BEGINNING = re.compile(r"[\"']\s*(\\\s*)?(Give|Tell)s?\b")
EXEMPT = {"docs/changelog.md"}
"""What was said when a version came out stays said."""


def _texts() -> dict[str, str]:
    """Read every file that people read."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file()]
    files += [path for path in (ROOT / "docs").rglob("*") if path.suffix in {".md", ".py", ".json", ".svg"}]
    files += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    named = {path.relative_to(ROOT).as_posix(): path for path in files if "__pycache__" not in path.parts}
    return {name: path.read_text(encoding="utf-8") for name, path in named.items() if name not in EXEMPT}


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


def test_docstrings_say_what_is_returned_or_done() -> None:
    """No docstring begins with "Give" or "Tell"."""
    scripts = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    scripts += (ROOT / "docs").glob("*.py")
    scripts += (ROOT / "tests").rglob("*.py")
    guilty = [
        f"{path.relative_to(ROOT)}:{line}: {text.splitlines()[0]}"
        for path in scripts
        if _QUOTED_BEGINNING.search(
            source := path.read_text()
        )  # only these can be guilty; to parse takes long
        for line, text in _docstrings(ast.parse(source))
        if _BEGINNING.match(text)
    ]
    assert scripts
    assert not guilty, "\n".join(guilty)


@pytest.mark.parametrize(
    "text", ['"""Give it."""', "'Tells'", 'r"""\n    Give it.\n    """', '"""\\\nTell it."""']
)
def test_no_way_to_begin_a_docstring_is_missed(text: str) -> None:
    """Whatever its quotes and wherever its first line."""
    assert _QUOTED_BEGINNING.search(text)
    assert any(_BEGINNING.match(found) for _, found in _docstrings(ast.parse(text)))


def test_old_idioms_are_gone() -> None:
    """The code, its messages and the pages have none of the old words."""
    guilty = [
        f"{name}:{number}: {found[0]!r}: {line.strip()}"
        for name, text in _texts().items()
        for number, line in enumerate(text.splitlines(), start=1)
        if (found := _OLD.search(line.lower()))
    ]
    assert not guilty, "\n".join(guilty)


@pytest.mark.parametrize("words", ["mend that, then run again", "a person asked to stop", "in colour"])
def test_the_search_finds_what_it_looks_for(words: str) -> None:
    """A list that finds nothing proves nothing."""
    assert _OLD.search(words)
