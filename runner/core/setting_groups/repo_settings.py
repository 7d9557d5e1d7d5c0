"""The table `repos` of the settings: short names of other repositories in which stories work."""

from typing import Annotated

from msgspec import Struct

from runner.core.declaration import Setting


class RepoSettings(Struct, frozen=True, kw_only=True):
    """Another repository: where it is, and what its stories start from."""

    at: Annotated[
        str,
        Setting(
            help="its path, relative to this repository, or its URL",
            expects="the path or the URL of a repository",
            filled=True,
            required=True,
        ),
    ] = ""
    base: Annotated[
        str,
        Setting(
            help="what stories there start from: a branch, a tag or a commit; without it what is checked "
            "out, or of a URL the default branch",
            filled=True,
        ),
    ] = ""


OF_A_REPOSITORY = frozenset(
    {
        *(
            "verify",
            "verify_in",
            "verify_keeps",
            "verify_minutes",
            "hidden_verify",
            "base",
            "hooks",
            "prepare",
        ),
        *("symlink_directories", "sparse_paths", "sparse", "worktree_root", "shared_writable"),
        *("prompt_template", "docs_folder", "draft_remote", "draft_onto", "draft_template", "forge"),
        *("review_authors", "land_verify", "land_onto", "land_style", "land_hold", "land_message"),
    }
)
"""The fields of the settings that each repository has for its own stories; all others are the run's."""
