"""Open a draft pull request for each story that is done, or update the one that it has.

Without STORY, every done story gets one that is not on the target yet. The draft of a story that depends on
another is stacked on its branch. Drafts are found by their branch, so there is never a second one; what
people have written in them stays. Nothing is merged, and nothing is pushed by force. `gh` or `glab` must be
signed in.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common
from runner.cli.run_options import add_trust, trust_of

if TYPE_CHECKING:
    from runner.core.settings import Settings
    from runner.land.drafts.session import Published
    from runner.run.drafts.publisher import Outcome

EXAMPLE = "autopilot-multi pr --dry-run"
EXIT_SYSTEM, EXIT_SOME_FAILED = 2, 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `pr`."""
    parser.add_argument("stories", nargs="*", metavar="STORY", help="the id of a story (default: all)")
    parser.add_argument("--onto", metavar="BRANCH", help="the branch that the drafts are meant for")
    parser.add_argument(
        "--dry-run", action="store_true", help="list everything that would be sent; send and change nothing"
    )
    add_trust(parser)
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Publish the drafts, or list what that would send."""
    from runner.land.drafts.session import publish_drafts, show_drafts

    settings = draft_settings(arguments, output)
    act = show_drafts if arguments.dry_run else publish_drafts
    published = act(Path(arguments.directory), settings, arguments.stories, output.say)
    output.document({**_data(published), "dry_run": arguments.dry_run}, success=not published.failures)
    output.answer(_text(published, dry_run=arguments.dry_run))
    return show_failures(published, output)


def draft_settings(arguments: argparse.Namespace, output: Output) -> "Settings":
    """Return the settings of now, once the user has agreed to what files of the repository ask for."""
    import os

    from msgspec.structs import replace

    from isolation.git.repository import Repository
    from runner.cli.commands.consent import require_consent
    from runner.plan.settings.load import load_settings

    repository = Repository.open(Path(arguments.directory))
    loaded = load_settings(top=repository.top, flags=trust_of(arguments), environ=os.environ)
    if not arguments.dry_run:
        require_consent(repository, loaded.demands, trust=loaded.settings.trust, output=output)
    onto = getattr(arguments, "onto", None)
    return replace(loaded.settings, draft_onto=onto) if onto else loaded.settings


def show_failures(published: "Published", output: Output) -> int:
    """Say what failed; return the exit code."""
    for failure in published.failures:
        hint = f" ({failure.hint})" if failure.hint else ""
        output.warn(f"story {failure.story_id}: {failure.reason}{hint}")
    if not published.failures:
        return 0
    return EXIT_SOME_FAILED if published.outcomes else EXIT_SYSTEM


def outcome_data(outcome: "Outcome") -> dict[str, Any]:
    """Return what became of a draft as JSON values."""
    content = outcome.content
    return {
        "id": content.story_id,
        "branch": content.branch,
        "base": content.base,
        "stacked_on": content.parent,
        "commit": content.commit,
        "status": str(content.verdict),
        "how": str(outcome.how),
        "number": outcome.number or None,
        "url": outcome.url or None,
        "acts": list(outcome.acts),
        "notes": list(outcome.notes),
    }


def _data(published: "Published") -> dict[str, Any]:
    return {
        "onto": published.onto,
        "drafts": [outcome_data(each) for each in published.outcomes],
        "failed": [
            {"id": each.story_id, "reason": each.reason, "hint": each.hint} for each in published.failures
        ],
    }


def _text(published: "Published", *, dry_run: bool) -> str:
    lines: list[str] = []
    for outcome in published.outcomes:
        lines += [f"would {act}" for act in outcome.acts] if dry_run else []
        if not dry_run or not outcome.acts:
            lines.append(outcome_line(outcome))
        lines += [f"    {note}" for note in outcome.notes]
    if not published.outcomes and not published.failures:
        lines.append(f"no story is done that is not on {published.onto} yet")
    return "\n".join(lines)


def outcome_line(outcome: "Outcome") -> str:
    """Return what became of a draft, in one line."""
    content = outcome.content
    on = f" on {content.base}" if content.parent else ""
    return f"{content.story_id:<24} {outcome.how}{on}  {outcome.url}"
