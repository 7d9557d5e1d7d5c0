"""Which commands there are, and the text of `--help`. Imports nothing, so that it is instant."""

DEFAULT_COMMAND = "run"

COMMANDS = {
    "run": "carry the backlog out (the default)",
    "plan": "show what would run, in which order and why; change nothing",
    "prompt": "print what an agent would be told for a story",
    "status": "show the newest or a named run",
    "history": "show past runs and what they come to together",
    "resume": "go on after a crash or an interruption",
    "decide": "list or answer the decisions that stories wait for",
    "logs": "show what a story's sessions printed",
    "stop": "stop stories at their session's end, or now",
    "gc": "show or remove finished worktrees; never anything of value",
    "matrix": "spread the backlog over the jobs of a CI pipeline",
    "aggregate": "join the shards of CI jobs, or state files found anywhere",
    "report": "write a run as HTML, Markdown, JUnit and more",
    "quarantine": "list, show or bring out what stories wrote outside their claims",
    "rollback": "take back a step of a story, in a new commit",
    "flows": "list, show or check the flows that stories follow",
    "state": "show, check or convert state files",
    "config": "show every setting and where it came from",
    "doctor": "show what this machine offers",
    "init": "write a settings file and a first story",
    "demo": "run a real sample in a throw-away repository",
    "completion": "print a shell completion script",
}
"""Every command with its line in the overview; the module of the same name holds it."""


def overview() -> str:
    """Give the text of `autopilot-multi --help`."""
    rows = "\n".join(f"  {name:<11}{summary}" for name, summary in COMMANDS.items())
    return (
        "usage: autopilot-multi [COMMAND] [OPTIONS]\n\n"
        "Carries a backlog of stories through parallel git worktrees to verified commits.\n"
        "Without a command it runs the stories in `stories/`.\n\n"
        f"commands:\n{rows}\n\n"
        "  autopilot-multi COMMAND --help tells about one of them.\n\n"
        "example:\n  autopilot-multi --max-stories=3\n"
    )
