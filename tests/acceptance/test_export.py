"""Metrics and traces of real runs: one complete trace at a collector, whatever happens to the run."""

import importlib.util
import os
import signal
from pathlib import Path

import pytest

from runner.core.model import StoryId
from runner.run.control.reader import RunReader
from tests.acceptance.program import processes_with, run, started, wait_until, write_story, writes
from tests.serve.otlp_receiver import Receiver, attributes, receiving
from tests.serve.test_prometheus import parsed

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("opentelemetry") is None, reason="the extra `otel` is not installed"
)

NAMES = ("a", "b", "c")
TOKEN = "collector-key-81723"  # noqa: S105  a collector for tests takes any
HEADERS = f"Authorization=Bearer%20{TOKEN}"
HOSTILE = 'b"} 1\n<b>&amp;\x1b[31m \\'


def _stories(repo: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Write three stories, one after the other; the session of the second waits for a file."""
    ready, go = tmp_path / "ready", tmp_path / "go"
    waits = f"touch {ready}; until test -f {go}; do sleep 0.05; done"
    write_story(repo, "a", command=writes("a.txt"), verify=["test -f a.txt"])
    write_story(repo, "b", title=HOSTILE, command=f"{waits}; {writes('b.txt')}", depends_on=["a"])
    write_story(repo, "c", command=writes("c.txt"), depends_on=["b"])
    return ready, go


def _require_one_complete_trace(receiver: Receiver) -> None:
    spans = receiver.spans
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans), "no span came twice"
    assert len({span.trace_id for span in spans}) == 1, "one trace"
    roots = [span for span in spans if not span.parent_span_id]
    assert [span.name for span in roots] == ["run"]
    assert all(span.parent_span_id in by_id for span in spans if span.parent_span_id), "no parent is missing"
    for span in spans:
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano


def test_a_killed_and_resumed_run_is_one_complete_trace(repo: Path, tmp_path: Path) -> None:
    """`run` starts the export by itself; after SIGKILL and `resume` the collector has every span once."""
    ready, go = _stories(repo, tmp_path)
    with receiving() as receiver:
        env = {"AUTOPILOT_MULTI_OTEL_ENDPOINT": receiver.url, "OTEL_EXPORTER_OTLP_HEADERS": HEADERS}
        with started(repo, "run", "--json", env=env) as program:
            wait_until(ready.exists, what="the second session runs")
            wait_until(lambda: receiver.named("story a"), what="the collector has the first story")
            assert not processes_with(TOKEN), "other users could read it in a command line"
            os.kill(program.pid, signal.SIGKILL)
            program.finish()
        assert not receiver.named("run"), "a span is sent when it has ended"
        wait_until(lambda: not processes_with(receiver.url), what="the export of the killed run ends")
        go.touch()
        ran = run(repo, "resume", "--json", env=env)
        assert ran.code == 0, ran.err
        wait_until(lambda: receiver.named("run"), what="the collector has the run")
        wait_until(lambda: not processes_with(receiver.url), what="the export ends with the run")
        assert set(receiver.tokens) == {f"Bearer {TOKEN}"}
        _require_one_complete_trace(receiver)
        stories = receiver.named("story ")
        assert {attributes(span)["autopilot.story"] for span in stories} == set(NAMES)
        assert {attributes(span)["autopilot.outcome"] for span in stories} == {"done"}
        assert attributes(receiver.named("story b")[0])["autopilot.title"]
        sessions = [attributes(span) for span in spans_of(receiver, "session.kind")]
        outcomes = [one["autopilot.outcome"] for one in sessions if one["autopilot.story"] == "b"]
        assert outcomes == ["interrupted", "ok"]
        assert sum(one["autopilot.session.kind"] == "verify" for one in sessions) == 1
        assert receiver.resources[0]["service.name"] == "autopilot-multi"
        done = {
            attributes(point)["status"]: point.as_double for point in receiver.figures["autopilot.stories"]
        }
        assert done["done"] == 3
        again = run(repo, "export", "--otlp", receiver.url, "--json")
        assert again.data["spans"] == 0, "what the collector has is not sent again"
    text = run(repo, "export", "--prometheus").out
    assert {"autopilot_stories", "autopilot_sessions_total"} <= set(parsed(text))


def spans_of(receiver: Receiver, key: str) -> list[object]:
    """Return the spans that have an attribute of ours."""
    return [span for span in receiver.spans if f"autopilot.{key}" in attributes(span)]


def test_an_unreachable_collector_does_not_disturb_the_run(repo: Path) -> None:
    """The run ends as ever; what was not sent is sent later by hand, and an error says how."""
    write_story(repo, "a", command=writes("a.txt"))
    with receiving() as receiver:
        url = receiver.url
    ran = run(
        repo, "run", "--json", env={"AUTOPILOT_MULTI_OTEL_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    )
    assert ran.code == 0, ran.err
    wait_until(lambda: not processes_with(url), what="the export gives up", limit=60)
    with RunReader(str(repo)) as reader:
        logs = sorted((reader.common_dir / "autopilot").rglob("*-export.log"))
        assert reader.read().run.stories[StoryId("a")].status.final
    assert "sends what is missing" in logs[-1].read_text()
    with receiving() as receiver:
        receiver.refuses = 1
        sent = run(repo, "export", "--otlp", receiver.url)
        assert sent.code == 0, sent.err
        _require_one_complete_trace(receiver)


def test_a_collector_of_the_repository_needs_consent(repo: Path) -> None:
    """It would get data about the run, so a file of the repository cannot name it on its own."""
    write_story(repo, "a", command=writes("a.txt"))
    asking = {"AUTOPILOT_MULTI_TRUST": "ask"}
    assert run(repo, "run").code == 0
    (repo / "autopilot-multi.toml").write_text('otel-endpoint = "http://127.0.0.1:9"\n')
    for words in (("run", "--again", "--json"), ("export", "--json")):
        refused = run(repo, *words, env=asking)
        assert refused.document["error"]["code"] == "trust", words
        assert "otel-endpoint" in refused.document["error"]["message"]
    for bad in ("localhost:4318", "http://", "http://me:secret@localhost:4318", "http://localhost:x"):
        refused = run(repo, "export", "--otlp", bad, "--json")
        assert refused.code == 1
        assert refused.document["error"]["code"] == "usage", bad
        assert "secret" not in refused.out
