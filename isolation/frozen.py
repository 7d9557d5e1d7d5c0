"""Frozen records that cost next to nothing to define.

The standard decorator writes and compiles half a dozen functions for each class: more than half a
millisecond, and over a tenth of a second for all of this program's classes, most of which no single
command uses. Here a class gets its fields at once, and each of its methods from the standard decorator when
that is first called. To whoever uses it, it is the class that the standard decorator would have made.
"""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, fields, make_dataclass
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")

_METHODS = ("__init__", "__repr__", "__eq__", "__hash__")


@dataclass_transform(frozen_default=True, kw_only_default=True)
def frozen(cls: type[T]) -> type[T]:
    """Make a dataclass: frozen, with slots, built by keywords only. A method that it defines itself stays."""
    missing = [name for name in _METHODS if name not in cls.__dict__]
    made = dataclass(init=False, repr=False, eq=False, slots=True, kw_only=True)(cls)
    for name in missing:
        setattr(made, name, _written_when_called(made, name))
    made.__setattr__ = _refuse_to_set  # type: ignore[method-assign]
    made.__delattr__ = _refuse_to_delete  # type: ignore[method-assign]
    made.__setstate__ = _restore  # type: ignore[attr-defined]
    return made


def _written_when_called(cls: type[Any], name: str) -> Callable[..., Any]:
    """Give a method that has itself written, and then does what the written one does."""

    def method(*args: Any, **keywords: Any) -> Any:
        # Two threads may come here at once; they write the same.
        written = _written(cls, name)
        setattr(cls, name, written)
        return written(*args, **keywords)

    method.__name__ = name
    return method


def _written(cls: type[Any], name: str) -> Callable[..., Any]:
    """Have the standard decorator write one method, and as little else as it can."""
    model = make_dataclass(
        cls.__name__,
        [(each.name, each.type, each) for each in fields(cls)],
        namespace={"__post_init__": cls.__post_init__} if hasattr(cls, "__post_init__") else {},
        init=name == "__init__",
        repr=name == "__repr__",
        eq=name in {"__eq__", "__hash__"},
        frozen=True,
        kw_only=True,
    )
    written: Callable[..., Any] = getattr(model, name)
    written.__qualname__ = f"{cls.__qualname__}.{name}"
    return written


def _refuse_to_set(_self: object, name: str, _value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_self: object, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _restore(self: object, state: tuple[None, dict[str, Any]]) -> None:
    """Fill a copy, which the refusal to assign would leave empty."""
    for name, value in state[1].items():
        object.__setattr__(self, name, value)
