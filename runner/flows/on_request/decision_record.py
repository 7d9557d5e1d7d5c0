"""Writes an answer into the state file of a story that no run works on, and commits it on its branch."""

from pathlib import Path

from isolation.git.repository import Repository
from isolation.paths import EXCHANGE
from runner.core.flow import QUICK
from runner.core.model import RunSnapshot, StorySnapshot
from runner.flows.on_request.checkouts import OwnWorktree, claim_checkout
from runner.flows.overview import docs_of, in_shared_tree, vocabulary_of
from runner.flows.places import state_file_in
from runner.flows.state.disk.files import LOCK_NAME, load_state, save_state
from runner.flows.state.errors import StateError
from runner.flows.state.transitions import record_decision


def write_decision(run: RunSnapshot, story: StorySnapshot, text: str, *, at: float) -> None:
    """Record a decision in the story's state file, where its dialect has a section for it.

    The journal has it in any case: a story without a worktree, or whose file cannot be read, keeps it there.
    """
    branch, place = story.workspace.branch, story.workspace.path
    if story.flow == QUICK.name or not place or not branch:
        return
    tree = Path(place)
    path = state_file_in(tree / docs_of(run, story))
    if path is None:
        return
    repository = Repository.open(tree)
    vocabulary = vocabulary_of(repository.top)
    try:
        before = load_state(path, vocabulary=vocabulary)
        after = record_decision(before, text).state if before else None
        if before is None or after is None or after == before:
            return
        save_state(path, after, before, lock=tree / EXCHANGE / LOCK_NAME, vocabulary=vocabulary)
    except StateError:
        return
    message = f"{story.title}: a decision\n\nAutopilot-Run: {run.run_id}\nAutopilot-Story: {story.id}\n"
    own = [path.relative_to(tree).as_posix()]
    if in_shared_tree(run, story):
        claim_checkout(repository, run, story, own).commit(own, message, at)
    else:
        OwnWorktree(repository=repository, path=tree, branch=branch).commit(own, message, at)
