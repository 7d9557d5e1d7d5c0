"""List the decisions that stories are waiting for, or answer one.

Without STORY, all open decisions are shown in the order in which they were asked. With a letter,
the decision is answered; an answer is final. An active run picks it up right away, any other run when
it is resumed. An option that destroys something must be confirmed. About a story that `land` left out,
`retry`, `resolve` and `skip` are answers, too.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.core.choose import Question
    from runner.core.events.events import DecisionAnswered
    from runner.core.model import RunId, RunSnapshot
    from runner.records.journal import Journal
    from runner.story.flow.decisions import OpenQuestion

EXAMPLE = "autopilot-multi decide checkout-17 A"

RUNS_SEARCHED = 50
"""Older runs must be named with --run."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `decide`."""
    parser.add_argument(
        "story",
        nargs="?",
        metavar="STORY",
        help="only the decision of this story (default: all open decisions)",
    )
    parser.add_argument("letter", nargs="?", metavar="LETTER", help="answer with this option, or its word")
    parser.add_argument(
        "--run",
        metavar="RUN",
        help="the id of a run or its first characters (default: the newest with open decisions)",
    )
    parser.add_argument("--yes", action="store_true", help="confirm an option that destroys something")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Show the open decisions, or record an answer."""
    from isolation.paths import find_repository, journal_path
    from runner.records.journal import Journal
    from runner.run.control.answers import Delivery
    from runner.run.control.steering import Steering
    from runner.story.flow.decisions import open_questions, require_open

    common_dir = find_repository(Path(arguments.directory)).common_dir
    with Journal.open_readonly(journal_path(common_dir)) as journal:
        directory = Path(arguments.directory)
        run = _find(journal, common_dir, directory, run=arguments.run, story=arguments.story)
    if arguments.letter is None:
        questions = (require_open(run, arguments.story),) if arguments.story else open_questions(run)
        _show(run, questions, output)
        return 0
    answer = _answer(run, arguments, output)
    delivery = Delivery(
        steering=Steering(Path(arguments.directory)), run_id=run.run_id, answer=answer, say=output.say
    )
    delivered = delivery.deliver()
    if not delivered.taken:
        output.warn("the run has not picked up the answer yet; check with `autopilot-multi status`")
    _print_answer(run, answer, output, live=delivered.live, newest=delivery.newest)
    return 0


def _find(
    journal: "Journal", common_dir: Path, directory: Path, *, run: str | None, story: str | None
) -> "RunSnapshot":
    """Return the named run, else the active run, else the newest with a matching open decision."""
    from runner.core.errors import NotFoundError
    from runner.core.events.fold import fold
    from runner.records.history import overtaken, without_overtaken
    from runner.records.journal_file import NO_RUN_HINT
    from runner.run.control.merged import with_merged

    found: list[RunSnapshot] = []
    for run_id in [journal.find_run(run)] if run else _runs(journal, common_dir):
        snapshot = without_overtaken(fold(run_id, journal.events(run_id)), overtaken(journal, run_id))
        snapshot = with_merged(snapshot, directory)
        names = [one.id for one in snapshot.open_decisions]
        if (story in names) if story else names:
            return snapshot
        found.append(snapshot)
    if not found:
        raise NotFoundError("this repository has no runs yet", hint=NO_RUN_HINT)
    # No run has a matching open decision: the run that has the story gives the best error message.
    return next((snapshot for snapshot in found if story in snapshot.stories), found[0])


def _runs(journal: "Journal", common_dir: Path) -> "list[RunId]":
    from isolation.files.lease import holder_is_alive, read_holder

    runs = journal.runs()[:RUNS_SEARCHED]
    holder = read_holder(common_dir) if holder_is_alive(common_dir) else None
    return sorted(runs, key=lambda run_id: holder is None or run_id != holder.run_id)


def _show(run: "RunSnapshot", questions: "Sequence[OpenQuestion]", output: Output) -> None:
    from runner.core.choose import render

    output.document({"run_id": run.run_id, "decisions": [_as_json(asked) for asked in questions]})
    if not questions:
        output.answer("no open decisions")
        return
    for asked in questions:
        output.answer(f"story {asked.story_id} asks:\n{render(asked.question)}\n\n")
    names = [asked.story_id for asked in questions]
    if len(names) == 1:
        output.answer(f"to answer: autopilot-multi decide {names[0]} LETTER")
    else:
        output.answer(f"to answer: autopilot-multi decide STORY LETTER (open: {', '.join(names)})")


def _as_json(asked: "OpenQuestion") -> dict[str, Any]:
    from runner.core.choose import to_json
    from runner.core.text.instants import iso

    return {
        "story_id": asked.story_id,
        "decision": asked.decision_id,
        "asked_at": iso(asked.asked_at),
        **to_json(asked.question),
        "next": f"autopilot-multi decide {asked.story_id} LETTER",
    }


def _answer(run: "RunSnapshot", arguments: argparse.Namespace, output: Output) -> "DecisionAnswered":
    """Return the answer; one that destroys something must be confirmed first."""
    from runner.core.choose import must_confirm
    from runner.core.errors import UsageError
    from runner.story.flow.decisions import answer_event, require_open

    answer = answer_event(run, arguments.story, arguments.letter)
    question = require_open(run, arguments.story).question
    if not must_confirm(question, answer.letter) or arguments.yes:
        return answer
    option = f"{answer.letter}) {question.option(answer.letter).text}"
    again = f"to confirm: `autopilot-multi decide {arguments.story} {answer.letter} --yes`"
    if output.as_json or not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"story {arguments.story}: this option destroys something: {option}", hint=again)
    warning = f"{question.warning}\n" if question.warning else ""
    sys.stderr.write(f"{warning}{option}: are you sure? [y/N]: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError(f"story {arguments.story}: nothing was decided", hint=again)
    return answer


def _next(question: "Question", letter: str, run: str, *, live: bool) -> str:
    """Return the command that carries an answer out; empty if that happens by itself."""
    from runner.core.choose import QuestionKind
    from runner.core.left_out.evidence import RESOLVE, RETRY

    if question.kind is QuestionKind.REVIEW:
        return "autopilot-multi watch-prs --once"
    if question.kind is not QuestionKind.LANDING:
        return "" if live else f"autopilot-multi resume{run}"
    word = question.option(letter).word
    return {RETRY: f"autopilot-multi resume{run}", RESOLVE: "autopilot-multi land"}.get(word, "")


def _print_answer(
    run: "RunSnapshot", answer: "DecisionAnswered", output: Output, *, live: bool, newest: bool
) -> None:
    from runner.story.flow.decisions import require_open

    question = require_open(run, answer.story_id).question
    text = question.option(answer.letter).text
    others = [story.id for story in run.open_decisions if story.id != answer.story_id]
    resume = _next(question, answer.letter, "" if newest else f" {run.run_id}", live=live)
    output.document(
        {
            "run_id": run.run_id,
            "story_id": answer.story_id,
            "decision": answer.decision_id,
            "letter": answer.letter,
            "option": text,
            "by": answer.by,
            "live": live,
            "still_open": others,
            "next": resume,
        }
    )
    output.answer(f"story {answer.story_id}: decided {answer.letter}) {text}")
    if resume:
        output.answer(f"continue with `{resume}`")
    elif live:
        output.answer("the active run continues with this answer")
    if others:
        output.answer(f"still open: {', '.join(others)}")
