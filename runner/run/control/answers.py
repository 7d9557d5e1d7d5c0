"""Deliver the answer to a decision: to the active run, or to the journal of one that is not active."""

import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from isolation.files.lease import acquire, read_holder
from isolation.paths import journal_path
from runner.core import choose
from runner.core.choose import QuestionKind
from runner.core.errors import NotFoundError
from runner.core.events.events import DecisionAnswered, Event
from runner.core.events.fold import fold
from runner.core.model import RunId, RunSnapshot
from runner.flows.on_request.decision_record import write_decision
from runner.records.journal import Journal
from runner.run.control.requests import Answer
from runner.run.control.steering import Steering, is_active
from runner.story.flow.answers import words_for
from runner.story.flow.decisions import AlreadyAnsweredError, already_answered, answer_event, last_answer


class Delivered(Struct, frozen=True, kw_only=True):
    """What became of an answer. `live`: an active run has it; `taken`: it has already acted on it."""

    live: bool
    taken: bool = True


class Delivery(Struct, frozen=True, kw_only=True):
    """Delivers one answer; `say` shows what the user should know of a lease that was taken for it."""

    steering: Steering
    run_id: RunId
    answer: DecisionAnswered
    say: Callable[[str], None]

    def deliver(self) -> Delivered:
        """Get the answer recorded."""
        # Only the active run may append to its own events, because it holds their state in memory.
        if is_active(self._common_dir, self.run_id):
            self._require_unanswered()
            asked = self.answer
            request = Answer(story_id=asked.story_id, decision=asked.decision_id, letter=asked.letter)
            try:
                reply = self.steering.send(request, run_id=self.run_id)
            except NotFoundError:  # it exited before it read the answer
                pass
            else:
                self._require_same()
                return Delivered(live=True, taken=reply.taken)
        self._record()
        return Delivered(live=False)

    @property
    def newest(self) -> bool:
        """Whether `resume` without arguments would pick this run."""
        with self._open() as journal:
            return journal.newest_run() == self.run_id

    @property
    def _common_dir(self) -> Path:
        return self.steering.common_dir

    def _require_same(self) -> None:
        """Raise if the run has recorded a different answer, which came first."""
        with self._open() as journal:
            answered = last_answer(self._run(journal), self.answer.story_id, self.answer.decision_id)
        if answered is not None and answered.letter != self.answer.letter:
            raise already_answered(self.answer.story_id, answered)

    def _record(self) -> None:
        """Append the answer while holding the lease, so that no run can start in the meantime."""
        with acquire(self._common_dir, self.run_id) as lease, self._open() as journal:
            for note in lease.notes:
                self.say(note)
            # Check again under the lease: the run may have recorded another answer before it exited.
            run = self._run(journal)
            if self._recorded_by(run):
                return
            answer = answer_event(
                run, self.answer.story_id, self.answer.letter, decision_id=self.answer.decision_id
            )
            at = time.time()
            journal.append([Event(run_id=self.run_id, at=at, body=answer)])
        self._write(run, answer, at)

    def _recorded_by(self, run: RunSnapshot) -> bool:
        """Whether the run has recorded this very answer before it exited."""
        answered = last_answer(run, self.answer.story_id, self.answer.decision_id)
        return answered is not None and answered.letter == self.answer.letter

    def _write(self, run: RunSnapshot, answer: DecisionAnswered, at: float) -> None:
        """Write the answer into the story's state file, if that has a section for decisions."""
        story = run.stories[answer.story_id]
        question = choose.from_json(story.decision.question) if story.decision else None
        # Its documents say nothing of its landing and its reviews: its work is done by then.
        if question is not None and question.kind not in {QuestionKind.LANDING, QuestionKind.REVIEW}:
            write_decision(run, story, words_for(question, answer.letter), at=at)

    def _require_unanswered(self) -> None:
        """Refuse a second answer while the first still waits for the active run to read it."""
        holder = read_holder(self._common_dir)
        since = holder.since if holder else time.time()
        with self._open() as journal:
            requests = journal.requests_after(self.run_id)
        for request in requests:
            # Requests that an earlier process of this run never read do not count.
            if request.kind != "answer" or request.at < since:
                continue
            if request.data.get("decision") == self.answer.decision_id:
                raise AlreadyAnsweredError(
                    f"story {self.answer.story_id}: already answered with {request.data.get('letter')}; "
                    "the run is about to pick it up",
                    hint="an answer is final; `autopilot-multi status` shows the result.",
                )

    def _run(self, journal: Journal) -> RunSnapshot:
        return fold(self.run_id, journal.events(self.run_id))

    def _open(self) -> Journal:
        return Journal.open_existing(journal_path(self._common_dir))
