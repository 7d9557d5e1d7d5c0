"""The settings about pull requests: when drafts are opened, where, and which reviewers count."""

from typing import Annotated

from runner.core.declaration import Bounds, Setting
from runner.core.setting_groups.notify_settings import NotifySettings

OFF, ON_LOOP_START, ON_GREEN = "off", "on-loop-start", "on-green"
"""When the draft of a story is opened."""

_PAGE = "See [from branches to pull requests](../how-to/from-branches-to-pull-requests.md)."


class DraftSettings(NotifySettings, frozen=True, kw_only=True):
    """The fourth part of `Settings`, after those about notifications."""

    draft_mr: Annotated[
        str,
        Setting(
            asks=True,
            help="whether a run opens a draft pull request for each story: with its first commit, or once it "
            "is verified",
            details=f"Drafts are updated, and never merged; nothing is pushed by force. {_PAGE}",
            flag="--draft-mr WHEN",
            choices=(OFF, ON_LOOP_START, ON_GREEN),
        ),
    ] = OFF
    forge: Annotated[
        str,
        Setting(
            asks=True,
            help="the repository on the forge that gets the drafts",
            details="`github:OWNER/NAME` or `gitlab:GROUP/NAME`; found by the address of `draft-remote` "
            "where that is on github.com, gitlab.com, or the host in GH_HOST or GITLAB_HOST.",
            example="github:acme/shop",
            empty="that of the remote",
        ),
    ] = ""
    draft_remote: Annotated[
        str, Setting(asks=True, help="the remote that gets the branches of drafts", details=_PAGE)
    ] = "origin"
    draft_onto: Annotated[
        str,
        Setting(
            asks=True,
            help="the branch that drafts are meant for",
            example="main",
            empty="the branch of the main checkout",
        ),
    ] = ""
    draft_template: Annotated[
        str,
        Setting(
            help="a file with the template of the text of drafts, relative to the top of the repository",
            details="See [the text of a draft](../how-to/from-branches-to-pull-requests.md#the-text).",
            example="tools/draft.md",
            empty="built in",
        ),
    ] = ""
    report_url: Annotated[
        str,
        Setting(
            help="where reports can be read, for the text of drafts; `{run}` is the id of the run",
            details="In jobs of GitHub and GitLab it is the page of the job without this setting.",
            example="https://ci.example.org/reports/{run}.html",
            empty="the page of the CI job",
        ),
    ] = ""
    review_rounds: Annotated[
        int,
        Setting(
            help="how many attempts of a story reviews of its draft may lead to",
            details=f"After that `watch-prs` leaves the draft to people. {_PAGE}",
            bounds=Bounds(low=0, high=50),
        ),
    ] = 3
    review_authors: Annotated[
        tuple[str, ...],
        Setting(
            asks=True,
            help="whose comments count besides those of people who may write to the repository",
            details="Names of users or bots on the forge; `*` is everybody, which lets strangers give work "
            "to your agents.",
            expects="the name of a user or a list of names",
            example="review-bot",
            separator=",",
        ),
    ] = ()
