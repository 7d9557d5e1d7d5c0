"""The journal as a story on a worker sees it: what it records is durable once the coordinator has it.

Commits go along with the events that name them, and before them, so that the coordinator never knows of a
checkpoint that it does not have.
"""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path

import trio
from msgspec import structs

from isolation.errors import IsolationError
from isolation.git.clones.travel import packed, write_travel_bundle
from isolation.git.clones.uncommitted import commit_uncommitted, uncommitted_of
from isolation.git.repository import Repository
from runner.core.events import events as ev
from runner.core.model import Status, StoryId
from runner.core.text.names import branch_of
from runner.remote.cluster.wire.messages import Batch, Bundle, Sent, Talk, sent
from runner.remote.cluster.worker.outbox import Outbox

INLINE = 256 << 10
"""Commits up to this size travel with their batch; larger ones are fetched in parts."""

_NOTHING_LEFT = {Status.DONE, Status.NO_WORK, Status.SKIPPED}


class Relay:
    """The event store of one story; `known` are commits that the coordinator has.

    `talk` returns the agent's conversation, which goes along with the end of a session. Blocking. `last` are
    events that nothing waits for, since the story has its result: they go along with the news that it left.
    """

    def __init__(
        self,
        *,
        story_id: StoryId,
        outbox: Outbox,
        repository: Repository,
        worktree: Path,
        folder: Path,
        known: Sequence[str],
        talk: Callable[[], Talk | None],
    ) -> None:
        self._story_id = story_id
        self.fence = 0
        self.last: tuple[Sent, ...] = ()
        self._outbox = outbox
        self._repository = repository
        self._worktree = worktree
        self._folder = folder
        self._known = list(known)
        self._talk = talk
        self._number = 0

    def append(self, events: Sequence[ev.Event]) -> None:
        """Have the events recorded by the coordinator, all or none; blocks until they are."""
        kept = [event for event in events if not isinstance(event.body, ev.OutputSeen)]
        if not kept:
            return
        on_the_way = (*self.last, *(sent(event) for event in kept))
        if _ends(kept):
            self.last = on_the_way
            return
        self.last = ()
        self._number += 1
        bundle = self._bundle(kept)
        batch = Batch(
            story_id=self._story_id,
            fence=self.fence,
            number=self._number,
            events=on_the_way,
            bundle=bundle,
            talk=self._talk() if any(isinstance(event.body, ev.SessionEnded) for event in kept) else None,
        )
        try:
            trio.from_thread.run(self._outbox.send, batch)
        finally:
            if bundle is not None and bundle.name:
                (self._folder / bundle.name).unlink(missing_ok=True)
        if bundle is not None:
            self._known += filter(None, (bundle.tip, bundle.left))

    def _bundle(self, events: Sequence[ev.Event]) -> Bundle | None:
        """Write the commits that these events name or leave, and the coordinator lacks; None without any."""
        tip, left = self._newest(events)
        commits = [commit for commit in (tip, left) if commit and commit not in self._known]
        if not tip or not commits:
            return None
        bundle = Bundle(name="", size=0, branch=branch_of(self._story_id), tip=tip, left=left)
        small = packed(self._repository, self._folder, commits, without=self._known, most=INLINE)
        if small:
            return structs.replace(bundle, size=len(small), data=small)
        name = f"{secrets.token_hex(8)}.bundle"
        path = self._folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not write_travel_bundle(self._repository, path, commits, without=self._known):
            return None
        return structs.replace(bundle, name=name, size=path.stat().st_size)

    def _newest(self, events: Sequence[ev.Event]) -> tuple[str, str]:
        """Return the commit at which these events leave the branch, and that of what is not committed.

        No session is alive when a story ends without being done, so its worktree is what it stays.
        """
        bodies = [event.body for event in events]
        if any(isinstance(body, ev.StoryFinished) and body.verdict not in _NOTHING_LEFT for body in bodies):
            tip = self._repository.branch_tip(branch_of(self._story_id)) or ""
            return tip, self._uncommitted()
        named = [
            body.commit
            for body in bodies
            if isinstance(body, ev.Checkpointed | ev.StoryFinished) and body.commit
        ]
        return (named[-1], uncommitted_of(self._repository, self._story_id)) if named else ("", "")

    def _uncommitted(self) -> str:
        """Return a commit of what the worktree has beyond its HEAD, or of what does not fit there."""
        try:
            found = commit_uncommitted(self._repository, self._worktree, self._story_id)
        except (IsolationError, OSError):
            found = ""  # it stays where it is, and the coordinator says where that is
        return found or uncommitted_of(self._repository, self._story_id)


def _ends(events: Sequence[ev.Event]) -> bool:
    """Whether these say that the folder of a story was removed or kept, and nothing else."""
    bodies = [event.body for event in events]
    return all(isinstance(body, ev.WorkspaceClosed | ev.Noted) for body in bodies) and any(
        isinstance(body, ev.WorkspaceClosed) for body in bodies
    )
