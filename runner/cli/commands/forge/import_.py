"""Write story files from issues, work items or a checklist.

SOURCE is `github:owner/repo?label=autopilot`, `gitlab:group/project?label=autopilot`, `jira:JQL`,
`ado:QUERY` or `checklist:FILE`; with a host, `github://git.example.com/owner/repo`. Credentials are those
of `gh`, `glab` and `az`.

The text of an issue is quoted in the prompt as somebody else's words; it brings no commands and no settings.
Imported again, an issue that has changed updates its story, unless the story has started or you have edited
it.
"""

import argparse
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.plan.intake.update import FileChange

EXAMPLE = "autopilot-multi import 'github:acme/shop?label=autopilot' --dry-run"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `import`."""
    parser.add_argument("sources", nargs="+", metavar="SOURCE", help="where the issues are")
    parser.add_argument("--dry-run", action="store_true", help="say what would be written, and write nothing")
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Read all issues, decide about each file, then write."""
    from isolation.git.repository import Repository
    from runner.plan.intake.reading import load_imported
    from runner.plan.intake.update import plan_files, started_stories, stories_there
    from runner.plan.settings.load import load_settings

    directory = Path(arguments.directory)
    repository = Repository.open(directory)
    folder = load_settings(top=repository.top, flags={}, environ=os.environ).settings.stories
    there = stories_there(repository.top, folder)
    known = {story.origin: story.id for story in there.values() if story.origin}
    imported = load_imported(
        arguments.sources, os.environ, cwd=directory.resolve(), known=known, say=output.say
    )
    changes = plan_files(
        imported.stories,
        there=there,
        top=repository.top,
        folder=folder,
        started=started_stories(repository, imported.stories),
    )
    if not arguments.dry_run:
        _write(repository.top, changes)
    output.document(
        {
            "dry_run": arguments.dry_run,
            "stories": [
                {"id": each.story.id, "origin": each.story.origin, "path": each.path, "change": each.change}
                for each in changes
            ],
            "notes": list(imported.notes),
        }
    )
    _answer(changes, output, dry_run=arguments.dry_run)
    for note in imported.notes:
        output.say(f"note: {note}")
    return 0


def _answer(changes: "tuple[FileChange, ...]", output: Output, *, dry_run: bool) -> None:
    for change in changes:
        output.answer(change.line)
    if not changes:
        output.answer("no issue matches")
        return
    counts = Counter(change.change.value for change in changes)
    listed = ", ".join(f"{number} {name}" for name, number in counts.items())
    output.answer(f"{'would import' if dry_run else 'imported'}: {listed}")
    output.say("next: see what would run with `autopilot-multi plan`.")


def _write(top: Path, changes: "tuple[FileChange, ...]") -> None:
    from isolation.files.disk import replace_file
    from runner.core.errors import SystemFaultError

    for change in changes:
        if not change.text:
            continue
        path = top / change.path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, change.text.encode())
        except OSError as error:
            raise SystemFaultError(
                f"cannot write {path}: {error.strerror}", hint="fix this and import again; the rest is kept."
            ) from error
