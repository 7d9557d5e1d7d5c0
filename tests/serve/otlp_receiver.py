"""A collector for tests: takes OTLP over HTTP and keeps what it got in memory."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Receiver:
    """What came in; `refuses` is how many requests of spans are answered with an error.

    `tokens` are the credentials of all requests, None for one without.
    """

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.figures: dict[str, list[Any]] = {}
        self.resources: list[dict[str, str]] = []
        self.tokens: list[str | None] = []
        self.refuses = 0
        self.url = ""

    def named(self, start: str) -> list[Any]:
        """Return the spans whose name begins so."""
        return [span for span in self.spans if span.name.startswith(start)]

    def take(self, path: str, body: bytes) -> int:
        """Take one request; return the status to answer with."""
        if path == "/v1/traces":
            if self.refuses:
                self.refuses -= 1
                return 400
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(
                    {one.key: one.value.string_value for one in resource.resource.attributes}
                )
                for scope in resource.scope_spans:
                    self.spans += scope.spans
        elif path == "/v1/metrics":
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in resource.scope_metrics:
                    for metric in scope.metrics:
                        self.figures[metric.name] = list(metric.sum.data_points or metric.gauge.data_points)
        return 200


def attributes(span: Any) -> dict[str, Any]:
    """Return the attributes of a span or a point as plain values."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Serve on a free port of this machine."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            receiver.tokens.append(self.headers["Authorization"])
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(receiver.take(self.path, body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
