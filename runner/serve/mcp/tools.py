"""The tools of the server: what each does in the words for clients, and the command that does it.

Whatever would ask for consent at a terminal is refused with the command that a person must type; no tool
takes a flag that agrees to anything.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from isolation.files.lease import read_holder
from isolation.paths import find_repository
from runner.core.model import RunSnapshot
from runner.plan.plan import RunRequest
from runner.run.control.launch import Launched
from runner.run.control.reader import RunReader
from runner.serve.mcp import arguments as args
from runner.serve.mcp.commands import (
    POLL_SECONDS,
    document_of,
    ends_within,
    run_command,
    start_command,
    text_of_command,
)
from runner.serve.mcp.consent import require_agreed_landing, require_agreed_run, require_agreed_settings

START_SECONDS = 20.0
"""How long a run may take until it holds the repository; a large repository takes some seconds."""
LAND_SECONDS = 40.0
"""How long `land` waits for the end; most clients give up after a minute."""


class Tool(Struct, frozen=True, kw_only=True):
    """A tool; `reads` means that it changes nothing, `destroys` that it can end or replace something."""

    description: str
    arguments: type[args.Arguments]
    call: Callable[[Path, Any], dict[str, Any]]
    reads: bool = False
    destroys: bool = False


def _plan(directory: Path, asked: args.PlanArguments) -> dict[str, Any]:
    return run_command(directory, "plan", *_flags(asked))


def _start(directory: Path, asked: args.StartArguments) -> dict[str, Any]:
    require_agreed_run(
        RunRequest(
            directory=directory,
            sources=asked.stories,
            only=asked.only,
            retry_failed=asked.retry_failed,
            again=asked.again,
            fresh=asked.fresh,
        )
    )
    fresh = ("--fresh",) if asked.fresh else ()
    return _begun(directory, "run", start_command(directory, "run", *fresh, *_flags(asked)))


def _resume(directory: Path, asked: args.ResumeArguments) -> dict[str, Any]:
    require_agreed_settings(directory)
    retry = ("--retry-failed",) if asked.retry_failed else ()
    named = ("--", asked.run) if asked.run else ()
    return _begun(directory, "resume", start_command(directory, "resume", *retry, *named))


def _flags(asked: args.PlanArguments) -> tuple[str, ...]:
    most = (f"--max-stories={asked.max_stories}",) if asked.max_stories else ()
    again = ("--again",) if asked.again else ()
    failed = ("--retry-failed",) if asked.retry_failed else ()
    return (*most, *again, *failed, *(f"--only={name}" for name in asked.only), "--", *asked.stories)


def _begun(directory: Path, name: str, launched: Launched) -> dict[str, Any]:
    """Wait until a run is active, or has ended already; a run that did not start raises its error."""
    common_dir, deadline = find_repository(directory).common_dir, time.monotonic() + START_SECONDS
    while launched.alive and time.monotonic() < deadline:
        holder = read_holder(common_dir)
        # Another process may hold the repository; then this one says so and ends.
        if holder is not None and holder.pid == launched.pid:
            return {"run_id": holder.run_id, "active": True, "log": str(launched.log)}
        time.sleep(POLL_SECONDS)
    if launched.alive:
        return {"run_id": None, "active": True, "log": str(launched.log)}
    return {**document_of(name, launched), "active": False, "log": str(launched.log)}


def _status(directory: Path, asked: args.StatusArguments) -> dict[str, Any]:
    if asked.wait_seconds:
        _wait_for_news(directory, asked)
    return run_command(directory, "status", *(("--", asked.run) if asked.run else ()))


def _wait_for_news(directory: Path, asked: args.StatusArguments) -> None:
    deadline = time.monotonic() + asked.wait_seconds
    with RunReader(str(directory), asked.run or None) as reader:
        before = _news(reader.read().run)
        while time.monotonic() < deadline:
            current = reader.read()
            if current.over or _news(current.run) != before:
                return
            time.sleep(POLL_SECONDS)


def _news(run: RunSnapshot) -> tuple[object, ...]:
    """Return what is worth an answer when it changes."""
    ended = sum(story.status.final for story in run.stories.values())
    return ended, len(run.stories), tuple(story.id for story in run.open_decisions), len(run.landings)


def _logs(directory: Path, asked: args.LogsArguments) -> dict[str, Any]:
    named = (f"--run={asked.run}",) if asked.run else ()
    text = text_of_command(directory, "logs", *named, "--", asked.story)
    lines = text.splitlines()
    return {"story_id": asked.story, "left_out": max(0, len(lines) - asked.lines), "text": _end(lines, asked)}


def _end(lines: list[str], asked: args.LogsArguments) -> str:
    return "\n".join(lines[-asked.lines :])


def _decide(directory: Path, asked: args.DecideArguments) -> dict[str, Any]:
    named = (f"--run={asked.run}",) if asked.run else ()
    confirmed = ("--yes",) if asked.confirm else ()
    return run_command(directory, "decide", *named, *confirmed, "--", asked.story, asked.letter)


def _add(directory: Path, asked: args.AddArguments) -> dict[str, Any]:
    return run_command(directory, "add", "--", *asked.stories)


def _retry(directory: Path, asked: args.RetryArguments) -> dict[str, Any]:
    note = (f"--note={asked.note}",) if asked.note else ()
    fresh = ("--fresh",) if asked.fresh else ()
    return run_command(directory, "retry", "--detach", *note, *fresh, "--", asked.story)


def _stop(directory: Path, asked: args.StopArguments) -> dict[str, Any]:
    now = ("--now",) if asked.now else ()
    return run_command(directory, "stop", *now, "--", *asked.stories)


def _pause(directory: Path, _: args.Nothing) -> dict[str, Any]:
    return run_command(directory, "pause")


def _unpause(directory: Path, _: args.Nothing) -> dict[str, Any]:
    return run_command(directory, "unpause")


def _land(directory: Path, asked: args.LandArguments) -> dict[str, Any]:
    from runner.land.session import Request

    flags = (*((f"--onto={asked.onto}",) if asked.onto else ()), "--", *asked.stories)
    if asked.dry_run:
        return run_command(directory, "land", "--dry-run", *flags)
    require_agreed_landing(Request(directory=directory, names=asked.stories, onto=asked.onto or None))
    launched = start_command(directory, "land", *flags)
    if ends_within(launched, LAND_SECONDS):
        return document_of("land", launched)
    return {"active": True, "log": str(launched.log), "next": "call `status`: `last_landing` has the result"}


def _forecast(directory: Path, asked: args.ForecastArguments) -> dict[str, Any]:
    return run_command(directory, "forecast", *((f"--onto={asked.onto}",) if asked.onto else ()))


TOOLS: Mapping[str, Tool] = {
    "plan": Tool(
        description="Show what a run would do: which stories, in which order, what waits for what and why. "
        "Changes nothing.",
        arguments=args.PlanArguments,
        call=_plan,
        reads=True,
    ),
    "start": Tool(
        description="Start a run in the background: agents work on the stories in git worktrees of their "
        "own, several at once, and commit to branches autopilot/ID. It spends money at the agents' services. "
        "It merges nothing and does not touch the main checkout. Returns when the run is active; the run "
        "continues when this server ends. Follow it with `status`.",
        arguments=args.StartArguments,
        call=_start,
    ),
    "resume": Tool(
        description="Continue a run in the background that was interrupted or stopped, or whose questions "
        "were answered after its end. Agents work again and spend money. What is finished stays finished.",
        arguments=args.ResumeArguments,
        call=_resume,
    ),
    "status": Tool(
        description="Show a run: every story with its status, reason, branch and cost, open questions under "
        "`decisions`, the last landing, what to do next. Changes nothing.",
        arguments=args.StatusArguments,
        call=_status,
        reads=True,
    ),
    "logs": Tool(
        description="Show the end of what a story's sessions printed. Changes nothing.",
        arguments=args.LogsArguments,
        call=_logs,
        reads=True,
    ),
    "decide": Tool(
        description="Answer the open question of a story, in the name of the user. An answer is final, and "
        "the story continues with it. `status` has the questions with their options.",
        arguments=args.DecideArguments,
        call=_decide,
        destroys=True,
    ),
    "add": Tool(
        description="Add stories to the active run. They start as soon as a slot is free, and spend money at "
        "the agents' services.",
        arguments=args.AddArguments,
        call=_add,
    ),
    "retry": Tool(
        description="Try a story again that has failed or was stopped, with a new set of attempts. "
        "With `fresh` it starts over from the base.",
        arguments=args.RetryArguments,
        call=_retry,
    ),
    "stop": Tool(
        description="Stop the whole active run, or the stories that you name, after their current sessions. "
        "With `now` running sessions are ended at once. What is committed stays; `resume` continues.",
        arguments=args.StopArguments,
        call=_stop,
        destroys=True,
    ),
    "pause": Tool(
        description="Let the active run start no more stories for now; sessions that run are not disturbed.",
        arguments=args.Nothing,
        call=_pause,
    ),
    "unpause": Tool(
        description="Let the active run start stories again after `pause`.",
        arguments=args.Nothing,
        call=_unpause,
    ),
    "land": Tool(
        description="Merge the branches of done stories, verify the result in a worktree of its own, and "
        "move the target branch of this repository to it; if that is checked out, its files follow. Only "
        "what was verified lands, and nothing is pushed. `autopilot-multi undo` undoes it.",
        arguments=args.LandArguments,
        call=_land,
        destroys=True,
    ),
    "forecast": Tool(
        description="Show which stories will conflict when they land, in which files, and the best order. "
        "Changes nothing.",
        arguments=args.ForecastArguments,
        call=_forecast,
        reads=True,
    ),
}
