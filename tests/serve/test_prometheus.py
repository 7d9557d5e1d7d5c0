"""`/metrics` of a run: every line is valid, whatever titles hold, and the figures are those of the run."""

import re

import pytest
from msgspec.structs import replace

from runner.core.events import events as ev
from runner.core.model import RunSnapshot, StoryId
from runner.serve.export.prometheus import metrics_text
from tests.records.sample_runs import done, event, snapshot, started, working

Samples = dict[str, dict[frozenset[tuple[str, str]], float]]

_SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\[\\n"])*",?)+)\})? (-?[0-9.e+-]+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\[\\n"])*)"(?:,|$)')
_UNESCAPED = {r"\\": "\\", r"\n": "\n", r"\"": '"'}


def parsed(text: str) -> Samples:
    """Parse the exposition format, and nothing that is only similar to it."""
    found: Samples = {}
    types: dict[str, str] = {}
    assert text.endswith("\n")
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("#"):
            _, word, name, rest = line.split(" ", 3)
            assert word in {"HELP", "TYPE"}
            if word == "TYPE":
                assert name not in types, "a family is declared once"
                assert (rest == "counter") == name.endswith("_total")
                types[name] = rest
            continue
        sample = _SAMPLE.fullmatch(line)
        assert sample, line
        name, inside, value = sample.groups()
        assert name == list(types)[-1], "samples stand below their declaration"
        assert re.sub(_LABEL, "", inside or "") == ""
        labels = frozenset(
            (key, re.sub(r'\\[\\n"]', lambda found: _UNESCAPED[found[0]], text))
            for key, text in _LABEL.findall(inside or "")
        )
        assert labels not in found.setdefault(name, {}), "a sample is there once"
        found[name][labels] = float(value)
    return found


def _run() -> RunSnapshot:
    events = [started("a", "b", "c"), *working("a", 1), *done("a", 6), *working("b", 2)]
    return snapshot([*events, event(7, ev.WindowChanged(window=3, tier="green", reason=""))])


def _value(samples: Samples, name: str, **labels: str) -> float:
    return samples[name][frozenset(labels.items())]


def test_the_figures_are_those_of_the_run() -> None:
    """One story is done, one runs and one waits; the tokens and the cost are those of the session."""
    samples = parsed(metrics_text(_run(), alive=True))
    assert _value(samples, "autopilot_stories", status="done") == 1
    assert _value(samples, "autopilot_stories", status="running") == 1
    assert _value(samples, "autopilot_stories", status="queued") == 1
    assert _value(samples, "autopilot_stories", status="failed") == 0
    assert _value(samples, "autopilot_sessions_total", kind="work", outcome="ok") == 1
    spent = {dict(labels)["type"]: value for labels, value in samples["autopilot_tokens_total"].items()}
    assert spent == {"input": 1000, "output": 50}
    assert sum(samples["autopilot_cost_usd_total"].values()) == 0.25
    assert _value(samples, "autopilot_run_active") == 1
    assert _value(samples, "autopilot_window") == 3
    assert sum(samples["autopilot_tier"].values()) == 1


def test_nothing_runs_without_a_coordinator() -> None:
    """The figures of a run whose process was killed do not show a running story."""
    samples = parsed(metrics_text(_run(), alive=False))
    assert _value(samples, "autopilot_run_active") == 0
    assert _value(samples, "autopilot_stories", status="running") == 0
    assert _value(samples, "autopilot_stories", status="stopped") == 1


@pytest.mark.parametrize(
    "title",
    [
        'x"} 1\nautopilot_stories{status="done"} 99\n#',
        "back\\slash \\n \\",
        "# TYPE autopilot_window counter",
        "\x1b[31mred\x07 \u2028 \r\n tab\t",
        "lone \ud800 surrogate",
        "",
        "ü" * 5000,
    ],
)
def test_a_title_stays_inside_its_label(title: str) -> None:
    """Whatever a title holds, it adds no sample and changes none."""
    run = _run()
    story = run.stories[StoryId("a")]
    hostile = replace(run, stories={**run.stories, story.id: replace(story, title=title)})
    text = metrics_text(hostile, alive=True)
    text.encode()
    found, plain = parsed(text), parsed(metrics_text(run, alive=True))
    shown = next(dict(labels) for labels in found["autopilot_story_info"] if ("story", "a") in labels)
    expected = title[:200].encode("utf-8", "replace").decode()
    assert shown["title"] == expected
    del found["autopilot_story_info"], plain["autopilot_story_info"]
    assert found == plain
