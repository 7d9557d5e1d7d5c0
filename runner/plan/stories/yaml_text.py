"""Stories in YAML: their values, and where each is written. Loaded only for those that are not plain."""

from collections.abc import Sequence
from typing import Any

import yaml

from runner.core.errors import BacklogError
from runner.records.bounded_yaml import BAD_SCALARS, load_yaml


def read_yaml(text: str, file: str, *, first_line: int) -> tuple[Any, yaml.Node | None]:
    """Return the value of a text and its node; an error names the line, counted from `first_line`."""
    try:
        return load_yaml(text, lambda node: _refuse_repeated_keys(node, file, first_line))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{file}:{mark.line + first_line}" if mark else file
        raise BacklogError(f"{where}: not valid YAML: {error.problem}", hint=_QUOTES) from error
    except (yaml.YAMLError, *BAD_SCALARS) as error:
        reason = str(error).partition("\n")[0]
        raise BacklogError(f"{file}: not valid YAML: {reason}", hint=_QUOTES) from error


_QUOTES = "put values with ':', '#', '*' or quotes in double quotes."


def _refuse_repeated_keys(root: yaml.Node, file: str, first_line: int) -> None:
    """Raise for a key that is given twice, of which YAML itself would silently take the last."""
    pending, seen = [root], set()
    while pending:
        node = pending.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            pending.extend(node.value)
        elif isinstance(node, yaml.MappingNode):
            lines: dict[str, int] = {}
            for key, value in node.value:
                line = key.start_mark.line + first_line
                if isinstance(key, yaml.ScalarNode) and lines.setdefault(key.value, line) != line:
                    raise BacklogError(
                        f"{file}:{line}: the key '{key.value}' was already given on line {lines[key.value]}",
                        hint="keep one of them.",
                    )
                pending.append(value)


def story_node(root: yaml.Node, number: int) -> yaml.Node | None:
    """Return the node of one story of a list, counted from 1."""
    if not isinstance(root, yaml.MappingNode):
        return None
    # The last one counts: a merged list comes before the file's own.
    listed = [value for key, value in root.value if key.value == "stories"][-1]
    return listed.value[number - 1] if isinstance(listed, yaml.SequenceNode) else None


def place_of(keys: Sequence[str | int], root: yaml.Node | None) -> tuple[int, str | None]:
    """Return the line of the value under these keys, and how it is written if it is one value."""
    if root is None:
        return 0, None
    line, node = root.start_mark.line, root
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pairs = [pair for pair in node.value if pair[0].value == key]
            if not pairs:
                break
            line, node = pairs[-1][0].start_mark.line, pairs[-1][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int) and key < len(node.value):
            node = node.value[key]
            line = node.start_mark.line
    return line, node.value if isinstance(node, yaml.ScalarNode) else None
