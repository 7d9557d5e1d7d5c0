"""State files on disk: read, merged with what others wrote meanwhile, replaced as a whole, never deleted.

The runner's writes are serialized by a lock file in an ignored folder. An agent that does not know the lock
loses nothing either: replacing the file reveals what it wrote, and that is merged. A file that cannot be
read is copied next to itself and left unchanged.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

from msgspec.structs import replace

from isolation.files.disk import LockFile, replace_file
from isolation.paths import EXCHANGE
from runner.flows.state.combine import join_writers
from runner.flows.state.dialects.autodev import broken_order
from runner.flows.state.disk.swap import Changed, put, read_settled
from runner.flows.state.errors import StateBusyError, StateError, UnreadableStateError
from runner.flows.state.model import Phase, Position, StateFile
from runner.flows.state.reading import decode, parse_state
from runner.flows.state.vocabulary import STANDARD, Vocabulary
from runner.flows.state.writing import render, require_writable

PATIENCE = 10.0
"""Seconds to wait for the lock, or for a process that keeps rewriting it; a write takes milliseconds."""

LOCK_NAME = "state.lock"
"""The name of the lock in a story's exchange folder."""

SAVER_NAME = "state.session"
"""The name of the file beside it that says which session saved a sub-step last."""

_PAUSE = 0.005


def load_state(path: Path, *, vocabulary: Vocabulary = STANDARD, copies: bool = True) -> StateFile | None:
    """Read a state file; None if it does not exist.

    An unreadable one is copied, and the error names the copy; the original stays. Without `copies` nothing
    is written.
    """
    data = _settled(path, vocabulary)
    if data is None:
        return None
    try:
        return parse_state(decode(data), vocabulary=vocabulary)
    except UnreadableStateError as error:
        if not copies:
            raise
        raise _with_copy(path, error, set_aside(path, data)) from None


def save_state(
    path: Path,
    state: StateFile,
    expected: StateFile | None,
    *,
    lock: Path,
    vocabulary: Vocabulary = STANDARD,
    replace_unreadable: bool = False,
) -> StateFile:
    """Write the runner's state, merged with what was written since `expected`; return the result.

    `expected` is what the runner loaded, None when it found no file. `lock` is a file in an ignored
    folder of the same workspace. A file that cannot be read is refused, or with `replace_unreadable`
    replaced after its bytes are copied next to it.
    """
    require_writable(state, vocabulary=vocabulary)

    def joined(on_disk: StateFile | None) -> StateFile:
        if on_disk is None:
            return state
        if on_disk.dialect is not state.dialect:
            raise StateError(
                f"{path.name} has become a {on_disk.dialect} file since it was read as {state.dialect}",
                hint="read it again, or convert it back",
            )
        return join_writers(expected, state, on_disk)

    return _write(path, joined, lock=lock, vocabulary=vocabulary, replace_unreadable=replace_unreadable)


def save_sub_step(
    path: Path, sub_step: Phase | Position, *, lock: Path, session: str, vocabulary: Vocabulary = STANDARD
) -> StateFile:
    """Write a sub-skill's progress and nothing else; in autodev its phase rises by one with each save.

    `session` is the id of the session that saves. Which one saved last is noted beside the lock: only within
    one session must a phase follow the one before it.
    """
    saver = lock.with_name(SAVER_NAME)

    def progressed(on_disk: StateFile | None) -> StateFile:
        if on_disk is None:
            raise StateError(
                f"{path.name} does not exist", hint="the runner creates it when the story starts"
            )
        goal = replace(on_disk, sub_step=sub_step)
        require_writable(goal, vocabulary=vocabulary)
        recorded = on_disk.sub_step if isinstance(on_disk.sub_step, Phase) else None
        if isinstance(sub_step, Phase) and (
            broken := broken_order(sub_step, recorded, first=_saved_last(saver) != session)
        ):
            raise StateError(
                f"sub_step {broken}", hint="save each phase once, in order; the same again changes its detail"
            )
        return goal

    saved = _write(path, progressed, lock=lock, vocabulary=vocabulary, replace_unreadable=False)
    if isinstance(sub_step, Phase):
        replace_file(saver, session.encode(errors="surrogateescape"), durable=False)
    return saved


def _saved_last(saver: Path) -> str:
    try:
        return saver.read_bytes().decode(errors="surrogateescape")
    except FileNotFoundError:
        return ""


def set_aside(path: Path, data: bytes) -> Path:
    """Copy bytes next to the file that held them; the same bytes are kept only once."""
    for number in count(1):
        copy = path.with_name(f"{path.name}.unreadable-{number}")
        try:
            descriptor = os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            if copy.read_bytes() == data:
                return copy
            continue
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return copy
    raise AssertionError  # pragma: no cover  numbers do not end


def _write(
    path: Path,
    goal: Callable[[StateFile | None], StateFile],
    *,
    lock: Path,
    vocabulary: Vocabulary,
    replace_unreadable: bool,
) -> StateFile:
    # Follow a link: replacing it would leave the file that it points to behind.
    path = require_inside(path, lock)
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(lock):
        # `seen` is what the file should hold when it is replaced, `source` what our change is based on.
        seen = source = _settled(path, vocabulary)
        exchange = partial(_put, path, lock.parent, vocabulary)
        last: StateFile | None = None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            on_disk = _understood(path, source, vocabulary, keep=last is not None or replace_unreadable)
            if on_disk is None and last is not None:
                # What was displaced is unreadable: it has been copied, and ours is already in place.
                return last
            text = render(goal(on_disk), vocabulary=vocabulary)
            data = text.encode()
            last = parse_state(text, vocabulary=vocabulary)
            try:
                displaced = seen if data == seen else exchange(data, seen)
            except Changed:
                seen, last = _settled(path, vocabulary), None
                source = seen
                continue
            if displaced == seen:
                return last
            # Another process wrote in between. Our text is in place, theirs was displaced: merge once more.
            seen, source = data, displaced
    raise StateBusyError(
        f"{path} is being rewritten continuously", hint="find out which process writes it and run again"
    )


def require_inside(path: Path, lock: Path) -> Path:
    """Return where a state file really is; refuse a link that leads out of the tree in which it was expected.

    The exchange folder, which holds the lock, tells which tree that is.
    """
    real = Path(os.path.realpath(path))
    tree = next((folder.parent for folder in lock.parents if folder.name == EXCHANGE), None)
    if tree is not None and path.is_relative_to(tree) and not real.is_relative_to(os.path.realpath(tree)):
        raise StateError(
            f"{path} leads out of its tree, to {real}",
            hint="a session has put a link there; remove it, then run again",
        )
    return real


def _put(path: Path, staging: Path, vocabulary: Vocabulary, data: bytes, seen: bytes | None) -> bytes | None:
    return put(path, data, seen=seen, staging=staging, whole=lambda found: _readable(found, vocabulary))


def _understood(path: Path, data: bytes | None, vocabulary: Vocabulary, *, keep: bool) -> StateFile | None:
    """Parse what was on disk; unreadable bytes are copied, and with `keep` count as no file."""
    if data is None:
        return None
    try:
        return parse_state(decode(data), vocabulary=vocabulary)
    except UnreadableStateError as error:
        copy = set_aside(path, data)
        if keep:
            return None
        raise _with_copy(path, error, copy) from None


def _settled(path: Path, vocabulary: Vocabulary) -> bytes | None:
    """Read a file, or return None; wait for a writer that is in the middle of writing it."""
    try:
        return read_settled(path, lambda data: _readable(data, vocabulary))
    except FileNotFoundError:
        return None


def _readable(data: bytes, vocabulary: Vocabulary) -> bool:
    try:
        parse_state(decode(data), vocabulary=vocabulary)
    except UnreadableStateError:
        return False
    return True


def _with_copy(path: Path, error: UnreadableStateError, copy: Path) -> UnreadableStateError:
    return UnreadableStateError(
        f"{path} cannot be read: {error.message}",
        problems=error.problems,
        hint=f"its bytes are also in {copy.name}; fix the file, or remove it to start from the folders",
    )


@contextmanager
def _locked(lock: Path) -> Iterator[None]:
    lock.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + PATIENCE
    while (held := LockFile.attempt(lock)) is None:
        if time.monotonic() > deadline:
            raise StateBusyError(
                f"{lock} has been locked for {PATIENCE:g} seconds",
                hint="find out which process holds it and run again",
            )
        time.sleep(_PAUSE)
    with held:
        yield
