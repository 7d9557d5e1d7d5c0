"""List the decisions that stories are waiting for, or answer one.

Without STORY, all open decisions are shown in the order in which they were asked. With a letter,
the decision is answered; an answer is final. An active run picks it up right away, any other run when
it is resumed. An option that destroys something must be confirmed. About a story that `land` left out,
`retry`, `resolve` and `skip` are answers, too.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.core.choose import Question
    from runner.core.events.events import DecisionAnswered
    from runner.core.model import RunId, RunSnapshot
    from runner.records.journal import Journal
    from runner.story.flow.decisions import OpenQuestion

EXAMPLE = "autopilot-multi decide checkout-17 A"

ANSWER_TIMEOUT = 3.0
"""How long to wait until the active run has recorded an answer; it checks several times a second."""
POLL_SECONDS = 0.05
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
    delivery = _Delivery(common_dir=common_dir, run_id=run.run_id, answer=answer)
    _print_answer(run, answer, output, live=delivery.deliver(output), newest=delivery.newest)
    return 0


def _find(
    journal: "Journal", common_dir: Path, directory: Path, *, run: str | None, story: str | None
) -> "RunSnapshot":
    """Return the named run, else the active run, else the newest with a matching open decision."""
    from runner.cli.merged import with_merged
    from runner.core.errors import NotFoundError
    from runner.core.events.fold import fold
    from runner.records.history import overtaken, without_overtaken
    from runner.records.journal_file import NO_RUN_HINT

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


class _Delivery(Struct, frozen=True, kw_only=True):
    """Delivers one answer to the active run, or writes it to the journal if the run is not active."""

    common_dir: Path
    run_id: "RunId"
    answer: "DecisionAnswered"

    def deliver(self, output: Output) -> bool:
        """Get the answer recorded; return whether an active run picked it up."""
        # Only the active run may append to its own events, because it holds their state in memory.
        if self._is_live() and self._ask_coordinator(output):
            return True
        self._record(output)
        return False

    @property
    def newest(self) -> bool:
        """Whether `resume` without arguments would pick this run."""
        with self._open() as journal:
            return journal.newest_run() == self.run_id

    def _ask_coordinator(self, output: Output) -> bool:
        """Hand the answer to the active run; return False if that run exited without recording it."""
        data = {"letter": self.answer.letter, "decision": self.answer.decision_id}
        with self._open() as journal:
            self._require_unanswered(journal)
            journal.add_request(self.run_id, "answer", self.answer.story_id, data)
            for live in self._poll():
                # Read the journal even if the run just exited: it may have recorded the answer before.
                if self._recorded(journal):
                    return True
                if not live:
                    return False
        output.warn("the run has not picked up the answer yet; check with `autopilot-multi status`")
        return True

    def _poll(self) -> Iterator[bool]:
        """Yield whether the run is active, until the timeout.

        The caller reads the journal after each value: an answer recorded just before the run exited counts.
        """
        deadline = time.monotonic() + ANSWER_TIMEOUT
        while time.monotonic() < deadline:
            yield self._is_live()
            time.sleep(POLL_SECONDS)

    def _recorded(self, journal: "Journal") -> bool:
        """Return whether the journal has this answer; raise if it has a different one."""
        from runner.story.flow.decisions import already_answered, last_answer

        answered = last_answer(self._run(journal), self.answer.story_id, self.answer.decision_id)
        if answered is not None and answered.letter != self.answer.letter:
            raise already_answered(self.answer.story_id, answered)
        return answered is not None

    def _record(self, output: Output) -> None:
        """Append the answer while holding the lease, so that no run can start in the meantime."""
        from isolation.files.lease import acquire
        from runner.core.events.events import Event
        from runner.story.flow.decisions import answer_event

        with acquire(self.common_dir, self.run_id) as lease, self._open() as journal:
            for note in lease.notes:
                output.say(note)
            # Check again under the lease: the run may have recorded another answer before it exited.
            answer = answer_event(
                self._run(journal),
                self.answer.story_id,
                self.answer.letter,
                decision_id=self.answer.decision_id,
            )
            run, at = self._run(journal), time.time()
            journal.append([Event(run_id=self.run_id, at=at, body=answer)])
            self._write(run, answer, at)

    def _write(self, run: "RunSnapshot", answer: "DecisionAnswered", at: float) -> None:
        """Write the answer into the story's state file, if that has a section for decisions."""
        from runner.core import choose
        from runner.core.landing.question import is_about_landing
        from runner.flows.on_request.decision_record import write_decision
        from runner.story.flow.answers import words_for

        story = run.stories[answer.story_id]
        if story.decision is not None and not is_about_landing(story.decision):
            question = choose.from_json(story.decision.question)
            write_decision(run, story, words_for(question, answer.letter), at=at)

    def _require_unanswered(self, journal: "Journal") -> None:
        """Refuse a second answer while the first still waits for the active run to read it."""
        from isolation.files.lease import read_holder
        from runner.story.flow.decisions import AlreadyAnsweredError

        holder = read_holder(self.common_dir)
        since = holder.since if holder else time.time()
        for request in journal.requests_after(self.run_id):
            # Requests that an earlier process of this run never read do not count.
            if request.kind != "answer" or request.at < since:
                continue
            if request.data.get("decision") == self.answer.decision_id:
                raise AlreadyAnsweredError(
                    f"story {self.answer.story_id}: already answered with {request.data.get('letter')}; "
                    "the run is about to pick it up",
                    hint="an answer is final; `autopilot-multi status` shows the result.",
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


def _next(question: "Question", letter: str, run: str, *, live: bool) -> str:
    """Return the command that carries an answer out; empty if that happens by itself."""
    from runner.core.choose import QuestionKind
    from runner.core.left_out.evidence import RESOLVE, RETRY

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
