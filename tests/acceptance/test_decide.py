"""`decide` over real journals and leases: what is open, how it is answered, and that it counts once."""

import json
import os
import pty
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isolation.paths import find_repository, journal_path
from runner.core import choose
from runner.core.events import events as ev
from runner.core.events.fold import fold
from runner.core.events.steering import RequestAnswered
from runner.core.model import Decision, RunId, StoryId
from runner.records.journal import Journal, Request
from tests.acceptance.program import LIMIT, command, run, wait_until, write_story, writes
from tests.acceptance.program import started as running
from tests.acceptance.written_runs import coordinator, write_events
from tests.records.sample_runs import RUN, event, started

OTHER = RunId("20260103-090000-cd34")
COLOUR = choose.decision("Red or blue?", ["Red", "Blue"], recommendation="B", why="it is calmer")
OVERWRITE = choose.rollback(name="Decompose", folders=["_docs/02_tasks"])


def _asks(name: str, at: float, question: choose.Question, run_id: RunId = RUN) -> list[ev.Event]:
    story = StoryId(name)
    asked = ev.DecisionAsked(story_id=story, decision_id=f"{name}-1", question=choose.to_json(question))
    parked = ev.StoryFinished(story_id=story, verdict="parked", reason=question.title)
    return [event(at, asked, run_id), event(at, parked, run_id)]


def _ended(at: float, run_id: RunId = RUN) -> ev.Event:
    return event(at, ev.RunEnded(exit_code=5), run_id)


def _journal(repo: Path) -> Journal:
    return Journal.open_readonly(journal_path(find_repository(repo).common_dir))


def _decision(repo: Path, name: str, run_id: RunId = RUN) -> Decision:
    """Return a story's decision as the journal has it."""
    with _journal(repo) as journal:
        found = fold(run_id, journal.events(run_id)).stories[StoryId(name)].decision
    assert found is not None
    return found


def _answers(repo: Path) -> list[ev.DecisionAnswered]:
    with _journal(repo) as journal:
        bodies = [one.body for run_id in journal.runs() for one in journal.events(run_id)]
    return [body for body in bodies if isinstance(body, ev.DecisionAnswered)]


def _requests(repo: Path) -> list[Request]:
    with _journal(repo) as journal:
        return journal.requests_after(RUN)


@pytest.fixture
def parked(repo: Path) -> Path:
    """Return a repository whose run has ended with two open decisions, asked in the order b, a."""
    write_events(repo, [started("a", "b", "c"), *_asks("b", 1, OVERWRITE), *_asks("a", 2, COLOUR), _ended(3)])
    return repo


def test_decide_lists_the_questions_in_the_choose_form(parked: Path) -> None:
    """Acceptance 61: every open question is shown in its form, in the order asked, and how to answer."""
    ran = run(parked, "decide")
    assert ran.code == 0
    first, second = choose.render(OVERWRITE), choose.render(COLOUR)
    assert ran.out.startswith(f"story b asks:\n{first}\n\nstory a asks:\n{second}\n\n")
    assert ran.out.endswith("to answer: autopilot-multi decide STORY LETTER (open: b, a)\n")
    assert not _answers(parked), "looking changes nothing"


def test_decide_with_a_story_shows_that_one(parked: Path) -> None:
    """Acceptance 61: one question, in its form."""
    ran = run(parked, "decide", "a")
    assert ran.out == (
        f"story a asks:\n{choose.render(COLOUR)}\n\nto answer: autopilot-multi decide a LETTER\n"
    )


def test_decide_as_json_gives_the_open_decisions(parked: Path) -> None:
    """One document, with everything that a program needs to ask by itself."""
    found = run(parked, "decide", "--json").data
    assert found["run_id"] == RUN
    assert [one["story_id"] for one in found["decisions"]] == ["b", "a"]
    last = found["decisions"][1]
    assert last["options"][1] == {"letter": "B", "text": "Blue", "destructive": False}
    assert last["recommendation"] == "B"
    assert last["asked_at"].endswith("Z")
    only = run(parked, "decide", "a", "--json").data["decisions"]
    assert only == [last]


def test_an_answer_is_recorded_once(parked: Path) -> None:
    """Acceptance 63: the journal has the answer; a second one is refused with what was chosen."""
    ran = run(parked, "decide", "a", "b")
    assert ran.code == 0, ran.err
    assert ran.out == ("story a: decided B) Blue\ncontinue with `autopilot-multi resume`\nstill open: b\n")
    assert _decision(parked, "a").letter == "B"
    again = run(parked, "decide", "a", "A", "--json")
    assert again.code == 1
    assert again.document["error"]["code"] == "answered"
    assert "already decided by the user: B) Blue" in again.document["error"]["message"]
    assert [(one.story_id, one.letter, one.by) for one in _answers(parked)] == [("a", "B", "person")]
    assert "story a asks" not in run(parked, "decide").out


def test_answering_leaves_nobody_holding_the_repository(parked: Path) -> None:
    """The lease is taken for a moment only."""
    answer = run(parked, "decide", "a", "A", "--json").data
    assert answer["letter"] == "A"
    assert answer["option"] == "Red"
    assert answer["live"] is False
    assert answer["still_open"] == ["b"]
    assert answer["next"] == "autopilot-multi resume"
    with coordinator(parked):
        pass


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (("a", "C"), "answer", "answer with A or B."),
        (("c", "A"), "not-found", f"open decisions of run {RUN}: a, b."),
        (("c",), "not-found", f"open decisions of run {RUN}: a, b."),
        (("zzz",), "not-found", f"open decisions of run {RUN}: a, b."),
        (("a", "A", "--run", "1999"), "not-found", f"runs: {RUN}."),
    ],
)
def test_a_wrong_answer_says_what_would_be_right(
    parked: Path, arguments: tuple[str, ...], code: str, hint: str
) -> None:
    """Acceptance 63: what cannot count is refused with a hint, and nothing is recorded."""
    ran = run(parked, "decide", *arguments, "--json")
    assert ran.code == 1
    assert ran.document["error"]["code"] == code
    assert ran.document["error"]["hint"] == hint
    assert not _answers(parked)


def test_only_a_destructive_option_needs_a_confirmation(parked: Path) -> None:
    """Acceptance 63: without a terminal `--yes` is the only word for it; harmless options need none."""
    refused = run(parked, "decide", "b", "A")
    assert refused.code == 1
    assert "this option destroys something: A) Re-run the step" in refused.err
    assert "`autopilot-multi decide b A --yes`" in refused.err
    assert not _answers(parked)
    assert run(parked, "decide", "a", "A").code == 0
    assert run(parked, "decide", "b", "A", "--yes").code == 0
    assert _decision(parked, "b").letter == "A"


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("\n", 1), ("n\n", 1)])
def test_a_terminal_is_asked_to_confirm(parked: Path, typed: str, code: int) -> None:
    """Acceptance 63: y decides; anything else decides nothing."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        command("decide", "b", "A"), cwd=parked, stdin=slave, stdout=subprocess.DEVNULL, stderr=slave
    )
    os.close(slave)  # its own copy alone keeps the terminal alive, so that reading ends with it
    with process:
        shown = b""
        while b"[y/N]: " not in shown:
            shown += os.read(master, 4096)
        assert b"This will overwrite files in _docs/02_tasks" in shown
        os.write(master, typed.encode())
        assert process.wait(timeout=LIMIT) == code
    os.close(master)
    assert len(_answers(parked)) == (1 if code == 0 else 0)


def test_the_newest_run_with_open_decisions_is_meant(parked: Path) -> None:
    """A later run without questions hides none; one with a question of the same story goes first."""
    write_events(parked, [started("a", run=OTHER), _ended(9, OTHER)])
    assert run(parked, "decide", "--json").data["run_id"] == RUN
    write_events(parked, _asks("a", 12, COLOUR, OTHER))
    assert run(parked, "decide", "a", "--json").data["run_id"] == OTHER
    assert run(parked, "decide", "b", "--json").data["run_id"] == RUN
    answer = run(parked, "decide", "a", "A", "--run", RUN, "--json").data
    assert answer["next"] == f"autopilot-multi resume {RUN}", "that is not the run which resume would take"
    assert not _decision(parked, "a", OTHER).letter


def test_nothing_open_is_said(repo: Path) -> None:
    """There is nothing to decide: exit 0; there never was a run: exit 1 and a hint."""
    assert "hint:" in run(repo, "decide").err
    write_events(repo, [started("a"), _ended(1)])
    ran = run(repo, "decide")
    assert (ran.code, ran.out) == (0, "no open decisions\n")
    assert run(repo, "decide", "--json").data["decisions"] == []


@contextmanager
def _taking_up(repo: Path, act: Callable[[Request], None], *, missed: int = 0) -> Iterator[None]:
    """Do what a coordinator does with the first answer that it is asked to take up.

    `missed` answers are there from before its time.
    """
    over = threading.Event()

    def watch() -> None:
        deadline = time.monotonic() + 30
        while not over.is_set() and time.monotonic() < deadline:
            found = [request for request in _requests(repo) if request.kind == "answer"]
            if len(found) > missed:
                act(found[missed])
                return
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def _recording(repo: Path, letter: str | None = None) -> Callable[[Request], None]:
    def record(request: Request) -> None:
        body = ev.DecisionAnswered(
            story_id=StoryId(request.story_id or ""),
            decision_id=request.data["decision"],
            letter=letter or request.data["letter"],
            by="person",
        )
        write_events(repo, [event(20, body), event(21, RequestAnswered(request_id=request.id))])

    return record


def test_a_living_run_takes_the_answer_up(repo: Path) -> None:
    """Acceptance 63: the coordinator is asked to record it, and `decide` sees that it has."""
    write_events(repo, [started("a", "b"), *_asks("a", 1, COLOUR)])
    with coordinator(repo), _taking_up(repo, _recording(repo)):
        ran = run(repo, "decide", "a", "B")
    assert ran.code == 0, ran.err
    assert ran.out == "story a: decided B) Blue\nthe active run continues with this answer\n"
    assert ran.err == ""
    assert [request.data for request in _requests(repo)] == [{"letter": "B", "decision": "a-1"}]
    assert len(_answers(repo)) == 1, "the coordinator alone has recorded it"


def test_another_answer_that_was_faster_is_named(repo: Path) -> None:
    """Acceptance 63: the person at the run's own terminal was first; this answer does not count."""
    write_events(repo, [started("a"), *_asks("a", 1, COLOUR)])
    with coordinator(repo), _taking_up(repo, _recording(repo, "A")):
        ran = run(repo, "decide", "a", "B")
    assert ran.code == 1
    assert "already decided by the user: A) Red" in ran.err


def test_a_second_answer_is_refused_while_the_first_is_on_its_way(repo: Path) -> None:
    """Acceptance 63: a run that is slow to take an answer up gets no other one for the same question."""
    write_events(repo, [started("a"), *_asks("a", 1, COLOUR)])
    with coordinator(repo):
        first = run(repo, "decide", "a", "B")
        assert "has not picked up the answer yet" in first.err
        second = run(repo, "decide", "a", "A")
    assert second.code == 1
    assert "already answered with B" in second.err
    assert len(_requests(repo)) == 1


def test_an_answer_survives_a_run_that_ends_meanwhile(repo: Path) -> None:
    """Acceptance 63: the coordinator goes without taking it up, so the answer is recorded without it."""
    write_events(repo, [started("a"), *_asks("a", 1, COLOUR)])
    with coordinator(repo) as holder, _taking_up(repo, lambda _request: holder.kill()):
        ran = run(repo, "decide", "a", "B")
    assert ran.code == 0, ran.err
    assert "continue with `autopilot-multi resume`" in ran.out
    assert _decision(repo, "a").letter == "B"


def test_what_a_dead_run_did_not_take_up_is_no_answer(repo: Path) -> None:
    """A request that its coordinator never saw does not stand in the way of the next one."""
    write_events(repo, [started("a"), *_asks("a", 1, COLOUR)])
    with Journal.open_existing(journal_path(find_repository(repo).common_dir)) as journal:
        journal.add_request(RUN, "answer", StoryId("a"), {"letter": "A", "decision": "a-1"})
    with coordinator(repo), _taking_up(repo, _recording(repo), missed=1):
        ran = run(repo, "decide", "a", "B")
    assert ran.code == 0, ran.err
    assert _decision(repo, "a").letter == "B"


def test_another_run_that_goes_on_is_not_disturbed(parked: Path) -> None:
    """The repository is held for another run: the answer waits, and the holder is named."""
    with coordinator(parked, OTHER):
        ran = run(parked, "decide", "a", "A", "--json")
    assert ran.code == 1
    assert ran.document["error"]["code"] == "lease-held"
    assert OTHER in ran.document["error"]["message"]
    assert not _answers(parked)


def asking_story(repo: Path, name: str, tmp_path: Path) -> None:
    """Write a story that asks in its first session and works in its second."""
    question = {
        "status": "needs-decision",
        "decision": {
            "question": "Red or blue?",
            "options": ["Red", "Blue"],
            "recommendation": "B",
            "reason": "it is calmer",
        },
    }
    asked = tmp_path / f"asked-{name}"
    ask = f"echo '{json.dumps(question)}' > $AUTOPILOT_RESULT_FILE"
    write_story(
        repo, name, command=f"if test -f {asked}; then {writes('x.txt')}; else touch {asked}; {ask}; fi"
    )


def test_without_a_terminal_the_story_is_parked_and_finished_later(repo: Path, tmp_path: Path) -> None:
    """Acceptance 64: siblings go on, exit 5; `decide` and `resume` finish it."""
    asking_story(repo, "a", tmp_path)
    write_story(repo, "b", command=writes("b.txt"))
    ran = run(repo, "run", "--json")
    assert ran.code == 5, ran.err
    assert ran.story("a")["status"] == "parked"
    assert ran.story("b")["status"] == "done"
    assert choose.render(COLOUR) in run(repo, "decide").out
    decided = run(repo, "decide", "a", "A")
    assert decided.code == 0, decided.err
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.story("a")["status"] == "done"
    assert len(_answers(repo)) == 1


def test_a_run_that_goes_on_carries_on_with_the_answered_story(repo: Path, tmp_path: Path) -> None:
    """Acceptance 63: answered from another terminal, the story is done in the same run."""
    go = tmp_path / "go"
    asking_story(repo, "a", tmp_path)
    write_story(repo, "b", command=f"until test -f {go}; do sleep 0.05; done; {writes('b.txt')}")
    with running(repo, "run", "--json") as program:
        wait_until(lambda: "story a asks" in run(repo, "decide").out, what="story a asks")
        decided = run(repo, "decide", "a", "B", "--json")
        assert decided.data["live"] is True
        wait_until(lambda: run(repo, "status", "--json").data["counts"]["done"] == 1, what="story a is done")
        go.touch()
        ran = program.finish()
    assert ran.code == 0, ran.err
