"""The parser: `--` ends the options of every command, and common flags may come first."""

from pathlib import Path

import pytest

from runner.cli.commands.setup import completion
from runner.cli.commands.show import history, plan, status
from runner.cli.main import _command, run_program
from runner.cli.parser import CommandLineError, parse
from tests.acceptance.program import write_story


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
def test_arguments_after_two_dashes_are_not_options(argv: list[str], sources: list[str]) -> None:
    """They reach the command as typed, no matter where its other arguments are."""
    arguments = parse("plan", plan, argv)
    assert arguments.sources == sources
    assert not arguments.json
    assert arguments.only == (["x"] if "--only" in argv else [])


def test_two_dashes_are_not_a_value() -> None:
    """A flag that needs a value must not take the argument after them."""
    with pytest.raises(CommandLineError, match="--verify: expected one argument"):
        parse("plan", plan, ["--verify", "--", "x"])


def test_choices_are_checked_after_two_dashes() -> None:
    """An argument is checked as if they were not there."""
    assert parse("completion", completion, ["--", "bash"]).shell == "bash"
    with pytest.raises(CommandLineError, match="invalid choice: '--bash'"):
        parse("completion", completion, ["--", "--bash"])


def test_an_extra_argument_is_named_as_typed() -> None:
    """Also after two dashes; the dashes alone are not an extra argument."""
    with pytest.raises(CommandLineError, match="unknown argument '--more'"):
        parse("status", status, ["--", "-run", "--more"])
    assert not parse("history", history, ["--"]).json


def test_a_flag_after_two_dashes_does_not_change_the_output(
    capsys: pytest.CaptureFixture[str], repo: Path
) -> None:
    """Acceptance 7: the output is JSON only if requested."""
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
        (["-Cdir", "-q", "status"], "status", ["-Cdir", "-q"]),
        (["--", "status"], "run", ["--", "status"]),
    ],
)
def test_common_flags_may_come_before_the_command(typed: list[str], name: str, rest: list[str]) -> None:
    """As in git, `-C DIR` may come first; its folder is never read as the command."""
    assert _command(typed) == (name, rest)


@pytest.mark.parametrize(
    ("typed", "message", "hint"),
    [
        (["staus"], "unknown command 'staus'", "did you mean 'status'? `autopilot-multi --help` lists"),
        (["-q", "Plna"], "unknown command 'Plna'", "did you mean 'plan'?"),
        (["staus", "--watch"], "unknown argument '--watch' for", "did you mean the command 'status'?"),
        (["lgs"], "unknown command 'lgs'", "did you mean 'legs' (stories/legs.md)? or the command 'logs'?"),
        (["zebra"], "'zebra' is neither a file nor a story", "a prompt needs quotes"),
        (["./staus"], "no such file or folder", "a prompt needs quotes"),
        (["run", "staus"], "'staus' is neither a file nor a story", "a prompt needs quotes"),
        (["completion", "bsh"], "invalid choice: 'bsh'", "did you mean 'bash'?"),
        (
            ["plan", "--max-storeis", "3"],
            "unknown argument '--max-storeis' for",
            "did you mean '--max-stories'?",
        ),
        (
            ["plan", "--max-storeis", "3", "--verfy=x"],
            "unknown arguments '--max-storeis', '--verfy' for",
            "did you mean '--max-stories'? did you mean '--verify'?",
        ),
    ],
)
def test_a_mistyped_word_gets_its_nearest_name(
    capsys: pytest.CaptureFixture[str], repo: Path, typed: list[str], message: str, hint: str
) -> None:
    """A command, a flag and a choice; a word that was given as a story is not taken for a command."""
    write_story(repo, "legs")
    assert run_program(["-C", str(repo), *typed]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert message in first
    assert hint in second


def test_a_mistyped_command_outside_a_repository(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The typo is named, not the missing repository."""
    monkeypatch.chdir(tmp_path)
    assert run_program(["demmo"]) == 1
    assert "unknown command 'demmo'\nhint: did you mean 'demo'?" in capsys.readouterr().err
