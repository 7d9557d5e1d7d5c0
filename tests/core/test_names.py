"""Names: ids that git and file systems accept, made from any words; suggestions; values in messages."""

import datetime as dt
import shutil
import subprocess
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.core.text.names import did_you_mean, id_problem, one_line, shown, slug, unique


@pytest.mark.parametrize("text", ["a", "0", "checkout-17", "a.b_c-d", "a" * 63, "x.locks", "a-", "a_"])
def test_ids_that_fit(text: str) -> None:
    """Letters, digits, dots, underscores and hyphens make an id."""
    assert id_problem(text) is None


@pytest.mark.parametrize(
    "text",
    ["", "A", "a b", "-a", ".git", "_a", "a/b", "../x", "a" * 64, "a..b", "a.", "a.lock", "a\n", "é", "a~1"],
)
def test_ids_that_do_not_fit(text: str) -> None:
    """Acceptance 11: an id that could leave its folder, or that git refuses, is refused."""
    assert id_problem(text)


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet="ab.-_lock", min_size=1, max_size=8))
def test_git_accepts_every_id_as_a_branch(text: str) -> None:
    """What we call an id, git calls a valid branch name."""
    if id_problem(text) is None:
        program = shutil.which("git") or "git"
        subprocess.run([program, "check-ref-format", f"refs/heads/autopilot/{text}"], check=True)


@given(st.text(max_size=200))
def test_a_slug_is_always_an_id(text: str) -> None:
    """Whatever the user types, the id made from it is valid."""
    made = slug(text)
    assert id_problem(made) is None
    assert len(made) <= 40


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Fix the Login page!", "fix-the-login-page"),
        ("Überprüfe Straße", "uberprufe-strae"),
        ("修正", "story"),
        ("x" * 90, "x" * 40),
        (
            "one two three four five six seven eight nine ten",
            "one-two-three-four-five-six-seven-eight",
        ),
    ],
)
def test_slugs_keep_whole_words(text: str, made: str) -> None:
    """A slug reads like the words it came from."""
    assert slug(text) == made


def test_a_taken_name_gets_a_number() -> None:
    """Two equal prompts get two ids."""
    assert unique("a", set()) == "a"
    assert unique("a", {"a", "a-2"}) == "a-3"


def test_titles_are_one_harmless_line() -> None:
    """Line breaks are folded and escape sequences are gone."""
    assert one_line("  a\n b\t c \x1b[31mred\x1b[0m ") == "a b c red"


def test_suggestions() -> None:
    """The nearest name is suggested, or nothing."""
    assert did_you_mean("depnds_on", ["depends_on", "owns"]) == "did you mean 'depends_on'?"
    assert did_you_mean("DEPENDS-ON", ["depends_on", "OWNS"]) == "did you mean 'depends_on'?"
    assert did_you_mean("owns", ["depends_on", "OWNS"]) == "did you mean 'OWNS'?"
    assert did_you_mean("zzz", ["depends_on"]) == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("abc", "'abc'"),
        ("x" * 100, "'" + "x" * 59 + "…'"),
        (True, "true"),
        (False, "false"),
        (3, "3"),
        (10**20, "1e+20"),
        (2.5, "2.5"),
        ([1], "a list"),
        ([], "an empty list"),
        ({}, "a table"),
        (dt.date(2024, 1, 1), "a date"),
    ],
)
def test_values_in_messages_are_short(value: Any, text: str) -> None:
    """A message shows a wrong value as files write it, however large it is."""
    assert shown(value) == text
