"""The search for ways out, where a session does not see its own tree under the path of the checkout.

Only files at known places are read, and of large folders only a part, so that a search takes milliseconds.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from isolation.git.repository import Repository
from isolation.worktree.provision import INCLUDE_FILE
from runner.core.model import Story
from runner.core.settings import Settings
from runner.plan.ways_out.checkout import Checkout
from runner.plan.ways_out.folders import build_files, copied_files, shared_links
from runner.plan.ways_out.python import environments, installs
from runner.plan.ways_out.surroundings import around, named_commands, project_files, variables
from runner.plan.ways_out.way_out import WayOut


def find_ways_out(
    repository: Repository,
    settings: Settings,
    root: Path,
    *,
    stories: Sequence[Story] = (),
    environ: Mapping[str, str],
) -> tuple[WayOut, ...]:
    """Find by which ways verify commands would use the checkout; `root` is the folder of the worktrees."""
    main = repository.main_checkout
    if main is None:
        return ()
    shared = tuple(main / name for name in settings.symlink_directories if (main / name).is_dir())
    checkout = Checkout((main, repository.top), shared, environ.get("PWD", ""))
    commands = _commands(settings, stories)
    found = [
        *named_commands(commands, checkout),
        *variables(environ, commands.values(), checkout),
        *_in_environments(commands, environ, shared, main, checkout),
        *_in_shared(shared, checkout),
        *_in_copies(repository, main, checkout),
        *_in_project(repository, checkout),
        *around(root, environ, checkout),
    ]
    return _in_order(repository, main, found)


def _commands(settings: Settings, stories: Sequence[Story]) -> dict[str, str]:
    """Return the commands that run in worktrees, by the place where they are written."""
    commands = {f"verify {number}": command for number, command in enumerate(settings.verify, 1)}
    for story in stories:
        if story.verify != settings.verify:
            named = enumerate(story.verify, 1)
            commands |= {f"story {story.id}, verify {number}": command for number, command in named}
    hooks = settings.hooks
    commands |= {"hook after_create": hooks.after_create, "hook before_run": hooks.before_run}
    return {whose: command for whose, command in commands.items() if command}


def _in_environments(
    commands: Mapping[str, str],
    environ: Mapping[str, str],
    shared: Sequence[Path],
    main: Path,
    checkout: Checkout,
) -> Iterator[WayOut]:
    for environment in environments(commands.values(), environ, shared, main):
        yield from installs(environment, environ, checkout)


def _in_shared(shared: Sequence[Path], checkout: Checkout) -> Iterator[WayOut]:
    for folder in shared:
        yield from shared_links(folder, "linked by symlink-directories", checkout)
        yield from build_files(folder, "linked by symlink-directories", checkout)


def _in_copies(repository: Repository, main: Path, checkout: Checkout) -> Iterator[WayOut]:
    patterns = main / INCLUDE_FILE
    if patterns.is_file():
        listing = ("ls-files", "-z", "--others", "--ignored", f"--exclude-from={patterns}")
        yield from copied_files(main, repository.run(*listing, cwd=main).fields(), checkout)


def _in_project(repository: Repository, checkout: Checkout) -> Iterator[WayOut]:
    found = {
        Path(way.where).relative_to(repository.top): way for way in project_files(repository.top, checkout)
    }
    if found:
        # A file that is not committed is in no worktree.
        listing = repository.run("ls-files", "-z", "--", *map(str, found), cwd=repository.top)
        yield from (found[path] for path in map(Path, listing.fields()) if path in found)


def _in_order(repository: Repository, main: Path, found: Sequence[WayOut]) -> tuple[WayOut, ...]:
    """Return each way out once, certain ones first.

    One that leads to what git ignores is not certain: a story does not commit anything there.
    """
    if not found:
        return ()
    inside = {
        way: str(way.leads_to.relative_to(main))
        for way in dict.fromkeys(found)
        if way.leads_to != main and way.leads_to.is_relative_to(main)
    }
    stdin = b"".join(os.fsencode(path) + b"\0" for path in set(inside.values()))
    answer = repository.run("check-ignore", "-z", "--stdin", cwd=main, check=False, stdin=stdin)
    ignored = set(answer.fields())
    ways = (
        replace(way, certain=False) if inside.get(way) in ignored else way for way in dict.fromkeys(found)
    )
    return tuple(sorted(ways, key=lambda way: not way.certain))
