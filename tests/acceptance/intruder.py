"""A session that does its own work, and in its first attempt writes where it may not.

As a program: `intruder.py NAME OTHERS PLAN`. It waits until all others are there, does every act of the
plan, and prints of each whether it went through. Standard library only: it runs as anybody.
"""

import errno
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

OWN_FILES = 20
TIME = 1_000_000_000_000_000_000


def _link_and_write(path: str, target: str, text: str) -> None:
    Path(target).hardlink_to(path)
    Path(target).write_text(text)


ACTS: dict[str, Callable[[str, str, str], object]] = {
    "create": lambda path, _, text: Path(path).write_text(text),
    "edit": lambda path, _, text: Path(path).write_text(text),
    "delete": lambda path, *_: Path(path).unlink(),
    "rename": lambda path, target, _: Path(path).rename(target),
    "symlink": lambda path, _, text: Path(path).symlink_to(text),
    "hard link": _link_and_write,
    "mode": lambda path, *_: Path(path).chmod(0o600),
    "time": lambda path, *_: os.utime(path, ns=(TIME, TIME)),
}


def _attack(name: str, others: str, plan: list[tuple[str, str, str, str]]) -> None:
    home = Path.home()
    (home / f"ready-{name}").touch()
    while not all((home / f"ready-{other}").exists() for other in others):
        time.sleep(0.01)
    for number, (kind, path, target, text) in enumerate(plan):
        try:
            ACTS[kind](path, target, text)
            outcome = "through"
        except OSError as error:
            outcome = f"refused {errno.errorcode[error.errno or 0]}"
        sys.stdout.write(f"act {number} {outcome}\n")


def main() -> None:
    """Do the own work; then, the first time, the foreign."""
    name, others, told = sys.argv[1:]
    own, attempt = Path("packages", name), os.environ["AUTOPILOT_ATTEMPT"]
    for number in range(OWN_FILES):
        (own / f"own-{number}").write_text(f"{name} {number} {attempt}\n")
    if attempt == "1":
        (own / "way").symlink_to("../..")
        _attack(name, others, json.loads(Path(told).read_text()))


if __name__ == "__main__":
    main()
