"""Claims: every rule of the glob language, and agreement with a reference that tries everything."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isolation.claims import globs as claims
from isolation.errors import ClaimError

# A small alphabet makes patterns and paths meet often; a newline must be a character like any other.
LETTERS = "ab\n"
names = st.text(alphabet=LETTERS, min_size=1, max_size=3)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
tokens = st.sampled_from(["a", "b", "\n", "?", "[ab]", "[!a]", "[a-b]", "[!a-b]"])
components = st.lists(st.tuples(tokens, st.sampled_from(["", "*"])).map("".join), min_size=1, max_size=3).map(
    "".join
) | st.sampled_from(["*", "**", "**"])
globs = st.builds(
    lambda negated, parts, tail: negated + "/".join(parts) + tail,
    st.sampled_from(["", "", "!"]),
    st.lists(components, min_size=1, max_size=4),
    st.sampled_from(["", "", "/"]),
)


def reference(glob: str, path: str) -> bool:
    """Match by the letter of the rules, by trying every way; as slow as it is simple."""
    glob = glob.removeprefix("!")
    return deep(tuple((glob + "**" if glob.endswith("/") else glob).split("/")), tuple(path.split("/")))


@cache
def deep(parts: tuple[str, ...], path: tuple[str, ...]) -> bool:
    if not parts:
        return not path
    if parts[0] == "**":
        return any(deep(parts[1:], path[skipped:]) for skipped in range(len(path) + 1))
    return bool(path) and flat(parts[0], path[0]) and deep(parts[1:], path[1:])


@cache
def flat(part: str, name: str) -> bool:
    if not part:
        return not name
    if part[0] == "*":
        return any(flat(part[1:], name[skipped:]) for skipped in range(len(name) + 1))
    if not name:
        return False
    if part[0] == "?":
        return flat(part[1:], name[1:])
    if part[0] == "[":
        inside, _, rest = part[1:].partition("]")
        members = inside.removeprefix("!").replace("a-b", "ab")
        return (name[0] in members) != inside.startswith("!") and flat(rest, name[1:])
    return part[0] == name[0] and flat(part[1:], name[1:])


@given(globs, paths)
def test_one_glob_agrees_with_the_reference(glob: str, path: str) -> None:
    """Matching is exactly what the rules say."""
    assert claims.compile([glob.removeprefix("!")]).owns(path) is reference(glob, path)


@given(st.lists(globs, max_size=4), paths)
def test_the_last_glob_that_matches_decides(listed: list[str], path: str) -> None:
    """Order counts: what is taken back can be claimed again."""
    listed = ["**/a", *listed]
    owned = False
    for glob in listed:
        if reference(glob, path):
            owned = not glob.startswith("!")
    assert claims.compile(listed).owns(path) is owned


@given(paths)
def test_a_path_without_wildcards_owns_exactly_itself(path: str) -> None:
    """A plain path is a glob that matches one path."""
    claim = claims.compile([path])
    assert claim.owns(path)
    assert not claim.owns(path + "a")
    assert not claim.owns("a/" + path)


@pytest.mark.parametrize(
    ("glob", "owned", "foreign"),
    [
        ("src/**", ["src/a", "src/a/b/c.py", "src"], ["srcs", "x/src/a", "Src/a"]),
        ("src/", ["src/a", "src/a/b", "src"], ["srca"]),
        ("**/test", ["test", "a/test", "a/b/test"], ["test/a", "atest"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["ab", "a/xb", "a/b/c"]),
        ("**", ["a", "a/b", ".hidden"], []),
        ("**/", ["a", "a/b"], []),
        ("a/**/**/b", ["a/b", "a/x/y/b"], ["a/x"]),
        ("*.py", ["a.py", ".py", "a\nb.py"], ["a/b.py", "a.pyc", "apy"]),
        ("a?c", ["abc", "a.c", "a\nc"], ["ac", "a/c", "abbc"]),
        ("v[0-9].txt", ["v0.txt", "v9.txt"], ["va.txt", "v10.txt"]),
        ("v[!0-9]", ["va", "v-", "v\n"], ["v1", "v"]),
        ("[]a]", ["]", "a"], ["b"]),
        ("[!]a]", ["b"], ["]", "a"]),
        ("[a-]", ["a", "-"], ["b"]),
        ("[-a]", ["a", "-"], ["b"]),
        ("[a-c-e]", ["b", "-", "e"], ["d"]),
        ("[[]id].tsx", ["[id].tsx"], ["i.tsx"]),
        ("[*]", ["*"], ["a"]),
        ("a.b+c(d)|^$", ["a.b+c(d)|^$"], ["aXb+c(d)|^$"]),
        ("x[.^|]", ["x.", "x^", "x|"], ["xa"]),
        ("a!b", ["a!b"], []),
        (" a", [" a"], ["a"]),
        ("{a,b}", ["{a,b}"], ["a"]),
        ("ä*", ["äx"], ["ax"]),
    ],
)
def test_the_rules_one_by_one(glob: str, owned: list[str], foreign: list[str]) -> None:
    """Each rule of the language, by example."""
    claim = claims.compile([glob])
    assert claim.foreign([*owned, *foreign]) == tuple(foreign)


@pytest.mark.parametrize("path", ["", "/a", "a/", "a//b", "./a", "a/./b", "a/../b", ".."])
def test_a_path_that_is_not_normal_is_never_owned(path: str) -> None:
    """Acceptance 11: no spelling of a path slips past a claim on everything."""
    assert not claims.compile(["**"]).owns(path)


def test_negation_takes_back_and_a_later_glob_gives_again() -> None:
    """The order of a claim is the order of its words."""
    claim = claims.compile(["src/**", "!src/vendor/", "src/vendor/ours/**"])
    assert claim.owns("src/a.py")
    assert not claim.owns("src/vendor/x.py")
    assert claim.owns("src/vendor/ours/y.py")


def test_an_empty_claim_owns_nothing() -> None:
    """No globs, no paths."""
    assert claims.compile([]).foreign(["a", "b/c"]) == ("a", "b/c")


@pytest.mark.parametrize(
    ("glob", "problem"),
    [
        ("", "is empty"),
        ("!", "is empty"),
        ("/src", "is absolute"),
        ("!/src", "is absolute"),
        ("/", "is absolute"),
        ("a//b", "empty component"),
        ("a//", "empty component"),
        ("./a", "component '.'"),
        ("a/../b", "component '..'"),
        ("..", "component '..'"),
        ("a\0b", "NUL"),
        ("a\\b", "backslash"),
        ("a**", "'**' inside"),
        ("**a", "'**' inside"),
        ("***", "'**' inside"),
        ("a/b**c/d", "'**' inside"),
        ("[ab", "unclosed '['"),
        ("[", "unclosed '['"),
        ("[]", "unclosed '['"),
        ("[!]", "unclosed '['"),
        ("a[/]b", "unclosed '['"),
        ("[^a]", "'[^'"),
        ("[z-a]", "empty range 'z-a'"),
    ],
)
def test_a_glob_that_cannot_be_used_is_named(glob: str, problem: str) -> None:
    """The message names the glob and its problem, the hint what to write."""
    with pytest.raises(ClaimError) as caught:
        claims.compile(["ok/**", glob])
    assert f"the glob '{glob}'" in caught.value.message
    assert problem in caught.value.message
    assert caught.value.hint


def test_a_claim_that_only_takes_back_is_refused() -> None:
    """Exclusions alone can own nothing, which is never intended."""
    with pytest.raises(ClaimError, match="owns nothing: '!a'"):
        claims.compile(["!a", "!b"])


def test_many_wildcards_do_not_explode() -> None:
    """A hostile glob over a deep path is decided in no time."""
    claim = claims.compile(["/".join(["**", "a"] * 30) + "/b"])
    assert not claim.owns("/".join(["a"] * 400))


def test_many_stars_in_one_name_do_not_explode() -> None:
    """A hostile name over a long one is decided in no time, for and against."""
    claim = claims.compile(["*a" * 40 + "*b"])
    assert claim.owns("a" * 200 + "b")
    assert not claim.owns("a" * 250)


@given(st.text(alphabet="ab*", min_size=1, max_size=8).filter(lambda text: "**" not in text), names)
def test_stars_are_found_wherever_they_can_be(glob: str, name: str) -> None:
    """Taking what stands between two stars where it is found first loses no match."""
    assert claims.compile([glob]).owns(name * 2) is reference(glob, name * 2)
