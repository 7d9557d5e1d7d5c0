"""One view of all stories of a run: the journal joined with the stories' own state files.

The files are read while agents write them, and never changed. What a dialect has no section for comes
from the journal, and so does the whole row of a story without a file. Pages are replaced as a whole;
nothing is read back from them.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final, cast

from msgspec.structs import replace

from isolation.files.disk import replace_file
from isolation.git.repository import Repository, failure
from isolation.paths import find_repository
from isolation.patterns import pattern
from runner.core import choose
from runner.core.flow import PROJECT_DOCS, QUICK, STORY_DOCS, USER_FOLDER, state_paths
from runner.core.model import Decision, Memory, RunSnapshot, Status, Story, StorySnapshot
from runner.core.text.instants import iso
from runner.core.text.names import one_line
from runner.core.text.words import awaited
from runner.flows.places import state_file_in
from runner.flows.state.aggregate import Row, aggregate_markdown
from runner.flows.state.disk.collection import Found, collect
from runner.flows.state.disk.swap import SETTLING
from runner.flows.state.errors import UnreadableStateError
from runner.flows.state.model import DONE, Dialect, RetryRow, StateFile, StepStatus
from runner.flows.state.reading import decode, parse_state
from runner.flows.state.vocabulary import STANDARD, Vocabulary

PAGE: Final = ".orchestrator/state.md"
SHARED: Final = "none"
DOCS_PAGE: Final = "_docs/_autopilot_multi_state.md"
NO_FILE: Final = Path("journal")
"""What is shown instead of a path for a story without a state file."""

_PAUSE = 0.005
_RETRY = pattern(
    r"(?P<step>\S+) (?P<name>.+?)(?:, sub-step (?P<sub_step>.+?))?, attempt (?P<attempt>\d+): (?P<reason>.*)",
    re.DOTALL,
)
_STATUSES: Final[Mapping[Status, StepStatus]] = {
    Status.WAITING: StepStatus.NOT_STARTED,
    Status.QUEUED: StepStatus.NOT_STARTED,
    Status.RUNNING: StepStatus.IN_PROGRESS,
    Status.PARKED: StepStatus.IN_PROGRESS,
    Status.STOPPED: StepStatus.IN_PROGRESS,
    Status.DONE: StepStatus.COMPLETED,
    Status.NO_WORK: StepStatus.COMPLETED,
    Status.FAILED: StepStatus.FAILED,
    Status.SKIPPED: StepStatus.SKIPPED,
}


ClosedFiles = dict[tuple[str, str], Found | None]
"""State files on branches, by branch and commit; None where the commit holds none."""


class _Keeper(StrEnum):
    """Shown instead of a dialect for a story without a state file: the journal keeps its position."""

    JOURNAL = "journal"


def rows_of(
    run: RunSnapshot,
    *,
    vocabulary: Vocabulary = STANDARD,
    repository: Repository | None = None,
    closed: ClosedFiles | None = None,
) -> list[Row]:
    """Return one row per story, in the order of the run.

    With `repository`, the file of a story whose workspace was removed is read from its branch; `closed` keeps
    such files by their commits, since they no longer change.
    """
    paths = {
        story.id: state_file_in(Path(story.workspace.path, docs_of(run, story)))
        for story in run.stories.values()
        if story.workspace.path and story.flow != QUICK.name
    }
    there = [path for path in paths.values() if path is not None]
    read = {found.path: found for found in _read(there, vocabulary)}
    kept = {} if closed is None else closed
    if repository is not None:
        _read_closed(run, repository, vocabulary, kept)
    rows = []
    for story in run.stories.values():
        path, place = paths.get(story.id), story.workspace
        found = read[path] if path is not None else None
        if not place.path:
            found = kept.get((place.branch or "", place.commit or ""))
        rows.append(_row(story, found or _from_journal(story)))
    return rows


def _read_closed(run: RunSnapshot, repository: Repository, vocabulary: Vocabulary, kept: ClosedFiles) -> None:
    """Add the files of stories whose workspace was removed, unless they are known; with one command."""
    gone = {
        (story.workspace.branch, story.workspace.commit): docs_of(run, story)
        for story in run.stories.values()
        if story.flow != QUICK.name
        and not story.workspace.path
        and story.workspace.branch
        and story.workspace.commit
    }
    new = {key: docs for key, docs in gone.items() if key not in kept}
    if new:
        found = _on_branches(repository, {branch: docs for (branch, _), docs in new.items()}, vocabulary)
        kept.update({key: found.get(key[0]) for key in new})


class AggregatePage:
    """The page of one run, written when it has changed; its methods block, and are called one at a time."""

    def __init__(self, top: Path) -> None:
        self._top = top
        self._repository = Repository(paths=find_repository(top), version=())
        self._vocabulary = vocabulary_of(top)
        self._closed: ClosedFiles = {}
        self._written = b""

    def write(self, run: RunSnapshot) -> None:
        """Write the page into `.orchestrator/`, and next to the documents if git ignores it there.

        Reads the files of stories at work, and runs at most two git commands.
        """
        rows = rows_of(run, vocabulary=self._vocabulary, repository=self._repository, closed=self._closed)
        page = aggregate_markdown(rows, updated=f"{iso(_newest(run))}, run {run.run_id}").encode()
        if page == self._written and (self._top / PAGE).exists():
            return
        places = [self._top / PAGE]
        if (self._top / "_docs").is_dir() and is_ignored(self._repository, self._top, DOCS_PAGE):
            places.append(self._top / DOCS_PAGE)
        for place in places:
            place.parent.mkdir(parents=True, exist_ok=True)
            replace_file(place, page, durable=False)  # the journal can always make it again
        self._written = page


def vocabulary_of(top: Path) -> Vocabulary:
    """Return the values allowed in a repository's state files: those of the dialects and the user's flows."""
    if not any((top / USER_FOLDER).glob("*.toml")):
        return STANDARD
    from runner.flows.catalog import list_flows  # flow files are read only if there are any

    own = [flow for listed in list_flows(top) if listed.file for flow in listed.flows]
    last: dict[str, int] = {}
    for flow in own:
        numbers = [int(step.number) for step in flow.steps if step.number.isdigit()]
        last[flow.name] = max(last.get(flow.name, 1), *numbers, 1)
    return Vocabulary(flows=last, names=frozenset(step.name for flow in own for step in flow.steps))


def is_ignored(repository: Repository, top: Path, path: str) -> bool:
    """Return whether git ignores a path of a checkout and does not track it."""
    args = ("check-ignore", "--quiet", "--", path)
    output = repository.run(*args, cwd=top, check=False)
    if output.returncode not in {0, 1}:
        raise failure(args, output)
    return output.returncode == 0


def in_shared_tree(run: RunSnapshot, story: StorySnapshot) -> bool:
    """Return whether a story worked in the checkout that all share."""
    return run.isolation == SHARED and not story.workspace.apart


def docs_of(run: RunSnapshot, story: StorySnapshot) -> str:
    """Return the folder of a story's documents in its workspace."""
    if story.docs:
        return story.docs
    # A run of an earlier version, or a story whose position is not known yet.
    return f"{STORY_DOCS}/{story.id}" if in_shared_tree(run, story) else PROJECT_DOCS


def _read(paths: Sequence[Path], vocabulary: Vocabulary) -> list[Found]:
    """Read files while others write them: an incomplete one is read again for a moment."""
    found = collect(paths, vocabulary=vocabulary)
    deadline = time.monotonic() + SETTLING
    while (torn := [one.path for one in found if _may_settle(one)]) and time.monotonic() < deadline:
        time.sleep(_PAUSE)
        again = {one.path: one for one in collect(torn, vocabulary=vocabulary)}
        found = [again.get(one.path, one) for one in found]
    return found


def _may_settle(found: Found) -> bool:
    try:
        return found.state is None and time.time() - found.path.stat().st_mtime < SETTLING
    except OSError:
        return False


def _on_branches(
    repository: Repository, branches: Mapping[str, str], vocabulary: Vocabulary
) -> dict[str, Found]:
    """Read state files from the tips of branches, whose folders of documents are given, with one command."""
    places = [(branch, path) for branch, docs in branches.items() for path in state_paths(docs)]
    names = [f"refs/heads/{branch}:{path}" for branch, path in places]
    asked = "".join(f"{name}\n" for name in names).encode()
    output = repository.run("cat-file", "--batch", stdin=asked).stdout.encode(errors="surrogateescape")
    found: dict[str, Found] = {}
    for (branch, path), data in zip(places, blobs(output), strict=True):
        if data is not None:
            found.setdefault(branch, _parsed(Path(f"{branch}:{path}"), data, vocabulary))
    return found


def blobs(output: bytes) -> Iterable[bytes | None]:
    """Parse the output of `cat-file --batch`; None for an object that does not exist."""
    at = 0
    while at < len(output):
        end = output.index(b"\n", at)
        header = output[at:end]
        at = end + 1
        if header.endswith(b" missing"):
            yield None
            continue
        _, kind, size = header.rsplit(b" ", 2)
        if not size.isdigit():
            raise ValueError(f"git answered {header[:80]!r}")
        data = output[at : at + int(size)]
        at += int(size) + 1
        yield data if kind == b"blob" else None


def _parsed(path: Path, data: bytes, vocabulary: Vocabulary) -> Found:
    try:
        return Found(path=path, state=parse_state(decode(data), vocabulary=vocabulary))
    except UnreadableStateError as error:
        return Found(path=path, problem=error.message)


def unbegun(story: Story, dialect: str) -> Row:
    """Return the row of a story of the backlog that has neither a state file nor a run."""
    keeper = _Keeper.JOURNAL if story.flow == QUICK.name else Dialect(story.dialect or dialect)
    state = StateFile(
        # As below: the state is only displayed.
        dialect=cast("Dialect", keeper),
        flow=story.flow,
        step="",
        name="",
        status=StepStatus.NOT_STARTED,
    )
    return Row(story=story.id, found=Found(path=NO_FILE, state=state))


def _from_journal(story: StorySnapshot) -> Found:
    """Build the state that a story without a file would have in one."""
    over = story.status in {Status.DONE, Status.NO_WORK}
    found = story.placed or story.flow == QUICK.name  # before that, its step in the flow is not known
    state = StateFile(
        # The dialect of this state is only displayed; the state is never written.
        dialect=cast("Dialect", _Keeper.JOURNAL),
        flow=story.flow,
        step=DONE if over else story.place.number if found else "",
        name="Done" if over else story.place.name if found else "",
        status=_STATUSES[story.status],
        retry_count=story.retry_count,
    )
    return Found(path=NO_FILE, state=state)


def _row(story: StorySnapshot, found: Found) -> Row:
    if found.state is not None and found.state.flow is None:  # the rich dialect does not name it
        found = replace(found, state=replace(found.state, flow=story.flow))
    state, over = found.state, story.status in {Status.DONE, Status.NO_WORK}
    acted = max((decision.asked_at for decision in story.decided), default=float("-inf"))
    blockers = tuple(
        memory.text
        for memory in story.memories
        # A blocker whose question has been answered no longer blocks.
        if memory.topic == "blocker" and not over and memory.at > acted
    )
    failed = story.status is Status.FAILED and story.reason
    if failed and not blockers and not (state and state.blockers):
        blockers = (story.reason,)
    open_, wait = story.decision, awaited(story)
    return Row(
        story=story.id,
        found=found,
        open_decisions=(_asked(story, open_),) if open_ is not None and not open_.letter else (),
        blockers=blockers,
        retries=() if over else _retries(story, acted),
        decisions=tuple(memory.text for memory in story.memories if memory.topic == "decision"),
        waits=(f"for {wait.what}, since {iso(wait.since)}: {wait.reason}",) if wait else (),
    )


def _asked(story: StorySnapshot, decision: Decision) -> str:
    try:
        question = choose.from_json(decision.question)
    except choose.QuestionError:
        return f"see `autopilot-multi decide`: decision {one_line(decision.id)}"
    options = ", ".join(f"{option.letter}) {option.text}" for option in question.options)
    answer = f"autopilot-multi decide {story.id} {question.recommendation}"
    return f"{question.title} {options}; recommended: `{answer}`"


def _retries(story: StorySnapshot, since: float) -> tuple[RetryRow, ...]:
    """Return the failed attempts at the current step that the journal holds."""
    rows = [
        _retry(story, memory) for memory in story.memories if memory.topic == "retry" and memory.at > since
    ]
    return tuple(row for row in rows if row.step == story.place.number)[-story.max_attempts :]


def _retry(story: StorySnapshot, memory: Memory) -> RetryRow:
    read = _RETRY.fullmatch(memory.text)
    return RetryRow(
        attempt=read["attempt"] if read else "",
        step=read["step"] if read else story.place.number,
        name=one_line(read["name"]) if read else one_line(story.place.name),
        sub_step=one_line(read["sub_step"] or "") if read else "",
        reason=one_line(read["reason"] if read else memory.text),
        timestamp=iso(memory.at),
    )


def _newest(run: RunSnapshot) -> float:
    """Return the time of the newest known event, so that the same run gives the same page."""
    times = [run.started_at, run.ended_at or 0.0]
    for story in run.stories.values():
        times += [story.started_at or 0.0, story.ended_at or 0.0]
        times += [memory.at for memory in story.memories]
        times += [wait.until or wait.since for wait in story.waits]
        times += [session.ended_at or session.started_at for session in story.sessions]
        if story.decision is not None:
            times.append(story.decision.asked_at)
    return max(times)
