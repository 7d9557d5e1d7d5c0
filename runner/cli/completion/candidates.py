"""Names for a completion script: stories, runs, branches and so on, quickly and never with an error.

A shell asks while somebody types, so this module loads neither argparse nor msgspec, which would take longer
than the answer. That is why it looks for the repository and reads story files in its own, simpler way: at
worst a name is missing from what is offered.
"""

import os
import re
import sys

TYPE_CHECKING = False  # type checkers know this name; `typing` is slow to load
if TYPE_CHECKING:
    from contextlib import closing
    from sqlite3 import Connection

_MOST_FILES = 3000
_MOST_RUNS = 50
_MOST_EVENTS = 20_000
_HEAD = 4096
_FENCE = re.compile(r"---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
_ID = re.compile(r"""^id[ \t]*:[ \t]*["']?([a-z0-9][a-z0-9._-]*)""", re.MULTILINE)
_TITLE = re.compile(r"^(?:title[ \t]*:|#{1,6}[ \t])[ \t]*(.+)$", re.MULTILINE)
_LISTED = re.compile(r"""(?:^|[\s{,-])["']?id["']?\s*[:=]\s*["']?([a-z0-9][a-z0-9._-]*)""")
_STORIES = re.compile(r"""^stories[ \t]*=[ \t]*["'](.+?)["']""", re.MULTILINE)
_REMOTE = re.compile(r'^\s*\[remote "(.+)"\]', re.MULTILINE)


def print_names(kind: str, words: list[str]) -> None:
    """Print the names of one kind, a line for each, with a tab before its description if it has one."""
    try:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # a limited locale
        for name, about in _NAMES[kind](_Place(words)).items():
            sys.stdout.write(f"{name}\t{about}\n" if about else f"{name}\n")
        sys.stdout.flush()
    except Exception:  # noqa: BLE001  an error would be printed into the line that is being typed
        return


class _Place:
    """The repository that a command line means: its top, and the git directory of all its worktrees."""

    def __init__(self, words: list[str]) -> None:
        folder = words[words.index("-C") + 1] if "-C" in words[:-1] else "."
        here = os.path.realpath(os.path.expanduser(folder))  # noqa: PTH111  pathlib is slow to load
        while not os.path.exists(f"{here}/.git"):  # noqa: PTH110
            here, below = os.path.dirname(here), here  # noqa: PTH120
            if here == below:
                raise FileNotFoundError
        self.top = here
        git_dir = f"{here}/.git"
        if os.path.isfile(git_dir):  # noqa: PTH113
            git_dir = os.path.join(here, _read(git_dir).partition("gitdir:")[2].strip())  # noqa: PTH118
        shared = f"{git_dir}/commondir"
        self.git_dir = git_dir
        if os.path.isfile(shared):  # noqa: PTH113
            self.git_dir = os.path.join(git_dir, _read(shared).strip())  # noqa: PTH118


def _read(path: str, limit: int = -1) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:  # noqa: PTH123
        return file.read(limit)


def _stories(place: _Place) -> dict[str, str]:
    """Return the stories of the backlog with their titles, and those of the newest run."""
    found: dict[str, str] = {}
    for path in _story_files(place):
        text = _read(path, _HEAD if path.endswith(".md") else -1)
        if path.endswith(".md"):
            fence = _FENCE.match(text)
            stem = os.path.basename(path)[:-3].lower()  # noqa: PTH119
            given = _ID.search(fence[1]) if fence else None
            if fence or stem != "readme":
                title = _TITLE.search(text)
                found[given[1] if given else stem] = title[1].strip().strip("\"'") if title else ""
        else:
            found.update(dict.fromkeys(_LISTED.findall(text), ""))
    try:
        found.update({name: "" for name in _stories_of_newest_run(place) if name not in found})
    except Exception:  # noqa: BLE001  the backlog can be offered without the journal
        return found
    return found


def _story_files(place: _Place) -> list[str]:
    folder = os.environ.get("AUTOPILOT_MULTI_STORIES", "")
    for name in ("autopilot-multi.toml", ".config/autopilot-multi.toml"):
        if not folder and os.path.isfile(f"{place.top}/{name}"):  # noqa: PTH113
            named = _STORIES.search(_read(f"{place.top}/{name}"))
            folder = named[1] if named else ""
    files: list[str] = []
    for parent, folders, names in os.walk(os.path.join(place.top, folder or "stories")):  # noqa: PTH118
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        suffixes = (".md", ".yaml", ".yml", ".toml", ".json")
        files += [f"{parent}/{name}" for name in sorted(names) if name.endswith(suffixes)]
        if len(files) > _MOST_FILES:
            break
    return files[:_MOST_FILES]


def _runs(place: _Place) -> dict[str, str]:
    """Return the newest runs, the newest first."""
    newest = "SELECT max(run_id) FROM events"
    runs: dict[str, str] = {}
    with _journal(place) as journal:
        (run,) = journal.execute(newest).fetchone()
        while run and len(runs) < _MOST_RUNS:
            runs[run] = ""
            # One step down the index; to collect all ids would read every event of every run.
            (run,) = journal.execute(f"{newest} WHERE run_id < ?", (run,)).fetchone()
    return runs


def _stories_of_newest_run(place: _Place) -> list[str]:
    some = (
        "SELECT story_id FROM events WHERE run_id = (SELECT max(run_id) FROM events) "
        "AND story_id IS NOT NULL LIMIT ?"
    )
    with _journal(place) as journal:
        query = f"SELECT DISTINCT story_id FROM ({some})"  # noqa: S608  no text of others
        return [name for (name,) in journal.execute(query, (_MOST_EVENTS,))]


def _journal(place: _Place) -> "closing[Connection]":
    import sqlite3
    from contextlib import closing

    path = f"{place.git_dir}/autopilot/journal.db"
    # A quiet journal is read without leaving a trace, as `status` does.
    quiet = "" if os.path.exists(f"{path}-wal") else "&immutable=1"  # noqa: PTH110
    return closing(sqlite3.connect(f"file:{path}?mode=ro{quiet}", uri=True, timeout=0.1))


def _references(place: _Place, prefix: str) -> dict[str, str]:
    """Return the names of references below a prefix, packed or not."""
    found: set[str] = set()
    if os.path.isfile(f"{place.git_dir}/packed-refs"):  # noqa: PTH113
        names = (line.partition(" ")[2] for line in _read(f"{place.git_dir}/packed-refs").splitlines())
        found.update(name.removeprefix(prefix) for name in names if name.startswith(prefix))
    folder = f"{place.git_dir}/{prefix}"
    for parent, _, files in os.walk(folder):
        found.update(f"{parent}/{name}".removeprefix(folder).lstrip("/") for name in files)
    return dict.fromkeys(sorted(found), "")


def _flows(place: _Place) -> dict[str, str]:
    """Return the user's own flows, and those of the program."""
    found: list[str] = []
    for folder in (f"{place.top}/flows", f"{os.path.dirname(__file__)}/../../flows/builtin"):  # noqa: PTH120
        if os.path.isdir(folder):  # noqa: PTH112
            found += [name[:-5] for name in sorted(os.listdir(folder)) if name.endswith(".toml")]  # noqa: PTH208
    return dict.fromkeys(found, "")


def _branches(place: _Place) -> dict[str, str]:
    return _references(place, "refs/heads/")


def _quarantines(place: _Place) -> dict[str, str]:
    return _references(place, "refs/autopilot/quarantine/")


def _remotes(place: _Place) -> dict[str, str]:
    return dict.fromkeys(_REMOTE.findall(_read(f"{place.git_dir}/config")), "")


_NAMES = {
    "stories": _stories,
    "runs": _runs,
    "flows": _flows,
    "branches": _branches,
    "quarantines": _quarantines,
    "remotes": _remotes,
}
