"""Run the backlog: several stories in parallel, each in its own worktree, each to a verified commit.

STORY_OR_PATH is a story file, a folder, a list of stories (TOML, YAML, JSON), the id of a story in
`stories/`, or a prompt in quotes. Without it, all stories in `stories/` run. As in every command,
arguments after `--` are never read as options.
"""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common
from runner.cli.run_options import add_run_flags, budget_share, flags_of, shard_folders
from runner.core.setting_groups.draft_settings import OFF

if TYPE_CHECKING:
    from runner.core.model import Story
    from runner.plan.plan import Plan, RunRequest
    from runner.run.result.ended import Ended

EXAMPLE = "autopilot-multi --max-stories=3"

SEES_TREES = True

EXIT_SYSTEM = 2


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `run`."""
    add_run_flags(parser)
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Plan, then run; with --dry-run, only plan."""
    from runner.plan.plan import RunRequest

    request = RunRequest(
        directory=Path(arguments.directory),
        sources=tuple(arguments.sources),
        given=_from_outside(arguments, output),
        flags=flags_of(arguments),
        only=tuple(arguments.only or ()),
        retry_failed=arguments.retry_failed,
        again=arguments.again,
        fresh=arguments.fresh,
        shard_in=shard_folders(arguments),
        is_job=arguments.shard_out is not None,
        budget_share=budget_share(arguments),
        fetches=not arguments.dry_run,
    )
    plan = _planned(request, output)
    for note in plan.notes:
        output.warn(note)
    if arguments.dry_run:
        return _show(plan, output, no_color=arguments.no_color)
    _require_consent(plan, output)
    refuse_several(plan, arguments)
    if plan.settings.otel_endpoint:
        from runner.serve.export.collector import require_packages, require_url

        require_packages()
        require_url(plan.settings.otel_endpoint)
    if plan.settings.draft_mr != OFF:
        from runner.run.drafts.live import require_drafts

        for site in filter(plan.stories_in, plan.sites.values()):
            output.say(require_drafts(site.repository, site.settings))
    if note := _work_items(plan):
        output.say(note)
    from runner.remote.cluster.entrance import require_cluster

    active = any(story.id not in plan.finished for story in plan.own)
    require_cluster(plan.settings, plan.repository.top, active=active)
    if arguments.detach and active:
        from runner.cli.detached import detach

        return detach(arguments, output)
    if active:
        from runner.run.pool.overlays import prepare_overlays

        if note := prepare_overlays(plan.repository, plan.settings):
            output.warn(note)
    return _run(plan, arguments, output)


def _planned(request: "RunRequest", output: Output) -> "Plan":
    """Make the plan; repositories that stories name by URL are cloned on the way, if the user agrees."""
    import os

    from isolation.git.remotes import without_credentials
    from isolation.git.repository import Repository
    from runner.cli.commands.consent import require_consent
    from runner.plan.plan import make_plan
    from runner.plan.repositories.clones import NotClonedError, clone
    from runner.plan.settings.load import load_settings

    while True:
        try:
            return make_plan(request)
        except NotClonedError as error:
            if not request.fetches:
                raise
            home = Repository.open(request.directory)
            trust = load_settings(top=home.top, flags=request.flags, environ=os.environ).settings.trust
            require_consent(home, error.demands, trust=trust, output=output)
            output.say(f"cloning {without_credentials(error.url)}")
            clone(home, error.url, os.environ)


def _require_consent(plan: "Plan", output: Output) -> None:
    """Ask about what the files of each repository would run that the user has not agreed to."""
    from runner.cli.commands.consent import require_consent
    from runner.plan.trust.demands import demands_of

    for name, demands in demands_of(plan).items():
        site, trust = plan.sites[name], plan.settings.trust
        require_consent(site.repository, demands, trust=trust, output=output, elsewhere=not site.is_home)


def refuse_several(plan: "Plan", arguments: argparse.Namespace) -> None:
    """Raise if what the run leaves must fit one repository, and its stories work in several."""
    from runner.plan.repositories.site import require_one_repository

    ways = {
        "--shard-out": arguments.shard_out,
        "--shard-in": arguments.shard_in,
        "--push": arguments.push,
    }
    for flag, value in ways.items():
        if value:
            require_one_repository(plan.sites, flag)


def _from_outside(arguments: argparse.Namespace, output: Output) -> "tuple[Story, ...] | None":
    """Return the stories of `--from`; None without that flag."""
    if not arguments.from_sources:
        return None
    import os

    from runner.plan.intake.reading import load_imported

    cwd = Path(arguments.directory).resolve()
    imported = load_imported(arguments.from_sources, os.environ, cwd=cwd, say=output.say)
    for note in imported.notes:
        output.say(f"note: {note}")
    return imported.stories


def _work_items(plan: "Plan") -> str:
    """Return where work items will be created; empty if no story creates any."""
    from runner.core.flow import QUICK

    active = [story for story in plan.own if story.id not in plan.finished and story.flow != QUICK.name]
    if not active:
        return ""
    from runner.story.flow.tracker_gate import work_item_note

    return work_item_note(plan.repository, plan.base, active, plan.settings)


def _show(plan: "Plan", output: Output, *, no_color: bool) -> int:
    from runner.agents.workers import agents_of
    from runner.plan.agent_conflicts import agent_conflicts, sandbox_conflicts
    from runner.plan.shared_tree import require_enforcement
    from runner.plan.stories.lock_files import lock_file_advice
    from runner.plan.view import view
    from runner.report.terminal.plan import plan_document, plan_text
    from runner.report.terminal.table import look_for

    enforcement = require_enforcement(plan.repository, plan.settings, plan.worktree_root, plan.stories)
    shown = view(plan, enforcement)
    for warning in enforcement.warnings:
        output.warn(warning)
    conflicts = agent_conflicts(agents_of(plan.workers), plan.repository, enforcement.means)
    for conflict in (*conflicts, *sandbox_conflicts(plan.stories, plan.workers, plan.settings)):
        output.warn(conflict.line)
    for line in lock_file_advice(plan.repository, plan.stories):
        output.say(f"note: {line}")
    if plan.settings.draft_mr != OFF:
        from runner.run.drafts.live import draft_note

        output.say(f"note: {draft_note(plan.repository, plan.settings)}")
    if note := _work_items(plan):
        output.say(f"note: {note}")
    output.document(plan_document(shown))
    output.answer(plan_text(shown, look=look_for(sys.stdout, no_color=no_color)))
    return 0


def _run(plan: "Plan", arguments: argparse.Namespace, output: Output) -> int:
    if all(story.id in plan.finished for story in plan.own):
        return _run_to_end(plan, arguments, output, idle=True)
    from runner.plan.guard import probe_ahead
    from runner.run.pool.ahead import worktrees_begun

    # In the background, while the rest of the program loads.
    probe_ahead(plan.repository, plan.settings)
    with worktrees_begun(plan):
        return _run_to_end(plan, arguments, output, idle=False)


def _run_to_end(plan: "Plan", arguments: argparse.Namespace, output: Output, *, idle: bool) -> int:
    from runner.cli.commands.run.land import land_at_end
    from runner.cli.final_report import print_final_report
    from runner.remote.ci.job import finish_job, prepare_job
    from runner.run.result.ended import nothing_to_do

    out = Path(arguments.directory) / arguments.shard_out if arguments.shard_out else None
    push = arguments.remote if arguments.push else None
    for line in prepare_job(plan, out, push=push):
        output.say(line)
    if idle:
        output.say("nothing to do: every story is done; to run them again, add --again")
        ended = nothing_to_do(plan)
        silent = False
    else:
        ended = _carry_out(plan, arguments, output)
        silent = arguments.events
    job = finish_job(plan, ended, out=out, push=push)
    appendix = land_at_end(Path(arguments.directory), plan.settings, ended, output)
    code = print_final_report(
        ended,
        output,
        directory=arguments.directory,
        no_color=arguments.no_color,
        silent=silent,
        appendix=appendix,
    )
    output.say_where(arguments.directory)
    for line in job.said:
        output.say(line)
    for line in job.failures:
        output.warn(line)
    return EXIT_SYSTEM if job.failures and code == 0 else code


def _carry_out(plan: "Plan", arguments: argparse.Namespace, output: Output) -> "Ended":
    """Run what is left of the plan; only this loads what runs stories."""
    from runner.cli.dialog import bell_for
    from runner.cli.page_beside import page_beside
    from runner.cli.view import choose_dialog, choose_view
    from runner.remote.cluster.entrance import carriers_of
    from runner.run.coordinator import run_plan

    if arguments.apply:
        output.say("--apply: running for real (the default)")
    view = choose_view(
        output,
        arguments.directory,
        events=arguments.events,
        no_color=arguments.no_color,
        verbose=arguments.verbose,
    )
    dialog = choose_dialog(output, view)
    with page_beside(arguments, output):
        elsewhere = carriers_of(plan.settings, plan.repository.top)
        return run_plan(plan, view, dialog=dialog, ring=bell_for(dialog), elsewhere=elsewhere)
