"""Rolls back a step of a story: a new commit reverts its work, and the state file follows.

History is never rewritten and no branch is deleted, so git can undo a rollback as well. The result is
computed outside the worktree; only then does the branch move to it, by a fast-forward that git refuses
if it would overwrite uncommitted changes.

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

from isolation.git.checkout import read_status
from isolation.git.commits import OWN_ADDRESS, OWN_NAME, named, operation_in_progress
from isolation.git.repository import Repository
from isolation.paths import autopilot_dir, own_git_dir
from runner.core import choose
from runner.core.errors import NotFoundError, RunnerError
from runner.core.events import events as ev
from runner.core.flow import Edition, Flow, FlowStep, artifact_parts, in_cycle, in_place, state_paths
from runner.core.model import RunSnapshot, StorySnapshot
from runner.core.text.names import did_you_mean, one_line
from runner.flows.catalog import load_flow
from runner.flows.on_request.checkpoints import Commit, load_history, others_since, undone_by
from runner.flows.overview import docs_of, vocabulary_of
from runner.flows.places import state_file_in
from runner.flows.state.disk.collection import Found, collect
from runner.flows.state.disk.files import LOCK_NAME, save_state
from runner.flows.state.model import Dialect, StateFile, StepRef
from runner.flows.state.transitions import roll_back
from runner.flows.state.vocabulary import Vocabulary
from runner.flows.state.writing import render

LOCK = f".orchestrator/{LOCK_NAME}"

_WILD = frozenset("*?[")
_THREE_WAY_SINCE = (2, 32)


class RollbackError(RunnerError):
    """A step cannot be rolled back; nothing was changed."""

    code = "rollback"


class Rollback(Struct, frozen=True, kw_only=True):
    """What a rollback would do; nothing has happened yet.

    `undone` are the checkpoints, newest first; `restored` are the paths that return to their content at
    `before`; `kept` are commits of others that stay. If `undone` is empty, an earlier rollback did it all.
    """

    story: StorySnapshot
    run_id: str
    docs: str
    branch: str
    tip: str
    step: FlowStep
    undone: tuple[Commit, ...]
    before: str
    restored: tuple[str, ...]
    touched: tuple[str, ...]
    kept: tuple[Commit, ...]
    state_file: str | None
    state: StateFile | None
    after: StateFile | None
    vocabulary: Vocabulary


def make_plan(
    repository: Repository, worktree: Path, run: RunSnapshot, story: StorySnapshot, wanted: str
) -> Rollback:
    """Plan the rollback of a step in a story's worktree; raise if something prevents it."""
    branch = story.workspace.branch or ""
    tip = _require_clean(repository, worktree, branch, story)
    vocabulary = vocabulary_of(repository.top)
    docs = docs_of(run, story)
    found = _state(worktree / docs, vocabulary)
    state = found.state if found else None
    flow = in_place(_flow(repository, story, state), docs, story.id)
    place = _place(flow, wanted)
    commits = load_history(repository, f"{story.workspace.base or run.base}..{tip}", story.id, flow)
    undone = undone_by(commits, place)
    if not undone and not (commits and commits[-1].rolled_back and commits[-1].place == place):
        raise NotFoundError(
            f"story {story.id} has no checkpoint of step {flow.steps[place].number}"
            f" ({flow.steps[place].name}) or a later one",
            hint=f"`git log {repository.name_of_branch(branch)}` shows its commits; "
            "checkpoints of steps have an Autopilot-Step line.",
        )
    paths = {commit.id: repository.changed_paths(commit.parent, commit.id) for commit in undone}
    restored = _restored(flow, undone, paths, state.cycle or 1 if state else 1)
    first = undone[-1] if undone else None
    return Rollback(
        story=story,
        run_id=run.run_id,
        docs=docs,
        branch=branch,
        tip=tip,
        step=flow.steps[place],
        undone=undone,
        before=first.parent if first else tip,
        restored=restored,
        touched=tuple(sorted({path for every in paths.values() for path in every} - {*state_paths(docs)})),
        kept=others_since(commits, first),
        state_file=found.path.relative_to(worktree).as_posix() if found else None,
        state=state,
        after=_rolled_back(state, flow, place) if state else None,
        vocabulary=vocabulary,
    )


def question(plan: Rollback) -> choose.Question:
    """Return the question to ask before anything is overwritten."""
    code = [path for path in plan.touched if not _within(path, plan.restored)]
    places = [*(f"{path}/" for path in plan.restored), *([named(code)] if code else [])]
    return choose.rollback(name=plan.step.name, folders=places or [plan.branch])


def carry_out(repository: Repository, worktree: Path, plan: Rollback, *, at: float) -> str:
    """Move the branch and its worktree; return the new commit, or the tip if nothing was left to do."""
    tip = plan.tip
    if plan.undone:
        tip = _commit(repository, _tree(repository, worktree, plan), plan, at)
        # A fast-forward, because git itself then refuses to overwrite uncommitted changes; hooks and an
        # automatic stash must not interfere with that.
        quiet = ("-c", "core.hooksPath=/dev/null", "-c", "merge.autoStash=false")
        forward = ("merge", "--quiet", "--ff-only", "--no-verify-signatures", "--no-stat", tip)
        moved = repository.run(*quiet, *forward, cwd=worktree, check=False)
        if moved.returncode != 0:
            raise RollbackError(
                f"story {plan.story.id}: {worktree} changed meanwhile, so nothing was rolled back:"
                f" {one_line(moved.stderr)}",
                hint="see `git status` there, then try again",
            )
    if plan.after is not None and plan.state_file is not None:
        # An ignored state file is not part of the commit; for a tracked one nothing is left to do here.
        lock = worktree / LOCK
        path = worktree / plan.state_file
        save_state(path, plan.after, plan.state, lock=lock, vocabulary=plan.vocabulary)
    return tip


def events(plan: Rollback, commit: str, commits: int) -> tuple[ev.Body, ...]:
    """Return the events for the journal: the answer, the new position, and that `resume` continues there."""
    story_id, step = plan.story.id, plan.step
    decision = f"{story_id}-rollback-{len(plan.story.decided) + 1}"
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
        ),
        ev.StoryFinished(
            story_id=story_id,
            verdict="stopped",
            reason=words,
            next=f"autopilot-multi resume {plan.run_id}",
            commit=commit,
            commits=commits,
        ),
    )


def _require_clean(repository: Repository, worktree: Path, branch: str, story: StorySnapshot) -> str:
    """Return the tip of the story's branch; raise with the names of uncommitted files."""
    seen = read_status(repository, worktree)
    git_dir = own_git_dir(worktree)
    operation = operation_in_progress(git_dir) if git_dir else None
    if seen.dirty:
        count = len(seen.dirty)
        raise RollbackError(
            f"story {story.id}: {worktree} has {count} uncommitted file{'s' * (count > 1)}:"
            f" {named(seen.dirty)}",
            hint="commit or stash them there, then try again",
        )
    if operation:
        raise RollbackError(
            f"story {story.id}: {worktree} is in the middle of {operation}",
            hint="finish or abort it there, then try again",
        )
    if seen.branch != branch or seen.head is None:
        raise RollbackError(
            f"story {story.id}: {worktree} is not on {branch}", hint=f"`git switch {branch}` there"
        )
    return seen.head


def _state(folder: Path, vocabulary: Vocabulary) -> Found | None:
    path = state_file_in(folder)
    if path is None:
        return None
    (found,) = collect([path], vocabulary=vocabulary)
    if found.state is None:
        raise RollbackError(
            f"{path} cannot be read: {found.problem}", hint="`autopilot-multi state check` shows more"
        )
    return found


def _flow(repository: Repository, story: StorySnapshot, state: StateFile | None) -> Flow:
    dialect = state.dialect if state else Dialect.AUTODEV
    name = (state.flow if state else None) or story.flow
    return load_flow(name, Edition(dialect), repository.top)


def _place(flow: Flow, wanted: str) -> int:
    """Find a step by its number or its name."""
    steps = list(enumerate(flow.steps))
    found = [place for place, one in steps if one.number == wanted.lower()]
    found = found or [place for place, one in steps if one.name.casefold() == wanted.casefold()]
    if len(found) == 1:
        return found[0]
    known = ", ".join(f"{one.number} ({one.name})" for one in flow.steps)
    hint = f"{did_you_mean(wanted, [one.name for one in flow.steps])} its steps: {known}".strip()
    what = f"{len(found)} steps called" if found else "no step"
    raise NotFoundError(f"the flow {flow.name} has {what} '{one_line(wanted)}'", hint=hint)


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


def _rolled_back(state: StateFile, flow: Flow, place: int) -> StateFile:
    step = flow.steps[place]
    again = {one.number for one in flow.steps[place:]}
    rolled = roll_back(state, StepRef(step=step.number, name=step.name)).state
    return replace(rolled, completed=tuple(row for row in rolled.completed if row.step not in again))


def _tree(repository: Repository, worktree: Path, plan: Rollback) -> str:
    """Compute the tree of the branch after the rollback, in a separate index."""
    with tempfile.TemporaryDirectory(dir=autopilot_dir(repository.common_dir), prefix="rollback-") as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder, "index"))}
        repository.run("read-tree", plan.tip, cwd=worktree, env=env)
        for commit in plan.undone:
            _reverse(repository, worktree, commit, plan, env)
        now, then = (_entries(repository, commit, plan) for commit in (plan.tip, plan.before))
        # Mode 0 removes a path from the index, unless the path existed before: then its old line wins.
        gone = "0" * len(plan.tip)
        lines = {path: f"0 {gone}\t{path}" for path in now} | then | _state_entry(repository, worktree, plan)
        if lines:
            entries = "".join(f"{line}\0" for line in lines.values()).encode(errors="surrogateescape")
            repository.run("update-index", "-z", "--index-info", cwd=worktree, env=env, stdin=entries)
        return repository.run("write-tree", cwd=worktree, env=env).stdout.strip()


def _reverse(
    repository: Repository, worktree: Path, commit: Commit, plan: Rollback, env: dict[str, str]
) -> None:
    """Revert one checkpoint's changes in the index, except for paths that are restored as a whole."""
    spared = [f":(exclude,top,literal){path}" for path in (*state_paths(plan.docs), *plan.restored)]
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
    since = set(repository.changed_paths(commit.id, plan.tip))
    raise RollbackError(
        f"story {plan.story.id}: commit {commit.id[:10]} ({one_line(commit.subject)}) cannot be reverted:"
        f" {named([path for path in own if path in since] or own)} changed since",
        hint=f"revert the later changes first, or `git revert {commit.id[:10]}` and resolve by hand",
    )


def _entries(repository: Repository, commit: str, plan: Rollback) -> dict[str, str]:
    """Return the files of a commit that are restored, as lines for an index."""
    if not plan.restored:
        return {}
    listed = repository.run("ls-tree", "-r", "-z", "--full-tree", commit, "--", *plan.restored).fields()
    lines = {line.partition("\t")[2]: line for line in listed}
    return {path: line for path, line in lines.items() if path not in state_paths(plan.docs)}


def _state_entry(repository: Repository, worktree: Path, plan: Rollback) -> dict[str, str]:
    """Return the state file's line for the index; None for a file that is not committed."""
    if plan.after is None or plan.state_file is None:
        return {}
    listed = repository.run("ls-tree", "-z", "--full-tree", plan.tip, "--", plan.state_file).fields()
    if not listed:
        return {}
    text = render(plan.after, vocabulary=plan.vocabulary).encode()
    args = ("hash-object", "-w", "--stdin", f"--path={plan.state_file}")
    blob = repository.run(*args, cwd=worktree, stdin=text).stdout.strip()
    return {plan.state_file: f"{listed[0].split(' ')[0]} blob {blob}\t{plan.state_file}"}


def _commit(repository: Repository, tree: str, plan: Rollback, at: float) -> str:
    step = plan.step
    count = len(plan.undone)
    message = (
        f"Roll back step {step.number} ({step.name})\n\n"
        f"Rolls back {count} checkpoint{'s' * (count > 1)} of this step and later ones.\n\n"
        f"Autopilot-Run: {plan.run_id}\n"
        f"Autopilot-Story: {plan.story.id}\n"
        f"Autopilot-Rollback: {step.number} {step.name}\n"
        + "".join(f"Autopilot-Reverts: {commit.id}\n" for commit in plan.undone)
    )
    when = f"@{int(at)} +0000"
    env = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    if not repository.has_identity:
        env |= {f"GIT_{who}_NAME": OWN_NAME for who in ("AUTHOR", "COMMITTER")}
        env |= {f"GIT_{who}_EMAIL": OWN_ADDRESS for who in ("AUTHOR", "COMMITTER")}
    args = ("-c", "i18n.commitEncoding=UTF-8", "commit-tree", tree, "-p", plan.tip, "-F", "-")
    return repository.run(*args, env=env, stdin=message.encode(errors="surrogateescape")).stdout.strip()
