"""Secrets are taken out of texts, values and streams."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runner.core.events import events as ev
from runner.core.model import StoryId
from runner.core.text.redaction import (
    LONGEST_LINE,
    REDACTED,
    RedactedStream,
    Redactor,
    is_secret,
    secret_variables,
)

KNOWN = Redactor({"MY_API_KEY": 'p"w-0123456789', "DB_PASSWORD": "hunter22 x", "HOME": "/home/somebody"})


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcdefghijklmnop",
        "sk-proj-abcdefghijklmnop1234",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "github_pat_11ABCDEFG0123456789_abcdef",
        "glpat-abcdefghijklmnopqrst",
        "xoxb-123456789012-abcdef",
        "AKIAIOSFODNN7EXAMPLE",
        "AIzaSyA-abcdefghijklmnopqrstuvwxyz01234",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVPmB92K27uhbUJU1p1r",
        'p"w-0123456789',
        'p\\"w-0123456789',
        "hunter22 x",
    ],
)
def test_known_forms_and_known_values_are_taken_out(secret: str) -> None:
    """By form or by value, in text as in bytes, also as JSON writes it."""
    for clean in (KNOWN.text(f"key={secret}, ok"), KNOWN.data(f"key={secret}, ok".encode()).decode()):
        assert clean == f"key={REDACTED}, ok"


def test_ordinary_words_stay() -> None:
    """Nothing that only looks a little like a secret is touched."""
    words = "task-force risk-averse sk-short /home/somebody desk-lamp-with-a-long-name ghp_short 1234567"
    assert KNOWN.text(words) == words
    assert Redactor({"API_KEY": "short"}).text("a short word") == "a short word"


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("OPENAI_API_KEY", True),
        ("GITHUB_TOKEN", True),
        ("db_password", True),
        ("CLIENT_SECRET", True),
        ("GITLAB_PAT", True),
        ("NPM_AUTH", True),
        ("TOKENIZERS_PARALLELISM", False),
        ("KEYBOARD", False),
        ("AUTOPILOT_TOKEN_ALLOWANCE", False),
        ("SSH_KEY_PATH", False),
    ],
)
def test_a_name_says_whether_its_value_is_a_secret(name: str, *, secret: bool) -> None:
    """KEY, TOKEN, SECRET and PASSWORD at the end of a name."""
    assert is_secret(name) is secret


def test_every_text_of_an_event_is_cleaned_and_the_rest_stays() -> None:
    """What is recorded has no secret in any of its fields."""
    body = ev.DecisionAsked(
        story_id=StoryId("a"),
        decision_id="a-1",
        question={"title": "use hunter22 x?", "options": ["hunter22 x", 3]},
    )
    clean = KNOWN.value(body)
    assert clean.question == {"title": f"use {REDACTED}?", "options": [REDACTED, 3]}
    ended = ev.Noted(message="all well")
    assert KNOWN.value(ended) is ended


@given(st.lists(st.integers(min_value=1, max_value=40), max_size=40))
def test_a_secret_cut_in_two_by_chunks_is_taken_out(cuts: list[int]) -> None:
    """However the stream is cut, no part of a secret passes, and nothing else is lost."""
    text = b'one hunter22 x two\nsk-ant-api03-abcdefghijklmnop tail\rp"w-0123456789'
    stream, out, at = RedactedStream(KNOWN), b"", 0
    for cut in cuts:
        out += stream.feed(text[at : at + cut])
        at += cut
    out += stream.feed(text[at:]) + stream.rest()
    mark = REDACTED.encode()
    assert out == b"one %s two\n%s tail\r%s" % (mark, mark, mark)


def test_a_stream_without_line_breaks_costs_bounded_memory() -> None:
    """A line without end is passed on."""
    stream = RedactedStream(KNOWN)
    passed = sum(len(stream.feed(b"x" * 10_000)) for _ in range(100))
    assert passed + len(stream.rest()) == 1_000_000
    assert passed >= 1_000_000 - LONGEST_LINE


def test_each_line_of_a_long_secret_is_taken_out() -> None:
    """A private key is often printed line by line."""
    redactor = Redactor({"DEPLOY_PRIVATE_KEY": "-----BEGIN-----\nabcdefghijkl\n-----END-----\n"})
    assert redactor.text("key: abcdefghijkl!") == f"key: {REDACTED}!"


def test_the_path_of_a_secret_stays() -> None:
    """It says where a secret is stored, and is needed to understand a log."""
    redactor = Redactor({"GOOGLE_APPLICATION_CREDENTIALS": "/etc/keys/ci.json"})
    assert redactor.text("reads /etc/keys/ci.json") == "reads /etc/keys/ci.json"


def test_variables_with_secrets_are_found_by_name_by_form_and_if_named() -> None:
    """What sessions do not get is one question about the whole environment."""
    environ = {
        "DEPLOY_TOKEN": "x",
        "HARMLESS": "Authorization: bearer abcdefgh12345",
        "CUSTOM": "plain",
        "AUTOPILOT_KEY": "ours",
        "PATH": "/usr/bin",
    }
    assert secret_variables(environ, named={"CUSTOM"}) == {"DEPLOY_TOKEN", "HARMLESS", "CUSTOM"}
