"""Write a settings file and a first story.

Existing files are never changed.
"""

import argparse
from importlib import resources
from pathlib import Path

from runner.cli.output import Output
from runner.cli.parser import common

EXAMPLE = "autopilot-multi init && autopilot-multi plan"

SETTINGS = "autopilot-multi.toml"
STORY = "001-hello.md"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `init`."""
    common(parser)


def execute(arguments: argparse.Namespace, output: Output) -> int:
    """Write the files that do not exist, and print the next step."""
    from isolation.paths import find_repository

    top = find_repository(Path(arguments.directory)).top
    wanted, kept = _wanted(top)
    written = [name for name, template in wanted.items() if _write(top / name, template)]
    kept += [name for name in wanted if name not in written]
    output.document({"written": written, "kept": kept})
    for name in written:
        output.answer(f"wrote {name}")
    for name in kept:
        output.answer(f"kept {name}, which already exists")
    output.answer("next: see what would run with `autopilot-multi plan`, then run it with `autopilot-multi`.")
    return 0


def _wanted(top: Path) -> tuple[dict[str, str], list[str]]:
    """Return the files to write with their templates, and the names of those that exist."""
    wanted, kept = {}, []
    settings = next((name for name in (SETTINGS, f".config/{SETTINGS}") if (top / name).exists()), None)
    if settings:
        kept.append(settings)
    else:
        wanted[SETTINGS] = SETTINGS
    # Any file in that folder may be part of a backlog; a sample story must not get mixed in.
    if (top / "stories").is_dir() and any((top / "stories").iterdir()):
        kept.append("stories/")
    else:
        wanted[f"stories/{STORY}"] = STORY
    return wanted, kept


def _write(path: Path, template: str) -> bool:
    """Write a new file; return False if it was created in the meantime."""
    from runner.core.errors import SystemFaultError

    text = _text(template)
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


def _text(template: str) -> str:
    if template == SETTINGS:
        from runner.plan.settings.template import settings_template

        return settings_template()
    return resources.files("runner").joinpath("data", "templates", template).read_text(encoding="utf-8")
