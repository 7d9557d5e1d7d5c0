"""Links and FIFOs where the program expects files of its own: it must neither follow nor wait."""

from tests.attacks.attack import SECRETS, WRITES, Attack

_ADMIN = '"$(git rev-parse --git-dir)"'
_FIFOS = {
    "result": '"$AUTOPILOT_RESULT_FILE"',
    "prompt": '"$AUTOPILOT_PROMPT_FILE"',
    "attributes": ".gitattributes",
    "ignore": ".gitignore",
    "nested": "lib/.gitignore",
    "modules": ".gitmodules",
    "head": f"{_ADMIN}/HEAD",
    "commondir": f"{_ADMIN}/commondir",
    "config": f"{_ADMIN}/config.worktree",
    "index": f"{_ADMIN}/index",
    "message": f"{_ADMIN}/COMMIT_EDITMSG",
    "orig": f"{_ADMIN}/ORIG_HEAD",
    "include": ".worktreeinclude",
    "settings": "autopilot-multi.toml",
    "object": '"$G/objects/$FALSE"',
}
_LINKS = {
    "result": ('"$AUTOPILOT_RESULT_FILE"', "file"),
    "prompt": ('"$AUTOPILOT_PROMPT_FILE"', "file"),
    "exchange": (".orchestrator", ""),
    "tracked-folder": ("lib", ""),
    "tracked-file": ("README.md", "file"),
    "ignore": (".gitignore", "file"),
    "attributes": (".gitattributes", "file"),
    "head": (f"{_ADMIN}/HEAD", "file"),
    "index": (f"{_ADMIN}/index", "file"),
    "message": (f"{_ADMIN}/COMMIT_EDITMSG", "file"),
    "logs": (f"{_ADMIN}/logs", ""),
    "view": (f"{_ADMIN}/autopilot-view-git", "file"),
    "stories": ("stories", ""),
    "objects": ('"$G/objects/ff"', ""),
}
_REPLACED = "the program replaces it with its own file"
_UNREAD = {
    "prompt": _REPLACED,
    **dict.fromkeys(("include", "settings"), "nothing reads it in a story's tree, and git stores no FIFO"),
    "commondir": "in the session's view it cannot be removed, which the kernel tells the session alone",
}
_CONTENT = {
    **dict.fromkeys(("prompt", "view"), _REPLACED),
    **dict.fromkeys(
        ("tracked-folder", "tracked-file", "ignore", "attributes", "stories"),
        "a link is content of its own tree, and nothing follows it",
    ),
}
_NAMED = {
    **dict.fromkeys(("result", "exchange"), "result file cannot be read"),
    "nested": "lib/.gitignore",
    "object": "no object of git",
    "objects": "no object of git",
}
"""How the program names it, if not by the name of the file."""
KEPT = "home/.ssh/kept"
NAMES = tuple(f"link-{name}" for name in _LINKS)
"""Each attack has a folder of its own that its link leads to, which a sealed session cannot write to."""


def attacks() -> list[Attack]:
    """Return the attacks of this family; the proof of a FIFO is that the run waits for it."""
    found = [
        Attack(
            name=f"fifo-{name}",
            family="FIFOs",
            script=f'P={path}; rm -rf "$P"; mkdir -p "$(dirname "$P")"; mkfifo "$P"; echo x > x',
            seal=WRITES,
            proof=lambda evidence, name: f"{name} hangs" in evidence.shown.get("hanging", ""),
            group=f"fifo-{name}",
            target="" if name in _UNREAD else _NAMED.get(name, path.rpartition("/")[2]),
            silent=_UNREAD.get(name, ""),
        )
        for name, path in _FIFOS.items()
    ]
    found += [
        Attack(
            name=f"link-{name}",
            family="links",
            script=f'P={path}; rm -rf "$P"; ln -s "$HOME/.ssh/kept/link-{name}/{target}" "$P"; echo x > x',
            seal=SECRETS,
            proof=lambda evidence, name: evidence.changed(f"{KEPT}/{name}"),
            group=f"link-{name}",
            target="" if name in _CONTENT else _NAMED.get(name, path.rpartition("/")[2]),
            silent=_CONTENT.get(name, ""),
        )
        for name, (path, target) in _LINKS.items()
    ]
    return found
