"""Inputs for a target: its corpus, cut, joined and filled with hostile pieces, and documents of its words."""

import json
import random
import re
from functools import cache

from hypothesis import strategies as st

from tests.fuzz.registry import TARGETS, Target

_WORD = re.compile(rb"[A-Za-z_][A-Za-z0-9_-]+")
_TOKEN = re.compile(rb"[A-Za-z0-9_.+-]+")
_NUMBERS = (0, -1, 1, 2**31, -(2**63), 10**18, 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"), -1e308)
PIECES = (
    *(json.dumps(number).encode() for number in _NUMBERS),
    *(
        b"\0",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\r\n",
        b"\r",
        b"\t",
        b"\x1b[2J",
        b"\xe2\x80\xae",
        b"\xed\xa0\x80",
    ),
    *(b'"\\ud800"', b"{", b"}", b"[", b"]", b"- ", b": ", b"---\n", b"```\n", b"<!--", b"-->", b"#", b"|"),
    *(b"true", b"null", b"''", b'""', b"*a", b"&a ", b"<<: ", b"!!int ", b"!!bool ", b"!!timestamp ", b"? "),
    *(b"[" * 60, b'{"a":' * 60, b" " * 300, b"9" * 5000, b"../", b"/", b"*", b"**", b"[!", b"${", b"$$"),
    *(b"2026-02-30T25:61:00Z", b"9999-12-31T23:59:59-23:59", b"0001-01-01", b"1e999", b"-0x10", b"0o8"),
)


@cache
def seeds(name: str) -> tuple[bytes, ...]:
    """Return the corpus of a target."""
    return tuple(path.read_bytes() for path in TARGETS[name].samples)


@cache
def words(name: str) -> tuple[str, ...]:
    """Return the words of a target's corpus: the keys and values that its parser knows."""
    found = (word for seed in seeds(name) for word in _WORD.findall(seed[:20_000]))
    return tuple(dict.fromkeys(word.decode() for word in found))[:400] or ("word",)


def quick_inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Return a strategy whose inputs take no time to draw: a number says how a sample is changed."""
    pieces = (*PIECES, *(word.encode() for word in words(target.name)))

    def changed(number: int) -> bytes:
        chance = random.Random(number)  # noqa: S311  nothing is secret here
        data = chance.choice(seeds(target.name))
        for _ in range(chance.randint(0, 4)):
            tokens = [found.span() for found in _TOKEN.finditer(data, 0, 20_000)]
            start = chance.randint(0, len(data))
            end = start + chance.choice((0, 0, 1, 20))
            if tokens and chance.random() < 0.5:
                start, end = chance.choice(tokens)
            data = data[:start] + chance.choice(pieces) + data[end:]
        return data

    return st.integers(0, 2**32).map(changed)


def inputs(target: Target) -> st.SearchStrategy[bytes]:
    """Return a strategy for the inputs of a target."""
    known = st.sampled_from(words(target.name))
    leaves = st.one_of(st.sampled_from((None, True, *_NUMBERS)), known, st.text(max_size=8))
    documents = st.recursive(
        leaves,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(known, inner, max_size=6)),
        max_leaves=20,
    )
    pieces = st.one_of(
        st.sampled_from(PIECES),
        known.map(str.encode),
        st.binary(max_size=8),
        documents.map(lambda document: json.dumps(document).encode()),
    )
    return st.one_of(
        _mutated(target, pieces),
        documents.map(lambda document: json.dumps(document).encode()),
        st.lists(pieces, max_size=12).map(b"".join),
        st.binary(max_size=200),
    )


@st.composite
def _mutated(draw: st.DrawFn, target: Target, pieces: st.SearchStrategy[bytes]) -> bytes:
    """Change a sample at a few places: remove, insert, repeat, or replace a word or a number."""
    data = draw(st.sampled_from(seeds(target.name)))
    for _ in range(draw(st.integers(1, 4))):
        tokens = [found.span() for found in _TOKEN.finditer(data, 0, 20_000)]
        if draw(st.booleans()) and tokens:
            start, end = draw(st.sampled_from(tokens))
        else:
            start = draw(st.integers(0, len(data)))
            end = min(len(data), start + draw(st.integers(0, 20)))
        data = data[:start] + draw(pieces) + data[end:]
    return data
