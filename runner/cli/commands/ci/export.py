"""Send the metrics and traces of a run to OpenTelemetry, or print its metrics for Prometheus.

The run is one trace: its stories, their sessions and the tool calls in these are spans, with what they cost.
What a collector has already got is not sent again. With the setting `otel-endpoint`, `run` starts this by
itself. Prompts, messages and what tools work on are not sent.
"""

import argparse
import os
import sys
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi export --otlp http://localhost:4318 --follow"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `export`."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="the id of a run or its first characters")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--otlp",
        metavar="URL",
        help="the collector, such as http://localhost:4318 (default: the setting otel-endpoint, else the "
        "variable OTEL_EXPORTER_OTLP_ENDPOINT)",
    )
    where.add_argument(
        "--prometheus", action="store_true", help="print the metrics in the text format of Prometheus"
    )
    parser.add_argument("--follow", action="store_true", help="keep sending until the run is over")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Send or print what is known of the run."""
    from runner.run.control.reader import RunReader

    with RunReader(arguments.directory, arguments.run) as reader:
        if arguments.prometheus:
            from runner.serve.export.prometheus import metrics_text

            current = reader.read()
            text = metrics_text(current.run, alive=current.alive)
            output.document({"run_id": reader.run_id, "metrics": text})
            if not output.as_json:
                # The format is UTF-8, whatever the locale is.
                sys.stdout.buffer.write(text.encode())
                sys.stdout.flush()
            return 0
        from runner.serve.export.collector import Collector, require_packages, require_url
        from runner.serve.export.position import Position
        from runner.serve.export.tail import export

        require_packages()
        url = require_url(arguments.otlp or _endpoint(arguments.directory, output))
        sink = Collector(url, reader.read().run)
        position = Position(reader.common_dir, reader.run_id, url)
        sent = export(reader, sink, position, follow=arguments.follow)
        sink.close()
    output.document({"run_id": sent.run.run_id, "endpoint": url, "spans": sent.spans})
    output.answer(f"sent {sent.spans} spans of run {sent.run.run_id} to {url}")
    if sent.interrupted:
        output.say("the run was interrupted; after `autopilot-multi resume` it continues the same trace")
    return 0


def _endpoint(directory: str, output: Output) -> str:
    """Return the collector of the settings or of the standard variables.

    One that a file of the repository names gets data, so the user must have agreed to it.
    """
    from isolation.git.repository import Repository
    from runner.cli.commands.consent import require_consent
    from runner.core.errors import UsageError
    from runner.plan.settings.load import load_settings
    from runner.serve.export.collector import endpoint_of

    repository = Repository.open(Path(directory))
    loaded = load_settings(top=repository.top, flags={}, environ=os.environ)
    if loaded.settings.otel_endpoint:
        demands = [one for one in loaded.demands if one.what == "otel-endpoint"]
        require_consent(repository, demands, trust=loaded.settings.trust, output=output)
        return loaded.settings.otel_endpoint
    named = endpoint_of(os.environ)
    if not named:
        raise UsageError(
            "no collector is known to which the run could be sent",
            hint="add --otlp URL, or set `otel-endpoint`; --prometheus prints the metrics instead.",
        )
    return named
