"""`--` ends the options of every command, as everywhere."""

from pathlib import Path

import pytest

from runner.cli.commands.setup import completion
from runner.cli.commands.show import history, plan, status
from runner.cli.main import _command, run_program
from runner.cli.parser import CommandLineError, parse


@pytest.mark.parametrize(
    ("argv", "sources"),
    [
        (["--", "-rf"], ["-rf"]),
        (["--", "--weird prompt"], ["--weird prompt"]),
        (["--", "--json", "-h"], ["--json", "-h"]),
        (["a", "--only", "x", "b", "--", "-c"], ["a", "b", "-c"]),
        (["--", "--only=x", "--", ""], ["--only=x", "--", ""]),
        (["a", "--"], ["a"]),
    ],
)
def test_what_follows_the_two_dashes_is_no_option(argv: list[str], sources: list[str]) -> None:
    """It reaches the command as typed, wherever else its arguments stand."""
    arguments = parse("plan", plan, argv)
    assert arguments.sources == sources
    assert not arguments.json
    assert arguments.only == (["x"] if "--only" in argv else [])


def test_the_two_dashes_are_no_value() -> None:
    """A flag that wants one must not take what stands behind them."""
    with pytest.raises(CommandLineError, match="--verify: expected one argument"):
        parse("plan", plan, ["--verify", "--", "x"])


def test_choices_still_count_behind_the_two_dashes() -> None:
    """An argument is judged as if they were not there."""
    assert parse("completion", completion, ["--", "bash"]).shell == "bash"
    with pytest.raises(CommandLineError, match="invalid choice: '--bash'"):
        parse("completion", completion, ["--", "--bash"])


def test_an_argument_too_many_is_named_as_it_was_typed() -> None:
    """Also behind the two dashes; they alone are never too many."""
    with pytest.raises(CommandLineError, match="unknown argument '--more'"):
        parse("status", status, ["--", "-run", "--more"])
    assert not parse("history", history, ["--"]).json


def test_a_switch_behind_the_two_dashes_does_not_choose_the_output(
    capsys: pytest.CaptureFixture[str], repo: Path
) -> None:
    """Acceptance 7: what is printed is JSON only when that was asked for."""
    assert run_program(["plan", "-C", str(repo), "--", "--json"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: no such file or folder: '--json'\nhint: ")


@pytest.mark.parametrize(
    ("typed", "name", "rest"),
    [
        (["-C", "dir", "status"], "status", ["-C", "dir"]),
        (["--json", "-C", "dir", "-q", "logs", "a"], "logs", ["--json", "-C", "dir", "-q", "a"]),
        (["-C", "status"], "run", ["-C", "status"]),
        (["-C", "dir"], "run", ["-C", "dir"]),
        (["--", "status"], "run", ["--", "status"]),
    ],
)
def test_flags_of_all_commands_may_stand_before_the_command(
    typed: list[str], name: str, rest: list[str]
) -> None:
    """As with git, `-C DIR` may come first; its folder is never taken for the command."""
    assert _command(typed) == (name, rest)
