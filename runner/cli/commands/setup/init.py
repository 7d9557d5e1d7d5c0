"""Write a settings file and a first story.

The test command of the project and the installed agents are looked for and written as settings, each with
where it was found; of several commands you choose one. Existing files are never changed.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runner.cli.output import Output
from runner.cli.parser import common

if TYPE_CHECKING:
    from runner.agents.installed import Installed
    from runner.core.trust import Demand
    from runner.plan.settings.project import FoundCommand
    from runner.plan.settings.template import Suggestion

EXAMPLE = "autopilot-multi init && autopilot-multi plan"

SETTINGS = "autopilot-multi.toml"
STORY = "001-hello.md"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `init`."""
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Write the files that do not exist, and print what was found and the next step."""
    from isolation.paths import find_repository

    top = find_repository(Path(arguments.directory)).top
    wanted, kept = _wanted(top)
    commands, agents = _found(top)
    if SETTINGS in wanted:
        commands = _chosen(commands, output)
    suggested = _suggestions(commands, agents)
    written = [name for name in wanted if _write(top / name, _text(name, suggested))]
    kept += [name for name in wanted if name not in written]
    used = suggested if SETTINGS in written else {}
    if written:
        _agree(top, settings=SETTINGS in written, story=f"stories/{STORY}" in written)
    document: dict[str, Any] = {"written": written, "kept": kept}
    document["found"] = {
        key: [{"value": each.value, "found": each.found} for each in suggested.get(key, ())]
        for key in ("verify", "agent")
    }
    document["set"] = {key: each[0].value for key, each in used.items() if len(each) == 1}
    output.document(document)
    for name in written:
        output.answer(f"wrote {name}")
    for name in kept:
        output.answer(f"kept {name}, which already exists")
    for key, suggestions in used.items():
        output.answer("\n".join(_report(key, suggestions)))
    for folder in dict.fromkeys(each.not_ignored for each in commands if each.not_ignored and used):
        output.answer(
            f"note: git does not ignore {folder}/, so stories cannot share it. Add it to .gitignore, delete "
            f"{SETTINGS} and run `autopilot-multi init` again."
        )
    output.answer("next: see what would run with `autopilot-multi plan`, then run it with `autopilot-multi`.")
    return 0


def _agree(top: Path, *, settings: bool, story: bool) -> None:
    """Agree, for the user, to what was just written: it was found here or chosen by them."""
    import os

    from isolation.git.repository import Repository
    from runner.plan.settings.load import load_settings
    from runner.plan.stories.sources import load_stories
    from runner.plan.trust.agreed import agree
    from runner.plan.trust.demands import story_demands

    demands: list[Demand] = []
    if settings:
        demands += load_settings(top=top, flags={}, environ=os.environ).demands
    for one in load_stories((), top=top, default="stories", cwd=top) if story else ():
        demands += story_demands(one)
    agree(Repository.open(top), demands, os.environ)


def _found(top: Path) -> "tuple[tuple[FoundCommand, ...], list[Installed]]":
    import os

    from isolation.git.repository import Repository
    from runner.agents.installed import find_installed
    from runner.plan.settings.project import find_test_commands

    repository = Repository.open(top)

    def is_ignored(folder: str) -> bool:
        return repository.run("check-ignore", "-q", folder, cwd=top, check=False).returncode == 0

    return find_test_commands(top, is_ignored), list(find_installed(os.environ))


def _chosen(commands: "tuple[FoundCommand, ...]", output: Output) -> "tuple[FoundCommand, ...]":
    """Ask which of several commands verifies a story; without a terminal, or an answer, keep them all."""
    if len(commands) <= 1 or output.as_json or output.quiet or not _is_terminal(sys.stdin, sys.stdout):
        return commands
    output.answer("which command must pass before a story is done?")
    for number, each in enumerate(commands, 1):
        output.answer(f"  {number}) {each.command}  ({each.found})")
    sys.stdout.write(f"number [1 to {len(commands)}, Enter to choose later]: ")
    sys.stdout.flush()
    answer = sys.stdin.readline().strip()
    numbers = {str(number): each for number, each in enumerate(commands, 1)}
    return (numbers[answer],) if answer in numbers else commands


def _is_terminal(*streams: Any) -> bool:
    return all(stream is not None and stream.isatty() for stream in streams)


def _suggestions(
    commands: "Sequence[FoundCommand]", agents: "Sequence[Installed]"
) -> "dict[str, list[Suggestion]]":
    """Return what to write for each setting of which something was found."""
    from runner.plan.settings.template import Suggestion

    suggested = {
        "verify": [Suggestion(value=each.command, found=each.found) for each in commands],
        "agent": [Suggestion(value=each.name, found=f"{each.name} is installed") for each in agents],
    }
    if len(commands) == 1 and commands[0].folder:
        folder = commands[0].folder
        reason = f"`{commands[0].command}` needs {folder}, which git ignores"
        suggested["symlink-directories"] = [Suggestion(value=folder, found=reason)]
    return {key: each for key, each in suggested.items() if each}


def _report(key: str, suggestions: "Sequence[Suggestion]") -> list[str]:
    from runner.plan.settings.template import setting_line

    if len(suggestions) == 1:
        return [f"set {setting_line(key, suggestions[0].value)} ({suggestions[0].found})"]
    if key == "agent":
        names = ", ".join(each.value for each in suggestions)
        return [f"found several agents: {names}; {suggestions[0].value} is used unless you choose another"]
    lines = [f"  {setting_line(key, each.value)} ({each.found})" for each in suggestions]
    return [f"found several test commands; choose one in {SETTINGS}:", *lines]


def _wanted(top: Path) -> tuple[list[str], list[str]]:
    """Return the names of the files to write, and of those that exist."""
    wanted, kept = [], []
    settings = next((name for name in (SETTINGS, f".config/{SETTINGS}") if (top / name).exists()), None)
    if settings:
        kept.append(settings)
    else:
        wanted.append(SETTINGS)
    # Any file in that folder may be part of a backlog; a sample story must not get mixed in.
    if (top / "stories").is_dir() and any((top / "stories").iterdir()):
        kept.append("stories/")
    else:
        wanted.append(f"stories/{STORY}")
    return wanted, kept


def _write(path: Path, text: str) -> bool:
    """Write a new file; return False if it was created in the meantime."""
    from runner.core.errors import SystemFaultError

    try:
        path.parent.mkdir(exist_ok=True)
        try:
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            return False
    except OSError as error:
        raise SystemFaultError(
            f"cannot write {path}: {error.strerror}", hint="check the permissions of its folder."
        ) from error
    return True


def _text(name: str, suggested: "dict[str, list[Suggestion]]") -> str:
    if name == SETTINGS:
        from runner.plan.settings.template import settings_template

        return settings_template(suggested)
    return resources.files("runner.cli.commands.setup").joinpath(STORY).read_text(encoding="utf-8")
