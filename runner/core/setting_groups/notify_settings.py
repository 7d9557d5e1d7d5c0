"""The settings about notifications: of what, and how."""

from enum import StrEnum
from typing import Annotated

from runner.core.declaration import Setting
from runner.core.setting_groups.workspace_settings import WorkspaceSettings


class NoticeKind(StrEnum):
    """What a notification is about."""

    QUESTION = "question"
    FAILED = "failed"
    ENDED = "ended"
    LIMIT = "limit"


_KINDS = tuple(kind.value for kind in NoticeKind)
_PAGE = "See [notifications](../how-to/get-notified.md)."


class NotifySettings(WorkspaceSettings, frozen=True, kw_only=True):
    """The third part of `Settings`, after those about worktrees."""

    notify_on: Annotated[
        tuple[str, ...],
        Setting(
            help="of what you are notified: questions, failed stories, the end of the run, limits",
            details=_PAGE,
            choices=_KINDS,
            expects=f"a list of {', '.join(_KINDS)}",
            separator=",",
            example="question,ended",
        ),
    ] = _KINDS
    notify: Annotated[
        str,
        Setting(
            asks=True,
            help="a shell command that runs for each notification, with its text on standard input",
            details=_PAGE,
            example="mail -s autopilot you@example.org",
        ),
    ] = ""
    notify_desktop: Annotated[
        bool, Setting(help="show notifications on the desktop (notify-send, osascript)", details=_PAGE)
    ] = False
    notify_urls: Annotated[
        tuple[str, ...],
        Setting(
            asks=True,
            help="services that get the notifications, as URLs of apprise",
            details=f"Needs the extra `notify`. What a URL holds besides its service is never shown. {_PAGE}",
            separator=" ",
            example="ntfy://my-topic",
        ),
    ] = ()
    bell: Annotated[bool, Setting(help="ring the bell of the terminal for notifications", details=_PAGE)] = (
        True
    )
