"""`--json` and `-q` mean the same for every command: one document, and silence beside the answer."""

from pathlib import Path

import pytest

from runner.cli.overview import COMMANDS
from tests.acceptance.program import Ran, commit_stories, run, write_story
from tests.acceptance.test_real_start import ARGUMENTS, REFUSED

OTHER = {
    "run": ("--again",),
    "report": ("--format", "markdown", "--output", "out.md"),
    "demo": None,
    "mcp": None,
    "cluster": None,
}
"""Arguments with which there is something to say. `demo` runs six stories and is tested elsewhere; what `mcp`
prints is a protocol of its own; `cluster init` succeeds once."""


def _ran(repo: Path, name: str, *flags: str) -> Ran:
    return run(repo, name, *(OTHER.get(name) or ARGUMENTS[name]), *flags)


@pytest.fixture
def finished(repo: Path) -> Path:
    """Return a repository with one finished run."""
    write_story(repo, "a", command="echo a > a.txt", verify=["true"])
    commit_stories(repo)
    assert run(repo).code == 0
    return repo


def test_every_command_prints_one_document_or_is_quiet(finished: Path) -> None:
    """Answers and errors are documents; without progress, standard error is empty unless something failed."""
    for name in COMMANDS:
        if OTHER.get(name, ()) is None:
            continue
        quiet, document = (_ran(finished, name, *flags) for flags in (("-q",), ("--json", "-q")))
        assert quiet.code == document.code, name
        assert document.err == "", f"{name}: {document.err}"
        whole = document.document
        refused = name in REFUSED
        assert {"schema", "success", "command", "error" if refused else "data"} == set(whole), name
        assert (whole["schema"], whole["success"], whole["command"]) == (1, not refused, name)
        if refused:
            assert quiet.err == f"error: {whole['error']['message']}\nhint: {whole['error']['hint']}\n"
        else:
            assert quiet.err == "", f"{name}: {quiet.err}"
            assert quiet.out or name == "report", f"{name}: the answer stays"


def test_common_flags_may_stand_anywhere(finished: Path) -> None:
    """Before the command or after it, also for the version and the help of a command."""
    assert run(finished, "--json", "-q", "status").data == run(finished, "status", "--json").data
    assert run(finished, "--json", "--version").data == run(finished, "--version", "--json").data
    assert run(finished, "-q", "--help").out == run(finished, "--help").out == run(finished, "help").out
    assert run(finished, "help", "status").out == run(finished, "status", "--help").out
    for typed in (["help", "staus"], ["staus", "--help"]):
        assert "unknown command 'staus'\nhint: did you mean 'status'?" in run(finished, *typed).err
