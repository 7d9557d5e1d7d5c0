"""Where a story works, as a value."""

from msgspec import Struct

from runner.core.left_out.evidence import LeftOut
from runner.core.progress.draft import Draft


class WorkspaceInfo(Struct, frozen=True, kw_only=True):
    """Where a story works, and what its branch holds.

    `head` is where the branch pointed when this run first opened it, `commit` is its newest commit.
    `unchanged` means that this commit has the same files as the base, whatever happened in between,
    `markers` are the files to which it adds conflict markers. `opening` means that a workspace was begun and
    not yet recorded as open, `refused` that the story ended like that with its folder still there, `apart`
    that it is a worktree although the run shares one tree. `merged` is the branch that contains the work by
    now; it is not recorded, but found out when a run is shown. `landed` is the branch that a landing has
    brought the work to, `landed_as` its commit there, `unlanded` says why the last landing left it out,
    `left_out` with all evidence. `draft` is its pull request. `ports` and `database` are its own while it
    runs. `worker` is the machine of a cluster that has it, `instance` the process there, and `fence` the
    number of this placing.
    """

    path: str | None = None
    branch: str | None = None
    base: str | None = None
    head: str | None = None
    commit: str | None = None
    commits: int = 0
    unchanged: bool = False
    markers: tuple[str, ...] = ()
    opening: bool = False
    refused: bool = False
    apart: bool = False
    merged: str = ""
    landed: str = ""
    landed_as: str = ""
    unlanded: str = ""
    left_out: LeftOut | None = None
    draft: Draft | None = None
    ports: tuple[int, ...] = ()
    database: str = ""
    worker: str = ""
    instance: str = ""
    fence: int = 0
