"""Rolls back a step of a story: a new commit reverts its work, and the state file follows.

History is never rewritten and no branch is deleted, so git can undo a rollback as well. The result is
computed outside the checkout; only then does the branch move to it, and git refuses if the files that follow
would overwrite uncommitted changes. A story's claim in a shared tree follows in the same way.

The trailers of the checkpoints show what a step made. A step that wrote outside the folder of the story's
documents is rolled back by reverting its checkpoints. A step that wrote only documents has its artifact
folders restored to their content before its first checkpoint. Commits without trailers belong to the user and
stay.
"""

import tempfile
from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from isolation.git.commits import commit_tree, named
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir
from runner.core import choose
from runner.core.errors import NotFoundError, RunnerError
from runner.core.events import events as ev
from runner.core.flow import Flow, FlowStep, artifact_parts, in_cycle, state_paths
from runner.core.model import RunSnapshot, StorySnapshot
from runner.core.text.names import one_line
from runner.flows.on_request.checkouts import Checkout
from runner.flows.on_request.checkpoints import Commit, load_history, others_since, undone_by
from runner.flows.on_request.story_branch import StoryBranch, open_branch
from runner.flows.state.model import StateFile, StepRef
from runner.flows.state.transitions import roll_back
from runner.flows.state.writing import render

_WILD = frozenset("*?[")
_THREE_WAY_SINCE = (2, 32)


class RollbackError(RunnerError):
    """A step cannot be rolled back; nothing was changed."""

    code = "rollback"


class Rollback(Struct, frozen=True, kw_only=True):
    """What a rollback would do; nothing has happened yet.

    `undone` are the checkpoints, newest first; `restored` are the paths that return to their content at
    `before`; `kept` are commits of others that stay; `again` are the steps that are repeated. If `undone` is
    empty, an earlier rollback did it all, or the step was skipped and only the state file changes.
    """

    on: StoryBranch
    step: FlowStep
    again: tuple[str, ...]
    undone: tuple[Commit, ...]
    before: str
    restored: tuple[str, ...]
    touched: tuple[str, ...]
    kept: tuple[Commit, ...]
    after: StateFile | None


def make_plan(
    repository: Repository, checkout: Checkout, run: RunSnapshot, story: StorySnapshot, wanted: str
) -> Rollback:
    """Plan the rollback of a step in a checkout of the story; raise if something prevents it."""
    on = open_branch(repository, checkout, run, story, RollbackError, clean=True)
    flow, state = on.flow, on.state
    place = on.find_step(wanted)
    step = flow.steps[place]
    commits = load_history(
        repository, f"{story.workspace.base or run.base_of(story.repo)}..{on.tip}", story.id, flow
    )
    undone = undone_by(commits, place)
    newest = next((commit for commit in reversed(commits) if not commit.own), None)
    repeated = newest is not None and newest.rolled_back and newest.place == place
    skipped = state is not None and step.number in state.skipped_steps
    if not undone and not repeated and not skipped:
        raise NotFoundError(
            f"story {story.id} has no checkpoint of step {step.number} ({step.name}) or a later one",
            hint=f"`git log {repository.name_of_branch(on.name)}` shows its commits; "
            "checkpoints of steps have an Autopilot-Step line.",
        )
    paths = {commit.id: repository.changed_paths(commit.parent, commit.id) for commit in undone}
    first = undone[-1] if undone else None
    again = tuple(one.number for one in flow.steps[place:])
    ref = StepRef(step=step.number, name=step.name)
    return Rollback(
        on=on,
        step=step,
        again=again,
        undone=undone,
        before=first.parent if first else on.tip,
        restored=_restored(flow, undone, paths, on.cycle),
        touched=tuple(sorted({path for every in paths.values() for path in every} - {*state_paths(on.docs)})),
        kept=others_since(commits, first),
        after=roll_back(state, ref, later=again).state if state else None,
    )


def question(plan: Rollback) -> choose.Question:
    """Return the question to ask before anything is overwritten."""
    return choose.rollback(name=plan.step.name, folders=overwritten(plan) or [plan.on.name])


def overwritten(plan: Rollback) -> list[str]:
    """Return the folders and files that a rollback overwrites."""
    code = [path for path in plan.touched if not _within(path, plan.restored)]
    return [*(f"{path}/" for path in plan.restored), *([named(code)] if code else [])]


def carry_out(plan: Rollback, *, at: float) -> str:
    """Move the branch and its worktree; return the new commit, or the tip if nothing was left to do."""
    if plan.on.unsaved:
        plan = _with_state_committed(plan, at)
    on = plan.on
    repository, tip = on.repository, on.tip
    tree = _tree(plan) if plan.undone or plan.after != on.state else None
    if tree is not None and (plan.undone or tree != repository.trees((tip,))[0]):
        tip = commit_tree(repository, tree, (on.tip,), _message(plan), at)
        if obstacle := on.checkout.advance(on.tip, tip):
            raise _changed_meanwhile(on, obstacle)
    if plan.after is not None:
        # An ignored state file is not part of the commit; for a tracked one nothing is left to do here.
        on.save(plan.after)
    return tip


def _with_state_committed(plan: Rollback, at: float) -> Rollback:
    """Commit what the state file says now, so that it is in the history below the rollback."""
    on = plan.on
    if on.repository.branch_tip(on.name) != on.tip:
        raise _changed_meanwhile(on, "its branch has moved")
    tip = on.commit_state(f"{on.story.title}: state file", at=at)
    return replace(plan, on=replace(on, tip=tip, unsaved=False))


def _changed_meanwhile(on: StoryBranch, why: str) -> RollbackError:
    return RollbackError(
        f"story {on.story.id}: {on.worktree} changed meanwhile, so nothing was rolled back: {why}",
        hint="see `git status` there, then try again",
    )


def events(plan: Rollback, commit: str, commits: int) -> tuple[ev.Body, ...]:
    """Return the events for the journal: the answer, the new position, and that `resume` continues there."""
    story, step = plan.on.story, plan.step
    story_id = story.id
    decision = f"{story_id}-rollback-{len(story.decided) + 1}"
    words = f"step {step.number} ({step.name}) was rolled back"
    return (
        ev.DecisionAsked(story_id=story_id, decision_id=decision, question=choose.to_json(question(plan))),
        ev.DecisionAnswered(story_id=story_id, decision_id=decision, letter="A", by="rollback"),
        ev.DecisionApplied(story_id=story_id, decision_id=decision, retry=True),
        ev.PlaceFound(
            story_id=story_id,
            step_number=step.number,
            step_name=step.name,
            confidence=1.0,
            correction=words,
            again=plan.again,
        ),
        ev.StoryFinished(
            story_id=story_id,
            verdict="stopped",
            reason=words,
            next=f"autopilot-multi resume {plan.on.run_id}",
            commit=commit,
            commits=commits,
        ),
    )


def _restored(
    flow: Flow, undone: Iterable[Commit], paths: dict[str, tuple[str, ...]], cycle: int
) -> tuple[str, ...]:
    """Return the artifact folders of the steps that wrote only documents."""
    wrote: dict[int, bool] = {}
    for commit in undone:
        place = commit.place or 0
        only_docs = all(_within(path, [flow.docs]) for path in paths[commit.id])
        wrote[place] = wrote.get(place, True) and only_docs
    folders = {
        folder
        for place, only_docs in wrote.items()
        if only_docs
        for artifact in (flow.steps[place].artifacts if place < len(flow.steps) else ())
        if (folder := _folder(in_cycle(artifact, cycle), flow.docs))
    }
    return tuple(sorted(folders))


def _folder(artifact: str, docs: str) -> str | None:
    """Return the folder of an artifact below that of the documents; the file if it is directly there."""
    glob = artifact_parts(artifact)[0].strip("/")
    if not _within(glob, [docs]):
        return None
    still = tuple(takewhile(lambda part: not _WILD & set(part), glob.split("/")[:-1]))
    if len(still) > docs.count("/") + 1:
        return "/".join(still)
    return None if _WILD & set(glob) else glob


def _within(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _tree(plan: Rollback) -> str:
    """Compute the tree of the branch after the rollback, in a separate index."""
    on = plan.on
    repository, folder = on.repository, autopilot_dir(on.repository.common_dir)
    with tempfile.TemporaryDirectory(dir=folder, prefix="rollback-") as place:
        env = {"GIT_INDEX_FILE": str(Path(place, "index"))}
        repository.run("read-tree", on.tip, cwd=on.worktree, env=env)
        for commit in plan.undone:
            _reverse(commit, plan, env)
        now, then = (_entries(commit, plan) for commit in (on.tip, plan.before))
        # Mode 0 removes a path from the index, unless the path existed before: then its old line wins.
        gone = "0" * len(on.tip)
        lines = {path: f"0 {gone}\t{path}" for path in now} | then | _state_entry(plan)
        if lines:
            entries = "".join(f"{line}\0" for line in lines.values()).encode(errors="surrogateescape")
            repository.run("update-index", "-z", "--index-info", cwd=on.worktree, env=env, stdin=entries)
        return repository.run("write-tree", cwd=on.worktree, env=env).stdout.strip()


def _reverse(commit: Commit, plan: Rollback, env: dict[str, str]) -> None:
    """Revert one checkpoint's changes in the index, except for paths that are restored as a whole."""
    repository, worktree = plan.on.repository, plan.on.worktree
    spared = [f":(exclude,top,literal){path}" for path in (*state_paths(plan.on.docs), *plan.restored)]
    form = ("-r", "-p", "--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv")
    prefixes = ("--src-prefix=a/", "--dst-prefix=b/")
    args = ("diff-tree", *form, *prefixes, commit.parent, commit.id, "--", ".", *spared)
    patch = repository.run(*args, cwd=worktree).stdout
    if not patch:
        return
    # Older versions of git cannot combine --3way with --cached; there only exact matches are reverted.
    merging = ("--3way",) if repository.version >= _THREE_WAY_SINCE else ()
    undo = ("apply", "--cached", "--reverse", "--whitespace=nowarn", *merging)
    data = patch.encode(errors="surrogateescape")
    if repository.run(*undo, cwd=worktree, env=env, stdin=data, check=False).returncode == 0:
        return
    own = repository.changed_paths(commit.parent, commit.id)
    since = set(repository.changed_paths(commit.id, plan.on.tip))
    raise RollbackError(
        f"story {plan.on.story.id}: commit {commit.id[:10]} ({one_line(commit.subject)}) cannot be reverted:"
        f" {named([path for path in own if path in since] or own)} changed since",
        hint=f"revert the later changes first, or `git revert {commit.id[:10]}` and resolve by hand",
    )


def _entries(commit: str, plan: Rollback) -> dict[str, str]:
    """Return the files of a commit that are restored, as lines for an index."""
    if not plan.restored:
        return {}
    args = ("ls-tree", "-r", "-z", "--full-tree", commit, "--", *plan.restored)
    lines = {line.partition("\t")[2]: line for line in plan.on.repository.run(*args).fields()}
    return {path: line for path, line in lines.items() if path not in state_paths(plan.on.docs)}


def _state_entry(plan: Rollback) -> dict[str, str]:
    """Return the state file's line for the index; none for a file that is not committed."""
    on = plan.on
    if plan.after is None or on.state_file is None:
        return {}
    listed = on.repository.run("ls-tree", "-z", "--full-tree", on.tip, "--", on.state_file).fields()
    if not listed:
        return {}
    text = render(plan.after, vocabulary=on.vocabulary).encode()
    args = ("hash-object", "-w", "--stdin", f"--path={on.state_file}")
    blob = on.repository.run(*args, cwd=on.worktree, stdin=text).stdout.strip()
    return {on.state_file: f"{listed[0].split(' ')[0]} blob {blob}\t{on.state_file}"}


def _message(plan: Rollback) -> str:
    step, count = plan.step, len(plan.undone)
    return (
        f"Roll back step {step.number} ({step.name})\n\n"
        f"Rolls back {count} checkpoint{'s' * (count != 1)} of this step and later ones.\n\n"
        f"Autopilot-Run: {plan.on.run_id}\n"
        f"Autopilot-Story: {plan.on.story.id}\n"
        f"Autopilot-Rollback: {step.number} {step.name}\n"
        + "".join(f"Autopilot-Reverts: {commit.id}\n" for commit in plan.undone)
    )
