"""The files that a story would find if it were started now, for commands that start and write nothing.

A story that has a worktree has them there. Otherwise they are in a commit: what a flow looks at is copied out
of it, into a temporary folder.
"""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from isolation.claims import globs as claims
from isolation.git.branches import start_of
from isolation.git.repository import Repository
from isolation.model import IsolationMode, Workspace
from isolation.paths import worktree_path
from runner.core.flow import PROJECT_DOCS, Flow, artifact_parts, docs_folder, in_cycle
from runner.core.model import Story
from runner.core.settings import Settings
from runner.core.text.names import branch_of
from runner.flows.overview import blobs


@contextmanager
def story_tree(
    repository: Repository, settings: Settings, story: Story, *, base: str, root: Path, flow: Flow
) -> Iterator[Workspace]:
    """Yield the story's workspace, or a copy of what a flow looks at; `flow` is the story's own. Blocks.

    `root` holds the worktrees. Of several dependencies that are not merged yet, only the first is looked at.
    """
    branch = branch_of(story.id)
    if settings.bg_isolation == IsolationMode.NONE:
        yield Workspace(path=repository.top, branch=branch, base=base, head=base, reattached=False)
        return
    tip = repository.branch_tip(branch)
    parents = (repository.branch_tip(branch_of(name)) for name in story.depends_on)
    start = next(filter(None, parents), base)
    head = start if tip is None or repository.is_ancestor(tip, start) else tip
    begun = start_of(repository, start, head)
    path = worktree_path(root, story.id)
    if tip is not None and (path / ".git").exists():
        yield Workspace(path=path, branch=branch, base=begun, head=tip, reattached=True)
        return
    with tempfile.TemporaryDirectory(prefix="autopilot-multi-") as folder:
        _copy(repository, head, Path(folder), _wanted(flow, docs_folder(settings.docs_folder, story.id)))
        yield Workspace(path=Path(folder), branch=branch, base=begun, head=head, reattached=tip is not None)


def _wanted(flow: Flow, docs: str) -> tuple[str, ...]:
    """Return globs of all that a flow looks at: documents, and artifacts elsewhere."""
    artifacts = [artifact_parts(in_cycle(text, 1))[0] for step in flow.steps for text in step.artifacts]
    return (f"{PROJECT_DOCS}/**", f"{docs}/**", *artifacts)


def _copy(repository: Repository, commit: str, folder: Path, globs: Sequence[str]) -> None:
    wanted = claims.compile(globs)
    listed = repository.run("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit).fields()
    names = [name for name in listed if "\n" not in name and wanted.owns(name)]
    asked = "".join(f"{commit}:{name}\n" for name in names).encode(errors="surrogateescape")
    output = repository.run("cat-file", "--batch", stdin=asked).stdout.encode(errors="surrogateescape")
    for name, data in zip(names, blobs(output), strict=True):
        if data is not None:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
