"""Notifies the user beside the stories, so that no story ever waits for it.

A channel that fails is noted once. One that hangs is not used again in this run: its time would be lost for
each notification, and in the end the run would wait for it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

from runner.core import choose
from runner.core.events import agents as ag
from runner.core.events import events as ev
from runner.core.model import RunSnapshot
from runner.core.notices.notice import Notice, end_notice, notice_of
from runner.core.setting_groups.notify_settings import NoticeKind
from runner.core.text.screen import neutral
from runner.run.interaction import Ring, no_bell
from runner.run.notices.channels import NOTIFY_SECONDS, Channel, channels_of, send
from runner.story.context.context import RunContext
from runner.story.flow.decisions import open_questions

MOST_WAITING = 1000
END_SECONDS = 2 * NOTIFY_SECONDS
"""How long the end of a run may wait for the notifications that are left."""

_KINDS = (ev.DecisionAsked, ev.StoryFinished, ag.AgentPaused, ev.AdmissionEnded)


@asynccontextmanager
async def notifying(context: RunContext, ring: Ring) -> AsyncIterator[None]:
    """Notify of what happens in the block and, when it is left, of the end; `ring` rings the bell."""
    settings = context.settings
    wanted = frozenset(settings.notify_on)
    if not wanted:
        yield
        return
    notifier = _Notifier(context, channels_of(settings), ring if settings.bell else no_bell)
    send_notice, receive = trio.open_memory_channel[Notice](MOST_WAITING)

    def notice(event: ev.Event, run: RunSnapshot) -> None:
        found = _question(event, run) if isinstance(event.body, ev.DecisionAsked) else notice_of(event, run)
        # If a thousand are waiting, the end of the run says what happened.
        if found is not None and found.kind in wanted:
            with suppress(trio.WouldBlock, trio.ClosedResourceError):
                send_notice.send_nowait(found)

    context.log.subscribe(notice, *_KINDS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(notifier.serve, receive)
        yield
        if NoticeKind.ENDED in wanted:
            with suppress(trio.WouldBlock):
                send_notice.send_nowait(end_notice(context.log.snapshot))
        send_notice.close()  # the task ends once it has sent what is left
        nursery.cancel_scope.deadline = trio.current_time() + END_SECONDS


class _Notifier:
    """Sends each notification by all channels at once, one notification after the other."""

    def __init__(self, context: RunContext, channels: tuple[Channel, ...], ring: Ring) -> None:
        self._context = context
        self._channels = list(channels)
        self._ring = ring
        self._noted: set[str] = set()
        self._sent: set[str] = set()

    async def serve(self, notices: trio.MemoryReceiveChannel[Notice]) -> None:
        """Send what comes until there is no more."""
        async for notice in notices:
            if notice.key in self._sent:
                continue
            self._sent |= {notice.key} if notice.key else set()
            self._ring(notice)
            async with trio.open_nursery() as nursery:
                for channel in tuple(self._channels):
                    nursery.start_soon(self._send, channel, notice)

    async def _send(self, channel: Channel, notice: Notice) -> None:
        context = self._context
        complaint = await send(
            channel,
            notice,
            run_id=context.log.snapshot.run_id,
            keeper=context.keeper,
            cwd=context.repository.top,
        )
        if complaint is None:
            return
        if complaint.hung:
            self._channels.remove(channel)
        if channel.name not in self._noted:
            self._noted.add(channel.name)
            await context.log.record(ev.Noted(story_id=notice.story_id, message=complaint.words))


def _question(event: ev.Event, run: RunSnapshot) -> Notice | None:
    """Return the notification of a question, as it is asked at a terminal."""
    story_id = event.body.story_id if isinstance(event.body, ev.DecisionAsked) else None
    asked = next((one for one in open_questions(run) if one.story_id == story_id), None)
    if asked is None:
        return None
    return Notice(
        kind=NoticeKind.QUESTION,
        title=f"{asked.story_id} asks: {neutral(asked.question.title)}",
        text=choose.render(asked.question),
        story_id=asked.story_id,
        decision=asked.decision_id,
    )
