"""The fuzz targets: each gives bytes from outside to one parser, which may raise only its own errors."""

import atexit
import contextlib
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

CORPUS = Path(__file__).parent / "corpus"
MOST_SECONDS = 5.0
"""No input of a corpus or of a generator is large enough to take that long, on a busy machine either."""

Parse = Callable[[bytes], None]


class Target(NamedTuple):
    """A parser under test. `allowed` are the errors by which it refuses an input."""

    name: str
    parse: Parse
    allowed: tuple[type[Exception], ...]

    def check(self, data: bytes) -> None:
        """Parse one input; what the parser may not raise, and what takes too long, is an error."""
        begun = time.process_time()
        with contextlib.suppress(*self.allowed):
            self.parse(data)
        took = time.process_time() - begun
        assert took < MOST_SECONDS, f"{self.name} took {took:.1f} s for {len(data)} bytes"

    @property
    def samples(self) -> list[Path]:
        """The inputs of its corpus: ordinary ones, and those that once broke it."""
        return sorted((CORPUS / self.name).iterdir())


TARGETS: dict[str, Target] = {}


def target(*allowed: type[Exception]) -> Callable[[Parse], Parse]:
    """Register a target under the name of its function."""

    def register(parse: Parse) -> Parse:
        name = parse.__name__
        TARGETS[name] = Target(name, parse, allowed)
        return parse

    return register


@cache
def folder() -> Path:
    """Return the folder of this process for parsers that read files."""
    made = tempfile.TemporaryDirectory(prefix="fuzz-")
    atexit.register(made.cleanup)
    return Path(made.name)


def written(data: bytes, name: str) -> Path:
    """Write one input to a file."""
    path = folder() / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def text_of(data: bytes) -> str:
    """Return one input as a text."""
    return data.decode("utf-8", "replace")
