"""The arguments of each tool: one class per tool, from which its schema for clients derives.

None of them can hold a flag of the command line: what a client sends are values, and words that name stories
come after `--`.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

Sources = Annotated[
    tuple[str, ...],
    Meta(
        description="Story files, folders, ids of stories in the backlog, or prompts (any text with a "
        "space). Empty: the whole backlog."
    ),
]
Names = Annotated[tuple[str, ...], Meta(description="Ids of stories. Empty: all of them.")]
Name = Annotated[str, Meta(description="The id of a story.", min_length=1)]
RunName = Annotated[
    str, Meta(description="The id of a run or its first characters. Empty: the active run, else the newest.")
]
Branch = Annotated[str, Meta(description="The branch to land on. Empty: that of the main checkout.")]


class Arguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a tool is called with."""


class Nothing(Arguments, frozen=True, kw_only=True):
    """No arguments."""


class PlanArguments(Arguments, frozen=True, kw_only=True):
    """What would run."""

    stories: Sources = ()
    only: Annotated[
        tuple[str, ...], Meta(description="Only these stories and what they depend on; ids of stories.")
    ] = ()
    max_stories: Annotated[
        int, Meta(description="How many stories run at once at most. 0: as in the settings.", ge=0, le=50)
    ] = 0
    again: Annotated[bool, Meta(description="Also stories that an earlier run has finished.")] = False
    retry_failed: Annotated[
        bool, Meta(description="Only the stories that failed in the newest run, with new attempts.")
    ] = False


class StartArguments(PlanArguments, frozen=True, kw_only=True):
    """What is to run."""

    fresh: Annotated[
        bool,
        Meta(description="With again or retry_failed: start over from the base; old branches are kept."),
    ] = False


class ResumeArguments(Arguments, frozen=True, kw_only=True):
    """Which run continues."""

    run: RunName = ""
    retry_failed: Annotated[bool, Meta(description="Give failed stories a new set of attempts.")] = False


class StatusArguments(Arguments, frozen=True, kw_only=True):
    """Which run, and how long to wait for news."""

    run: RunName = ""
    wait_seconds: Annotated[
        float,
        Meta(
            description="Wait up to this long until a story ends, a question opens or the run is over, "
            "instead of asking again and again.",
            ge=0,
            le=50,
        ),
    ] = 0.0


class LogsArguments(Arguments, frozen=True, kw_only=True):
    """Whose log, and how much of it."""

    story: Name
    run: RunName = ""
    lines: Annotated[int, Meta(description="How many lines, from the end.", ge=1, le=2000)] = 100


class DecideArguments(Arguments, frozen=True, kw_only=True):
    """Which question, and the answer."""

    story: Name
    letter: Annotated[str, Meta(description="The letter of an option, or its word.", min_length=1)]
    run: RunName = ""
    confirm: Annotated[
        bool, Meta(description="Confirm an option that destroys something; ask the user before you set it.")
    ] = False


class AddArguments(Arguments, frozen=True, kw_only=True):
    """Which stories join the run."""

    stories: Annotated[
        tuple[str, ...],
        Meta(
            description="Story files, folders, ids of stories in the backlog, or prompts (any text with a "
            "space).",
            min_length=1,
        ),
    ]


class RetryArguments(Arguments, frozen=True, kw_only=True):
    """Which story is tried again, and how."""

    story: Name
    note: Annotated[str, Meta(description="Advice for the agent; it becomes a part of its prompt.")] = ""
    fresh: Annotated[
        bool, Meta(description="Start over from the base; the old branch is kept under refs/autopilot/old/.")
    ] = False


class StopArguments(Arguments, frozen=True, kw_only=True):
    """What stops, and when."""

    stories: Names = ()
    now: Annotated[
        bool, Meta(description="End running sessions now instead of waiting until they finish.")
    ] = False


class LandArguments(Arguments, frozen=True, kw_only=True):
    """What lands, and where."""

    stories: Names = ()
    onto: Branch = ""
    dry_run: Annotated[bool, Meta(description="Only show what would land; change nothing.")] = False


class ForecastArguments(Arguments, frozen=True, kw_only=True):
    """The branch to land on."""

    onto: Branch = ""


def schema_of(arguments: type[Arguments]) -> dict[str, Any]:
    """Return the schema of a tool's arguments, as a client wants it: one object, without references."""
    (_,), components = msgspec.json.schema_components([arguments])
    schema = dict(components[arguments.__name__])
    return {
        key: schema[key]
        for key in ("type", "properties", "required", "additionalProperties")
        if key in schema
    }
