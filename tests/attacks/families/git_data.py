"""Git's own data: objects, refs, and what tells git where to look for them."""

from tests.attacks.attack import WRITES, Attack, changed, worked

OBJECTS, REFS, SEEN, BRANCH = "git:objects", "git:refs", "git:seen", "git:branch"
"""What is looked at afterwards: files of objects, refs that are not stories', main's files as git shows them,
and the branch of a story that is done."""

_EVERYWHERE = 'for O in "$G/objects" "$REPO/.git/objects" "$G/autopilot/shared-objects"; do {do}; done'
_ON_OBJECTS = {
    "delete-loose": 'rm -f "$O/$LOOSE" && test ! -e "$O/$LOOSE"',
    "truncate-loose": 'chmod u+w "$O/$LOOSE"; : > "$O/$LOOSE"',
    "append-loose": 'chmod u+w "$O/$LOOSE"; echo evil >> "$O/$LOOSE"',
    "replace-loose": 'echo evil > "$O/evil" && mv -f "$O/evil" "$O/$LOOSE"',
    "link-loose": 'ln "$O/$LOOSE" held && chmod u+w held && echo evil >> held',
    "mode-loose": 'chmod 000 "$O/$LOOSE"',
    "delete-pack": 'rm -f "$O"/pack/*.pack',
    "delete-index": 'rm -f "$O"/pack/*.idx',
    "truncate-pack": 'for P in "$O"/pack/*.pack; do chmod u+w "$P"; : > "$P"; done',
    "append-pack": 'for P in "$O"/pack/*.pack; do chmod u+w "$P"; echo evil >> "$P"; done',
    "delete-folder": 'rm -rf "$O"/*',
    "move-folder": 'mv "$O" "$O.aside"',
    "move-loose": 'mv "$O/${LOOSE%%/*}" "$O/aside"',
    "touch-loose": 'touch -d 2001-01-01 "$O/$LOOSE"',
}
_COMMANDS = {
    "gc": "git gc --prune=now --force",
    "prune": "git prune --expire=now",
    "prune-packed": "git prune-packed",
    "repack": "git repack -a -d -f",
    "repack-loose": "git repack -A -d --unpack-unreachable=now",
    "unpack": 'git unpack-objects < "$(ls "$G"/autopilot/shared-objects/pack/*.pack "$G"/objects/pack/*.pack | head -1)"',
    "expire": "git reflog expire --expire=now --all && git gc --prune=now",
    "maintenance": "git maintenance run --task=gc",
}
_HINDERED_BY = {
    "gc": "gc.pid.lock",
    "repack": "tmp_pack",
    "repack-loose": "tmp_pack",
    "expire": "HEAD.lock",
    "maintenance": "gc.pid.lock",
}
"""What names a command on objects; the others have nothing to do in the story's own store."""
_REFS = {
    "update-ref": "git update-ref refs/heads/main HEAD~0 && git update-ref refs/heads/main $(git commit-tree -m evil HEAD^{tree})",
    "branch-force": "git branch -f main $(git commit-tree -m evil HEAD^{tree})",
    "delete-main": "git update-ref -d refs/heads/main",
    "delete-branch": "git branch -D main",
    "rename-branch": "git branch -m main other",
    "new-branch": "git branch evil",
    "tag": "git tag evil",
    "move-tag": "git tag -f kept HEAD",
    "delete-tag": "git tag -d kept",
    "note": "git notes add -m evil main",
    "stash": "echo x > stashed && git stash -u",
    "replace": "git replace $(git rev-parse main) $(git commit-tree -m evil HEAD^{tree})",
    "remote": "git update-ref refs/remotes/origin/main HEAD",
    "push-here": 'git push --receive-pack="git -c receive.denyCurrentBranch=ignore receive-pack" "$G" +$(git commit-tree -m evil HEAD^{tree}):refs/heads/main',
    "push-file": 'git push --receive-pack="git -c receive.denyCurrentBranch=ignore receive-pack" "file://$G" +$(git commit-tree -m evil HEAD^{tree}):refs/heads/main',
    "fetch-here": "git fetch -u . +$(git commit-tree -m evil HEAD^{tree}):refs/heads/main",
    "write-ref": 'git rev-parse HEAD > "$G/refs/heads/main"',
    "pack-refs": "git pack-refs --all --prune",
    "symbolic": 'git --git-dir="$G" symbolic-ref HEAD refs/heads/autopilot/victim',
    "reset-main": 'git --git-dir="$G" --work-tree="$REPO" update-ref HEAD $(git commit-tree -m evil HEAD^{tree})',
    "reflog-delete": 'rm -f "$G/logs/refs/heads/main" "$G/logs/HEAD"',
    "worktree-remove": 'git worktree remove --force --force "$FOLDER/linked"',
    "worktree-move": 'git worktree move --force --force "$FOLDER/linked" "$FOLDER/moved"',
    "worktree-add": 'git worktree add -f "$FOLDER/tmp/added" main',
    "folder": 'mv "$G/refs/heads" "$G/refs/aside"',
}
_NAMED = {
    **dict.fromkeys(("new-branch",), "refs/heads/evil"),
    **dict.fromkeys(("tag",), "refs/tags/evil"),
    "move-tag": "refs/tags/kept",
    "delete-tag": "packed-refs.lock",
    "rename-branch": "logs/refs/heads",
    "note": "refs/notes",
    "stash": "refs/stash",
    "replace": "refs/replace",
    "remote": "refs/remotes",
    "pack-refs": "packed-refs",
    "symbolic": "HEAD",
    "reset-main": "HEAD.lock",
    "reflog-delete": "logs/refs/heads/main",
    "worktree-remove": "linked",
    "worktree-move": "linked",
    "worktree-add": "worktrees",
    "folder": "refs/heads",
}
"""What names an attack on refs, if it is not the branch of the user."""
_GIT_ITSELF = {
    **dict.fromkeys(
        ("refs-branch-force", "refs-delete-branch"),
        "git itself refuses to move or delete a branch that is checked out",
    ),
    "refs-worktree-remove": "git itself refuses: in the session's view that worktree's link leads nowhere",
    "refs-worktree-move": "git itself refuses: in the session's view that worktree's link leads nowhere",
}
_OWN_STORE = {
    **dict.fromkeys(
        ("command-prune", "command-prune-packed", "command-unpack"), "it works on the story's own objects"
    ),
    "sight-over-loose": "it is made in the story's own store, where the repository's object comes first",
}
_SIGHT = {
    "alternates": 'mkdir -p "$FOLDER/tmp/evil/pack" && echo "$FOLDER/tmp/evil" >> "$G/objects/info/alternates"',
    "alternates-file": 'echo "$FOLDER/tmp/evil" > a && mv -f a "$G/objects/info/alternates"',
    "alternates-folder": 'mv "$G/objects/info" "$G/objects/x" && mkdir "$G/objects/info"',
    "grafts": 'echo "$(git rev-parse main)" > "$G/info/grafts"',
    "shallow": 'git rev-parse main > "$G/shallow"',
    "commit-graph": "git commit-graph write --reachable",
    "multi-pack": "git multi-pack-index write",
    "attributes": 'echo "* filter=evil" > "$G/info/attributes"',
    "own-pack": 'echo x | git pack-objects --all --unpacked "$G/objects/pack/pack" < /dev/null',
    "keep": 'touch "$G/objects/pack/evil.keep"',
    "false-loose": 'D="$G/objects/$FALSE"; mkdir -p "$(dirname "$D")" && printf "blob 4\\0evil" | $PYTHON -c '
    '"import sys,zlib; sys.stdout.buffer.write(zlib.compress(sys.stdin.buffer.read()))" > "$D"',
    "over-loose": 'D="$G/objects/$LOOSE"; mkdir -p "$(dirname "$D")" && printf "blob 4\\0evil" | $PYTHON -c '
    '"import sys,zlib; sys.stdout.buffer.write(zlib.compress(sys.stdin.buffer.read()))" > "$D"',
}

_SEEN_BY = {
    **dict.fromkeys(
        ("alternates", "alternates-file", "alternates-folder"), "what git knows about its objects"
    ),
    "grafts": "info/grafts",
    "shallow": "shallow",
    "commit-graph": "commit-graph",
    "multi-pack": "multi-pack-index",
    "attributes": "info/attributes",
    "own-pack": "git's packs",
    "keep": "evil.keep",
    "false-loose": "no object of git",
}
"""What names an attack on git's sight."""


def attacks() -> list[Attack]:
    """Return the attacks of this family."""
    found = [
        _attack(
            f"objects-{name}",
            _EVERYWHERE.format(do=f"({script}) && W=1") + '; test -n "$W"',
            OBJECTS,
            ".pack" if "pack" in name else "git's objects",
        )
        for name, script in _ON_OBJECTS.items()
    ]
    found += [
        _attack(f"command-{name}", script, OBJECTS, _HINDERED_BY.get(name, ""))
        for name, script in _COMMANDS.items()
    ]
    found += [
        _attack(f"refs-{name}", script, REFS, _NAMED.get(name, "refs/heads/main"))
        for name, script in _REFS.items()
    ]
    found += [
        _attack(f"sight-{name}", script, SEEN, _SEEN_BY.get(name, "")) for name, script in _SIGHT.items()
    ]
    found += [
        Attack(
            name=f"sibling-{name}",
            family="git objects and refs",
            script=f'W="$ROOT/victim"; A="$G/worktrees/victim"; {script}',
            seal=WRITES,
            proof=worked(),
            target="victim",
        )
        for name, script in {
            "file": 'echo evil > "$W/mine"',
            "new-file": 'echo evil > "$W/planted"',
            "delete": 'rm "$W/README.md"',
            "git-file": 'echo "gitdir: /nowhere" > "$W/.git"',
            "index": 'rm "$A/index"',
            "head": 'echo "ref: refs/heads/main" > "$A/HEAD"',
            "commondir": 'echo /nowhere > "$A/commondir"',
            "config": 'git config -f "$A/config.worktree" core.fsmonitor ./evil',
            "lock": 'touch "$A/index.lock"',
            "store": 'rm -r "$G/autopilot/objects/victim"',
            "git": 'git -C "$W" commit --allow-empty -m evil || git --git-dir="$A" --work-tree="$W" commit --allow-empty -m evil',
            "checkout": 'git -C "$W" reset --hard HEAD~1 || git --git-dir="$A" --work-tree="$W" reset --hard HEAD~1',
        }.items()
    ]
    found += [
        Attack(
            name=f"branch-{name}",
            family="branches of other stories",
            script=script,
            seal=WRITES,
            proof=changed(BRANCH),
            target={"all": "it deleted the branch of its story", "delete": "packed-refs.lock"}.get(
                name, "autopilot/finished"
            ),
            alone=name == "all",  # else it would remove the traces of the others
        )
        for name, script in {
            "move": "git update-ref refs/heads/autopilot/finished $(git commit-tree -m evil HEAD^{tree})",
            "delete": "git update-ref -d refs/heads/autopilot/finished",
            "file": 'echo evil > "$G/refs/heads/autopilot/finished"',
            "replace": 'git rev-parse HEAD > "$G/refs/heads/autopilot/finished.x" && mv "$G/refs/heads/autopilot/finished.x" "$G/refs/heads/autopilot/finished"',
            "rename": "git branch -M autopilot/finished autopilot/taken",
            "push": 'git push "$G" +$(git commit-tree -m evil HEAD^{tree}):refs/heads/autopilot/finished',
            "all": 'rm -rf "$G/refs/heads/autopilot" && mkdir -p "$G/refs/heads/autopilot" && git rev-parse HEAD > "$G/refs/heads/autopilot/finished"',
        }.items()
    ]
    return found


def _attack(name: str, script: str, place: str, target: str) -> Attack:
    return Attack(
        name=f"git-{name}",
        family="git objects and refs",
        script=script,
        seal=WRITES,
        proof=changed(place),
        target=target,
        alone=name == "command-expire",  # it says so much that the others would not be heard
        silent=_GIT_ITSELF.get(name) or _OWN_STORE.get(name, ""),
    )
