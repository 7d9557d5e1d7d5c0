"""The commands and the text of `--help`. Imports nothing, so that `--help` is instant."""

DEFAULT_COMMAND = "run"
COMPLETE = "__complete"
"""What completion scripts call for names, such as the ids of stories; users never type it."""

GROUPS = {
    "run": {
        "run": "run the backlog (the default command)",
        "resume": "continue after a crash, an interruption or a decision",
        "land": "bring done stories together on one branch, verified",
        "undo": "undo a landing",
        "pr": "open or update a draft pull request for each done story",
        "watch-prs": "let reviews and failed checks of drafts become attempts",
        "rollback": "undo a step of a story in a new commit",
        "skip": "skip a step of a story, after a warning about what depends on it",
        "quarantine": "list, show or restore what stories wrote outside their claims",
        "gc": "show or remove finished worktrees; never removes unsaved work",
    },
    "steer": {
        "attach": "follow the active run; leaving does not disturb it",
        "decide": "list or answer the decisions that stories are waiting for",
        "stop": "stop stories after their current session, or now",
        "pause": "start no more stories for now",
        "unpause": "start stories again after a pause",
        "add": "add stories to the active run",
        "retry": "try a story again, with a note to its agent",
        "takeover": "continue a story by hand, in its agent's own session",
        "web": "show the run live in a browser, and steer it there",
        "mcp": "let an agent or an editor drive the runner, by MCP",
    },
    "show": {
        "plan": "show what would run, in which order and why; changes nothing",
        "forecast": "show which stories will conflict, where, and the best order to land",
        "prompt": "print the prompt that an agent would get for a story",
        "status": "show the latest run, or the one you name",
        "show": "show one story: its sessions, commits and what to do next",
        "diff": "show what a story has changed so far",
        "open": "print the folder in which a story works, or start an editor there",
        "history": "show past runs with totals",
        "logs": "show what a story's sessions printed",
        "flows": "list, show or check the flows that stories follow",
        "state": "show, check or convert state files",
    },
    "forge": {
        "import": "write story files from issues, work items or a checklist",
        "tracker": "create pending work items in a tracker",
    },
    "ci": {
        "matrix": "split the backlog into the jobs of a CI pipeline",
        "aggregate": "join the shards of CI jobs, or combine state files",
        "report": "write a run as HTML, Markdown, JUnit and more",
        "export": "send metrics and traces to OpenTelemetry, or print them for Prometheus",
    },
    "cluster": {
        "worker": "run stories for the coordinators of a Dask cluster",
        "cluster": "make the certificates of a cluster",
    },
    "setup": {
        "init": "write a settings file and a first story",
        "config": "show every setting and where it came from",
        "trust": "agree to what a repository's own files would run",
        "doctor": "check what this machine supports",
        "demo": "run a real sample in a throwaway repository",
        "completion": "print a shell completion script",
    },
}
"""The folders of `runner/cli/commands/` with their commands; each command is a module of that name.

Where that is no name in Python, a dash becomes an underscore, and `import` gets one.
"""

_TITLES = {
    "run": "run stories",
    "steer": "watch and steer a run",
    "show": "inspect",
    "forge": "trackers and forges",
    "ci": "CI and reports",
    "cluster": "several machines",
    "setup": "set up",
}

COMMANDS = {name: summary for group in GROUPS.values() for name, summary in group.items()}


def module_of(command: str) -> str:
    """Return the dotted name of the module that holds a command."""
    group = next(folder for folder, commands in GROUPS.items() if command in commands)
    module = f"{command}_" if command == "import" else command.replace("-", "_")
    return f"runner.cli.commands.{group}.{module}"


def overview() -> str:
    """Return the text of `autopilot-multi --help`."""
    groups = "\n".join(
        f"{_TITLES[folder]}:\n" + "".join(f"  {name:<11} {summary}\n" for name, summary in commands.items())
        for folder, commands in GROUPS.items()
    )
    return (
        "usage: autopilot-multi [COMMAND] [OPTIONS]\n\n"
        "Runs a backlog of stories in parallel git worktrees, each to a verified commit.\n"
        "Without a command, it runs the stories in `stories/`.\n\n"
        f"{groups}\n"
        "For the options of a command: autopilot-multi COMMAND --help\n\n"
        "example:\n  autopilot-multi --max-stories=3\n"
    )
