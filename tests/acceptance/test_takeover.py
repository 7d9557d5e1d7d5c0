"""A story that the user continues by hand, and that continues afterwards in the same conversation."""

import os
from pathlib import Path

from tests.acceptance.program import started, wait_until
from tests.acceptance.test_agents import WELL, Actors, actors, claude
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount

__all__ = ["actors"]

PERSON = """#!/bin/sh
# The interactive session: what a person does there, and with which words it was started.
echo "$@" > "$PLACE/typed"
pwd > "$PLACE/where"
echo "${SOME_TOKEN-withheld}" > "$PLACE/token"
echo "by hand" > "$REPO/by-hand.txt" || echo "by hand" > by-hand.txt
git add by-hand.txt && git -c user.name=me -c user.email=me@example.com commit -q -m "By hand"
sleep 600 &
echo $! > "$PLACE/left"
exit 7
"""


def test_a_story_is_taken_over_and_continues_in_the_same_conversation(actors: Actors, tmp_path: Path) -> None:
    """`takeover --start` is the agent's own session within the guard; `resume` continues from there."""
    ready, go, place = tmp_path / "ready", tmp_path / "go", tmp_path / "place"
    program = actors.install("claude")
    # The headless session waits, so that it is taken over while it works.
    waits = f"pathlib.Path({str(ready)!r}).touch()\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)\n"
    program.write_text(program.read_text().replace("for name, text in act", f"{waits}for name, text in act"))
    actors.story("a", {"lines": claude(), "files": {"half.txt": "x"}}, WELL)
    env = {"PATH": f"{program.parent}:/usr/bin:/bin", "PLACE": str(place), "REPO": str(actors.repo)}
    env["SOME_TOKEN"] = "secret"  # noqa: S105  what sessions do not get
    with started(actors.repo, "run", "--json", env=env) as run:
        wait_until(ready.exists, what="the session runs")
        with started(actors.repo, "takeover", "a", "--json", env=env) as taking:
            wait_until(lambda: "stops when its session ends" in taking.err, what="it waits")
            go.touch()
            printed = taking.finish()
        guarded = run.finish().data["enforcement"] != "none"
    assert printed.code == 0, printed.err
    assert (f"tell the agent that the work is in {printed.data['workspace']}" in printed.err) is guarded
    (first,) = actors.calls("a")
    conversation = first[first.index("--session-id") + 1]
    assert printed.data["argv"] == ["claude", "--resume", conversation]

    headless = program.read_text()
    place.mkdir()
    program.write_text(PERSON)
    flags = () if guarded else ("--unguarded",)
    with started(actors.repo, "takeover", "a", "--start", *flags, env=env) as taken:
        done = taken.finish()
    assert done.code == 7, done.err
    assert (place / "typed").read_text().split() == ["--resume", conversation]
    seen = actors.repo if can_mount() else Path(printed.data["workspace"])
    assert (place / "where").read_text().strip() == os.path.realpath(seen)
    if can_mount():
        assert "guard" not in done.err
        assert (place / "token").read_text() == "withheld\n"
        assert not (actors.repo / "by-hand.txt").exists(), "it was kept out of the checkout"
        assert (Path(printed.data["workspace"]) / "by-hand.txt").exists()
        assert not Path("/proc", (place / "left").read_text().strip()).exists(), "nothing is left running"
        assert "By hand" in git(actors.repo, "log", "--format=%s", "autopilot/a")

    program.write_text(headless)
    ran = actors.run("resume")
    assert ran.code == 0, ran.err
    _, second = actors.calls("a")
    assert second[second.index("--resume") + 1] == conversation
    assert "I have worked on this myself" in actors.prompt("a")
    assert ran.story("a")["status"] == "done"
    files = git(actors.repo, "ls-tree", "-r", "--name-only", "autopilot/a").split()
    assert {"half.txt", "by-hand.txt", "made.txt"} <= set(files)
