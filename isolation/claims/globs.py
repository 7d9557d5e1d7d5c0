"""Claims: which paths a story owns, in the glob language of this program. Pure.

A glob is anchored at the root of the repository and matched component by component: `*`, `?` and
`[a-z]`/`[!a-z]` stay within one component, `**` stands alone and matches any number of components,
including none. A trailing `/` means `/**`. `!` in front excludes; the last glob that matches
decides. A glob is kept as a tree of components and tokens, never as one opaque expression, so that
questions about two claims can be answered from the same tree.

On a file system that folds case, globs and paths are folded alike, then matched.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NoReturn, TypeAlias

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from isolation.claims.folding import fold, fold_ranges
from isolation.errors import ClaimError


class OneOf(Struct, frozen=True, kw_only=True):
    """One character: within the ranges, or with `negated` outside of them. `?` is outside of none."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False


class AnyText(Struct, frozen=True, kw_only=True):
    """Any number of characters within a component: `*`."""


class AnyDepth(Struct, frozen=True, kw_only=True):
    """Any number of components: `**`."""


Token: TypeAlias = OneOf | AnyText


class Name(Struct, frozen=True, kw_only=True):
    """One component of a path, described by tokens.

    `head` and `tail` are the plain text that it begins and ends with; `literal` is all of it, if it is plain.
    Most names are, and need no regular expression.
    """

    tokens: tuple[Token, ...]
    head: str = ""
    tail: str = ""
    literal: str | None = None
    _regex: re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        head = "".join(_plain_beginning(self.tokens))
        force_setattr(self, "head", head)
        force_setattr(self, "tail", "".join(_plain_beginning(reversed(self.tokens)))[::-1])
        plain = len(head) == len(self.tokens)
        force_setattr(self, "literal", head if plain else None)
        regex = None if plain else re.compile(_regex_of(self.tokens), re.DOTALL)
        force_setattr(self, "_regex", regex)

    def matches(self, component: str) -> bool:
        """Return whether this pattern matches a component."""
        if self._regex is None:
            return component == self.literal
        return self._regex.fullmatch(component) is not None


Component: TypeAlias = Name | AnyDepth
_ANY_DEPTH = AnyDepth()


class Glob(Struct, frozen=True, kw_only=True):
    """One glob of a claim; `text` is what the user wrote."""

    text: str
    negated: bool
    components: tuple[Component, ...]

    def matches(self, components: Sequence[str]) -> bool:
        """Return whether the whole path matches, by following all positions in the glob in parallel."""
        states = self._reach({0})
        for component in components:
            following: set[int] = set()
            for state in states:
                if state == len(self.components):
                    continue
                part = self.components[state]
                if isinstance(part, AnyDepth):
                    following.add(state)
                elif part.matches(component):
                    following.add(state + 1)
            states = self._reach(following)
        return len(self.components) in states

    def _reach(self, states: set[int]) -> set[int]:
        """Add the states that a `**` leads to by matching nothing."""
        reached = set(states)
        for state in states:
            after = state
            while after < len(self.components) and isinstance(self.components[after], AnyDepth):
                after += 1
                reached.add(after)
        return reached


class Claim(Struct, frozen=True, kw_only=True):
    """The paths that a story owns; without globs, none. `folding` means that case does not count."""

    globs: tuple[Glob, ...]
    folding: bool = False

    def owns(self, path: str) -> bool:
        """Return whether a path belongs to the claim.

        Paths are relative to the root and normal, as git prints them; any other is never owned.
        """
        components = (fold(path) if self.folding else path).split("/")
        if any(component in {"", ".", ".."} for component in components):
            return False
        for glob in reversed(self.globs):  # the last one that matches decides
            if glob.matches(components):
                return not glob.negated
        return False

    def foreign(self, paths: Iterable[str]) -> tuple[str, ...]:
        """Return the paths that do not belong to the claim, in the given order."""
        return tuple(path for path in paths if not self.owns(path))


def compile(  # noqa: A001  as in `re.compile`, called with its module
    globs: Iterable[str], *, folding: bool = False
) -> Claim:
    """Parse the globs of one claim, in their order; an invalid glob is a `ClaimError`."""
    return _compiled(tuple(globs), folding=folding)


@lru_cache(maxsize=1024)
def _compiled(globs: tuple[str, ...], *, folding: bool) -> Claim:
    """Parse globs once: those of a story are asked about at each of its steps, and always mean the same."""
    parsed = tuple(_parse(glob, folding=folding) for glob in globs)
    if parsed and all(glob.negated for glob in parsed):
        raise ClaimError(
            f"the claim owns nothing: '{parsed[0].text}' only excludes",
            hint="put a glob without '!' in front of it.",
        )
    return Claim(globs=parsed, folding=folding)


def _parse(text: str, *, folding: bool) -> Glob:
    negated = text.startswith("!")
    path = text.removeprefix("!")
    if not path:
        _refuse(text, "is empty", "name a path, such as src/** .")
    if path.startswith("/"):
        _refuse(text, "is absolute", "globs start at the root of the repository: drop the '/' in front.")
    for character, name in (("\0", "a NUL character"), ("\\", "a backslash")):
        if character in path:
            _refuse(text, f"holds {name}", "separate folders with '/'; write '[*]' for a plain '*'.")
    if path.endswith("/"):
        path += "**"
    components = tuple(_component(part, text, folding=folding) for part in path.split("/"))
    return Glob(text=text, negated=negated, components=components)


def _component(part: str, glob: str, *, folding: bool) -> Component:
    if part == "":
        _refuse(glob, "has an empty component", "write one '/' between folders.")
    if part in {".", ".."}:
        _refuse(glob, f"has the component '{part}'", "write the path from the root of the repository.")
    if part == "**":
        return _ANY_DEPTH
    tokens: list[Token] = []
    rest = part
    while rest:
        token, rest = _token(rest, glob)
        if isinstance(token, AnyText) and tokens and isinstance(tokens[-1], AnyText):
            _refuse(glob, "has '**' inside a component", "write '*', or '**' between two '/'.")
        tokens.append(token)
    return Name(tokens=tuple(_folded(tokens) if folding else tokens))


def _token(rest: str, glob: str) -> tuple[Token, str]:
    """Take one token off the front."""
    match rest[0]:
        case "*":
            return AnyText(), rest[1:]
        case "?":
            return OneOf(ranges=(), negated=True), rest[1:]
        case "[":
            return _character_class(rest, glob)
        case plain:
            return OneOf(ranges=((plain, plain),)), rest[1:]


def _character_class(rest: str, glob: str) -> tuple[Token, str]:
    negated = rest.startswith("[!")
    start = 2 if negated else 1
    end = rest.find("]", start + 1)  # a ']' in the first place is a member
    if end < 0:
        _refuse(glob, "has an unclosed '['", "close it with ']', or write '[[]' for a plain '['.")
    members = rest[start:end]
    if members.startswith("^"):
        _refuse(glob, "has '[^'", "write '[!' for any other character.")
    ranges: list[tuple[str, str]] = []
    while members:
        if len(members) > 2 and members[1] == "-":  # noqa: PLR2004  first, '-', last
            first, last, members = members[0], members[2], members[3:]
        else:
            first, last, members = members[0], members[0], members[1:]
        if first > last:
            _refuse(glob, f"has the empty range '{first}-{last}'", f"write '{last}-{first}'.")
        ranges.append((first, last))
    return OneOf(ranges=tuple(ranges), negated=negated), rest[end + 1 :]


def _folded(tokens: Iterable[Token]) -> list[Token]:
    """Fold plain text as a whole, since a character may fold to several, and classes by their members."""
    folded: list[Token] = []
    for is_text, group in groupby(tokens, key=lambda token: _plain(token) is not None):
        if is_text:
            text = "".join(filter(None, map(_plain, group)))
            folded += [OneOf(ranges=((character, character),)) for character in fold(text)]
        else:
            folded += [_folded_wildcard(token) for token in group]
    return folded


def _folded_wildcard(token: Token) -> Token:
    return token if isinstance(token, AnyText) else replace(token, ranges=fold_ranges(token.ranges))


def _plain(token: Token) -> str | None:
    """Return the only character that a token matches; None if it matches several."""
    if isinstance(token, AnyText) or token.negated or len(token.ranges) != 1:
        return None
    ((first, last),) = token.ranges
    return first if first == last else None


def _plain_beginning(tokens: Iterable[Token]) -> Iterator[str]:
    for token in tokens:
        character = _plain(token)
        if character is None:
            return
        yield character


def _regex_of(tokens: Sequence[Token]) -> str:
    """Match in time that grows with the product of the lengths, however many `*` there are.

    What is between two `*` is matched at its first occurrence, without backtracking.
    """
    segments = [""]
    for token in tokens:
        if isinstance(token, AnyText):
            segments.append("")
        else:
            segments[-1] += _class_of(token)
    first, *others = segments
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>.*?{segment})" for segment in middle) + ".*" + last


def _class_of(token: OneOf) -> str:
    if not token.ranges:
        return "."
    members = "".join(f"{re.escape(first)}-{re.escape(last)}" for first, last in token.ranges)
    return f"[{'^' if token.negated else ''}{members}]"


def _refuse(glob: str, problem: str, hint: str) -> NoReturn:
    raise ClaimError(f"the glob '{glob}' {problem}", hint=hint)
