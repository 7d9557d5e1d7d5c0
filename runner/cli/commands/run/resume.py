"""Continue a run after a crash, an interruption or a decision.

Finished stories stay finished, and sessions that completed are not run again. Failed stories stay
failed unless you pass --retry-failed. A landing that was killed is finished or abandoned first.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from runner.cli.output import Output
from runner.cli.parser import common
from runner.cli.run_options import add_detach, add_trust, trust_of

if TYPE_CHECKING:
    from isolation.git.repository import Repository
    from runner.core.model import RunId, RunSnapshot, Story
    from runner.core.settings import Settings
    from runner.run.coordinator import Again
    from runner.run.result.ended import Ended

EXAMPLE = "autopilot-multi resume"

SEES_TREES = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `resume`."""
    parser.add_argument(
        "run", nargs="?", metavar="RUN", help="the id of a run or its first characters (default: the newest)"
    )
    parser.add_argument(
        "--retry-failed", action="store_true", help="give failed stories a new set of attempts"
    )
    parser.add_argument("--events", action="store_true", help="stream every event as a line of JSON")
    add_detach(parser)
    add_trust(parser)
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Find the run and continue it."""
    return continue_run(arguments, output)


def continue_run(arguments: argparse.Namespace, output: Output, *, again: "Again | None" = None) -> int:
    """Continue a run, or only one story of it."""
    from isolation.git.repository import Repository
    from isolation.paths import journal_path
    from runner.cli.commands.run.land import land_at_end
    from runner.cli.final_report import print_final_report
    from runner.core.events.fold import fold
    from runner.core.events.run_stories import stories_of
    from runner.core.trust import is_imported
    from runner.plan.settings.json_form import from_json as settings_of
    from runner.records.journal import Journal

    repository = Repository.open(Path(arguments.directory))
    with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
        run_id = journal.find_run(arguments.run) if arguments.run else journal.newest_run()
        known = journal.landings()
        landing = any(not each.state.final for each in known)
        events = journal.events(run_id)
    run = fold(run_id, events)
    trust = _require_consent(repository, run, stories_of(events), output, trust_of(arguments))
    if arguments.detach:
        from runner.cli.detached import detach

        return detach(arguments, output, run_id=run_id)
    from runner.run.pool.overlays import prepare_overlays

    if note := prepare_overlays(repository, settings_of(run.options, top=repository.top)):
        output.warn(note)
    # After any other landing than by merges, it may have been killed before it had restacked everything.
    if landing or any(each.style != "merge" for each in known):
        from runner.land.session import recover_landings

        recover_landings(repository, output.say)
    settings = settings_of(run.options, top=repository.top)
    ended = carry_out(repository, run_id, arguments, output, again, settings=settings)
    if ended.idle:
        output.say(f"run {run_id} has nothing left to do")
        # What was left to do is done; how the stories ended is not news.
        ended = replace(ended, exit_code=0) if landing else ended
    complete_drafts_of(repository, ended.run, output)
    appendix = None
    if ended.run.options.get("land") or is_imported(ended.run.options):
        settings = replace(settings_of(ended.run.options, top=repository.top), trust=trust)
        appendix = land_at_end(Path(arguments.directory), settings, ended, output)
    code = print_final_report(
        ended,
        output,
        directory=arguments.directory,
        no_color=arguments.no_color,
        silent=arguments.events,
        appendix=appendix,
    )
    output.say_where(arguments.directory)
    return code


def carry_out(
    repository: "Repository",
    run_id: "RunId",
    arguments: argparse.Namespace,
    output: Output,
    again: "Again | None",
    *,
    settings: "Settings",
) -> "Ended":
    """Continue a run with the user's view of it; returns when it has ended."""
    from runner.cli.dialog import bell_for
    from runner.cli.view import choose_dialog, choose_view
    from runner.remote.cluster.entrance import carriers_of
    from runner.run.coordinator import run_rest

    view = choose_view(
        output,
        arguments.directory,
        events=arguments.events,
        no_color=arguments.no_color,
        verbose=arguments.verbose,
    )
    dialog = choose_dialog(output, view)
    return run_rest(
        repository,
        run_id,
        view,
        retry_failed=arguments.retry_failed,
        dialog=dialog,
        ring=bell_for(dialog),
        again=again,
        elsewhere=carriers_of(settings, repository.top),
    )


def complete_drafts_of(repository: "Repository", run: "RunSnapshot", output: Output) -> None:
    """Do what a killed process had planned for the drafts of a run."""
    drafts = (story.workspace.draft for story in run.stories.values())
    if not any(draft is not None and draft.planned for draft in drafts):
        return
    from runner.cli.commands.run.pr import outcome_line, show_failures
    from runner.land.drafts.session import complete_drafts
    from runner.plan.settings.json_form import from_json as settings_of

    settings = settings_of(run.options, top=repository.top)
    published = complete_drafts(repository, settings, run.run_id, output.say)
    if published is not None:
        for outcome in published.outcomes:
            output.say(f"draft of {outcome_line(outcome)}")
        show_failures(published, output)


def consent_to_resume(
    repository: "Repository", run_id: "RunId", output: Output, arguments: argparse.Namespace
) -> "Settings":
    """Ask the user about what a run would run here that they have not agreed to; return its settings."""
    from isolation.paths import journal_path
    from runner.core.events.fold import fold
    from runner.core.events.run_stories import stories_of
    from runner.plan.settings.json_form import from_json as settings_of
    from runner.records.journal import Journal

    with Journal.open_readonly(journal_path(repository.common_dir)) as journal:
        events = journal.events(run_id)
    run = fold(run_id, events)
    _require_consent(repository, run, stories_of(events), output, trust_of(arguments))
    return settings_of(run.options, top=repository.top)


def _require_consent(
    repository: "Repository",
    run: "RunSnapshot",
    stories: "Sequence[Story]",
    output: Output,
    flags: "Mapping[str, str | tuple[str, ...]]",
) -> str:
    """Ask about flows and trackers of the repository; everything else is used as it was when the run began.

    A run that came by shards began elsewhere: what it would run here is all asked for. Returns the setting
    `trust` of now.
    """
    import os

    from runner.cli.commands.consent import require_consent
    from runner.core.progress.repositories import HOME
    from runner.core.trust import is_imported
    from runner.plan.settings.load import load_settings
    from runner.plan.trust.demands import flow_demands, tracker_demands
    from runner.run.several.places import repository_at

    loaded = load_settings(top=repository.top, flags=flags, environ=os.environ)
    settings = loaded.settings
    for repo in sorted({story.repo for story in stories} - {HOME}):
        there, own = repository_at(run.repos[repo]), [story for story in stories if story.repo == repo]
        asked = [
            *flow_demands(there.top, own, settings.dialect),
            *tracker_demands(there, run.base_of(repo), own, settings),
        ]
        require_consent(there, asked, trust=settings.trust, output=output, elsewhere=True)
    home = [story for story in stories if story.repo == HOME]
    demands = [
        *flow_demands(repository.top, home, settings.dialect),
        *tracker_demands(repository, run.base, home, settings),
    ]
    if is_imported(run.options):
        from runner.plan.trust.imported import continued_demands

        output.say(f"run {run.run_id} came by shards: it continues with the settings of this repository")
        demands += (*loaded.demands, *continued_demands(repository, settings, run, stories))
    require_consent(repository, demands, trust=settings.trust, output=output)
    return settings.trust
