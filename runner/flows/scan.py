"""Scans a workspace: does an artifact exist, which step is the story at, which flow fits.

Only files with content count: an empty folder or an empty file proves nothing. Git is not needed, links
to folders are not followed, and nothing is written.
"""

import os
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath

from isolation.claims import globs as claims
from isolation.files.plain import read_plain
from isolation.patterns import pattern
from runner.core.flow import (
    PROJECT_DOCS,
    DetectedPosition,
    DetectRule,
    Edition,
    Flow,
    artifact_parts,
    in_docs,
    position,
)
from runner.flows.catalog import load_flow

DETECTION_ORDER = ("meta-repo", "existing-code", "greenfield")
"""The first that matches wins; the last matches everything."""

_WILD = pattern(r"[*?\[]")
_ENOUGH = 1 << 20
_NOT_THE_WORK = frozenset(
    {"node_modules", "vendor", "venv", "env", "__pycache__", "target", "dist", "build", "third_party"}
)
"""Folders that a glob with a leading wildcard skips: their content was downloaded or generated."""


def scan(workspace: Path, flow: Flow, *, cycle: int = 1, skipped: Collection[str] = ()) -> DetectedPosition:
    """Return the step of a flow that a workspace is at, from its files alone."""
    return position(flow, lambda artifact: is_there(workspace, artifact), cycle=cycle, skipped=skipped)


def is_there(workspace: Path, artifact: str) -> bool:
    """Return whether a non-empty file matches an artifact, and contains its line if it names one."""
    glob, line = artifact_parts(artifact)
    return any(not line or _holds(path, line) for path in _matches(workspace, _start(glob), [glob]))


def detect_flow(workspace: Path, edition: Edition = Edition.AUTODEV, *, docs: str = PROJECT_DOCS) -> str:
    """Return the name of the flow that fits a workspace; flows without steps for the edition are ignored.

    `docs` is the folder of the documents of the story that asks.
    """
    for name in DETECTION_ORDER[:-1]:
        if name == "meta-repo" and edition not in {Edition.AUTODEV, Edition.ANY}:
            continue
        flow = load_flow(name, Edition.AUTODEV if edition is Edition.ANY else edition)
        if any(_applies(workspace, in_docs(rule, docs)) for rule in flow.detect):
            return name
    return DETECTION_ORDER[-1]


def _applies(workspace: Path, rule: DetectRule) -> bool:
    if not all(is_there(workspace, artifact) for artifact in rule.every):
        return False
    if rule.none and _any(workspace, rule.none):
        return False
    return not rule.some or _any(workspace, rule.some)


def _any(workspace: Path, artifacts: Sequence[str]) -> bool:
    """Return whether one of several artifacts exists; globs that start in the same folder share a walk."""
    walks: dict[PurePosixPath, list[str]] = {}
    for artifact in artifacts:
        glob, line = artifact_parts(artifact)
        if not line:
            walks.setdefault(_start(glob), []).append(glob)
        elif is_there(workspace, artifact):
            return True
    return any(next(_matches(workspace, start, globs), None) for start, globs in walks.items())


def _start(glob: str) -> PurePosixPath:
    """Return the path without wildcards at or below which everything is that the glob matches."""
    parts = [part for part in glob.split("/") if part]
    wild = next((place for place, part in enumerate(parts) if _WILD.search(part)), len(parts))
    return PurePosixPath(*parts[:wild])


def _matches(workspace: Path, start: PurePosixPath, globs: Sequence[str]) -> Iterator[Path]:
    """Find the non-empty files at or below `start` that match one of the globs."""
    claim = claims.compile(globs)
    first = workspace / start
    if first.is_file():
        if claim.owns(start.as_posix()) and _filled(first):
            yield first
        return
    deep = any("**" in glob or glob.endswith("/") for glob in globs)
    deepest = None if deep else max(glob.count("/") for glob in globs)
    for folder, folders, files in os.walk(first):
        inside = PurePosixPath(Path(folder).relative_to(workspace).as_posix())
        if deepest is not None and len(inside.parts) >= deepest:
            folders.clear()
        if start == PurePosixPath():
            folders[:] = [name for name in folders if name not in _NOT_THE_WORK and name[0] != "."]
        folders.sort()
        for name in sorted(files):
            if claim.owns((inside / name).as_posix()) and _filled(Path(folder, name)):
                yield Path(folder, name)


def _filled(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def _holds(path: Path, line: str) -> bool:
    """Return whether a file contains a line, ignoring surrounding whitespace."""
    try:
        text = read_plain(path, _ENOUGH).decode("utf-8", "replace")
    except OSError:
        return False
    return any(one.strip() == line for one in text.splitlines())
