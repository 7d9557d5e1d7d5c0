"""What would run, in which order and why: a plan as text, and as JSON."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, structs

from runner.core.flow import QUICK
from runner.core.forecast.clashes import Clash
from runner.core.model import DEFAULT_ATTEMPTS
from runner.core.text.conflicts import clash_text
from runner.core.text.instants import span
from runner.core.text.screen import neutral
from runner.core.text.words import count, window
from runner.report.terminal.table import Cell, Column, Look, layout

_INDENT = 4
_SHORT = 10
_FEW = 5
_TITLES_FROM = 100
_ASKED = "first, on the untouched base"
_KNOWN = "not asked of the base again, since an earlier run did"


class PlanRow(Struct, frozen=True, kw_only=True):
    """One story of a plan. `reason` says why it starts when it does; `base` what it starts from.

    `critical`: it is on the longest chain, which takes `minutes_to_the_end` from its start. Minutes are
    None when unknown, or without a limit. `escalate` names who does the second attempt and those after it.
    `step` is where it is in its flow, None when that is done or `problem` says why it is not known; `steps`
    are those that would run until it stops: after the step `boundary`, or at the end of the flow. `asks` is
    what it asks before it continues.
    """

    position: int
    wave: int
    id: str
    title: str
    agent: str
    flow: str = "quick"
    step: Mapping[str, str] | None = None
    steps: tuple[Mapping[str, str], ...] = ()
    boundary: str = ""
    asks: str = ""
    problem: str = ""
    waits_for: tuple[str, ...] = ()
    reason: str = ""
    branch: str = ""
    base: str = ""
    claim: tuple[str, ...] = ()
    verify: tuple[str, ...] = ()
    critical: bool = False
    expected_minutes: float | None = None
    minutes_to_the_end: float | None = None
    escalate: tuple[str, ...] = ()
    max_attempts: int = DEFAULT_ATTEMPTS
    story_minutes: float | None = None
    verify_minutes: float | None = None
    best_of: int = 1
    review: str = ""
    repo: str | None = None


class PlanRepository(Struct, frozen=True, kw_only=True):
    """A repository of a plan; `trusted`: the user has agreed to what its files ask for."""

    name: str
    path: str
    base: str
    base_ref: str
    trusted: bool
    url: str | None = None


class PlanView(Struct, frozen=True, kw_only=True):
    """A whole plan, in start order. `base` is the commit that `base_ref` was frozen to.

    `base_check` are the commands that the untouched base must answer before the first session, `base_known`
    those of them that an earlier run has asked, so that they do not run.
    `possible_conflicts` are pairs of stories whose claims share a path.
    `disjoint`: the claims were proven to share no path; None when unknown or when it does not matter.
    `seal`: what sessions cannot reach. `repos` are the repositories in which stories work, if there are
    several.
    The fields are keys of the JSON document, so their names stay; `fence` is the boundary of all claims.
    """

    base: str
    base_ref: str
    window: int
    max_stories: int
    tier: str
    tier_reason: str
    isolation: str
    enforcement: str
    rows: tuple[PlanRow, ...]
    fence: tuple[str, ...] = ()
    disjoint: bool | None = None
    ways_out: tuple[Mapping[str, str | bool], ...] = ()
    base_check: tuple[str, ...] = ()
    base_known: tuple[str, ...] = ()
    possible_conflicts: tuple[Clash, ...] = ()
    seal: str = "writes"
    repos: tuple[PlanRepository, ...] = ()


def plan_document(plan: PlanView) -> dict[str, Any]:
    """Return the plan as JSON values."""
    possible = [{"stories": list(each.stories), "path": each.files[0]} for each in plan.possible_conflicts]
    document = {
        **structs.asdict(plan),
        "possible_conflicts": possible,
        "stories": [structs.asdict(row) for row in plan.rows],
        "repos": [structs.asdict(one) for one in plan.repos],
    }
    del document["rows"]
    return document


def plan_text(plan: PlanView, *, look: Look) -> str:
    """Return the plan as text."""
    if not plan.rows:
        return "nothing to do\n"
    waves = max(row.wave for row in plan.rows)
    stories = f"{count(len(plan.rows), 'story', 'stories')} in {count(waves, 'wave')}"
    lines = look.wrapped(f"{stories}, from {neutral(plan.base_ref)} ({plan.base[:_SHORT]})", color="bold")
    lines += look.wrapped(_machine(plan), color="dim")
    for one in plan.repos:
        trusted = (
            "" if one.trusted else "; its files ask for what you have not agreed to (`autopilot-multi trust`)"
        )
        words = (
            f"{one.name}: {neutral(one.path)}, from {neutral(one.base_ref)} ({one.base[:_SHORT]}){trusted}"
        )
        lines += look.wrapped(words, color="dim" if one.trusted else "yellow")
    asked = [command for command in plan.base_check if command not in plan.base_known]
    for words, commands in ((_ASKED, asked), (_KNOWN, plan.base_known)):
        if commands:
            named = "; ".join(neutral(command) for command in commands)
            lines += look.wrapped(f"{words}: {named}", color="dim")
    if plan.disjoint or plan.fence:
        lines += look.wrapped(_claims(plan), color="dim")
    if plan.possible_conflicts:
        lines += look.wrapped(_possible(plan.possible_conflicts), color="yellow")
    titled = look.width is not None and look.width >= _TITLES_FROM
    columns = [
        Column(title="#", right=True),
        Column(title="WAVE", right=True),
        Column(title="STORY", limit=28),
        *([Column(title="TITLE", limit=30)] if titled else []),
        Column(title="AGENT", limit=12),
        Column(title="STARTS"),
    ]
    head, *rows = layout(columns, [_row(row, titled=titled) for row in plan.rows], look)
    lines += ["", head]
    for text, row in zip(rows, plan.rows, strict=True):
        lines += [text, *_details(row, look)]
    return "\n".join([*lines, "", "nothing was started or written."]) + "\n"


def _machine(plan: PlanView) -> str:
    slots = window(plan.window, plan.max_stories, plan.tier, plan.tier_reason)
    return f"{slots} · isolation {plan.isolation}, enforcement {plan.enforcement}, seal {plan.seal}"


def _claims(plan: PlanView) -> str:
    within = f"within {' '.join(neutral(glob) for glob in plan.fence)}" if plan.fence else ""
    return "claims " + ", ".join(filter(None, ["proven disjoint" if plan.disjoint else "", within]))


def _possible(clashes: tuple[Clash, ...]) -> str:
    """Return which stories may conflict when they land: their claims share a path."""
    shown = "; ".join(clash_text(clash, "") for clash in clashes[:_FEW])
    more = f"; {count(len(clashes) - _FEW, 'more pair')}" if clashes[_FEW:] else ""
    return f"may conflict when merged: {shown}{more}"


def _row(row: PlanRow, *, titled: bool) -> list[Cell]:
    starts = f"after {', '.join(row.waits_for)}" if row.waits_for else "immediately"
    return [
        Cell(text=str(row.position), color="dim"),
        Cell(text=str(row.wave)),
        Cell(text=row.id, color="bold"),
        *([Cell(text=neutral(row.title))] if titled else []),
        Cell(text=neutral(row.agent)),
        Cell(text=neutral(row.reason) or starts, color="" if row.waits_for else "green"),
    ]


def _limits(row: PlanRow) -> list[str]:
    """Return how often, how long and by whom it is tried, where that is not as usual."""
    lines = []
    if row.escalate:
        # The last one does all further attempts; those beyond the limit do not exist.
        who = zip(range(2, row.max_attempts + 1), row.escalate, strict=False)
        steps = [f"attempt {number} by {neutral(name)}" for number, name in who]
        left = row.max_attempts - 1 - len(row.escalate)
        lines.append(f"escalates: {', '.join(steps)}" + (" and after it" if left > 0 else ""))
    if row.best_of > 1:
        lines.append(f"best of {row.best_of}: at most that many candidates, each from the base")
    if row.review:
        lines.append(f"read by {neutral(row.review)} after its verify commands")
    limits = [
        f"{count(row.max_attempts, 'attempt')}" if row.max_attempts != DEFAULT_ATTEMPTS else "",
        f"{row.story_minutes:g} min of work" if row.story_minutes else "",
        f"{row.verify_minutes:g} min for a verify command" if row.verify_minutes and row.verify else "",
    ]
    given = [limit for limit in limits if limit]
    return [*lines, *([f"at most {', '.join(given)}"] if given else [])]


def _flow(row: PlanRow) -> list[str]:
    """Return where a story is in a flow with several work steps, and which of them would run."""
    if row.flow == QUICK.name:
        return []
    flow = f"flow {neutral(row.flow)}"
    if row.problem:
        return [f"{flow}, at a step that is not known: {neutral(row.problem)}"]
    asks = [f"asks first: {neutral(row.asks)}"] if row.asks else []
    if row.step is None:
        return [f"{flow}, done", *asks]
    lines = [f"{flow}, at step {row.step['number']} ({neutral(row.step['name'])})", *asks]
    names = ", ".join(neutral(step["name"]) for step in row.steps)
    return [*lines, f"runs {names}" + (", then asks" if row.boundary else ", to its end")]


def _details(row: PlanRow, look: Look) -> list[str]:
    details = []
    if row.critical:
        left = row.minutes_to_the_end
        details.append("on the critical path" + ("" if left is None else f": {span(left * 60)} to the end"))
    if row.repo:
        details.append(f"in {neutral(row.repo)}")
    if row.branch:
        details.append(f"branch {row.branch}" + (f" from {neutral(row.base)}" if row.base else ""))
    details += _flow(row)
    if row.claim:
        details.append(f"owns {' '.join(neutral(glob) for glob in row.claim)}")
    details += [f"verify {neutral(command)}" for command in row.verify]
    details += _limits(row)
    return [line for text in details for line in look.wrapped(text, _INDENT, "dim")]
