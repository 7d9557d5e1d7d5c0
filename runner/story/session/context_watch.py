"""Asks a session whose context fills up to end, and ends it between two pieces of work when it is full.

The notice for the session is a file; the command by which it saves a sub-step shows it as well. A session is
never cut off in the middle of a tool call, nor one that has already written its result.
"""

from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from trio import to_thread

from isolation.files.disk import replace_file
from isolation.paths import own_git_dir
from runner.core.limits.agent_output import Tally
from runner.core.limits.context_zone import Judgment, Zone, judge
from runner.core.limits.stuck import content_digest
from runner.core.text.words import count
from runner.core.work_settings import ContextSettings
from runner.flows.state.disk.swap import read_bounded

_KB = 1000
_ORDER = tuple(Zone)
_NOTICE = """\
Context zone: {zone} ({signs}).

{what}

1. Finish the current sub-step, and begin no other.
2. Save it: `autopilot-multi state sub-step PHASE NAME`.
3. If the step is not complete, write {{"status": "partial"}} to {result_file}.
4. End the session.

A fresh session continues this step from the saved sub-step.
"""
_CAUTION = "The context of this conversation is filling up. End the session at the next sub-step."
_DANGER = (
    "The context of this conversation is full. Save now: the session is ended as soon as it has saved a "
    "sub-step or made a commit, or after {further}."
)


class ContextOrder(Struct, frozen=True, kw_only=True):
    """What the watch of one session needs.

    `notice` is the file for the session, `result_file` where it sees its own; `written` is where the runner
    finds that. `workspace` is where it may commit; None where it makes no commits. `docs` are the folders of
    artifacts, `tools_before` the tool calls that its conversation had before.
    """

    settings: ContextSettings
    notice: Path
    result_file: Path
    written: Path
    state_file: Path
    workspace: Path | None
    docs: tuple[str, ...]
    tools_before: int = 0


class ContextWatch:
    """Watches the context of one session; a zone is never left for a better one."""

    def __init__(self, order: ContextOrder) -> None:
        self._order = order
        self._judgment = Judgment(zone=Zone.SAFE)
        self._tools_then = self._ended_then = 0
        self._saved: tuple[str, str] = ("", "")
        self._boundary = False

    @property
    def zone(self) -> Zone:
        """The zone that the session has reached."""
        return self._judgment.zone

    async def see(self, tally: Tally, at: float) -> str:
        """Take note of what the session has reported; return why it must end now, or nothing."""
        order, counted = self._order, tally.context
        settings = order.settings
        use = counted.use(settings.large_kb * _KB, tools_before=order.tools_before, docs=order.docs)
        judged = judge(use, settings)
        if _ORDER.index(judged.zone) > _ORDER.index(self.zone):
            self._judgment = judged
            self._tools_then = counted.tools
            await to_thread.run_sync(self._enter)
        # Only the end of a tool call can have saved anything.
        if self.zone is not Zone.DANGER or counted.ended == self._ended_then or tally.in_tool(at):
            return ""
        self._ended_then = counted.ended
        ending = await to_thread.run_sync(self._reached_boundary)
        further = counted.tools - self._tools_then
        if not ending and further < settings.patience:
            return ""
        where = "at its next save" if ending else f"after {count(further, 'further tool call')}"
        return f"context limit: {self._judgment.words}; ended {where}"

    def _enter(self) -> None:
        """Write the notice for the session, and note what it has saved up to now."""
        further = count(self._order.settings.patience, "further tool call")
        text = _NOTICE.format(
            zone=self.zone,
            signs=self._judgment.words,
            what=_DANGER.format(further=further) if self.zone is Zone.DANGER else _CAUTION,
            result_file=self._order.result_file,
        )
        with suppress(OSError):  # the session may have removed the folder
            replace_file(self._order.notice, text.encode(), durable=False)
        self._saved = self._marks()

    def _reached_boundary(self) -> bool:
        """Whether the session has saved something since the danger began, and has not ended its work."""
        self._boundary = self._boundary or self._marks() != self._saved
        return self._boundary and not self._order.written.exists()

    def _marks(self) -> tuple[str, str]:
        """Return what changes with a saved sub-step, and with a commit."""
        try:
            state = content_digest(read_bounded(self._order.state_file))
        except OSError:
            state = ""
        workspace = self._order.workspace
        git_dir = own_git_dir(workspace) if workspace else None
        return state, _newest_commit(git_dir) if git_dir else ""


def _newest_commit(git_dir: Path) -> str:
    for name in ("logs/HEAD", "COMMIT_EDITMSG"):
        try:
            found = (git_dir / name).stat()
        except OSError:
            continue
        return f"{name} {found.st_size} {found.st_mtime_ns}"
    return ""
