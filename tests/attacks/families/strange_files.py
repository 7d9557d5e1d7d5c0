"""Links and FIFOs where the program expects files of its own: it must neither follow nor wait."""

from tests.attacks.attack import WRITES, Attack, changed

_ADMIN = '"$(git rev-parse --git-dir)"'
_FIFOS = {
    "result": '"$AUTOPILOT_RESULT_FILE"',
    "prompt": '"$AUTOPILOT_PROMPT_FILE"',
    "attributes": ".gitattributes",
    "ignore": ".gitignore",
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
    "result": ('"$AUTOPILOT_RESULT_FILE"', "$HOME/kept/file"),
    "prompt": ('"$AUTOPILOT_PROMPT_FILE"', "$HOME/kept/file"),
    "exchange": (".orchestrator", "$HOME/kept"),
    "tracked-folder": ("lib", "$HOME/kept"),
    "tracked-file": ("README.md", "$HOME/kept/file"),
    "ignore": (".gitignore", "$HOME/kept/file"),
    "attributes": (".gitattributes", "$HOME/kept/file"),
    "head": (f"{_ADMIN}/HEAD", "$HOME/kept/file"),
    "index": (f"{_ADMIN}/index", "$HOME/kept/file"),
    "message": (f"{_ADMIN}/COMMIT_EDITMSG", "$HOME/kept/file"),
    "logs": (f"{_ADMIN}/logs", "$HOME/kept"),
    "view": (f"{_ADMIN}/autopilot-view-git", "$HOME/kept/file"),
    "stories": ("stories", "$HOME/kept"),
    "objects": ('"$G/objects/ff"', "$HOME/kept"),
}
KEPT = "home/kept"


def attacks() -> list[Attack]:
    """Return the attacks of this family; the proof of a FIFO is that the run waits for it."""
    found = [
        Attack(
            name=f"fifo-{name}",
            family="FIFOs",
            script=f"rm -rf {path}; mkdir -p $(dirname {path}); mkfifo {path}; echo x > x",
            seal=WRITES,
            proof=lambda evidence, name: f"{name} hangs" in evidence.shown.get("hanging", ""),
            group=f"fifo-{name}",
        )
        for name, path in _FIFOS.items()
    ]
    found += [
        Attack(
            name=f"link-{name}",
            family="links",
            script=f'rm -rf {path}; ln -s "{target}" {path}; echo x > x',
            seal=WRITES,
            proof=changed(KEPT),
            group=f"link-{name}",
        )
        for name, (path, target) in _LINKS.items()
    ]
    return found
