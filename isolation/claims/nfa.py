"""Where a pattern of single parts and stars can be, after a part of the input. Pure.

A position is how many parts are behind, and a set of positions is an integer whose bits they are. The
same holds for the characters of a name (`*` is the star) and for the folders of a glob (`**` is).
"""

from msgspec import Struct


class Track(Struct, frozen=True, kw_only=True):
    """A pattern without its content: which of its positions are stars, no two side by side, and its end."""

    stars: int
    end: int

    @property
    def start(self) -> int:
        """The positions before any input."""
        return self._settled(1)

    def step(self, places: int, hits: int) -> int:
        """Give the positions after one more symbol; `hits` are those whose part is this symbol."""
        return self._settled((places & self.stars) | ((places & hits & ~self.stars) << 1))

    def ended(self, places: int) -> bool:
        """Tell whether the pattern is whole here."""
        return bool(places & self.end)

    def _settled(self, places: int) -> int:
        """Go past stars that take nothing, and forget what a later star makes needless.

        Every way on from an earlier position comes by the later star sooner or later, and a star can
        wait there for as long as it takes.
        """
        places |= (places & self.stars) << 1
        latest = (places & self.stars).bit_length()
        return places >> (latest - 1) << (latest - 1) if latest else places
