"""Let comments of reviewers and failed checks of your drafts become the next attempts of their stories.

Each draft that `pr` or a run has opened is looked at. What is new there is quoted to the story's agent, in
the same conversation, as other people's words; then the draft is updated, and each comment gets an answer
with what changed. Only people who may write to the repository are listened to, see `review-authors`; a story
is tried again `review-rounds` times, within the budgets of its run. Suggestions that contradict each other
become an open decision: see `autopilot-multi decide`. Nothing is merged. Without --once, it continues until
Ctrl-C.
"""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import CommandLineError, common
from runner.cli.run_options import add_trust

if TYPE_CHECKING:
    from runner.core.events.drafts import ReviewTaken
    from runner.core.model import RunId
    from runner.core.settings import Settings
    from runner.land.drafts.watch import Round

EXAMPLE = "autopilot-multi watch-prs --once"
EVERY, SHORTEST = 120.0, 10.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `watch-prs`."""
    parser.add_argument("--once", action="store_true", help="look once, do what follows, and exit; for CI")
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=float,
        default=EVERY,
        help=f"how long to wait between two looks (default: {EVERY:g}; at least {SHORTEST:g})",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="list everything that would be done once; send and change nothing",
    )
    parser.add_argument("--events", action="store_true", help="stream every event as a line of JSON")
    add_trust(parser)
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Look at the drafts, once or again and again."""
    from runner.cli.commands.run.pr import draft_settings

    if not arguments.every >= SHORTEST:
        raise CommandLineError(
            f"--every must be at least {SHORTEST:g} seconds, not {arguments.every:g}",
            "forges limit how often they can be asked.",
        )
    if (output.as_json or arguments.events) and not (arguments.once or arguments.dry_run):
        raise CommandLineError("--json and --events need --once or --dry-run", "one look is one document.")
    settings = draft_settings(arguments, output)
    if arguments.dry_run:
        from runner.land.drafts.watch import show_round

        shown = show_round(Path(arguments.directory), settings, output.say)
        output.document({**_data(shown), "dry_run": True})
        output.answer(_text(shown, dry_run=True) or "nothing new on the drafts")
        return 0
    if arguments.once:
        return _look(arguments, settings, output)
    while True:
        _look_patiently(arguments, settings, output)
        time.sleep(arguments.every)


def _look_patiently(arguments: argparse.Namespace, settings: "Settings", output: Output) -> None:
    """Make one round; what may be over by the next one is only named."""
    from isolation.errors import LeaseHeldError
    from runner.forge.errors import OutageError

    try:
        _look(arguments, settings, output)
    except (LeaseHeldError, OutageError) as error:
        output.warn(f"{error.message}; looking again in {arguments.every:g} s")


def _look(arguments: argparse.Namespace, settings: "Settings", output: Output) -> int:
    """Make one round: answers that are due, a look, the attempts, and their answers."""
    from runner.land.drafts.watch import begin_round, end_round

    directory = Path(arguments.directory)
    begun = begin_round(directory, settings, output.say)
    output.answer(_text(begun, dry_run=False) if not arguments.events else "")
    by_run: dict[RunId, tuple[ReviewTaken, ...]] = dict.fromkeys(begun.found.interrupted, ())
    for run_id, review in begun.found.reviews:
        by_run[run_id] = (*by_run.get(run_id, ()), review)
    code = 0
    for run_id, reviews in by_run.items():
        code = max(code, _attempt(arguments, output, run_id, reviews))
    ended = end_round(directory, settings, output.say) if by_run else begun
    if by_run and not arguments.events:
        output.answer(_text(ended, dry_run=False))
    failures = (*begun.failures, *(ended.failures if by_run else ()))
    for failure in failures:
        output.warn(
            f"story {failure.story_id}: {failure.reason}{f' ({failure.hint})' if failure.hint else ''}"
        )
    answered = (*begun.answered, *(ended.answered if by_run else ()))
    output.document({**_data(begun), "answered": [_answer(each) for each in answered]}, success=not code)
    if not (by_run or answered or begun.found.asked or begun.found.left) and arguments.once:
        output.answer("nothing new on the drafts" if not arguments.events else "")
    return code or (2 if failures else 0)


def _attempt(
    arguments: argparse.Namespace, output: Output, run_id: "RunId", reviews: "tuple[ReviewTaken, ...]"
) -> int:
    """Let a run try the stories again whose drafts were reviewed; return its exit code."""
    from isolation.git.repository import Repository
    from runner.cli.commands.run.resume import carry_out, consent_to_resume

    repository = Repository.open(Path(arguments.directory))
    settings = consent_to_resume(repository, run_id, output, arguments)
    arguments.retry_failed = False
    return carry_out(repository, run_id, arguments, output, reviews, settings=settings).exit_code


def _data(round_: "Round") -> dict[str, Any]:
    found = round_.found
    return {
        "taken": [
            {
                "id": review.story_id,
                "run_id": run_id,
                "number": review.number,
                "items": [
                    {key: item.get(key) for key in ("id", "kind", "author", "path", "line")}
                    for item in review.items
                ],
            }
            for run_id, review in found.reviews
        ],
        "asked": [asked.story_id for _, asked in found.asked],
        "left": [{"id": story_id, "why": why} for story_id, why in found.left],
        "answered": [_answer(each) for each in round_.answered],
        "failed": [{"id": each.story_id, "reason": each.reason} for each in round_.failures],
    }


def _answer(answer: Any) -> dict[str, Any]:
    return {"id": answer.story_id, "number": answer.number, "items": list(answer.items)}


def _text(round_: "Round", *, dry_run: bool) -> str:
    from runner.core.drafts.review import heading
    from runner.core.progress.draft import item_from

    found, would = round_.found, "would be " if dry_run else ""
    lines = [
        f"{answer.story_id}: {would}answered on {answer.number}: {', '.join(answer.items)}"
        for answer in round_.answered
    ]
    for _, review in found.reviews:
        lines.append(f"{review.story_id}: {would}tried again, since on {review.number}:")
        lines += [f"    {heading(item_from(item))}" for item in review.items]
        if dry_run:
            lines.append("    then its draft would be updated, and each comment answered")
    lines += [f"run {run_id} {would}continued: an attempt was interrupted" for run_id in found.interrupted]
    lines += [
        f"{one.story_id}: reviewers contradict each other; {would}asked: `decide {one.story_id}` answers"
        for _, one in found.asked
    ]
    lines += [f"{story_id}: {why}" for story_id, why in found.left]
    informed = "would be informed" if dry_run else "are informed"
    lines += [f"{story_id}: the limit is reached; its reviewers {informed}" for story_id in found.stopped]
    return "\n".join(lines)
