"""Claims as automata of another library, made from the text of the globs: the proof must agree with them.

Patterns of the tests are made of `a`, `b` and `.`, so any fourth character stands for all others. In the
automata `.` is written `d`, and every component ends with `s`.
"""

from collections.abc import Iterable
from functools import cache
from itertools import product

from automata.fa.dfa import DFA
from automata.fa.nfa import NFA
from hypothesis import strategies as st

SYMBOLS = "abcds"
ANY = "(a|b|c|d)"
# Whatever is not empty, "." or "..".
COMPONENT = f"((a|b|c){ANY}*|d(a|b|c){ANY}*|dd{ANY}{ANY}*)"

tokens = st.sampled_from(["a", "b", ".", "?", "[ab]", "[!a]", "[.]", "[!.]", "[a-b]"])
components = st.lists(st.tuples(tokens, st.sampled_from(["", "*"])).map("".join), min_size=1, max_size=3).map(
    "".join
).filter(lambda text: text not in {".", ".."}) | st.sampled_from(["*", "**", "**", "*a", "*.b"])
plain_globs = st.builds(
    lambda parts, tail: "/".join(parts) + tail,
    st.lists(components, min_size=1, max_size=3),
    st.sampled_from(["", "", "/"]),
)
globs = st.builds(str.__add__, st.sampled_from(["", "", "!"]), plain_globs)
claim_texts = st.builds(lambda first, rest: [first, *rest], plain_globs, st.lists(globs, max_size=3))


@cache
def automaton(expression: str) -> DFA:
    """Return the automaton of a regular expression."""
    return DFA.from_nfa(NFA.from_regex(expression, input_symbols=set(SYMBOLS)), minify=True)


def paths() -> DFA:
    """Return all paths that can exist."""
    return automaton(f"({COMPONENT}s)({COMPONENT}s)*")


def owned(listed: Iterable[str]) -> DFA:
    """Return the paths of a claim: each glob adds or excludes, in order."""
    claim = DFA.empty_language(set(SYMBOLS))
    for glob in listed:
        matched = automaton(_expression(glob.removeprefix("!")))
        claim = claim - matched if glob.startswith("!") else claim | matched
    return claim & paths()


def length(language: DFA) -> int | None:
    """Return the length of a shortest path, or None without any path."""
    return None if language.isempty() else language.minimum_word_length() - 1


def short_paths() -> list[str]:
    """List every path of at most two components of at most two characters, and some deeper ones."""
    names = ["".join(name) for size in (1, 2) for name in product("abc.", repeat=size)]
    names = [name for name in names if name not in {".", ".."}]
    shallow = [*names, *("/".join(pair) for pair in product(names, repeat=2))]
    return [*shallow, *("/".join(parts) for parts in product("abc", repeat=3))]


def _expression(glob: str) -> str:
    parts = (glob + "**" if glob.endswith("/") else glob).split("/")
    return "".join(f"({COMPONENT}s)*" if part == "**" else _name(part) + "s" for part in parts)


def _name(part: str) -> str:
    classes = {"[ab]": "(a|b)", "[a-b]": "(a|b)", "[!a]": "(b|c|d)", "[.]": "d", "[!.]": "(a|b|c)"}
    for written, meant in {**classes, "?": ANY}.items():
        part = part.replace(written, meant)
    return part.replace(".", "d").replace("*", f"{ANY}*")
