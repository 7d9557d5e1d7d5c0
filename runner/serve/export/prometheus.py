"""The figures of a run in the text format of Prometheus."""

from collections.abc import Iterator

from runner.core.model import RunSnapshot
from runner.serve.export.measures import Kind, Labels, Measure, measures_of

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_UNITS = {"s": "_seconds", "USD": "_usd"}
_LONGEST = 200
"""A label is stored with every sample, and a title can be as long as its author likes."""


def metrics_text(run: RunSnapshot, *, alive: bool) -> str:
    """Return all figures of a run, one sample a line; `alive` says whether a process works on it."""
    return "".join(f"{line}\n" for measure in measures_of(run, alive=alive) for line in _lines(measure))


def _lines(measure: Measure) -> Iterator[str]:
    name = measure.name.replace(".", "_") + _UNITS.get(measure.unit, "")
    name += "_total" if measure.kind is Kind.COUNTER else ""
    yield f"# HELP {name} {_help(measure.help)}"
    yield f"# TYPE {name} {measure.kind}"
    for labels, value in measure.points.items():
        yield f"{name}{_labels(labels)} {_number(value)}"


def _labels(labels: Labels) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_label(value)}"' for name, value in labels) + "}"


def _label(text: str) -> str:
    # A lone surrogate cannot be written as UTF-8.
    plain = text[:_LONGEST].encode("utf-8", "replace").decode("utf-8")
    return plain.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _help(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
