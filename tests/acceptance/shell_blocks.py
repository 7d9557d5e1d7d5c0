"""The shell blocks of a page, and how they are run: in the order of the page, as by somebody who pastes them.

A comment before a block, which readers do not see, says what the block needs:

    <!-- run: in parked; with jq; exit 5 -->    a new repository, a program, another exit code than 0
    <!-- run: past 5 -->                        a command inside may exit with 5
    <!-- run: as autopilot-multi.toml -->       not a command: the content of this file
    <!-- not run: reason -->                    not here, and why
    <!-- not run: reason; instead venv -->      and what stands in for it

A file whose name is the line before the block (`stories/soup.md`:) is written. In a `console` block each
command begins with `$ `, and prints what follows it.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from runner.agents.catalog import KNOWN
from tests.acceptance.program import LIMIT
from tests.acceptance.typed_program import folder_with_program

_FENCE = re.compile(r"^( *)```(\S*)$")
_NAMED = re.compile(r"^`([^`\s]+)`:$")
_RUN = re.compile(r"^<!-- run: (.*) -->$")
_NOT_RUN = re.compile(r"^<!-- not run: (.*?)(?:; instead (\w+))? -->$")
_SHELL = {"sh", "bash", "console"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of a page."""

    line: int
    language: str
    text: str
    file: str = ""
    not_run: str = ""
    instead: str = ""
    wants: dict[str, str] = field(default_factory=dict)


def blocks_of(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page that are run, written, or marked as not run."""
    before, start, indent, language = "", 0, "", ""
    inside: list[str] | None = None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = _FENCE.match(line)
        if inside is None and fence:
            inside, start, (indent, language) = [], number, fence.groups()
        elif inside is None:
            before = line.strip() or before
        elif fence:
            block = _block(before, start, language, "".join(f"{each}\n" for each in inside))
            if block.file or block.language in _SHELL:
                yield block
            inside, before = None, ""
        else:
            inside.append(line.removeprefix(indent))


def _block(before: str, line: int, language: str, text: str) -> Block:
    run, not_run, named = _RUN.match(before), _NOT_RUN.match(before), _NAMED.match(before)
    wants = dict(part.strip().split(" ", 1) for part in run[1].split(";")) if run else {}
    assert set(wants) <= {"in", "with", "exit", "past", "as"}, f"line {line}: {before}"
    file = wants.get("as") or (named[1] if named else "")
    reason, instead = not_run.groups("") if not_run else ("", "")
    return Block(
        line=line, language=language, text=text, file=file, not_run=reason, instead=instead, wants=wants
    )


def told(text: str, folder: Path) -> list[str]:
    """Leave out what differs from run to run: ids, times, places and the state of the machine."""
    for pattern, word in (
        (r"\b\d{8}-\d{6}-[0-9a-f]{8}\b", "RUN"),
        (r"\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b", "COMMIT"),
        (r"\b\d\d:\d\d:\d\d\b", "CLOCK"),
        (r"\b\d+(?:\.\d)? (?:s|min)\b", "TIME"),
        (r"^ *worked .*, waited .*$", ""),  # shown only where a story waited for a second or more
        (r"\bmachine OK, [^·]*·", "TIER ·"),
        (r"(?:/home/you)(?=/)", str(folder)),
    ):
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return [" ".join(line.split()) for line in text.splitlines() if line.strip()]


Scene = Callable[[Path], dict[str, str] | None]


class Reader:
    """Somebody who pastes the blocks of one page into one shell, and compares what is printed."""

    def __init__(self, home: Path, scenes: dict[str, Scene]) -> None:
        self._home = home
        self._scenes = scenes
        self._state = home / ".shell"
        self._state.write_text(f"cd {home}\n")
        self._code = 0
        self._scene_number = 0

    def follow(self, block: Block) -> None:
        """Write or run one block, or what stands in for it."""
        if block.not_run:
            if block.instead:
                self._scenes[block.instead](self._place())
            return
        for program in block.wants.get("with", "").split():
            if shutil.which(program) is None:
                pytest.skip(f"this machine has no {program}")
        if scene := block.wants.get("in"):
            self._enter(scene)
        if block.file:
            path = self._place() / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            path.chmod(0o755 if block.text.startswith("#!") else 0o644)
        elif block.language == "console":
            self._type(block)
        else:
            passed = block.wants.get("past", "0")
            stop = f"trap 'failed=$?; [ $failed -eq {passed} ] || exit $failed' ERR"
            done = self._paste(f"{stop}\n{block.text}")
            expected = int(block.wants.get("exit", "0"))
            assert done.returncode == expected, f"line {block.line}:\n{done.stdout}{done.stderr}"

    def _enter(self, scene: str) -> None:
        self._scene_number += 1
        place = self._home / str(self._scene_number) / "shop"
        place.mkdir(parents=True)
        variables = self._scenes[scene](place) or {}
        exports = "".join(f"export {name}={value}\n" for name, value in variables.items())
        self._state.write_text(f"{exports}cd {place}\n")

    def _type(self, block: Block) -> None:
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            done = self._paste(f"(exit {self._code})\n{command}")
            self._code = done.returncode
            assert told(done.stdout, self._home) == told(expected, self._home), f"$ {command}\n{done.stderr}"

    def _place(self) -> Path:
        return Path(self._paste("pwd").stdout.strip())

    def _paste(self, text: str) -> "subprocess.CompletedProcess[str]":
        """Run a script in the folder and with the exported variables that the one before it left."""
        keep = f"trap 'code=$?; {{ export -p; echo cd \"$PWD\"; }} > {self._state}; exit $code' EXIT"
        out, err = self._home / ".out", self._home / ".err"
        # Files, not pipes: what is left running in the background would keep a pipe open.
        with out.open("w") as stdout, err.open("w") as stderr:
            done = subprocess.run(
                ["bash", "-c", f". {self._state}\n{keep}\n{text}"],
                stdout=stdout,
                stderr=stderr,
                stdin=subprocess.DEVNULL,
                check=False,
                timeout=LIMIT,
                env={**os.environ, "PATH": _path()},
            )
        return subprocess.CompletedProcess(done.args, done.returncode, out.read_text(), err.read_text())


def _path() -> str:
    """Return PATH with the program and without agents: what `init` and `auto` find is part of no page."""
    folders = os.environ["PATH"].split(":")
    without = [folder for folder in folders if not any((Path(folder) / name).exists() for name in KNOWN)]
    return ":".join([str(folder_with_program()), *without])
