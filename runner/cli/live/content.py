"""What a pane reads from the disk: the end of a story's log, and what it has changed. Blocking."""

from pathlib import Path

from isolation.errors import IsolationError
from isolation.files.disk import read_tail
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir
from runner.cli.live.state import LiveState, Pane, chosen
from runner.core.model import RunSnapshot, SessionRecord, StorySnapshot
from runner.core.text.screen import neutral
from runner.run.several.places import repository_of

LOG_BYTES = 1 << 17
MOST_LINES = 5000
_QUIET = ("--no-color", "--no-ext-diff", "--no-textconv")


class Content:
    """Reads what the open pane shows, of one repository."""

    def __init__(self, directory: Path) -> None:
        self._repository = Repository.open(directory)

    def lines(self, state: LiveState, run: RunSnapshot) -> list[str]:
        """Return the lines of the open pane; none if it needs no file."""
        story = chosen(state, run)
        if story is None:
            return []
        if state.pane is Pane.LOG and story.sessions:
            return self._log(story.sessions[-1])
        return self._diff(run, story) if state.pane is Pane.DIFF else []

    def _log(self, session: SessionRecord) -> list[str]:
        """Return the end of a log, as people read it."""
        from runner.agents.conversation.log_reader import LogReader
        from runner.report.conversation import lines_of
        from runner.report.terminal.table import PLAIN

        path = autopilot_dir(self._repository.common_dir) / session.log
        try:
            start = _start_of_line(path, LOG_BYTES)
        except OSError as error:
            return [f"the log cannot be read: {error.strerror}"]
        entries = LogReader(path, session.agent, start).entries(last=True)
        return [line for each in lines_of(entries, PLAIN) for line in each.split("\n")][-MOST_LINES:]

    def _diff(self, run: RunSnapshot, story: StorySnapshot) -> list[str]:
        """Return what differs from the base: in its folder while that is there, else on its branch."""
        base, branch, path = story.workspace.base, story.workspace.branch, story.workspace.path
        if base is None:
            return ["it has not started yet"]
        try:
            there = repository_of(self._repository, run, story.id)
            if path is not None and Path(path).is_dir():
                return _in_folder(there, base, Path(path))
            if branch is None:
                return []
            return _git(there, "diff", *_QUIET, base, branch, "--")
        except IsolationError as error:
            return [neutral(str(error))]


def _in_folder(repository: Repository, base: str, path: Path) -> list[str]:
    changed = _git(repository, "diff", *_QUIET, base, "--", cwd=path)
    new = _git(repository, "ls-files", "--others", "--exclude-standard", cwd=path)
    return [*(f"new: {name}" for name in new), *changed]


def _git(repository: Repository, *args: str, cwd: Path | None = None) -> list[str]:
    # A session may be using the index of its folder.
    output = repository.run("--no-optional-locks", *args, cwd=cwd, idle=True).stdout
    lines = output.splitlines()
    more = [f"… {len(lines) - MOST_LINES} more lines"] if len(lines) > MOST_LINES else []
    return [*(_shown(line) for line in lines[:MOST_LINES]), *more]


def _start_of_line(path: Path, size: int) -> int:
    """Return where the first whole line begins in the last bytes of a file; 0 in a short or missing one."""
    tail = read_tail(path, size)
    if len(tail) < size:
        return 0
    whole = path.stat().st_size - size
    return whole + tail.find(b"\n") + 1


def _shown(line: str) -> str:
    return neutral(line.expandtabs(4))
