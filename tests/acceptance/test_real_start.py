"""Every command once by a new interpreter: other tests fork it from a process that has loaded all of it."""

from pathlib import Path

from runner.cli.overview import COMMANDS
from tests.acceptance.program import run, write_story

ARGUMENTS = {
    "run": (),
    "resume": (),
    "attach": (),
    "stop": (),
    "pause": (),
    "unpause": (),
    "decide": (),
    "add": ("a",),
    "retry": ("a",),
    "takeover": ("a",),
    "web": ("--host", "203.0.113.1"),  # an address that no machine has
    "mcp": (),
    "show": ("a",),
    "diff": ("a",),
    "open": ("a",),
    "land": ("--yes",),
    "undo": (),
    "pr": ("--dry-run",),
    "watch-prs": ("--once",),
    "rollback": ("a", "Plan"),
    "skip": ("a",),
    "quarantine": (),
    "gc": (),
    "plan": ("--again",),
    "forecast": ("--matrix",),
    "prompt": ("a",),
    "status": (),
    "history": (),
    "logs": ("a",),
    "flows": (),
    "state": ("check",),
    "import": ("checklist:README.md", "--dry-run"),
    "matrix": (),
    "aggregate": (),
    "report": ("--format", "markdown"),
    "export": ("--prometheus",),
    "init": (),
    "config": (),
    "trust": ("--yes",),
    "doctor": (),
    "demo": ("--help",),
    "completion": ("bash",),
    "tracker": ("sync",),
    "cluster": ("init", "--certificates", "certificates"),
    "worker": ("tls://127.0.0.1:1",),  # without certificates
}
REFUSED = {
    *("attach", "stop", "pause", "unpause", "add", "retry", "takeover", "web", "open"),
    *("undo", "rollback", "skip", "state", "pr", "watch-prs", "worker"),
}
"""What has nothing to do after a finished run without a flow and a remote; its refusal is an answer, too."""


def test_every_command_loads_what_it_needs(repo: Path) -> None:
    """A module that only some other command imports would be missed by a forked program, and not here."""
    assert set(ARGUMENTS) == set(COMMANDS)
    write_story(repo, "a", command="echo a > a.txt")
    for name, arguments in ARGUMENTS.items():
        ran = run(repo, name, *arguments, real_start=True)
        assert "internal error" not in ran.err, f"{name}: {ran.err}"
        assert "Traceback" not in ran.err, f"{name}: {ran.err}"
        assert (ran.code == 0) != (name in REFUSED), f"{name}: {ran.code} {ran.err}"
