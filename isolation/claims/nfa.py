"""A nondeterministic automaton for patterns of single parts and stars. Pure.

A position is the number of parts already matched, and a set of positions is an integer with these bits. The
same automaton serves for the characters of a name (`*` is the star) and for the folders of a glob (`**` is).
"""

from msgspec import Struct


class Automaton(Struct, frozen=True, kw_only=True):
    """A pattern without its content: which of its positions are stars, never two in a row, and its end."""

    stars: int
    end: int

    @property
    def start(self) -> int:
        """The positions before any input."""
        return self._closure(1)

    def step(self, positions: int, hits: int) -> int:
        """Return the positions after one more symbol; `hits` are those whose part matches this symbol."""
        return self._closure((positions & self.stars) | ((positions & hits & ~self.stars) << 1))

    def ended(self, positions: int) -> bool:
        """Return whether the pattern has matched completely."""
        return bool(positions & self.end)

    def _closure(self, positions: int) -> int:
        """Pass stars that match nothing, and drop positions that a later star makes unnecessary.

        Every match from an earlier position passes the later star at some point, and that star can match
        everything in between.
        """
        positions |= (positions & self.stars) << 1
        latest = (positions & self.stars).bit_length()
        return positions >> (latest - 1) << (latest - 1) if latest else positions
