"""List the decisions that stories wait for, or answer one.

Without a story all open decisions are shown, in the order in which they were asked. With a letter
the decision is answered, once and for all: a run that is going on takes the answer up at once, any
other when it is resumed. An option that destroys something must be confirmed.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isolation.frozen import frozen
from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.core.events.events import DecisionAnswered
    from runner.core.model import RunId, RunSnapshot
    from runner.records.journal import Journal
    from runner.story.decisions import OpenQuestion

EXAMPLE = "autopilot-multi decide checkout-17 A"

PATIENCE = 3.0
"""How long a living coordinator has to take an answer up; it looks several times a second."""
LOOK_EVERY = 0.05
RUNS_LOOKED_AT = 50
"""Older runs are reached with --run."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `decide`."""
    parser.add_argument(
        "story", nargs="?", metavar="STORY", help="only this story's decision; default: all that are open"
    )
    parser.add_argument("letter", nargs="?", metavar="LETTER", help="answer it with this option")
    parser.add_argument(
        "--run", metavar="RUN", help="a run's id or its beginning; default: the newest with open decisions"
    )
    parser.add_argument(
        "--yes", action="store_true", help="confirm an option that destroys something, without being asked"
    )
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Show the open decisions, or record an answer."""
    from isolation.paths import find_repository, journal_path
    from runner.records.journal import Journal
    from runner.story.decisions import open_questions, require_open

    common_dir = find_repository(Path(arguments.directory)).common_dir
    with Journal.open_readonly(journal_path(common_dir)) as journal:
        run = _find(journal, common_dir, run=arguments.run, story=arguments.story)
    if arguments.letter is None:
        questions = (require_open(run, arguments.story),) if arguments.story else open_questions(run)
        _show(run, questions, output)
        return 0
    answer = _answer(run, arguments, output)
    delivery = _Delivery(common_dir=common_dir, run_id=run.run_id, answer=answer)
    _tell(run, answer, output, live=delivery.hand_in(output), newest=delivery.newest)
    return 0


def _find(journal: "Journal", common_dir: Path, *, run: str | None, story: str | None) -> "RunSnapshot":
    """Find the run that is meant: a named one, else the one that is going on, else the newest that fits."""
    from runner.core.errors import NotFoundError
    from runner.core.events.fold import fold
    from runner.records.journal_file import NO_RUN_HINT

    found: list[RunSnapshot] = []
    for run_id in [journal.find_run(run)] if run else _runs(journal, common_dir):
        snapshot = fold(run_id, journal.events(run_id))
        names = [one.id for one in snapshot.open_decisions]
        if (story in names) if story else names:
            return snapshot
        found.append(snapshot)
    if not found:
        raise NotFoundError("there is no run yet in this repository", hint=NO_RUN_HINT)
    # What is not open is explained by the run that knows the story.
    return next((snapshot for snapshot in found if story in snapshot.stories), found[0])


def _runs(journal: "Journal", common_dir: Path) -> "list[RunId]":
    from isolation.files.lease import holder_is_alive, read_holder

    runs = journal.runs()[:RUNS_LOOKED_AT]
    holder = read_holder(common_dir) if holder_is_alive(common_dir) else None
    return sorted(runs, key=lambda run_id: holder is None or run_id != holder.run_id)


def _show(run: "RunSnapshot", questions: "Sequence[OpenQuestion]", output: Output) -> None:
    from runner.core.choose import render

    output.document({"run_id": run.run_id, "decisions": [_as_json(asked) for asked in questions]})
    if not questions:
        output.answer("no decision is open")
        return
    for asked in questions:
        output.answer(f"story {asked.story_id} asks:\n{render(asked.question)}\n\n")
    names = [asked.story_id for asked in questions]
    if len(names) == 1:
        output.answer(f"answer it: autopilot-multi decide {names[0]} LETTER")
    else:
        output.answer(f"answer one: autopilot-multi decide STORY LETTER (open: {', '.join(names)})")


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
    """Read the answer; one that destroys something is confirmed first."""
    from runner.core.choose import must_confirm
    from runner.core.errors import UsageError
    from runner.story.decisions import answer_event, require_open

    answer = answer_event(run, arguments.story, arguments.letter)
    question = require_open(run, arguments.story).question
    if not must_confirm(question, answer.letter) or arguments.yes:
        return answer
    option = f"{answer.letter}) {question.option(answer.letter).text}"
    again = f"`autopilot-multi decide {arguments.story} {answer.letter} --yes` confirms it."
    if output.as_json or not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"story {arguments.story}: this destroys something: {option}", hint=again)
    warning = f"{question.warning}\n" if question.warning else ""
    sys.stderr.write(f"{warning}{option}: are you sure? [y/N]: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise UsageError(f"story {arguments.story}: nothing was decided", hint=again)
    return answer


@frozen
class _Delivery:
    """Hands one answer in where it counts: to the living coordinator, else to the journal itself."""

    common_dir: Path
    run_id: "RunId"
    answer: "DecisionAnswered"

    def hand_in(self, output: Output) -> bool:
        """Have the answer recorded; True when a living coordinator has it."""
        if self._is_live() and self._ask_coordinator(output):
            return True
        self._record(output)
        return False

    @property
    def newest(self) -> bool:
        """Tell whether the run is the one that `resume` takes by itself."""
        with self._open() as journal:
            return journal.newest_run() == self.run_id

    def _ask_coordinator(self, output: Output) -> bool:
        """Leave the answer for the coordinator and see it taken up; False when it went without that."""
        data = {"letter": self.answer.letter, "decision": self.answer.decision_id}
        with self._open() as journal:
            self._require_unanswered(journal)
            journal.add_request(self.run_id, "answer", self.answer.story_id, data)
            for live in self._looks():
                if self._recorded(journal):
                    return True
                if not live:
                    return False
        output.warn("the run has not taken the answer up yet; `autopilot-multi status` shows when it has")
        return True

    def _looks(self) -> Iterator[bool]:
        """Tell, again and again, whether the coordinator lives; asked before the journal is read."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            yield self._is_live()
            time.sleep(LOOK_EVERY)

    def _recorded(self, journal: "Journal") -> bool:
        """Tell whether the journal has this answer; another one there is an error that names it."""
        from runner.story.decisions import already_answered, last_answer

        answered = last_answer(self._run(journal), self.answer.story_id, self.answer.decision_id)
        if answered is not None and answered.letter != self.answer.letter:
            raise already_answered(self.answer.story_id, answered)
        return answered is not None

    def _record(self, output: Output) -> None:
        """Append the answer under the lease, so that nothing else writes this run meanwhile."""
        from isolation.files.lease import acquire
        from runner.core.events.events import Event
        from runner.story.decisions import answer_event

        with acquire(self.common_dir, self.run_id) as lease, self._open() as journal:
            for note in lease.notes:
                output.say(note)
            answer = answer_event(
                self._run(journal),
                self.answer.story_id,
                self.answer.letter,
                decision_id=self.answer.decision_id,
            )
            journal.append([Event(run_id=self.run_id, at=time.time(), body=answer)])

    def _require_unanswered(self, journal: "Journal") -> None:
        """Refuse a second answer while the first is still on its way to the coordinator."""
        from isolation.files.lease import read_holder
        from runner.story.decisions import AlreadyAnsweredError

        holder = read_holder(self.common_dir)
        since = holder.since if holder else time.time()
        for request in journal.requests_after(self.run_id):
            # What an earlier coordinator did not take up any more counts for nothing.
            if request.kind != "answer" or request.at < since:
                continue
            if request.data.get("decision") == self.answer.decision_id:
                raise AlreadyAnsweredError(
                    f"story {self.answer.story_id}: this was answered with {request.data.get('letter')}, "
                    "and the run is about to take it up",
                    hint="an answer counts once; `autopilot-multi status` shows what came of it.",
                )

    def _is_live(self) -> bool:
        from isolation.files.lease import holder_is_alive, read_holder

        holder = read_holder(self.common_dir)
        return holder is not None and holder.run_id == self.run_id and holder_is_alive(self.common_dir)

    def _run(self, journal: "Journal") -> "RunSnapshot":
        from runner.core.events.fold import fold

        return fold(self.run_id, journal.events(self.run_id))

    def _open(self) -> "Journal":
        from isolation.paths import journal_path
        from runner.records.journal import Journal

        return Journal.open_existing(journal_path(self.common_dir))


def _tell(
    run: "RunSnapshot", answer: "DecisionAnswered", output: Output, *, live: bool, newest: bool
) -> None:
    from runner.story.decisions import require_open

    question = require_open(run, answer.story_id).question
    text = question.option(answer.letter).text
    others = [story.id for story in run.open_decisions if story.id != answer.story_id]
    resume = "" if live else "autopilot-multi resume" + ("" if newest else f" {run.run_id}")
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
    output.answer(f"{resume} goes on with it" if resume else "the run that is going on takes it up")
    if others:
        output.answer(f"still open: {', '.join(others)}")
