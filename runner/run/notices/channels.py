"""How a notification reaches the user: each channel is a program that runs below the keeper for a short time.

None may harm a run: a program that fails says why, one that hangs is ended with its processes.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import trio
from msgspec import Struct

from isolation.errors import IsolationError
from isolation.git.repository import scrubbed
from isolation.model import SessionSpec
from runner.core.notices.notice import Notice, hidden_url
from runner.core.settings import Settings
from runner.core.text.screen import LineTail

if TYPE_CHECKING:
    from isolation.keeper.client import Keeper

NOTIFY_SECONDS = 10.0
"""How long a channel may take for one notification."""
_LONGEST = 2000
_APPRISE = """
import json, sys
import apprise
given = json.load(sys.stdin)
failed = []
for url, shown in zip(given["urls"], given["shown"]):
    service = apprise.Apprise()
    if not service.add(url) or not service.notify(title=given["title"], body=given["body"]):
        failed.append(shown)
sys.exit("not delivered to " + ", ".join(failed) if failed else 0)
"""


class Channel(Struct, frozen=True, kw_only=True):
    """One way to notify: its name for complaints, its command, and what it reads instead of the text."""

    name: str
    argv: tuple[str, ...]
    urls: tuple[str, ...] = ()

    def given(self, notice: Notice) -> str:
        """Return what the program reads on standard input."""
        body = notice.text.strip() or notice.title
        if not self.urls:
            return f"{body}\n"
        shown = [hidden_url(url) for url in self.urls]
        words = {"title": f"autopilot-multi: {notice.title}"[:_LONGEST], "body": body[-_LONGEST:]}
        return json.dumps({"urls": self.urls, "shown": shown, **words})

    def command(self, notice: Notice) -> tuple[str, ...]:
        """Return the command with the words of this notification as arguments of their own."""
        words = {"{title}": notice.title[:_LONGEST], "{text}": notice.text[:_LONGEST].strip()}
        return tuple(words.get(word, word) for word in self.argv)


def channels_of(settings: Settings) -> tuple[Channel, ...]:
    """Return the channels that the settings name, but for the bell."""
    channels = []
    if settings.notify.strip():
        channels.append(Channel(name="the notify command", argv=("sh", "-c", settings.notify)))
    if settings.notify_desktop:
        channels.append(Channel(name="the notification on the desktop", argv=_desktop()))
    if settings.notify_urls:
        argv = (sys.executable, "-I", "-c", _APPRISE)
        channels.append(Channel(name="the notification by URL", argv=argv, urls=settings.notify_urls))
    return tuple(channels)


def _desktop() -> tuple[str, ...]:
    """Return the desktop's notifier; its absence is found when it is needed, and noted."""
    if shutil.which("notify-send") is None and shutil.which("osascript"):
        # The words are arguments and no part of the script, so nothing in them can be run.
        script = (
            "on run words",
            "display notification (item 2 of words) with title (item 1 of words)",
            "end",
        )
        return ("osascript", *(part for line in script for part in ("-e", line)), "{title}", "{text}")
    return ("notify-send", "--app-name=autopilot-multi", "--", "{title}", "{text}")


class Complaint(Struct, frozen=True, kw_only=True):
    """Why a channel did not notify; `hung` means that it had to be ended."""

    words: str
    hung: bool = False


async def send(
    channel: Channel, notice: Notice, *, run_id: str, keeper: "Keeper", cwd: Path
) -> Complaint | None:
    """Notify by one channel; return a complaint, None if that succeeded. Never raises."""
    try:
        with _input(channel.given(notice)) as prompt:
            spec = SessionSpec(
                argv=channel.command(notice), cwd=cwd, env=_environment(notice, run_id), prompt=prompt
            )
            problem, hung = await _run(spec, keeper)
    except (IsolationError, OSError) as error:
        problem, hung = str(error), False
    return Complaint(words=f"{channel.name} failed: {problem}", hung=hung) if problem else None


def _environment(notice: Notice, run_id: str) -> dict[str, str]:
    return scrubbed(os.environ) | {
        "AUTOPILOT_NOTICE": notice.kind.value,
        "AUTOPILOT_NOTICE_TITLE": notice.title[:_LONGEST],
        "AUTOPILOT_RUN_ID": run_id,
        "AUTOPILOT_STORY_ID": notice.story_id or "",
        "AUTOPILOT_DECISION": notice.decision,
    }


@contextmanager
def _input(text: str) -> Iterator[Path]:
    with tempfile.NamedTemporaryFile(prefix="autopilot-multi-notice-") as file:
        file.write(text.encode("utf-8", "replace"))
        file.flush()
        yield Path(file.name)


async def _run(spec: SessionSpec, keeper: "Keeper") -> tuple[str, bool]:
    """Run the command for a bounded time; return a complaint, empty when it succeeded, and if it hung."""
    tail, code = LineTail(), 0
    with trio.move_on_after(NOTIFY_SECONDS) as limit:
        async with keeper.start(spec) as session:
            while chunk := await session.receive():
                tail.feed(chunk)
            code = (await session.wait()).returncode
    if limit.cancelled_caught:
        return f"it hung and was ended after {NOTIFY_SECONDS:g} s", True
    if code == 0:
        return "", False
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return (f"{how}: {tail.line}" if tail.line else how), False
