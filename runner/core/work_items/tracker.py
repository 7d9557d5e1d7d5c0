"""The work item trackers that a story can use."""

from collections.abc import Mapping
from enum import StrEnum


class Tracker(StrEnum):
    """Where work items are kept."""

    JIRA = "jira"
    ADO = "ado"
    GITHUB = "github"
    GITLAB = "gitlab"
    LOCAL = "local"


TITLES: Mapping[Tracker, str] = {
    Tracker.JIRA: "Jira",
    Tracker.ADO: "Azure DevOps",
    Tracker.GITHUB: "GitHub",
    Tracker.GITLAB: "GitLab",
}
HOSTED = frozenset({Tracker.GITHUB, Tracker.GITLAB})
"""Those whose work items are issues of a repository, and which are used only if the settings name them."""
