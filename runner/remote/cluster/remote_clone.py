"""A worker's clone of one repository, as the coordinator knows it: what it has, and how commits come and go.

Nothing is asked about a clone, and nothing sent to it, before a story works there.
"""

import os
import secrets
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

import trio
from trio import to_thread

from isolation.git.clones.travel import known, take_travel_bundle, unpack, write_travel_bundle
from isolation.git.repository import Repository
from isolation.paths import repository_hash
from runner.remote.cluster.wire.messages import (
    CHUNK,
    Bundle,
    ClusterError,
    Done,
    Fetch,
    Greeting,
    Piece,
    Prepare,
    Prepared,
    Put,
    Take,
)

TAKE_SECONDS = 600.0
"""For how long a worker may take over what was sent to it."""


class Ask(Protocol):
    """Asks the worker until it has answered."""

    async def __call__(self, request: Prepare | Put | Take | Fetch, *, limit: float = 2.0) -> object:
        """Return the answer."""


class RemoteClone:
    """The clone of `repository` on one worker, which `ask` asks; `folder` is for what is on its way."""

    def __init__(
        self, repository: Repository, *, run_id: str, worker: Greeting, folder: Path, ask: Ask
    ) -> None:
        self.key = repository_hash(repository.common_dir)
        """The name of its clones on all workers."""
        self._repository = repository
        self._run_id = run_id
        self._worker = worker
        self._folder = folder
        self._ask = ask
        self._known: set[str] | None = None
        self._uploads = trio.Lock()

    @property
    def is_begun(self) -> bool:
        """Whether commits of the run are there."""
        return bool(self._known)

    async def bring(self, commits: Collection[str]) -> None:
        """Send what the clone lacks of these commits, and have it taken over there."""
        async with self._uploads:
            has = self._known if self._known is not None else await self._found()
            wanted = [commit for commit in dict.fromkeys(commits) if commit not in has]
            if not wanted:
                return
            name = f"{secrets.token_hex(8)}.bundle"
            path = self._folder / name
            try:
                if await to_thread.run_sync(self._write, path, wanted, tuple(has)):
                    await self._send(path, name)
            finally:
                await to_thread.run_sync(_remove, path)
            has.update(wanted)  # from here on no other message brings them

    async def _found(self) -> set[str]:
        """Ask which commits the clone has from before."""
        answer = await self._ask(Prepare(repository=self.key), limit=TAKE_SECONDS)
        if not isinstance(answer, Prepared):
            raise self._strange(answer)
        return await self.learn(answer)

    async def learn(self, prepared: Prepared) -> set[str]:
        """Note which commits the clone has, of those that are here."""
        self._known = set(await to_thread.run_sync(known, self._repository, prepared.have))
        return self._known

    def _write(self, path: Path, wanted: Sequence[str], has: Sequence[str]) -> bool:
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_travel_bundle(self._repository, path, wanted, without=has)

    async def _send(self, path: Path, name: str) -> None:
        offset = 0
        while data := await to_thread.run_sync(_read, path, offset):
            answer = await self._ask(Put(repository=self.key, name=name, offset=offset, data=data))
            if not isinstance(answer, Done):
                raise self._strange(answer)
            offset += len(data)
        answer = await self._ask(Take(repository=self.key, name=name), limit=TAKE_SECONDS)
        if not isinstance(answer, Done):
            raise self._strange(answer)

    async def fetch(self, bundle: Bundle) -> Path:
        """Bring a bundle here in parts, none of which is sent twice; return where it is."""
        path = self._folder / f"{self._worker.instance}-{Path(bundle.name).name}"
        await to_thread.run_sync(_append, path, b"", 0)
        while (offset := await to_thread.run_sync(_size, path)) < bundle.size:
            answer = await self._ask(Fetch(run_id=self._run_id, name=bundle.name, offset=offset))
            if not isinstance(answer, Piece):
                raise self._strange(answer)
            if not answer.data:
                raise ClusterError(f"worker {self._worker.name} has no more of the bundle {bundle.name}")
            await to_thread.run_sync(_append, path, answer.data, offset)
        return path

    async def take(self, bundle: Bundle, path: Path | None) -> None:
        """Take commits over that came from there: with their batch, or as the bundle at `path`."""
        if path is None:
            await to_thread.run_sync(unpack, self._repository, bundle.data)
        else:
            await to_thread.run_sync(take_travel_bundle, self._repository, path)
            await to_thread.run_sync(_remove, path)
        if self._known is not None:
            self._known.update(filter(None, (bundle.tip, bundle.left)))

    def _strange(self, answer: object) -> ClusterError:
        return ClusterError(f"worker {self._worker.name} answered {type(answer).__name__}")


def _read(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(CHUNK)


def _size(path: Path) -> int:
    return path.stat().st_size


def _append(path: Path, data: bytes, offset: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("r+b" if path.exists() else "w+b") as file:
        file.seek(offset)
        file.write(data)


def _remove(path: Path) -> None:
    if path.exists():
        os.unlink(path)  # noqa: PTH108  it may be gone by then
