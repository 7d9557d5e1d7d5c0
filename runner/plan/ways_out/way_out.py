"""A way out: something by which a verify command would use the main checkout, not the story's worktree."""

from enum import Enum
from pathlib import Path

from msgspec import Struct

from runner.core.text.screen import neutral


class Kind(Enum):
    """The kinds of ways out, each with its name in JSON, what it is, and what the user can do about it."""

    EDITABLE = (
        "editable-install",
        "an editable install: Python imports the checkout",
        "start the run outside this environment, and let the hook `after_create` make one for each worktree",
    )
    INSTALLED = (
        "installed-copy",
        "a copy of the checkout that was installed: Python may import it instead of the story's files",
        "uninstall it, or let the hook `after_create` make an environment for each worktree",
    )
    PYTHON_PATH = (
        "python-path",
        "an entry of Python's search path: Python imports the checkout",
        "remove it, or give each worktree an environment of its own with the hook `after_create`",
    )
    LINK = (
        "link",
        "a link into the checkout: programs load the checkout's files through it",
        "install in each worktree with the hook `after_create` instead of sharing the folder",
    )
    BUILD = (
        "build-folder",
        "a build folder that was made for the checkout: it builds the checkout's sources",
        "configure a build folder in each worktree with the hook `after_create` instead of sharing this one",
    )
    COPY = (
        "copied-file",
        "a file that is copied into each worktree and names the checkout",
        "use relative paths in it, or take it out of `.worktreeinclude`",
    )
    VARIABLE = (
        "variable",
        "an environment variable that names the checkout",
        "unset it, or use a relative path in it",
    )
    COMMAND = (
        "command",
        "a command that names the checkout",
        "use relative paths: commands start at the top of the story's worktree",
    )
    PROJECT_FILE = (
        "project-file",
        "a project file with the absolute path of the checkout",
        "use a relative path in it, and commit that",
    )
    WORKSPACE = (
        "go-workspace",
        "a Go workspace around the worktrees that uses the checkout",
        "set GOWORK=off for the run, or set `worktree-root` to a folder outside the workspace",
    )

    def __init__(self, key: str, meaning: str, remedy: str) -> None:
        self.key = key
        self.meaning = meaning
        self.remedy = remedy


class WayOut(Struct, frozen=True, kw_only=True):
    """One way out: `where` it was found, in use as `origin`, and the path that it `leads_to`.

    One that is not `certain` depends on what the commands do with it.
    """

    kind: Kind
    where: str
    leads_to: Path
    origin: str = ""
    certain: bool = True

    @property
    def detail(self) -> str:
        """What was found, where, and what it means."""
        origin = f" ({self.origin})" if self.origin else ""
        doubt = "" if self.certain else "possibly "
        return f"{neutral(self.where)}{origin}: {doubt}{self.kind.meaning} ({neutral(str(self.leads_to))})"

    @property
    def line(self) -> str:
        """The way out in one line."""
        return f"{self.detail}; {self.kind.remedy}"

    @property
    def document(self) -> dict[str, str | bool]:
        """The way out as JSON values."""
        return {
            "kind": self.kind.key,
            "where": self.where,
            "leads_to": str(self.leads_to),
            "origin": self.origin,
            "certain": self.certain,
            "meaning": self.kind.meaning,
            "remedy": self.kind.remedy,
        }
