"""The settings about worktrees: where they are, what they hold, and how many are kept ready."""

from typing import Annotated

from runner.core.declaration import Bounds, Setting
from runner.core.tier_settings import MOST_STORIES
from runner.core.work_settings import WorkSettings


class WorkspaceSettings(WorkSettings, frozen=True, kw_only=True):
    """The second part of `Settings`, after those about the work."""

    worktree_root: Annotated[
        str,
        Setting(
            asks=True,
            help="the folder for worktrees, outside the repository",
            details="Use an absolute path, or one that starts with `~`.",
            example="~/worktrees",
            empty="beside the checkout",
        ),
    ] = ""
    workspace: Annotated[
        str,
        Setting(
            help="how a story's worktree is made: by a checkout, or as a layer over one that all share",
            details="`overlay` needs a kernel that lets you mount overlays; without one the run does not "
            "start. `auto` uses worktrees then. See "
            "[overlays](../how-to/large-repositories.md#worktrees-without-a-checkout).",
            flag="--workspace HOW",
            choices=("worktree", "overlay", "auto"),
        ),
    ] = "worktree"
    pool: Annotated[
        int | None,
        Setting(
            help="how many spare worktrees are kept ready",
            details="`auto`: `max-stories`, from about 2,000 files on. `0`: none. See "
            "[the pool](../explanation/worktrees-and-safety.md#the-pool).",
            flag="--pool N",
            bounds=Bounds(low=0, high=MOST_STORIES),
            absent="auto",
            example="8",
        ),
    ] = None
    prepare: Annotated[
        str,
        Setting(
            asks=True,
            help="where the hook after_create runs: in each story's worktree, or ahead of it in the pool",
            details="In a worktree of the pool in which it has run, a story runs it again only if a lock "
            "file differs. See [prepare ahead](../how-to/bring-ignored-files.md#prepare-ahead).",
            choices=("story", "pool"),
        ),
    ] = "story"
    symlink_directories: Annotated[
        tuple[str, ...],
        Setting(
            asks=True,
            help="ignored folders of the main checkout that worktrees link to",
            expects="a list of folders inside the repository",
            example="node_modules",
            separator=",",
            inside=True,
        ),
    ] = ()
    sparse_paths: Annotated[
        tuple[str, ...],
        Setting(
            help="the only folders that the worktrees of stories hold, besides the files beside and above",
            details="Without any, a worktree holds what the main checkout holds. See "
            "[large repositories](../how-to/large-repositories.md#sparse-worktrees).",
            flag="--sparse-paths FOLDER",
            expects="a folder inside the repository or a list of folders",
            example="packages/shared",
            separator=",",
            inside=True,
        ),
    ] = ()
    sparse: Annotated[
        str,
        Setting(
            help="what a worktree holds: the folders of sparse-paths, or also those that its story owns",
            details="With `owns`, a story that owns nothing, or files in any folder, gets a full worktree.",
            flag="--sparse WHAT",
            choices=("paths", "owns"),
        ),
    ] = "paths"
