"""A joined run as readers of a CI system see it: with branches and commands that exist there.

What a job recommends is meant for the clone that it ran in, and that clone is gone.
"""

from msgspec.structs import replace

from runner.core.model import KillSwitch, Status, StorySnapshot
from runner.core.text.names import BRANCH_PREFIX
from runner.remote.ci.join import JoinedRun

_PROGRAM = "`autopilot-multi "
AGAIN = "run its job again"
IMPORT = "fetch the shards, then: autopilot-multi aggregate SHARDS --into-repo --branches"


def reader_view(joined: JoinedRun, prefix: str | None) -> JoinedRun:
    """Return the run with what can be done after the pipeline; its branches were pushed under `prefix`."""
    stories = {story.id: _story(story, prefix) for story in joined.run.stories.values()}
    run = replace(joined.run, stories=stories, kill_switch=_switch(joined.run.kill_switch))
    return replace(joined, run=run)


def _story(story: StorySnapshot, prefix: str | None) -> StorySnapshot:
    branch = story.workspace.branch
    if prefix is not None and branch:
        branch = prefix + branch.removeprefix(BRANCH_PREFIX)
    match story.status:
        case Status.DONE if prefix is not None and branch and story.workspace.commits:
            following = f"git fetch origin {branch} && git merge FETCH_HEAD"
        case Status.DONE | Status.NO_WORK:
            following = story.next
        case Status.PARKED:
            following = IMPORT
        case _:
            following = AGAIN
    return replace(
        story,
        workspace=replace(story.workspace, branch=branch),
        next=following,
        kill_switch=_switch(story.kill_switch),
    )


def _switch(switch: KillSwitch | None) -> KillSwitch | None:
    """Return a kill-switch whose hint names no command that needs the job's own clone."""
    if switch is None or _PROGRAM not in switch.hint:
        return switch
    return replace(switch, hint=f"{AGAIN}, or {IMPORT}")
