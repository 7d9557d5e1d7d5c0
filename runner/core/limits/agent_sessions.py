"""Which processes are agent sessions: by the program that they run, each session once.

A session is many processes: a launcher, the agent, its helpers and their children. All processes below an
agent belong to that agent's session. A session of a run begins at its keeper, so what is below a keeper is
one session, even when an agent started the run.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct

from isolation.patterns import pattern


class AgentProgram(Struct, frozen=True, kw_only=True):
    """How an agent appears on a command line: its name, and the package that holds its script."""

    name: str
    package: str


_INTERPRETER = pattern(r"(?:node|nodejs|bun|deno|python|pypy|sh|bash|dash|zsh|ksh)[\d.]*")
_PACKAGE_FOLDERS = ("node_modules", "site-packages")
_OPTIONS_WITH_VALUE = frozenset({"-r", "--require", "--import", "--loader", "-C", "--conditions", "-W", "-X"})


def is_agent(argv: Sequence[str], programs: Sequence[AgentProgram]) -> bool:
    """Return whether a command line runs one of the programs, directly or as an interpreter's script."""
    if not argv:
        return False
    names = {program.name for program in programs}
    executable = _base(argv[0])
    if executable in names:
        return True
    if _INTERPRETER.fullmatch(executable) is None:
        return False
    script = _script(argv)
    folders = (f"/{parent}/{program.package}/" for parent in _PACKAGE_FOLDERS for program in programs)
    return _base(script) in names or any(folder in f"/{script}" for folder in folders)


def agents_among(command_lines: Mapping[int, Sequence[str]], programs: Sequence[AgentProgram]) -> set[int]:
    """Return the processes whose command line runs one of the programs."""
    return {pid for pid, argv in command_lines.items() if is_agent(argv, programs)}


def below(root: int, parents: Mapping[int, int]) -> set[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    found, waiting = {root}, [root]
    for pid in waiting:
        fresh = [child for child in children.get(pid, ()) if child not in found]
        found.update(fresh)
        waiting += fresh
    return found


def sessions(agents: Collection[int], keepers: Collection[int], parents: Mapping[int, int]) -> set[int]:
    """Return each session once, by the keeper or the topmost agent that it begins with."""
    return {_beginning(agent, agents, keepers, parents) for agent in agents}


def _beginning(
    agent: int, agents: Collection[int], keepers: Collection[int], parents: Mapping[int, int]
) -> int:
    first = agent
    for pid in _above(agent, parents):
        if pid in keepers:
            return pid
        if pid in agents:
            first = pid
    return first


def _above(pid: int, parents: Mapping[int, int]) -> Iterator[int]:
    """Yield the ancestors, nearest first; a pid that is reused meanwhile must not cause an endless loop."""
    met = {pid}
    while (pid := parents.get(pid, 0)) and pid not in met:
        met.add(pid)
        yield pid


def _script(argv: Sequence[str]) -> str:
    """Return an interpreter's first argument that is not an option: a script, a module, or code."""
    rest = iter(argv[1:])
    for argument in rest:
        if argument in _OPTIONS_WITH_VALUE:
            next(rest, None)
        elif not argument.startswith("-") and argument != "run":  # `bun run`, `deno run`
            return argument
    return ""


def _base(path: str) -> str:
    return path.rpartition("/")[2]
