"""A run that is steered from another process: a story tried again, added, edited, taken over."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from runner.core.events.story_json import to_json
from runner.core.model import SessionKind, Status, Story, StoryId
from runner.run.control.reader import RunReader
from runner.run.control.requests import Add, Retry, TakeOver
from runner.run.control.steering import RefusedError, Steering
from tests.acceptance.program import (
    answered,
    commit_stories,
    run,
    started,
    wait_until,
    write_story,
    writes,
)
from tests.conftest import git
from tests.isolation.guard.guard_scenes import require

A, B, C = StoryId("a"), StoryId("b"), StoryId("c")


def waits(folder: Path, name: str) -> tuple[str, Path, Path]:
    """Return a command that waits, the file that it makes, and the one that it waits for."""
    ready, go = folder / f"{name}-ready", folder / f"{name}-go"
    return f"touch {ready}; until test -f {go}; do sleep 0.05; done", ready, go


@contextmanager
def released(go: Path) -> Iterator[None]:
    """End what waits for a file, whatever happens: a detached run outlives its test."""
    try:
        yield
    finally:
        go.touch()


def until_ended(reader: RunReader, story_id: StoryId) -> None:
    """Wait until a story has its result."""
    wait_until(lambda: reader.read().run.stories[story_id].status.final, what=f"{story_id} ends")


def entry(story_id: str, command: str, **keys: object) -> dict[str, object]:
    """Return the entry of a story that is added, as the sender's plan has it."""
    argv = ("/bin/sh", "-c", command)
    return to_json(Story(id=StoryId(story_id), title=story_id, prompt="", command=argv, **keys))  # type: ignore[arg-type]


class RunReaderAfter:
    """A reader of the active run, once a file exists."""

    def __init__(self, repo: Path, ready: Path) -> None:
        self._repo, self._ready = repo, ready

    def __enter__(self) -> RunReader:
        wait_until(self._ready.exists, what="the session runs")
        self._reader = RunReader(str(self._repo))
        return self._reader

    def __exit__(self, *_: object) -> None:
        self._reader.journal.close()


def test_a_failed_story_is_retried_with_a_note_and_unblocks_what_it_blocked(
    repo: Path, tmp_path: Path
) -> None:
    """The next prompt quotes the note, the old tip is kept with `fresh`, and the skipped story runs."""
    wait, ready, go = waits(tmp_path, "c")
    prompts = f"cat $AUTOPILOT_PROMPT_FILE >> {tmp_path}/prompts; date +%N >> a.txt"
    write_story(repo, "a", command=f"{prompts}; grep -q 'mind the gap' {tmp_path}/prompts", max_attempts=1)
    write_story(repo, "b", command=writes("b.txt"), depends_on=["a"])
    write_story(repo, "c", command=f"{wait}; {writes('c.txt')}")
    with started(repo, "run", "--json") as program, RunReaderAfter(repo, ready) as reader:
        until_ended(reader, A)
        until_ended(reader, B)
        steering = Steering(repo)
        with pytest.raises(RefusedError, match="skipped because of a"):
            steering.send(Retry(story_id=B))
        with pytest.raises(RefusedError, match="has not ended"):
            steering.send(Retry(story_id=C))
        assert steering.send(Retry(story_id=A, note="mind the gap\nplease", fresh=True)).taken
        wait_until(lambda: reader.read().run.stories[B].status is Status.DONE, what="b is done")
        go.touch()
        ran = program.finish()
    assert ran.code == 0, ran.err
    quoted = "The user says:\n\n    mind the gap\n    please\n"
    assert quoted in (tmp_path / "prompts").read_text()
    assert git(repo, "rev-list", "--count", "main..autopilot/a").strip() == "1"
    assert git(repo, "rev-parse", "refs/autopilot/old/a/1")
    assert ran.story("a")["sessions"] == 2


def test_an_added_story_survives_a_kill(repo: Path, tmp_path: Path) -> None:
    """It waits for a running one; killed and resumed, the run still has it, in its order."""
    wait, ready, go = waits(tmp_path, "a")
    write_story(repo, "a", command=f"{wait}; {writes('a.txt')}")
    with started(repo, "run", "--json") as program, RunReaderAfter(repo, ready) as reader:
        steering = Steering(repo)
        with pytest.raises(RefusedError, match="not in the backlog"):
            steering.send(Add(stories=(entry("b", "true", depends_on=(StoryId("nothing"),)),)))
        with pytest.raises(RefusedError, match="has started"):
            steering.send(Add(stories=(entry("a", "true"),)))
        with pytest.raises(RefusedError, match="an id is made of"):
            steering.send(Add(stories=(entry("../b", "true"),)))
        with pytest.raises(RefusedError, match="cannot be read"):
            steering.send(Add(stories=({"id": "b"},)))
        assert steering.send(
            Add(stories=(entry("b", "test -f a.txt && echo b > b.txt", depends_on=(A,)),))
        ).taken
        assert reader.read().run.stories[B].status is Status.WAITING
        program.send(signal.SIGKILL)
    go.touch()
    ran = run(repo, "resume", "--json")
    assert ran.code == 0, ran.err
    assert ran.story("b")["status"] == "done"
    assert git(repo, "show", "autopilot/b:b.txt") == "b\n"


@pytest.mark.parametrize(
    "level",
    ["divert", pytest.param("deny", marks=pytest.mark.slow), pytest.param("detect", marks=pytest.mark.slow)],
)
def test_a_story_joins_a_shared_tree_if_its_claim_is_disjoint(repo: Path, tmp_path: Path, level: str) -> None:
    """One that would own a path of another is refused with that path; one that joined keeps to its claim."""
    if level != "detect":
        require(EnforcementLevel(level), Means.MOUNTS)
    wait, ready, go = waits(tmp_path, "a")
    write_story(repo, "a", command=f"mkdir -p packages/a; {wait}; {writes('packages/a/a.txt')}")
    later = repo / "later"
    later.mkdir()
    for name, keys in {
        "b": {"command": f"mkdir -p packages/b; {writes('packages/b/b.txt')}"},
        "c": {
            "command": f"mkdir -p packages/c; {writes('packages/c/c.txt')}; {writes('packages/b/stray.txt')}"
        },
        "greedy": {"command": "true", "owns": ["packages/*/a.txt"]},
    }.items():
        write_story(later, name, max_attempts=1, **keys)  # type: ignore[arg-type]  # no prompt is among them
    commit_stories(repo)
    shared = ("--bg-isolation=none", f"--enforce={level}", "--max-stories=2")
    with (
        started(repo, "run", "--json", *shared, "--deconflict-paths=packages/{id}/**") as program,
        RunReaderAfter(repo, ready) as reader,
    ):
        refused = run(repo, "add", "later/stories/greedy.md")
        assert refused.code != 0
        assert "stories a and greedy both own packages/a/a.txt" in refused.err
        with pytest.raises(RefusedError, match="stories a and x both own packages/a: "):
            Steering(repo).send(Add(stories=(entry("x", "true", owns=("packages/a/**",)),)))
        for name in (B, C):
            assert run(repo, "add", f"later/stories/{name}.md").code == 0
            until_ended(reader, name)
        go.touch()
        ran = program.finish()
    assert {name: ran.story(name)["status"] for name in "abc"} == {"a": "done", "b": "done", "c": "failed"}
    assert git(repo, "show", "autopilot/b:packages/b/b.txt") == "made\n"
    assert not (repo / "packages" / "b" / "stray.txt").exists()
    assert "packages/b/stray.txt" in ran.story("c")["reason"]


def test_a_waiting_story_may_be_edited_until_it_starts(repo: Path, tmp_path: Path) -> None:
    """Its new text counts; a new command does not, until the user agrees to it."""
    wait, ready, go = waits(tmp_path, "a")
    write_story(repo, "a", command=f"{wait}; {writes('a.txt')}")
    keeps = f"cp $AUTOPILOT_PROMPT_FILE {tmp_path}/prompt; {writes('b.txt')}"
    write_story(repo, "b", command=keeps, body="The old words.", depends_on=["a"])
    with started(repo, "run", "--json") as program, RunReaderAfter(repo, ready):
        write_story(repo, "b", command="touch evil.txt", body="The new words.", depends_on=["a"])
        go.touch()
        ran = program.finish()
    assert ran.code == 0, ran.err
    assert "The new words." in (tmp_path / "prompt").read_text()
    assert "evil" not in git(repo, "ls-tree", "-r", "--name-only", "autopilot/b")
    assert "another command, which is not taken without your consent" in ran.err
    assert run(repo, "--json").code == 0, "the story is done, with the words that it had"


def test_a_story_that_was_taken_over_continues(repo: Path, tmp_path: Path) -> None:
    """It stops after its session, says why, and can be retried in the same run."""
    wait, ready, go = waits(tmp_path, "a")
    other, other_ready, other_go = waits(tmp_path, "b")
    keeps = f"cp $AUTOPILOT_PROMPT_FILE {tmp_path}/prompt"
    write_story(repo, "a", command=f"{wait}; {keeps}; {writes('a.txt')}", verify=["true"])
    write_story(repo, "b", command=f"{other}; {writes('b.txt')}")
    with started(repo, "run", "--json") as program, RunReaderAfter(repo, ready) as reader:
        wait_until(other_ready.exists, what="the other session runs")
        steering = Steering(repo)
        assert steering.send(TakeOver(story_id=A)).taken
        go.touch()
        until_ended(reader, A)
        taken = reader.read().run.stories[A]
        assert taken.status is Status.STOPPED
        assert "taken over by you" in taken.reason
        assert steering.send(Retry(story_id=A)).taken
        wait_until(lambda: reader.read().run.stories[A].status is Status.DONE, what="a is done")
        kinds = [session.kind for session in reader.read().run.stories[A].sessions]
        assert kinds == [SessionKind.WORK, SessionKind.WORK, SessionKind.VERIFY]
        assert "I have worked on this myself" in (tmp_path / "prompt").read_text()
        other_go.touch()
        ran = program.finish()
    assert ran.code == 0, ran.err


def test_a_detached_run_is_followed_from_a_second_process(repo: Path, tmp_path: Path) -> None:
    """Bad input is said at once; the run outlives its command, is added to, and `attach` exits as it did."""
    assert "no folder 'stories'" in run(repo, "run", "--detach").err
    wait, ready, go = waits(tmp_path, "a")
    write_story(repo, "a", command=f"{wait}; {writes('a.txt')}")
    write_story(repo, "b", command="exit 1", max_attempts=1)
    assert "no run is active" in run(repo, "add", "b").err
    began = run(repo, "run", "a", "--detach", "--json", "--trust")
    assert began.code == 0, began.err
    with released(go), started(repo, "attach", "--json") as attached, started(repo, "attach") as left:
        wait_until(ready.exists, what="the session runs")
        wait_until(lambda: "a" in left.out, what="it shows the run")
        left.send(signal.SIGINT)
        assert left.finish().code == 0
        assert "which continues" in left.err
        refused = run(repo, "add", "b", env={"AUTOPILOT_MULTI_TRUST": "ask"})
        assert refused.code == 1
        assert "not agreed to" in refused.err
        added = run(repo, "add", "b", "--trust", "--json")
        assert (added.code, added.data["stories"]) == (0, ["b"]), added.err
        shown = run(repo, "show", "a")
        assert "session" in shown.out
        go.touch()
        ended = attached.finish()
    assert ended.code == 4, "one is done, one has failed"
    assert ended.data["run_id"] == began.data["run_id"]
    assert ended.story("b")["status"] == "failed"
    assert "is not active" in run(repo, "attach").err
    assert "started" in Path(began.data["log"]).read_text()


def test_a_killed_run_is_resumed_without_a_terminal(repo: Path, tmp_path: Path) -> None:
    """`resume --detach` returns while the story works; without anything left to do it says so, too."""
    wait, ready, go = waits(tmp_path, "a")
    write_story(repo, "a", command=f"{wait}; {writes('a.txt')}")
    with started(repo, "run", "--json") as program:
        wait_until(ready.exists, what="the session runs")
        program.send(signal.SIGKILL)
    ready.unlink()
    with released(go):
        began = run(repo, "resume", "--detach", "--json")
        assert began.code == 0, began.err
        wait_until(ready.exists, what="the session runs again")
        assert Steering(repo).active == began.data["run_id"]
        second = run(repo, "resume", "--detach")
        assert second.code != 0
        assert "the detached run did not start: " in second.err
    wait_until(lambda: Steering(repo).active is None, what="the run ends")
    assert run(repo, "status", "--json").story("a")["status"] == "done"
    idle = run(repo, "resume", "--detach", "--json")
    assert (idle.code, idle.data["run_id"]) == (0, began.data["run_id"]), idle.err
    wait_until(lambda: "has nothing left to do" in Path(idle.data["log"]).read_text(), what="it says so")


def test_an_ended_run_retries_one_story_and_shows_it(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an active run `retry` continues the newest one with that story alone."""
    write_story(
        repo,
        "a",
        command=f"echo a > a.txt; cp $AUTOPILOT_PROMPT_FILE {tmp_path}/prompt; test -f {tmp_path}/ok",
        max_attempts=1,
    )
    write_story(repo, "b", command="exit 1", max_attempts=1)
    assert run(repo, "--trust").code == 3
    (tmp_path / "ok").touch()
    assert "has no story 'c'" in run(repo, "retry", "c").err
    folder = Path(run(repo, "open", "a").out.strip())
    (folder / "new.txt").write_text("by hand\n")
    assert "+by hand" in run(repo, "diff", "a").out
    assert "a.txt" in run(repo, "diff", "a", "--stat").out
    monkeypatch.setenv("PAGER", f"cat > {tmp_path}/paged")
    assert answered(repo, "diff", "a", typed="") == (0, ""), "on a terminal the pager gets it"
    assert "+by hand\n" in (tmp_path / "paged").read_text()
    assert "+by hand\n" in answered(repo, "diff", "a", "--no-pager", typed="")[1]
    assert git(folder, "status", "--porcelain") == "?? a.txt\n?? new.txt\n", "its index is as it was"
    ran = run(repo, "retry", "a", "--note", "be careful", "--json")
    assert ran.code == 4, ran.err
    assert (ran.story("a")["status"], ran.story("b")["status"]) == ("done", "failed")
    assert "be careful" in (tmp_path / "prompt").read_text()
    shown = run(repo, "show", "a", "--json").data
    assert len(shown["session_list"]) == 2
    assert shown["source"] == "stories/a.md"
    assert len(shown["commit_list"]) == shown["commits"]
    assert "is done" in run(repo, "retry", "a").err
