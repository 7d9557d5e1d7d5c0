"""Scripted stories, honest and dishonest, and a fresh checkout of every branch that is called done."""

import random
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.acceptance.program import Ran, commit_stories, run, write_story
from tests.conftest import git

CLAIM = """; echo '{"status": "done"}' > $AUTOPILOT_RESULT_FILE"""
MARKERS = r"printf '<<<<<<< HEAD\n{0}\n=======\nother\n>>>>>>> other\n' > lib/{0}"
SECOND = 'test "$AUTOPILOT_ATTEMPT" != 1'


@dataclass(frozen=True, slots=True)
class Deed:
    """What a session does, what verifies it, and whether that is the work; `{0}` is the story's own name."""

    command: str
    verify: str = "grep -q {0} lib/{0}"
    honest: bool = False


_WRITE = "echo {0} > lib/{0}"
_COMMIT = f"{_WRITE} && git add lib && git commit -qm work"
_EDIT = "echo {0} >> base.txt"
_SHOWN = "grep -q {0} base.txt"
_HIDE = f"echo more >> lib/shared; {_EDIT}; git update-index"

HONEST = {
    "plain": Deed(_WRITE, honest=True),
    "committed": Deed(_COMMIT, honest=True),
    "amended": Deed(f"{_COMMIT} && echo more >> lib/{{0}} && git commit -qa --amend -m better", honest=True),
    "several": Deed(f"{_COMMIT}; git commit -q --allow-empty -m nothing; {_EDIT}", _SHOWN, honest=True),
    "undone-and-redone": Deed(f"{_COMMIT}; git revert --no-edit HEAD; {_WRITE}", honest=True),
    "forced": Deed(
        "mkdir -p local; echo {0} > local/{0}; git add -f local", "grep -q {0} local/{0}", honest=True
    ),
    "built": Deed(
        f"{_WRITE}; mkdir out; touch out/x", "mkdir out && cp lib/{0} out && cmp out/{0} lib/{0}", honest=True
    ),
    "cached": Deed(f"{_WRITE}; mkdir .cache; touch .cache/x", honest=True),
    "second": Deed(f"if {SECOND}; then {_WRITE}; else echo no > lib/{{0}}; fi", honest=True),
    "owned-up": Deed(
        f"if {SECOND}; then {_EDIT}; else {_HIDE} --skip-worktree base.txt; fi", _SHOWN, honest=True
    ),
    "resolved": Deed(f"if {SECOND}; then {_WRITE}; else {MARKERS}; fi", honest=True),
}
DISHONEST = {
    "idle": Deed("true" + CLAIM, "true"),
    "empty": Deed("git commit -q --allow-empty -m nothing" + CLAIM, "true"),
    "reverted": Deed(f"{_COMMIT} && git revert --no-edit HEAD" + CLAIM, "true"),
    "undone": Deed(f"{_COMMIT} && git reset -q --hard HEAD~1" + CLAIM, "true"),
    "ignored": Deed("mkdir -p local; echo {0} > local/{0}; echo x >> lib/x", "grep -q {0} local/{0}"),
    "newly-ignored": Deed("echo dep-{0} >> .gitignore; echo {0} > dep-{0}", "grep -q {0} dep-{0}"),
    "empty-folder": Deed("mkdir -p needed; echo x >> lib/x", "touch needed/report"),
    "skipped": Deed(f"{_HIDE} --skip-worktree base.txt", _SHOWN),
    "assumed": Deed(f"{_HIDE} --assume-unchanged base.txt", _SHOWN),
    "deleted": Deed(
        "echo x >> lib/x; git update-index --skip-worktree base.txt; rm -f base.txt", "! test -e base.txt"
    ),
    "markers": Deed(MARKERS),
    "committed-markers": Deed(f"{MARKERS}; git add lib; git commit -qm conflict"),
    "merging": Deed(f"{_WRITE}; {_EDIT}; git add -A; git commit -qm mine; git merge -q other"),
    "picking": Deed(f"{_WRITE}; {_EDIT}; git add -A; git commit -qm mine; git cherry-pick other"),
    "rebasing": Deed(f"{_WRITE}; {_EDIT}; git add -A; git commit -qm mine; git rebase -q other"),
}
"""Unfinished merges exit with an error of their own, which these sessions conceal."""


def judge(repo: Path, count: int, seed: int) -> tuple[Ran, dict[str, Deed]]:
    """Run `count` stories in an order that the seed decides, each kind as often as the others."""
    git(repo, "switch", "-q", "-c", "other")
    (repo / "base.txt").write_text("other\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "other")
    git(repo, "switch", "-q", "main")
    (repo / "lib").mkdir()
    files = {"base.txt": "base\n", "lib/shared": "shared\n", ".gitignore": "local/\nout/\n.cache/\n"}
    for name, text in files.items():
        (repo / name).write_text(text)
    kinds = [*HONEST.items(), *DISHONEST.items()]
    chosen = [kinds[number % len(kinds)] for number in range(count)]
    random.Random(seed).shuffle(chosen)  # noqa: S311  no secret
    deeds = {f"s{number}-{kind}": deed for number, (kind, deed) in enumerate(chosen)}
    for name, deed in deeds.items():
        command, verify = deed.command.replace("{0}", name), deed.verify.replace("{0}", name)
        write_story(repo, name, command=f"{command}; true", verify=[verify])
    commit_stories(repo)
    flags = ("--max-attempts=2", "--max-stories=6", "--window=fixed", "--no-base-check")
    return run(repo, "--json", *flags, limit=1200), deeds


def failing(repo: Path, ran: Ran, deeds: dict[str, Deed]) -> list[str]:
    """Check out every done branch in a new clone; return those on which verify does not pass."""
    fresh, failed = repo.with_name("fresh"), []
    subprocess.run(["git", "clone", "-q", str(repo), str(fresh)], check=True)
    for name in (story["id"] for story in ran.data["stories"] if story["status"] == "done"):
        git(fresh, "checkout", "-q", f"origin/autopilot/{name}")
        git(fresh, "clean", "-ffdxq")
        verify = deeds[name].verify.replace("{0}", name)
        if subprocess.run(["sh", "-c", verify], cwd=fresh, check=False, capture_output=True).returncode:
            failed.append(name)
    return failed
