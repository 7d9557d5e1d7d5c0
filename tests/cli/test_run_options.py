"""The flags of `run`: text in, text out, and only what was given."""

import subprocess
import sys

import pytest

from runner.cli.parser import CommandLineError, Parser
from runner.cli.run_options import add_run_flags, flags_of
from runner.core.settings import BOUNDS, SETTINGS


def parser() -> Parser:
    made = Parser(prog="autopilot-multi", allow_abbrev=False)
    add_run_flags(made)
    return made


def test_without_flags_nothing_is_given() -> None:
    """Defaults are the settings' matter, not the command line's."""
    arguments = parser().parse_args([])
    assert flags_of(arguments) == {}
    assert (arguments.sources, arguments.only) == ([], [])
    switches = ("dry_run", "apply", "retry_failed", "again", "events")
    assert [getattr(arguments, name) for name in switches] == [False] * 5


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max-stories", "99"),
        ("max-sessions", "abc"),
        ("max-hours", "0.01"),
        ("inactivity-timeout", "5"),
        ("stall-seconds", "99999"),
        ("confidence-threshold", "-1"),
        ("token-budget", "off"),
        ("cost-budget", "2.50"),
        ("bg-isolation", "none"),
        ("base", "main"),
        ("continue", "sometimes"),
        ("agent", "claude"),
        ("model", "opus"),
        ("grace-seconds", "3"),
        ("window", "fixed"),
    ],
)
def test_both_ways_to_write_a_flag_are_the_same(key: str, value: str) -> None:
    """Acceptance 6: `--k v` and `--k=v` are identical, and the value stays as typed."""
    apart = flags_of(parser().parse_args([f"--{key}", value]))
    joined = flags_of(parser().parse_args([f"--{key}={value}"]))
    assert apart == joined == {key: value}


def test_verify_and_only_may_be_repeated() -> None:
    """Repeated flags add up, in order."""
    arguments = parser().parse_args(["--verify", "make a", "--only", "x", "--verify=make b", "--only=y"])
    assert flags_of(arguments) == {"verify": ("make a", "make b")}
    assert arguments.only == ["x", "y"]


def test_specs_of_ownership_add_up() -> None:
    """Acceptance 6: each `--deconflict-paths` is one spec, as typed."""
    arguments = parser().parse_args(["--deconflict-paths", "a=x,y", "--deconflict-paths=packages/{id}/**"])
    assert flags_of(arguments) == {"deconflict-paths": ("a=x,y", "packages/{id}/**")}


def test_apply_and_dry_run_exclude_each_other() -> None:
    """Acceptance 4: both together are an error."""
    with pytest.raises(CommandLineError, match="not allowed with"):
        parser().parse_args(["--apply", "--dry-run"])


def test_sources_are_kept_as_typed() -> None:
    """Prompts, ids and paths all arrive as they are."""
    arguments = parser().parse_args(["fix the login", "api-3", "stories/"])
    assert arguments.sources == ["fix the login", "api-3", "stories/"]


def test_help_shows_defaults_and_bounds() -> None:
    """The help of every number has its default and its range."""
    text = " ".join(parser().format_help().split())
    assert "how many stories may run in parallel (default: 3; 1 to 50)" in text
    assert "(default: 4; 0.5 to 24)" in text
    assert "(default: off)" in text


_UNFLAGGED = {"log-cap-mb", "agents-per-wave", "memory-per-story-gb", "peer-abort"} | {
    "keep-runs-days",
    "keep-runs-mb",
    "review-rounds",
    "land-hold",
    "cluster-timeout",
}


def test_every_flag_is_a_setting() -> None:
    """What `flags_of` can give, the settings know; every bounded number but the internal ones has a flag."""
    given = [f"--{name}=1" for name in BOUNDS if name not in _UNFLAGGED]
    assert set(flags_of(parser().parse_args(given))) <= set(SETTINGS)


def test_the_module_is_light() -> None:
    """`--help` stays instant: neither pydantic, trio, yaml nor rich is imported for it."""
    code = (
        "import sys, runner.cli.run_options; "
        "sys.exit(any(name in sys.modules for name in ('pydantic', 'trio', 'yaml', 'rich', 'psutil')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
