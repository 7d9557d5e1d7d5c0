"""A record is what the standard decorator would have made, also before its methods are written."""

import copy
import pickle
import re
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, replace
from typing import Any

import pytest

from isolation.frozen import frozen


@frozen
class Point:
    """Two numbers and a name."""

    x: int
    y: int = 0
    names: tuple[str, ...] = field(default_factory=tuple)


@frozen
class Positive:
    """A number that was looked at."""

    value: int

    def __post_init__(self) -> None:
        if self.value <= 0:
            raise ValueError("not positive")

    def __repr__(self) -> str:
        return f"<{self.value}>"


@frozen
class Far(Point):
    """A point with a distance."""

    distance: float = 1.0


def fresh() -> type[Any]:
    """Make a class of which no method was called yet."""

    @frozen
    class Twin:
        x: int
        y: int = 0

    return Twin


def standard() -> type[Any]:
    """Make its twin with the standard decorator."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Twin:
        x: int
        y: int = 0

    return Twin


def refusal(act: Callable[[], object]) -> tuple[type[Exception], str]:
    """Give what an act ends with; a class is named by its last word, since these are local ones."""
    with pytest.raises((TypeError, FrozenInstanceError)) as caught:
        act()
    return type(caught.value), re.sub(r"\S+\.Twin", "Twin", str(caught.value))


USES: dict[str, Callable[[type[Any]], object]] = {
    "builds": lambda cls: (cls(x=1).x, cls(x=1).y, cls(x=1, y=2).y),
    "shows itself": lambda cls: repr(cls(x=1)).rpartition(".")[2],
    "is equal": lambda cls: (cls(x=1) == cls(x=1), cls(x=1) == cls(x=2), cls(x=1) == 1, cls(x=1) != cls(x=1)),
    "is hashed": lambda cls: (hash(cls(x=1)) == hash(cls(x=1)), len({cls(x=1), cls(x=1), cls(x=2)})),
    "is replaced": lambda cls: asdict(replace(cls(x=1), y=5)),
    "has fields": lambda cls: [(each.name, each.type, each.kw_only) for each in fields(cls)],
    "has slots": lambda cls: (cls.__slots__, hasattr(cls(x=1), "__dict__")),
    "is copied": lambda cls: (copy.copy(cls(x=1)) == cls(x=1), copy.deepcopy(cls(x=3)).x),
    "has no order": lambda cls: refusal(lambda: cls(x=1) < cls(x=2)),
    "takes no positions": lambda cls: refusal(lambda: cls(1)),
    "misses a field": refusal,
    "knows no other field": lambda cls: refusal(lambda: cls(x=1, z=2)),
    "refuses to change": lambda cls: refusal(lambda: setattr(cls(x=1), "x", 2)),
    "refuses to lose": lambda cls: refusal(lambda: delattr(cls(x=1), "x")),
}


@pytest.mark.parametrize("use", USES)
def test_a_record_is_like_a_standard_one_from_its_first_use(use: str) -> None:
    act = USES[use]
    seen = fresh()
    assert act(seen) == act(standard())
    assert act(seen) == act(standard()), "and from the second on"


def test_defaults_are_made_for_each_one() -> None:
    assert Point(x=1) == Point(x=1, y=0, names=())
    assert repr(Point(x=1)) == "Point(x=1, y=0, names=())"


def test_its_own_methods_stay() -> None:
    assert repr(Positive(value=2)) == "<2>"
    with pytest.raises(ValueError, match="not positive"):
        Positive(value=0)


def test_fields_are_inherited() -> None:
    assert Far(x=1, distance=2.0) == Far(x=1, distance=2.0) != Far(x=2, distance=2.0)
    assert Far(x=1) != Point(x=1)
    assert repr(Far(x=1)) == "Far(x=1, y=0, names=(), distance=1.0)"


def test_one_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Far(x=1, y=2))) == Far(x=1, y=2)  # noqa: S301  our own bytes


def test_threads_may_be_first_together() -> None:
    for _ in range(20):
        cls = fresh()
        built: list[Any] = []
        gate = threading.Barrier(4)

        def build(cls: type[Any] = cls, gate: threading.Barrier = gate, built: list[Any] = built) -> None:
            gate.wait()
            built.append(cls(x=1))

        threads = [threading.Thread(target=build) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert built == [cls(x=1)] * 4


def test_defining_one_compiles_nothing() -> None:
    """That is what it is for: methods are written for those that are used."""
    cls = fresh()
    assert cls.__init__.__code__.co_filename.endswith("frozen.py")
    cls(x=1)
    assert cls.__init__.__code__.co_filename == "<string>"
