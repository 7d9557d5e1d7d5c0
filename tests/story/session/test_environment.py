"""What a session finds in its environment."""

import sys
from pathlib import Path

import pytest

from runner.story.session.environment import PROGRAM, program


def test_the_program_is_called_by_name_only_as_long_as_the_name_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name is looked up for each session; where it led nowhere, the path is used, which is always right."""
    own, folder = tmp_path / "own", tmp_path / "bin"
    for each in (own, folder):
        each.mkdir()
    script = own / PROGRAM
    script.write_text("")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(own / "python"))
    environ = {"PATH": str(folder)}
    link = folder / PROGRAM
    link.symlink_to(script)
    assert program(environ) == PROGRAM
    link.unlink()
    link.write_text("another")
    link.chmod(0o755)
    assert program(environ) == str(script)
    link.unlink()
    link.symlink_to(script)
    assert program(environ) == str(script)
    assert program({"PATH": str(own)}) == PROGRAM
