"""Bring the branches of done stories together on one branch: merged, verified together, then moved.

Without STORY, every done story lands that is not on the target yet; a story that others depend on comes
first. The merges are made without touching a checkout and verified in a worktree of their own, by the
verify commands of the stories and the setting `land-verify`. Only what was verified becomes the target.
A story that conflicts, or is red alone or together with another, stays on its branch, with the reason and
an open decision: see `autopilot-multi decide`.
If the target is checked out, its files follow; files that you have changed are never touched.
`autopilot-multi undo` undoes a landing.
With --pr nothing lands here: the forge merges the drafts of the stories when its own rules are met.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common
from runner.cli.run_options import add_trust, trust_of
from runner.core.settings import SETTINGS

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from runner.cli.final_report import Appendix
    from runner.core.settings import Settings
    from runner.land.candidates import Candidates
    from runner.land.landing import Plan, Result
    from runner.land.left_out.events import NotLanded
    from runner.land.session import Ended, Request
    from runner.run.result.ended import Ended as RunEnded

EXAMPLE = "autopilot-multi land --dry-run"

SEES_TREES = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `land`."""
    parser.add_argument("stories", nargs="*", metavar="STORY", help="the id of a story (default: all)")
    parser.add_argument(
        "--onto", metavar="BRANCH", help="the branch to land on (default: that of the main checkout)"
    )
    parser.add_argument(
        "--repo",
        metavar="NAME",
        help="land in this repository only, of those in which stories have worked (default: in each)",
    )
    parser.add_argument(
        "--style",
        choices=SETTINGS["land-style"].choices,
        help="a merge of each branch, one commit for each story, or its commits in a straight line "
        "(default: the setting land-style)",
    )
    parser.add_argument(
        "--resolve", action="store_true", help="let the agent of a story that conflicts resolve the conflict"
    )
    parser.add_argument(
        "--pr",
        action="store_true",
        help="do not land here: mark the drafts of the stories as ready, and let the forge merge them by its "
        "own rules (merge queue or auto-merge)",
    )
    parser.add_argument("--dry-run", action="store_true", help="show what would land; change nothing")
    parser.add_argument("--events", action="store_true", help="stream every step as a line of JSON")
    parser.add_argument("--yes", action="store_true", help="land although nothing verifies the result")
    add_trust(parser)
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Show the train, or land it."""
    if arguments.pr:
        return _through_the_forge(arguments, output)
    from runner.land.session import Request
    from runner.land.several.requests import split
    from runner.land.train import Style

    whole = Request(
        directory=Path(arguments.directory),
        names=arguments.stories,
        onto=arguments.onto,
        style=Style(arguments.style) if arguments.style else None,
        resolve=arguments.resolve,
    )
    requests = split(whole, arguments.repo)
    if len(requests) == 1:
        ((_, request),) = requests.items()
        return _land_in(request, arguments, output)
    return _land_in_each(requests, arguments, output)


def _land_in_each(requests: "Mapping[str, Request]", arguments: argparse.Namespace, output: Output) -> int:
    """Land in one repository after the other, each with a train of its own; none undoes another."""
    from isolation.errors import IsolationError
    from runner.cli.landing.each import PartOutput
    from runner.core.errors import RunnerError

    codes, parts = [], []
    for name, request in requests.items():
        part = PartOutput(output, name)
        output.answer("" if arguments.events else f"{name}:")
        try:
            codes.append(_land_in(request, arguments, part))
        except (RunnerError, IsolationError) as error:
            part.error(code=error.code, message=error.message, hint=error.hint)
            codes.append(error.exit_code)
        parts.append(part)
    if not arguments.events:
        document = {"repos": [part.found for part in parts]}
        output.document(document, success=all(part.success for part in parts))
    return next((code for code in codes if code), 0)


def _land_in(request: "Request", arguments: argparse.Namespace, output: Output) -> int:
    """Show the train of one repository, or land it."""
    from runner.land.session import land, show_plan

    if arguments.dry_run:
        plan = show_plan(request)
        output.document({**_plan_data(plan), "dry_run": True})
        output.answer(_plan_text(plan))
        return 0
    flags = trust_of(arguments)
    _require_consent(request, output, flags)
    from runner.cli.landing.view import choose_landing_view

    view = choose_landing_view(
        output, events=arguments.events, no_color=arguments.no_color, verbose=arguments.verbose
    )

    def confirmed(plan: "Plan") -> bool:
        _require_consent(request, output, flags, plan)
        return _confirmed(plan, output, yes=arguments.yes)

    ended = land(request, view, confirmed=confirmed)
    return _show(ended, output, silent=arguments.events)


def _through_the_forge(arguments: argparse.Namespace, output: Output) -> int:
    """Hand the drafts of done stories to the queue of the forge."""
    from runner.cli.commands.run.pr import draft_settings, outcome_data, show_failures
    from runner.land.drafts.session import queue_drafts

    settings = draft_settings(arguments, output)
    queued = queue_drafts(
        Path(arguments.directory),
        settings,
        arguments.stories,
        arguments.style or settings.land_style,
        output.say,
        dry_run=arguments.dry_run,
    )
    numbers = {each.content.story_id: each for each in queued.outcomes}
    output.document(
        {
            "onto": queued.onto,
            "queued": [outcome_data(numbers[name]) for name in queued.queued],
            "waiting": [{"id": name, "why": why} for name, why in queued.waiting],
            "failed": [{"id": each.story_id, "reason": each.reason} for each in queued.failures],
            "dry_run": arguments.dry_run,
        },
        success=not queued.failures,
    )
    if arguments.dry_run:
        output.answer("\n".join(f"would {act}" for each in queued.outcomes for act in each.acts))
    words = (
        "would be handed to the queue of the forge" if arguments.dry_run else "is in the queue of the forge"
    )
    for name in queued.queued:
        output.answer(f"{name:<24} {words}  {numbers[name].url}")
    for name, why in queued.waiting:
        output.answer(f"{name:<24} {why}")
    if not queued.outcomes and not queued.failures:
        output.answer(f"no story is done that is not on {queued.onto} yet")
    return show_failures(queued, output)


def _require_consent(
    request: "Request",
    output: Output,
    flags: "Mapping[str, str | tuple[str, ...]]",
    plan: "Plan | None" = None,
) -> None:
    """Ask before commands of the repository's settings run that the user has not agreed to.

    With a plan, also before those of stories that came by shards.
    """
    import os

    from isolation.git.repository import Repository
    from runner.cli.commands.consent import require_consent
    from runner.plan.settings.load import load_settings

    repository = request.repository or Repository.open(request.directory)
    loaded = load_settings(top=repository.top, flags=flags, environ=os.environ)
    settings = loaded.settings
    demands = list(loaded.demands)
    if plan is not None:
        from runner.land.landing import landing_demands

        demands += landing_demands(repository, settings, plan, resolve=request.resolve)
    elsewhere = request.repository is not None
    require_consent(repository, demands, trust=settings.trust, output=output, elsewhere=elsewhere)


def _show(ended: "Ended", output: Output, *, silent: bool) -> int:
    """Print the result, unless stdout has the events; return the exit code."""
    from runner.land.after_run import landing_code

    if ended.signal is not None:
        output.error(code="interrupted", message=f"interrupted; {ended.plan.onto} has not moved")
        return ended.signal
    code = landing_code(ended)
    if not silent:
        output.document(_landing_data(ended), success=code == 0)
        output.answer(_landing_text(ended))
    return code


def land_at_end(
    directory: Path, settings: "Settings", ended: "RunEnded", output: Output
) -> "Appendix | None":
    """Land what a run has done, if it is wanted, and return what that adds to the end of the run."""
    if not settings.land:
        return None
    from msgspec.structs import replace as changed

    from runner.cli.final_report import Appendix
    from runner.plan.settings.json_form import from_json
    from runner.run.several.places import repository_at

    if not ended.run.repos:
        return _land_one(directory, settings, ended, output)
    parts, texts, code, run = [], [], ended.exit_code, ended.run
    for repo, info in run.repos.items():
        there = repository_at(info) if repo else None
        own = changed(from_json(info.settings, top=there.top), trust=settings.trust) if there else settings
        one = _land_one(
            directory, own, changed(ended, run=run, exit_code=code), output, repo=repo, there=there
        )
        parts.append({"repo": info.name, **one.data["landing"]})
        texts.append(f"{info.name}:\n{one.text or 'nothing was landed'}")
        code, run = one.code, one.run
    return Appendix(run=run, code=code, data={"landing": {"repos": parts}}, text="\n".join(texts))


def _land_one(
    directory: Path,
    settings: "Settings",
    ended: "RunEnded",
    output: Output,
    *,
    repo: str = "",
    there: "Repository | None" = None,
) -> "Appendix":
    """Land what a run has done in one of its repositories; `there` is None in that of the run."""
    from isolation.git.repository import Repository
    from runner.cli.commands.consent import require_consent
    from runner.cli.final_report import Appendix
    from runner.cli.landing.view import choose_landing_view
    from runner.land.after_run import land_after
    from runner.land.landing import landing_demands

    view = choose_landing_view(output, events=False, no_color=False, verbose=False)

    def require(plan: "Plan") -> None:
        # The user may be gone when a run ends, so the question is left to `land`.
        repository = there or Repository.open(directory)
        demands = landing_demands(repository, settings, plan, resolve=False)
        require_consent(repository, demands, trust=settings.trust, output=output, ask=False)

    landed = land_after(
        directory, settings, ended, view, require_consent=require, repo=repo, repository=there
    )
    run = landed.ended.run
    if landed.landing is not None:
        data = {"landing": _landing_data(landed.landing)}
        return Appendix(run=run, code=landed.code, data=data, text=_landing_text(landed.landing))
    words = f"nothing was landed{f' in {repo}' if repo else ''}: {landed.why_not}"
    output.warn(words) if landed.failed else output.say(words)
    data = {"landing": {"landed": [], "not_landed": [], "why_not": landed.why_not}}
    return Appendix(run=run, code=landed.code, data=data)


def _landing_data(ended: "Ended") -> dict[str, Any]:
    if ended.result is None:
        return {**_plan_data(ended.plan), "landed": [], "not_landed": []}
    return {**_data(ended.result), "restacked": _restacks(ended)}


def _landing_text(ended: "Ended") -> str:
    if ended.result is None:
        return "nothing was landed" if ended.plan.candidates.stories else _plan_text(ended.plan)
    return "\n".join((_text(ended.result), *_restack_lines(ended)))


def _confirmed(plan: "Plan", output: Output, *, yes: bool) -> bool:
    """Return whether the user agrees to land what nothing verifies; otherwise `land` is consent enough."""
    from runner.core.errors import UsageError

    if plan.verified or yes:
        return True
    words = f"no verify command is known, so nothing would show whether {plan.onto} works with this"
    if output.as_json or sys.stdin is None or not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(words, hint="set `land-verify` to a command, or add --yes to land unverified.")
    sys.stderr.write(f"{words}. Land anyway? [y/N]: ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _plan_data(plan: "Plan") -> dict[str, Any]:
    from runner.report.forecast_document import forecast_document

    return {
        "onto": plan.onto,
        "before": plan.tip,
        "style": str(plan.style),
        "verified": plan.verified,
        "train": [
            {
                "id": each.id,
                "title": each.story.title,
                "branch": each.branch,
                "commit": each.tip,
                "depends_on": list(each.story.depends_on),
            }
            for each in plan.candidates.stories
        ],
        "foreseen": forecast_document(plan.candidates.forecast),
        "contained": list(plan.candidates.contained),
        "gone": list(plan.candidates.gone),
        "held": dict(plan.candidates.held),
    }


def _data(result: "Result") -> dict[str, Any]:
    return {
        "landing_id": result.plan.id,
        **_plan_data(result.plan),
        "before": result.before,
        "after": result.after or None,
        "tree": result.tree or None,
        "landed": list(result.landed) if result.after else [],
        "resolved": list(result.resolved) if result.after else [],
        "not_landed": [_left(each) for each in result.not_landed],
        "red_target": result.red_target.command if result.red_target else None,
        "verify_runs": result.verify_runs,
        "unused_runs": result.unused_runs,
        "canceled_runs": result.canceled_runs,
        "rebuilds": result.rebuilds,
    }


def _left(each: "NotLanded") -> dict[str, Any]:
    return {
        "id": each.story,
        "why": each.why,
        "reason": each.reason,
        "files": list(each.files),
        "with": list(each.others),
        "command": each.verdict.command or None,
        "output": list(each.verdict.output),
        "log": str(each.verdict.log) if each.verdict.log else None,
    }


def _restacks(ended: "Ended") -> list[dict[str, Any]]:
    return [
        {
            "id": each.story,
            "branch": each.branch,
            "before": each.before,
            "after": each.after or None,
            "base": each.base or None,
            "kept": each.kept or None,
            "reason": each.reason or None,
        }
        for each in ended.restacked
    ]


def _restack_lines(ended: "Ended") -> list[str]:
    from runner.land.restack import restack_line

    return [restack_line(each, ended.plan.onto) for each in ended.restacked]


def _plan_text(plan: "Plan") -> str:
    candidates = plan.candidates
    lines = [f"{each.id:<24} {each.branch}  {_plain(each.story.title)}" for each in candidates.stories]
    if lines:
        how = {"merge": "merged", "squash": "squashed", "rebase": "rebased"}[plan.style]
        lines.insert(0, f"would be {how} onto {plan.onto} ({plan.tip[:10]}) in this order and verified:")
    else:
        lines.append(f"nothing to land on {plan.onto}")
    lines += _foreseen(candidates)
    if candidates.contained:
        lines.append(f"already there: {', '.join(candidates.contained)}")
    if candidates.gone:
        lines.append(f"without a branch: {', '.join(candidates.gone)}")
    lines += [f"left out: {story_id}: {why}" for story_id, why in candidates.held.items()]
    if candidates.stories and not plan.verified:
        lines.append("no verify command is known: set `land-verify`, or `land` asks before it moves anything")
    return "\n".join(lines)


def _foreseen(candidates: "Candidates") -> list[str]:
    """Return what will conflict, and which stories that costs in this order."""
    from runner.core.text.conflicts import in_short

    foreseen = candidates.forecast
    conflicts = in_short(foreseen.clashes, foreseen)
    lost = f"; left out in this order: {', '.join(foreseen.lost)}" if foreseen.lost else ""
    return [f"{conflicts}{lost}"] if conflicts else []


def _text(result: "Result") -> str:
    plan, lines = result.plan, []
    if result.red_target is not None:
        verdict = result.red_target
        lines += [
            f"{plan.onto} is red without any story: `{verdict.command}` fails ({verdict.detail})",
            *(f"    {_plain(line)}" for line in verdict.output),
            f"nothing was landed; fix {plan.onto} first",
        ]
        return "\n".join(lines)
    for each in result.not_landed:
        lines.append(f"not landed: {each.story}: {_plain(each.reason)}")
        lines += [f"    {_plain(line)}" for line in each.verdict.output]
        lines += [f"    decide: autopilot-multi decide {each.story}"] if each.why != "dependency" else []
    lines += [f"left out: {story_id}: {why}" for story_id, why in plan.candidates.held.items()]
    count = len(result.landed)
    if result.after:
        runs = f"{result.verify_runs} run{'s' * (result.verify_runs != 1)}"
        checked = f"verified as tree {result.tree[:10]} in {runs}" if plan.verified else "not verified"
        stories = f"{count} {'story' if count == 1 else 'stories'}"
        lines.append(f"landed {stories} on {plan.onto}: {', '.join(result.landed)}")
        if result.resolved:
            lines.append(f"conflicts resolved by their agents: {', '.join(result.resolved)}")
        lines.append(f"{plan.onto} is at {result.after[:10]}, {checked}")
        lines.append(f"undo: autopilot-multi undo {plan.id}")
    else:
        lines.append(f"nothing was landed; {plan.onto} has not moved")
    return "\n".join(lines)


def _plain(text: str) -> str:
    from runner.core.text.screen import neutral

    return neutral(text)
