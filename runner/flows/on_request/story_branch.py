"""The branch of a story, opened to change what its state file says: its flow, its position, its commits.

What the user asks of a story that does not run happens here, on its branch: nothing is rewritten, and what is
not committed stays where it is. Only the state file is the program's own: it may be committed at any time.
"""

from pathlib import Path

from msgspec import Struct

from isolation.git.commits import named, operation_in_progress
from isolation.git.repository import Repository
from isolation.paths import own_git_dir
from runner.core.errors import NotFoundError, RunnerError
from runner.core.flow import Edition, Flow, in_place, state_paths
from runner.core.model import RunSnapshot, StorySnapshot
from runner.core.text.names import did_you_mean, one_line
from runner.flows.catalog import load_flow
from runner.flows.on_request.checkouts import Checkout
from runner.flows.overview import docs_of, vocabulary_of
from runner.flows.places import state_file_in
from runner.flows.state.disk.collection import Found, collect
from runner.flows.state.disk.files import LOCK_NAME, save_state
from runner.flows.state.model import Dialect, StateFile
from runner.flows.state.vocabulary import Vocabulary

_LOCK = f".orchestrator/{LOCK_NAME}"


class StoryBranch(Struct, frozen=True, kw_only=True):
    """A checkout of a story's branch. `unsaved`: its state file has changes that are not committed."""

    repository: Repository
    checkout: Checkout
    story: StorySnapshot
    run_id: str
    name: str
    tip: str
    docs: str
    flow: Flow
    state_file: str | None
    state: StateFile | None
    unsaved: bool
    vocabulary: Vocabulary

    @property
    def worktree(self) -> Path:
        """The top of the tree that holds the story's files."""
        return self.checkout.path

    @property
    def cycle(self) -> int:
        """The feature cycle that the state file records."""
        return (self.state.cycle if self.state else None) or 1

    def find_step(self, wanted: str) -> int:
        """Find a step by its number or its name; return its place in the flow."""
        steps = list(enumerate(self.flow.steps))
        found = [place for place, one in steps if one.number == wanted.lower()]
        found = found or [place for place, one in steps if one.name.casefold() == wanted.casefold()]
        if len(found) == 1:
            return found[0]
        known = ", ".join(f"{one.number} ({one.name})" for one in self.flow.steps)
        hint = f"{did_you_mean(wanted, [one.name for one in self.flow.steps])} its steps: {known}".strip()
        what = f"{len(found)} steps called" if found else "no step"
        raise NotFoundError(f"the flow {self.flow.name} has {what} '{one_line(wanted)}'", hint=hint)

    def save(self, after: StateFile) -> None:
        """Write the state file in the checkout; what somebody else wrote meanwhile is merged."""
        if self.state_file is not None:
            path, lock = self.worktree / self.state_file, self.worktree / _LOCK
            save_state(path, after, self.state, lock=lock, vocabulary=self.vocabulary)

    def commit_state(self, subject: str, *trailers: str, at: float) -> str:
        """Commit the state file alone; return the branch's tip, which stays if the file did not change."""
        if self.state_file is not None:
            own = (f"Autopilot-Run: {self.run_id}", f"Autopilot-Story: {self.story.id}", *trailers)
            message = f"{one_line(subject)}\n\n" + "".join(f"{one_line(line)}\n" for line in own)
            return self.checkout.commit([self.state_file], message, at) or self.tip
        return self.tip


def open_branch(
    repository: Repository,
    checkout: Checkout,
    run: RunSnapshot,
    story: StorySnapshot,
    refusal: type[RunnerError],
    *,
    clean: bool,
) -> StoryBranch:
    """Open the branch that a checkout holds; raise a `refusal` if something prevents a change.

    With `clean`, uncommitted changes are refused, except for those of the story's own state file.
    """
    docs, branch = docs_of(run, story), story.workspace.branch or ""
    own, worktree = state_paths(docs), checkout.path
    seen = checkout.read()
    dirty = tuple(path for path in seen.dirty if path not in own)
    git_dir = own_git_dir(worktree)
    operation = operation_in_progress(git_dir) if git_dir else None
    if clean and dirty:
        raise refusal(
            f"story {story.id}: {worktree} has {len(dirty)} uncommitted file{'s' * (len(dirty) > 1)}:"
            f" {named(dirty)}",
            hint=checkout.cleaning,
        )
    if operation:
        raise refusal(
            f"story {story.id}: {worktree} is in the middle of {operation}",
            hint="finish or abort it there, then try again",
        )
    if seen.branch != branch or seen.tip is None:
        raise refusal(f"story {story.id}: {worktree} is not on {branch}", hint=f"`git switch {branch}` there")
    vocabulary = vocabulary_of(repository.top)
    found = _state(worktree / docs, vocabulary, refusal)
    state = found.state if found else None
    path = found.path.relative_to(worktree).as_posix() if found else None
    return StoryBranch(
        repository=repository,
        checkout=checkout,
        story=story,
        run_id=run.run_id,
        name=branch,
        tip=seen.tip,
        docs=docs,
        flow=in_place(_flow(repository, story, state), docs, story.id),
        state_file=path,
        state=state,
        unsaved=path is not None and path in seen.dirty,
        vocabulary=vocabulary,
    )


def _state(folder: Path, vocabulary: Vocabulary, refusal: type[RunnerError]) -> Found | None:
    path = state_file_in(folder)
    if path is None:
        return None
    (found,) = collect([path], vocabulary=vocabulary)
    if found.state is None:
        raise refusal(
            f"{path} cannot be read: {found.problem}", hint="`autopilot-multi state check` shows more"
        )
    return found


def _flow(repository: Repository, story: StorySnapshot, state: StateFile | None) -> Flow:
    dialect = state.dialect if state else Dialect.AUTODEV
    name = (state.flow if state else None) or story.flow
    return load_flow(name, Edition(dialect), repository.top)
