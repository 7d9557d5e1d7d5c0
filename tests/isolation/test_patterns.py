"""Patterns that are compiled at their first use."""

import re

import pytest

from isolation.patterns import pattern


def test_a_pattern_is_compiled_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until then a wrong one is no error, and afterwards it is what `re` made."""
    compiled: list[str] = []
    original = re.compile

    def compile_(text: str, flags: int) -> re.Pattern[str]:
        compiled.append(text)
        return original(text, flags)

    monkeypatch.setattr(re, "compile", compile_)
    found = pattern(r"(\w+)=(\d+)", re.IGNORECASE)
    assert compiled == []
    assert found.fullmatch("a=1") is not None
    assert found.sub("x", "a=1 b=2") == "x x"
    assert found.pattern == r"(\w+)=(\d+)"
    assert pattern(rb"a+").findall(b"aa ba") == [b"aa", b"a"]
    with pytest.raises(re.error):
        pattern("(").search("")
