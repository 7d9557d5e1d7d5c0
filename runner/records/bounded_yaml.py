"""Reads YAML that others wrote, with limits on how deep it nests and how much its aliases and merges repeat.

YAML lets a short text stand for an endless value: a list of aliases of lists of aliases, or a mapping that
merges others. Loading it is quick; to show, compare or check the value later would never end.
"""

from collections.abc import Callable
from typing import Any

import yaml

MAX_DEPTH = 50
_MAX_MERGED_KEYS = 1000
_MAX_REPEATED = 100_000
_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

BAD_SCALARS = (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, RecursionError)
"""What YAML's own constructors raise for a scalar that is not what its tag says, such as `!!int ""`."""


class _Loader(_BASE):  # type: ignore[misc]  # the C loader where it was built
    """A safe loader in which nested merges cannot grow without limit."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MAX_MERGED_KEYS:
            raise _error("too many keys in one mapping", node.start_mark)


def load_yaml(text: str, check: Callable[[yaml.Node], None] | None = None) -> tuple[Any, yaml.Node | None]:
    """Return the one document of a text, with its node, which `check` may refuse; None for an empty text.

    Raises yaml.YAMLError, or one of `BAD_SCALARS`.
    """
    _refuse_depth(text)
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None, None
        _refuse_growth(node)
        if check is not None:
            check(node)
        return loader.construct_document(node), node
    finally:
        loader.dispose()


def _refuse_depth(text: str) -> None:
    """Raise for deep nesting, on which the recursive C loader would crash the whole program."""
    depth = 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            raise _error("nested too deeply", event.start_mark)


def _refuse_growth(root: yaml.Node) -> None:
    """Raise if aliases make a value endless, or much larger than what is written."""
    sizes: dict[int, int] = {}
    _measure(root, sizes, set())
    if sizes[id(root)] - len(sizes) > _MAX_REPEATED:
        raise _error("its aliases repeat too much", root.start_mark)


def _measure(node: yaml.Node, sizes: dict[int, int], above: set[int]) -> int:
    """Return how many values a node stands for with every alias written out; each node is looked at once."""
    known = sizes.get(id(node))
    if known is not None:
        return known
    # Aliases make the graph deeper than the text.
    if id(node) in above or len(above) > MAX_DEPTH:
        raise _error("its aliases refer to themselves or nest too deeply", node.start_mark)
    above.add(id(node))
    inner: list[yaml.Node] = []
    if isinstance(node, yaml.SequenceNode):
        inner = node.value
    elif isinstance(node, yaml.MappingNode):
        inner = [part for pair in node.value for part in pair]
    sizes[id(node)] = 1 + sum(_measure(each, sizes, above) for each in inner)
    above.discard(id(node))
    return sizes[id(node)]


def _error(problem: str, mark: "yaml.Mark | None") -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
