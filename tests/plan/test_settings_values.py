"""Values of settings: what is clamped, what is refused, and what the error says."""

import re
from pathlib import Path
from typing import Any

import pytest

from runner.core.errors import SettingsError, UsageError
from runner.core.settings import BOUNDS, SETTINGS, Settings
from runner.plan.settings import values
from runner.plan.settings.plain_values import plain_values
from runner.plan.settings.values import Source, SourceKind, checked
from tests.plan.settings_sources import Sources


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Return empty sources."""
    return Sources(tmp_path)


@pytest.mark.parametrize(
    ("flags", "name", "value", "note"),
    [
        ({"max_stories": "99"}, "max_stories", 50, "--max-stories 99 is above 50; using 50"),
        ({"max_stories": "0"}, "max_stories", 1, "--max-stories 0 is below 1; using 1"),
        ({"max_stories": "-3"}, "max_stories", 1, "--max-stories -3 is below 1; using 1"),
        ({"max_hours": "0.01"}, "max_hours", 0.5, "--max-hours 0.01 is below 0.5 h; using 0.5 h"),
        (
            {"inactivity_timeout": "5"},
            "inactivity_timeout",
            60,
            "--inactivity-timeout 5 is below 60 s; using 60 s",
        ),
        (
            {"stall_seconds": "99999"},
            "stall_seconds",
            3600,
            "--stall-seconds 99999 is above 3600 s; using 3600 s",
        ),
        (
            {"confidence_threshold": "1.5"},
            "confidence_threshold",
            1,
            "--confidence-threshold 1.5 is above 1; using 1",
        ),
    ],
)
def test_out_of_range_clamps_and_says_so(
    sources: Sources, flags: dict[str, str], name: str, value: float, note: str
) -> None:
    """Acceptance 1, 2: the nearest bound is used, with a note."""
    loaded = sources.load(**flags)
    assert getattr(loaded.settings, name) == value
    assert type(getattr(loaded.settings, name)) is type(getattr(Settings(), name))
    assert loaded.notes == (note,)


@pytest.mark.parametrize("key", BOUNDS)
def test_the_bounds_themselves_are_allowed(sources: Sources, key: str) -> None:
    """Acceptance 2: at a bound nothing is clamped."""
    for bound in (BOUNDS[key].low, BOUNDS[key].high):
        sources.environ[f"AUTOPILOT_MULTI_{key.upper().replace('-', '_')}"] = f"{bound:g}"
        loaded = sources.load()
        assert getattr(loaded.settings, key.replace("-", "_")) == bound
        assert loaded.notes == ()


@pytest.mark.parametrize(
    ("flags", "message", "hint"),
    [
        (
            {"max_stories": "abc"},
            "--max-stories must be a whole number from 1 to 50, not 'abc'",
            "--max-stories 3",
        ),
        ({"max_stories": "3.9x"}, "must be a whole number from 1 to 50, not '3.9x'", "--max-stories 3"),
        ({"max_stories": "3.5"}, "must be a whole number from 1 to 50, not '3.5'", "--max-stories 3"),
        ({"max_stories": ""}, "--max-stories must be a whole number from 1 to 50, not ''", "--max-stories 3"),
        ({"max_hours": "nan"}, "--max-hours must be a number from 0.5 to 24, not 'nan'", "--max-hours 4"),
        ({"max_hours": "1e999"}, "--max-hours must be a number", "--max-hours 4"),
        ({"max_sessions": "1_0"}, "--max-sessions must be a whole number", "--max-sessions 20"),
        (
            {"continue_": "alway"},
            '"never" or "dependencies-successful" or "always"',
            "did you mean 'always'?",
        ),
        (
            {"bg_isolation": "container"},
            '--bg-isolation must be "worktree" or "none"',
            "--bg-isolation worktree",
        ),
        ({"token_budget": "0"}, "--token-budget must be a whole number above 0, or off, not 0", "2000000"),
        ({"cost_budget": "-1"}, "--cost-budget must be a number above 0, or off, not -1", "--cost-budget 25"),
        ({"agent": " "}, "--agent must be an agent, or a list", "--agent auto"),
        ({"deconflict_paths": ("a", " ")}, "a glob, a pattern with {id}, ID=GLOB", "packages/{id}/**"),
        ({"verify": ("make", "")}, "--verify must be a command or a list of commands, not ''", "'make test'"),
    ],
)
def test_a_wrong_flag_is_a_usage_error(
    sources: Sources, flags: dict[str, Any], message: str, hint: str
) -> None:
    """Acceptance 3: flag, value, what is allowed, and an example."""
    error = sources.error(**flags)
    assert isinstance(error, UsageError)
    assert message in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("max-storis = 3", "unknown key 'max-storis'", "did you mean 'max-stories'?"),
        ("max_stories = 3", "unknown key 'max_stories'", "did you mean 'max-stories'?"),
        ("zzzz = 3", "unknown key 'zzzz'", "known here: stories, agent"),
        ('max-stories = "3"', "max-stories must be a whole number from 1 to 50, not '3'", "max-stories = 3"),
        ("max-stories = 3.5", "max-stories must be a whole number from 1 to 50, not 3.5", "max-stories = 3"),
        (
            "max-stories = true",
            "max-stories must be a whole number from 1 to 50, not true",
            "max-stories = 3",
        ),
        ("max-hours = inf", "max-hours must be a number from 0.5 to 24, not inf", "max-hours = 4"),
        ("agent = 3", "agent must be an agent, or a list", 'agent = "auto"'),
        ("verify = [3]", "verify must be a command or a list of commands, not 3", 'verify = "make test"'),
        (
            "symlink-directories = ['../x']",
            "must be a list of folders inside the repository, not '../x'",
            "node",
        ),
        ("symlink-directories = ['/etc']", "must be a list of folders inside the repository", "node_modules"),
        (
            "symlink-directories = ['.git/x']",
            "must be a list of folders inside the repository",
            "node_modules",
        ),
        ("agents = 3", "agents must be a table, not 3", "config"),
        ("[agents.mine]\nargv = []", "agents.mine.argv must be a list of texts", "config"),
        ("[agents.mine]\nresume = ['x']", "agents.mine.argv is missing", "argv"),
        ("[agents.mine]\nargv = ['x']\nargz = 1", "unknown key 'agents.mine.argz'", "did you mean 'arg"),
        (
            "[agents.claude]\npermissions = 'all'",
            'agents.claude.permissions must be "edit" or "bypass"',
            "config",
        ),
        ("[agents.claude]\nresume = ['x']", "agents.claude.argv is missing", "argv"),
        (
            "[agents.mine]\nargv = ['x']\n[agents.mine.events]\ncosts = 'x'",
            "unknown key",
            "did you mean 'cost'?",
        ),
        ("[prices.big]\ninput = 1", "prices.big.output is missing", "input and output"),
        ("[prices.big]\ninput = -1\noutput = 1", "prices.big.input must be US dollars", "config"),
        ("[agents.mine]\nargv = ['x']\nenv = {'a b' = 'c'}", "agents.mine.env", "config"),
        (
            "[agents.mine]\nargv = ['x']\nenv = {A = 3}",
            "must be a table of variables with text values",
            "config",
        ),
        ("[hooks]\nafter_creat = 'x'", "unknown key 'hooks.after_creat'", "did you mean 'after_create'?"),
        ("[hooks]\nafter_create = 3", "hooks.after_create must be a shell command, not 3", "config"),
        ("[tiers.warm]\npeers = 3", "unknown key 'tiers.warm'", "did you mean 'warn'?"),
        ("[tiers.warn]\nmemory = 3", "unknown key 'tiers.warn.memory'", "did you mean 'memory-gb'?"),
        (
            "[tiers.warn]\nmemory-gb = -1",
            "tiers.warn.memory-gb must be a number, 0 or more, not -1",
            "config",
        ),
        ("[tiers.warn]\npeers = 2.5", "tiers.warn.peers must be a whole number, 0 or more", "config"),
        ("[tiers.warn]\npressure-free-percent = 101", "must be a number from 0 to 100, not 101", "config"),
        (
            "[tiers.warn]\nmemory-gb = 7",
            "tiers.warn.memory-gb is 7, but tiers.green.memory-gb is 6",
            "not rise",
        ),
        (
            "[tiers.green]\nswap-gb = 2.5",
            "tiers.warn.swap-gb is 2, but tiers.green.swap-gb is 2.5",
            "not fall",
        ),
        ("[tiers.degraded]\npeers = 3", "tiers.degraded.peers is 3, but tiers.warn.peers is 4", "not fall"),
        (
            "[tiers.degraded]\ndisk-gb = 3",
            "tiers.degraded.disk-gb is 3, but tiers.warn.disk-gb is 2",
            "not rise",
        ),
        (
            "[tiers.warn]\ninodes = 10",
            "tiers.degraded.inodes is 10000, but tiers.warn.inodes is 10",
            "not rise",
        ),
        (
            "[tiers.green]\nmemory-stall-percent = 50",
            "tiers.warn.memory-stall-percent is 30, but tiers.green.memory-stall-percent is 50",
            "not fall",
        ),
        (
            "[tiers.warn]\ncpu-stall-percent = 70",
            "tiers.warn.cpu-stall-percent is 70, but tiers.green.cpu-stall-percent is 80",
            "not fall",
        ),
        (
            "[tiers.warn]\nio-stall-percent = 70",
            "tiers.warn.io-stall-percent is 70, but tiers.green.io-stall-percent is 80",
            "not fall",
        ),
        (
            "[tiers.warn]\nload-per-cpu = 3",
            "tiers.warn.load-per-cpu is 3, but tiers.green.load-per-cpu is 4",
            "not fall",
        ),
        (
            "[tiers.degraded]\nstories = 5",
            "tiers.degraded.stories is 5, but tiers.warn.stories is 4",
            "not rise",
        ),
        ("[tiers.warn]\nagents = 1", "tiers.degraded.agents is 2, but tiers.warn.agents is 1", "not rise"),
        ("[tiers.warn]\nstories = 0", "tiers.warn.stories must be a whole number from 1 to 50", "config"),
        ("[tiers.warn]\nagents = -1", "tiers.warn.agents must be a whole number from 0 to 50", "config"),
        ("[tiers.green]\nstories = 3", "unknown key 'tiers.green.stories'", "known here: memory-gb"),
        ("[tiers.warn]\ninodes = 1.5", "tiers.warn.inodes must be a whole number, 0 or more", "config"),
        ("[tiers.warn]\nio-stall-percent = 101", "must be a number from 0 to 100, not 101", "config"),
        ("[tiers.warn]\nload-per-cpu = inf", "must be a number, 0 or more, not inf", "config"),
        ("tiers = 3", "tiers must be a table, not 3", "config"),
        ("tiers.warn = 3", "tiers.warn must be a table, not 3", "config"),
        ("window = 'adaptiv'", 'window must be "adaptive" or "fixed"', "did you mean 'adaptive'?"),
        (
            "memory-per-story-gb = 'x'",
            "must be a number from 0 to 1024, not 'x'",
            "memory-per-story-gb = 0.5",
        ),
        ("x = ", "not valid TOML", "quotes"),
    ],
)
def test_a_wrong_file_is_a_settings_error_that_names_it(
    sources: Sources, text: str, message: str, hint: str
) -> None:
    """File, key, value, what is allowed."""
    sources.project(text)
    error = sources.error()
    assert isinstance(error, SettingsError)
    assert re.match(r"autopilot-multi\.toml(:\d+)?: ", error.message)
    assert message in error.message
    assert hint in error.hint


def test_all_unknown_keys_of_all_files_are_one_error(sources: Sources) -> None:
    """Each with its line and the nearest name; what has no near name gets the list."""
    sources.project(
        "max-storys = 3\n\n[hooks]\nafter-creat = 'x'\n[tiers.warn]\nmemory = 3\n[prices.'a.b']\ninputt = 1\n"
    )
    sources.user("verfy = 'x'\nzzzz = 1\n")
    error = sources.error()
    assert error.message.splitlines() == [
        "6 unknown keys:",
        "  autopilot-multi.toml: 'prices.a.b.inputt': did you mean 'input'?",
        "  autopilot-multi.toml:1: 'max-storys': did you mean 'max-stories'?",
        "  autopilot-multi.toml:4: 'hooks.after_creat': did you mean 'after_create'?",
        "  autopilot-multi.toml:6: 'tiers.warn.memory': did you mean 'memory-gb'?",
        "  ~/.config/autopilot-multi/config.toml:1: 'verfy': did you mean 'verify'?",
        "  ~/.config/autopilot-multi/config.toml:2: 'zzzz'",
    ]
    assert error.hint.startswith("correct or remove them; known here: stories, agent")


def test_equal_tier_rows_are_no_contradiction(sources: Sources) -> None:
    """The design's own example, `warn` beginning where `green` ends, is allowed."""
    sources.project("[tiers.warn]\nmemory-gb = 6")
    assert sources.load().settings.tiers.warn.memory_gb == 6


def test_off_switches_off_a_budget_of_another_place(sources: Sources) -> None:
    """A flag can switch a budget off again."""
    sources.project("token-budget = 5\ncost-budget = 2.5")
    assert sources.load().settings.cost_budget == 2.5
    loaded = sources.load(token_budget="off")  # noqa: S106  a budget, no password
    assert loaded.settings.token_budget is None
    assert loaded.origins["token-budget"] == "flag --token-budget"


def test_what_is_plainly_right_is_what_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are read without pydantic only where it would read the same; the rest is left to it."""
    samples: tuple[Any, ...] = (
        *("", " ", "x", "off", "TRUE", "auto", "a\0b", "/x", "../x", "full", "writes"),
        *(True, False, 0, 1, 7, -1, 51, 0.5, 1.5, 1e9, float("nan")),
        *([], [""], ["x"], ["x", "../y"], ["x", 1], {}, {"x": {}}),
    )
    monkeypatch.setattr(values, "plain_values", lambda _given: None)
    source, compared = Source(kind=SourceKind.FILE, file="a.toml"), set()
    for key in SETTINGS:
        for value in samples:
            found = plain_values({key: value})
            if found is not None:
                assert repr(found) == repr(checked({key: value}, source))
                compared.add(key)
    plain = {key for key, each in SETTINGS.items() if not (each.is_table or each.has_named_entries)}
    assert len(compared) > len(plain) / 2
