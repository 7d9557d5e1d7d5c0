"""The work item trackers that a story can use."""

from collections.abc import Mapping
from enum import StrEnum


class Tracker(StrEnum):
    """Where work items are kept."""

    JIRA = "jira"
    ADO = "ado"
    LOCAL = "local"


TITLES: Mapping[Tracker, str] = {Tracker.JIRA: "Jira", Tracker.ADO: "Azure DevOps"}
