"""Sends spans and figures to an OpenTelemetry collector, by the SDK's exporters for OTLP over HTTP.

The SDK is an extra; only this module knows it, and loads it when a collector is opened. Headers, timeouts,
certificates and more attributes of the resource come from the standard `OTEL_` variables.
"""

import logging
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from runner.core.errors import UsageError
from runner.core.model import RunSnapshot
from runner.serve.export.measures import Kind, Measure, measures_of
from runner.serve.export.spans import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric
    from opentelemetry.sdk.trace import ReadableSpan

MOST_SPANS = 500
"""How many spans one request holds; collectors refuse large ones."""

_NAME = "autopilot-multi"
_BILLION = 1_000_000_000
_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")


class MissingExtraError(UsageError):
    """The packages of the extra are not installed."""


def require_packages() -> None:
    """Raise with what to install if the exporters are not there."""
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk  # noqa: F401  whether it is there
    except ImportError as error:
        raise MissingExtraError(
            f"the export to OpenTelemetry needs packages that are not installed: {error}",
            hint="pip install 'autopilot-multi[otel]'",
        ) from error


def require_url(url: str) -> str:
    """Return the address of a collector without its last slash, or raise."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in {"http", "https"} and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(
            f"'{url}' is not the address of a collector", hint="for example `http://localhost:4318`."
        )
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"the address of the collector at {parts.hostname} holds a password, which other users could see",
            hint="remove it there; put credentials into the variable OTEL_EXPORTER_OTLP_HEADERS.",
        )
    return url.rstrip("/")


def endpoint_of(environ: Mapping[str, str]) -> str:
    """Return the collector that the standard variables name; empty if they name none."""
    return next((environ[name] for name in _VARIABLES if environ.get(name)), "")


class Collector:
    """An open connection to a collector; every call returns whether it has confirmed. Calls block."""

    def __init__(self, url: str, run: RunSnapshot) -> None:
        require_packages()
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        # An address that only the variables name is read by the exporters, each its own.
        named = url != endpoint_of(os.environ)
        self._spans = OTLPSpanExporter(endpoint=f"{require_url(url)}/v1/traces" if named else None)
        self._figures = OTLPMetricExporter(endpoint=f"{require_url(url)}/v1/metrics" if named else None)
        about = {"service.name": _NAME, "service.version": version(_NAME), "autopilot.run": run.run_id}
        self._resource = Resource(about).merge(OTELResourceDetector().detect())
        self._scope = InstrumentationScope(_NAME, version(_NAME))
        self._words = _LastWords()
        self._words.listen()

    @property
    def complaint(self) -> str:
        """What the exporters said last about a failure."""
        return self._words.last

    def send(self, spans: Sequence[Span]) -> bool:
        """Send ended spans."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        for begin in range(0, len(spans), MOST_SPANS):
            part = [self._readable(span) for span in spans[begin : begin + MOST_SPANS]]
            if self._spans.export(part) is not SpanExportResult.SUCCESS:
                return False
        return True

    def send_figures(self, run: RunSnapshot, *, alive: bool, at: float) -> bool:
        """Send the figures of a run as they are at an instant."""
        from opentelemetry.sdk.metrics.export import (
            MetricExportResult,
            MetricsData,
            ResourceMetrics,
            ScopeMetrics,
        )

        metrics = [_metric(measure, run, at) for measure in measures_of(run, alive=alive)]
        scope = ScopeMetrics(self._scope, metrics, "")
        data = MetricsData([ResourceMetrics(self._resource, [scope], "")])
        return self._figures.export(data) is MetricExportResult.SUCCESS

    def close(self) -> None:
        """Close the connections."""
        self._spans.shutdown()  # type: ignore[no-untyped-call]  # the SDK has no type here
        self._figures.shutdown()

    def _readable(self, span: Span) -> "ReadableSpan":
        from opentelemetry.sdk.trace import Event, ReadableSpan
        from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

        def context(number: int) -> SpanContext:
            return SpanContext(span.trace_id, number, is_remote=False, trace_flags=TraceFlags(1))

        return ReadableSpan(
            name=_valid(span.name),
            context=context(span.span_id),
            parent=None if span.parent_id is None else context(span.parent_id),
            resource=self._resource,
            attributes=_valid_all(span.attributes),
            events=[
                Event(_valid(one.name), _valid_all(one.attributes), _nanoseconds(one.at))
                for one in span.moments
            ],
            status=Status(StatusCode.ERROR, _valid(span.problem)) if span.problem else Status(StatusCode.OK),
            start_time=_nanoseconds(span.start),
            end_time=_nanoseconds(max(span.end, span.start)),
            instrumentation_scope=self._scope,
        )


class _LastWords(logging.Handler):
    """Keeps what the exporters would print, so that it is reported once and in our words."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.last = ""

    def listen(self) -> None:
        logger = logging.getLogger("opentelemetry")
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        self.last = record.getMessage()


def _metric(measure: Measure, run: RunSnapshot, at: float) -> "Metric":
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Metric,
        NumberDataPoint,
        Sum,
    )

    counts = measure.kind is Kind.COUNTER
    begun = _nanoseconds(run.started_at)
    points = [
        NumberDataPoint(_valid_all(dict(labels)), begun, _nanoseconds(at), float(value))
        for labels, value in measure.points.items()
    ]
    data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if counts else Gauge(points)
    return Metric(measure.name, measure.help, measure.unit, data)


def _nanoseconds(seconds: float) -> int:
    # A float has no nanoseconds at the time of today; rounding keeps the microseconds that it has.
    return round(seconds * 1_000_000) * (_BILLION // 1_000_000)


def _valid(text: str) -> str:
    """Return a text without lone surrogates, which no message can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _valid_all(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _valid(value) if isinstance(value, str) else value for name, value in attributes.items()}
