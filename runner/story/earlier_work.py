"""What earlier sessions did, in words for a session whose conversation is new and knows nothing of it."""

from isolation.git.checkout import read_status
from isolation.model import Workspace
from runner.core.model import Outcome, SessionKind, SessionRecord
from runner.core.text.names import one_line
from runner.core.text.screen import shorten
from runner.story.context.context import StoryContext

_SESSIONS, _FILES, _CELLS = 4, 20, 200
_ENDS = {
    Outcome.OK: "ended by itself",
    Outcome.PARTIAL: "ended before the work was complete",
    Outcome.FAILED: "failed",
    Outcome.ASKS: "asked the user",
    Outcome.STOPPED: "was stopped",
    Outcome.STALLED: "was ended, since it was silent",
    Outcome.STUCK: "was ended, since it made no progress",
}


def summary_of_work(context: StoryContext, workspace: Workspace) -> str:
    """Return what was done on the current step so far; empty if nothing was. Blocking."""
    now = context.now
    worked = [
        session
        for session in now.own_sessions
        if session.kind is SessionKind.WORK
        and session.step.name == now.place.name
        # A session that its service failed may have worked before that.
        and (session.tools or not session.unserved)
    ]
    if not worked:
        return ""
    lines = [_told(session) for session in worked[-_SESSIONS:]]
    committed, left = _changed(context, workspace)
    lines += [f"- Committed on this branch so far: changes of {_paths(committed)}."] if committed else []
    lines += [f"- Left in this folder, not committed yet: changes of {_paths(left)}."] if left else []
    return (
        "This is a new conversation. Earlier ones worked on this step in this folder; look at what they left "
        "before you begin, and do not repeat it:\n" + "\n".join(lines)
    )


def _told(session: SessionRecord) -> str:
    how = _ENDS[session.outcome] if session.outcome else "was cut off"
    why = one_line(session.detail or session.notes)
    tools = f" after {session.tools} tool uses" if session.tools else ""
    return shorten(
        f"- Attempt {session.attempt} by {session.agent} {how}{tools}{f': {why}' if why else ''}", _CELLS
    )


def _paths(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - _FILES} more" if len(paths) > _FILES else ""
    return ", ".join(f"`{path}`" for path in paths[:_FILES]) + more


def _changed(context: StoryContext, workspace: Workspace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the paths that commits have changed, and those that differ from the newest commit."""
    tip: str | None = context.now.workspace.commit
    left: tuple[str, ...] = ()
    if not context.shares_tree:  # there, others have their files in the same folder
        status = read_status(context.repository, workspace.path)
        tip, left = status.head or tip, status.dirty
    if not tip or tip == workspace.base:
        return (), left
    return context.repository.changed_paths(workspace.base, tip, workspace.path), left
