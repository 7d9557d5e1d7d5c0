"""What a repository's own files would run or switch off, and what the user has agreed to.

Collected without running anything: from the settings in the repository, the stories, the flows, and the
files that known agents obey. What the user agreed to is kept in the user's own data folder, never in the
repository, under the path of the git directory; a copy elsewhere asks again.
"""

import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from isolation.files.disk import replace_file
from isolation.git.repository import Repository
from runner.agents.workers import Workers, agents_of
from runner.core.errors import RunnerError
from runner.core.flow import QUICK, USER_FOLDER, Edition
from runner.core.model import Story, StoryId
from runner.core.trust import Asked, Demand, not_agreed
from runner.flows.catalog import load_flow, user_files
from runner.plan.plan import Plan

ALWAYS = "always"
_MOST_KEPT = 20_000
_COMMAND_LINE = "command line"


class TrustError(RunnerError):
    """The repository's files ask for something that the user has not agreed to; nothing was run."""

    code = "trust"


class Trust(Struct, frozen=True, kw_only=True):
    """What the user has agreed to in one repository; `always` means everything."""

    agreed: tuple[tuple[str, str], ...] = ()
    always: bool = False


def demands_of(plan: Plan) -> tuple[Demand, ...]:
    """Return everything that the files of the repository would run or switch off in this run."""
    left = [story for story in plan.own if story.id not in plan.finished]
    return (
        *plan.loaded.demands,
        *(demand for story in left for demand in story_demands(story)),
        *flow_demands(plan.repository.top, left, plan.settings.dialect),
        *_of_agents(plan.repository, plan.base, {story.id: plan.workers[story.id] for story in left}),
    )


def not_agreed_yet(
    repository: Repository, demands: Sequence[Demand], *, trust: str, environ: Mapping[str, str]
) -> tuple[Asked, ...]:
    """Return what the user must be asked about before anything runs; nothing if all is agreed to."""
    if trust == ALWAYS or not demands:
        return ()
    known = load_trust(repository, environ)
    return () if known.always else not_agreed(demands, set(known.agreed))


def load_trust(repository: Repository, environ: Mapping[str, str]) -> Trust:
    """Read what the user has agreed to; a file that cannot be read agrees to nothing."""
    try:
        read = json.loads(_file(repository, environ).read_bytes())
        agreed = tuple((str(what), str(value)) for what, value in read["agreed"])
        return Trust(agreed=agreed, always=read["always"] is True)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return Trust()


def agree(
    repository: Repository,
    demands: Iterable[Demand | Asked],
    environ: Mapping[str, str],
    *,
    always: bool = False,
) -> None:
    """Record that the user agrees to these demands, or to everything in this repository."""
    known = load_trust(repository, environ)
    contents = dict.fromkeys((*known.agreed, *((one.what, one.value) for one in demands)))
    _save(repository, environ, Trust(agreed=tuple(contents)[-_MOST_KEPT:], always=always or known.always))


def forget(repository: Repository, environ: Mapping[str, str]) -> bool:
    """Forget what the user has agreed to; return whether there was anything."""
    path = _file(repository, environ)
    known = path.exists()
    path.unlink(missing_ok=True)
    return known


def flow_demands(top: Path, stories: Iterable[Story], dialect: str) -> Iterator[Demand]:
    """Return the commands in flows of the repository that these stories follow."""
    names = {story.flow for story in stories} - {QUICK.name}
    if not names & {path.stem for path in user_files(top)}:
        return
    for story in stories:
        own = top / USER_FOLDER / f"{story.flow}.toml"
        if story.flow in names and own.is_file():
            names.discard(story.flow)
            flow = load_flow(story.flow, Edition(story.dialect or dialect), top)
            for step in flow.steps:
                if step.command:
                    what = f"flow {flow.name}, step {step.number}: command"
                    yield Demand(
                        what=what, value=shlex.join(step.command), where=f"{USER_FOLDER}/{story.flow}.toml"
                    )


def story_demands(story: Story) -> Iterator[Demand]:
    """Return what the file of a story asks for; a prompt on the command line is the user's own."""
    if story.source == _COMMAND_LINE:
        return
    if story.command:
        yield Demand(what="story: command", value=shlex.join(story.command), where=story.source)
    for command in story.verify:
        yield Demand(what="story: verify", value=command, where=story.source)
    for name in filter(None, (story.agent, *(story.escalate or ()))):
        yield Demand(what="story: agent", value=name, where=story.source)


def _of_agents(repository: Repository, base: str, workers: Mapping[StoryId, Workers]) -> Iterator[Demand]:
    """Return the files of the repository that agents obey, each with the content that it has now."""
    obeyed = {name: agent.name for agent in agents_of(workers) for name in agent.traits.obeys}
    if not obeyed:
        return
    listing = ("ls-tree", "-r", "-z", "--full-tree", base, "--", *sorted(obeyed))
    for line in repository.run(*listing).fields():
        words, _, path = line.partition("\t")
        top = next((name for name in obeyed if path == name or path.startswith(f"{name}/")), path)
        yield Demand(
            what=f"{obeyed.get(top, 'agent')} obeys {path}",
            value=f"content {words.split(' ')[2][:12]}",
            where=path,
        )


def _file(repository: Repository, environ: Mapping[str, str]) -> Path:
    folder = environ.get("XDG_DATA_HOME", "")
    # The XDG specification says to ignore a relative one.
    base = (
        Path(folder)
        if folder.startswith("/")
        else Path(environ.get("HOME") or "~").expanduser() / ".local/share"
    )
    key = hashlib.sha256(os.fsencode(os.path.realpath(repository.common_dir))).hexdigest()[:32]
    return base / "autopilot-multi" / "trust" / f"{key}.json"


def _save(repository: Repository, environ: Mapping[str, str], trust: Trust) -> None:
    path = _file(repository, environ)
    document = {
        "repository": str(repository.top),
        "always": trust.always,
        "agreed": [list(content) for content in trust.agreed],
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        replace_file(path, json.dumps(document, indent=1).encode(), mode=0o600)
    except OSError as error:
        raise TrustError(
            f"what you agreed to cannot be recorded in {path}: {error.strerror}",
            hint="make the folder writable, or add --trust for this run.",
        ) from error
