"""The settings about landing: what verifies the joined work, where it lands, and how."""

from typing import Annotated

from runner.core.declaration import Bounds, Setting
from runner.core.setting_groups.draft_settings import DraftSettings


class LandSettings(DraftSettings, frozen=True, kw_only=True):
    """How finished branches become one; see `runner/land`."""

    land_verify: Annotated[
        tuple[str, ...],
        Setting(
            asks=True,
            help="a command that must also pass on the joined work of stories before `land` moves a branch",
            details="Run after the verify commands of the stories that land. See "
            "[from branches to main](../how-to/from-branches-to-main.md).",
            expects="a command or a list of commands",
            example="make integration-test",
            separator="\n",
        ),
    ] = ()
    land: Annotated[
        bool,
        Setting(
            asks=True,
            help="at the end of a run, land what is done, as `land` would",
            details="On the branch that the run started from, if the main checkout is on it, or on "
            "`land-onto`. A run that was ended early lands nothing, and neither does one without any verify "
            "command. See [from branches to main](../how-to/from-branches-to-main.md#at-the-end-of-a-run).",
            flag="--land",
        ),
    ] = False
    land_onto: Annotated[
        str,
        Setting(
            asks=True,
            help="the branch on which a run with `land` lands",
            details="Without it, the branch that the run started from.",
            flag="--land-onto BRANCH",
        ),
    ] = ""
    land_style: Annotated[
        str,
        Setting(
            help="what a landed story leaves on the branch: a merge, one commit, or its commits in a line",
            details="The default of `land --style`. See "
            "[styles](../how-to/from-branches-to-main.md#styles-and-messages).",
            choices=("merge", "squash", "rebase"),
        ),
    ] = "merge"
    land_hold: Annotated[
        float,
        Setting(
            help="for how many seconds `land` may keep others from committing to the branch it moves",
            details="Only after others have committed there three times while the stories were verified: "
            "then `git commit` fails in the checkouts of that branch until it has moved, or for this long. "
            "`0` never does that.",
            bounds=Bounds(low=0, high=600, unit="s"),
        ),
    ] = 10.0
    land_message: Annotated[
        str,
        Setting(
            help="the message of landed merges and squashed commits",
            details="`{id}`, `{title}`, `{onto}`, `{run}`, `{branch}`, `{landing}` and `{style}` are "
            "replaced; the trailers `Autopilot-Landing` and `Autopilot-Story` are always added. "
            "With `rebase` commits keep their messages.",
            example="{title} ({id})",
            empty="the title, after `Merge story {id}: ` for a merge",
        ),
    ] = ""
