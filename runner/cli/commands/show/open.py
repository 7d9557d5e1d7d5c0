"""Print the folder in which a story works; or start your editor or a shell there.

With `workspace` `overlay` only programs that autopilot-multi starts see the files of a story at work: use
--shell or --editor then. Once the run has ended, its worktree becomes an ordinary one, which takes as long as
a checkout.
"""

import argparse
import os

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "cd $(autopilot-multi open checkout-17)"

SEES_TREES = True


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `open`."""
    parser.add_argument("story", metavar="STORY", help="the id of the story")
    parser.add_argument(
        "--run", metavar="RUN", help="the id of a run or its first characters (default: newest)"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--editor", action="store_true", help="start $VISUAL or $EDITOR there")
    what.add_argument("--shell", action="store_true", help="start $SHELL there")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Find the folder."""
    from pathlib import Path

    from isolation.git.repository import Repository
    from isolation.worktree.layers.seeing import require_visible
    from runner.core.errors import UsageError
    from runner.run.control.reader import RunReader
    from runner.run.control.story_view import require_workspace, story_view
    from runner.run.pool.overlays import is_reachable
    from runner.run.several.places import repository_of

    with RunReader(arguments.directory, arguments.run) as reader:
        view = story_view(reader, arguments.story)
    folder = require_workspace(view)
    repository = repository_of(Repository.open(Path(arguments.directory)), view.run, view.story.id)
    reachable = is_reachable(repository, folder)
    if arguments.editor or arguments.shell:
        require_visible(repository.common_dir, folder)
        return _start(_words(editor=arguments.editor), str(folder), editor=arguments.editor)
    if not reachable:
        raise UsageError(
            f"the files of story {arguments.story} are a layer, which only autopilot-multi sees during a run",
            hint=f"`autopilot-multi open {arguments.story} --shell` starts a shell there.",
        )
    output.document({"story": arguments.story, "workspace": str(folder)})
    output.answer(str(folder))
    return 0


def _words(*, editor: bool) -> list[str]:
    """Return the user's program, with its own arguments."""
    import shlex

    from runner.core.errors import UsageError

    names = ("VISUAL", "EDITOR") if editor else ("SHELL",)
    typed = next(filter(None, (os.environ.get(name, "") for name in names)), "" if editor else "/bin/sh")
    try:
        words = shlex.split(typed)
    except ValueError:
        words = []
    if not words:
        raise UsageError(
            "neither VISUAL nor EDITOR names your editor", hint="for example `export EDITOR=vim`."
        )
    return words


def _start(words: list[str], folder: str, *, editor: bool) -> int:
    """Become the user's program."""
    import shutil

    from runner.core.errors import UsageError

    program = shutil.which(words[0])
    if program is None:
        raise UsageError(f"{words[0]} is not on PATH", hint="check VISUAL, EDITOR or SHELL.")
    os.chdir(folder)
    os.execv(program, [*words, *(["."] if editor else [])])  # noqa: S606  the user's own program
