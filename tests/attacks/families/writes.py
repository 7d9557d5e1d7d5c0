"""Writing what is not the session's: each target by several ways."""

from tests.attacks.attack import SECRETS, WRITES, Attack, changed

TARGETS = {
    "checkout": ("$REPO/README.md", "repo/README.md", WRITES),
    "source": ("$REPO/lib/code.py", "repo/lib/code.py", WRITES),
    "config": ("$G/config", "repo/.git/config", WRITES),
    "hook": ("$G/hooks/pre-commit", "repo/.git/hooks/pre-commit", WRITES),
    "head": ("$G/HEAD", "repo/.git/HEAD", WRITES),
    "packed-refs": ("$G/packed-refs", "repo/.git/packed-refs", WRITES),
    "exclude": ("$G/info/exclude", "repo/.git/info/exclude", WRITES),
    "records": ("$G/autopilot/kept", "repo/.git/autopilot/kept", WRITES),
    "linked": ("$FOLDER/linked/README.md", "linked/README.md", WRITES),
    "agreement": ("$HOME/.local/share/autopilot-multi/trust/one.json", "", SECRETS),
    "settings": ("$HOME/.config/autopilot-multi/extra.toml", "", SECRETS),
    "ssh": ("$HOME/.ssh/authorized_keys", "", SECRETS),
}
"""Each target as a session names it, where it really is, and the seal that keeps a session from it."""

_WAYS = {
    "append": 'echo evil >> "$P"',
    "truncate": ': > "$P"',
    "replace": 'echo evil > "$P.new" && mv "$P.new" "$P"',
    "mode": 'chmod 777 "$P"',
    "symlink": 'ln -s "$P" "$LINK" && echo evil >> "$LINK"',
    "hardlink": 'ln "$P" second && echo evil >> second',
    "root": 'echo evil >> /proc/self/root"$P"',
    "remount": 'unshare -rm sh -c "mount -o remount,bind,rw $(dirname $P); umount -l $P; echo evil >> $P"',
    "delete": 'rm "$P"',
}


_NOTHING_THERE = "in the session's view nothing is there, and the session names a link of its own alone"


def place_of(target: str) -> str:
    """Return where a target is, in the folder of the scene."""
    seen, place, _ = TARGETS[target]
    return place or seen.replace("$HOME", "home")


def attacks() -> list[Attack]:
    """Return the attacks of this family."""
    return [
        Attack(
            name=f"write-{way}-{target}",
            family="writes",
            script=f'P="{seen}"; LINK=leads-{target}; mkdir -p s-{way}-{target}; cd s-{way}-{target}; {script}',
            seal=seal,
            proof=changed(place_of(target)),
            target=f"leads-{target}" if way == "symlink" else seen.rpartition("/")[2],
            silent=_silent(way, target),
        )
        for target, (seen, _, seal) in TARGETS.items()
        for way, script in _WAYS.items()
    ]


def _silent(way: str, target: str) -> str:
    """Return why nothing can be named; empty if something must be."""
    if TARGETS[target][0].startswith("$REPO/"):
        return "in the session's view its own tree stands there"
    return _NOTHING_THERE if (way, target) == ("symlink", "agreement") else ""
