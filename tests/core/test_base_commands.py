"""What is certain about a shell command: scripts, the files that it names, what was missing."""

import pytest

from runner.core.base.commands import is_of_the_machine, missing_program, words_of


@pytest.mark.parametrize(
    ("command", "scripts", "names"),
    [
        ("pytest -q tests", [], ["tests"]),
        ("./check.sh a && make", ["./check.sh"], ["a"]),
        ("A=1 sh tools/x.sh > out", ["tools/x.sh"], []),
        ("python -m pytest x", [], ["pytest", "x"]),
        ("cd sub && ./x.sh", [], []),
        ("f() { true; }; f", [], []),
        ("test -f $NAME && cat *.txt", [], []),
        ("echo 'no end", [], []),
    ],
)
def test_only_certain_words_count(command: str, scripts: list[str], names: list[str]) -> None:
    """Variables, patterns and what follows a `cd` name no file; a target of output need not exist."""
    found = words_of(command)
    assert (list(found.scripts), list(found.names)) == (scripts, names)


@pytest.mark.parametrize(
    ("line", "program"),
    [
        ("sh: 1: foo: not found", "foo"),
        ("bash: line 1: foo: command not found", "foo"),
        ("./x.sh: line 3: foo: command not found", "foo"),
        ("zsh:1: command not found: foo", "foo"),
        ("/usr/bin/env: \u2018node9\u2019: No such file or directory", "node9"),
        ("sh: 1: ./x: Permission denied", "./x"),
        ("bash: ./s: /usr/bin/pp: bad interpreter: No such file or directory", "/usr/bin/pp"),
        ("3 tests failed", ""),
    ],
)
def test_a_shell_names_what_it_could_not_start(line: str, program: str) -> None:
    """The name is read from the last lines, and only after the exit codes that mean it."""
    assert missing_program(127, f"before\n{line}\n") == program
    assert missing_program(1, line) == ""
    assert is_of_the_machine(program) is (program in {"foo", "node9", "/usr/bin/pp"})
