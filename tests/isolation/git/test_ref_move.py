"""A branch that is made or moved without git: as git does it, or not at all."""

import re

import pytest

from isolation.git.repository import Repository
from tests.conftest import git

REF = "refs/heads/autopilot/a"
WHY = "autopilot-multi: checkpoint"


class Scene:
    """A repository with the branch of a story, and a commit that it can be moved to."""

    def __init__(self, repository: Repository) -> None:
        self.repository, self.common = repository, repository.common_dir
        self.top = repository.top
        git(self.top, "branch", "autopilot/a")
        self.before = self.tip
        self.made = git(self.top, "commit-tree", "-p", "main", "-m", "made", "main^{tree}").strip()

    @property
    def tip(self) -> str:
        """Where the branch is, as git finds it."""
        return git(self.top, "rev-parse", REF).strip()

    def move(self, before: str = "") -> bool:
        """Move the branch; whether that succeeded."""
        return not self.repository.move_ref(
            REF, self.made, before or self.before, WHY, check=False
        ).returncode

    def log(self, ref: str = REF) -> list[str]:
        """Return the log of a ref, without the times of day."""
        lines = (self.common / "logs" / ref).read_text().splitlines()
        return [re.sub(r"> \d+ ", "> ", line) for line in lines]


@pytest.fixture
def scene(repository: Repository) -> Scene:
    """Return the scene."""
    return Scene(repository)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the git commands that change refs, as they run."""
    found: list[str] = []
    real = Repository.run

    def run(self: Repository, *args: str, **more: object) -> object:
        found.extend(args[:1] if args[0] in {"update-ref", "branch"} else ())
        return real(self, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Repository, "run", run)
    return found


def test_a_branch_moves_as_git_moves_it(scene: Scene, asked: list[str]) -> None:
    """Its file, its log and who is named there are the same, down to the last byte but the time."""
    assert scene.move()
    assert asked == []
    ours = (scene.common / REF).read_bytes(), scene.log(), (scene.common / REF).stat().st_mode
    assert scene.tip == scene.made
    git(scene.top, "update-ref", "-m", WHY, REF, scene.before)
    git(scene.top, "update-ref", "-m", WHY, REF, scene.made)
    assert ours == (
        (scene.common / REF).read_bytes(),
        [*scene.log()[:1], scene.log()[-1]],
        (scene.common / REF).stat().st_mode,
    )
    assert not list(scene.common.glob("refs/**/*.lock"))
    git(scene.top, "fsck", "--strict")


def test_a_branch_that_was_moved_meanwhile_stays(scene: Scene) -> None:
    """Neither the branch nor its log changes."""
    git(scene.top, "commit", "-q", "--allow-empty", "-m", "theirs")
    theirs = git(scene.top, "rev-parse", "HEAD").strip()
    git(scene.top, "update-ref", REF, theirs)
    logged = scene.log()
    assert not scene.move()
    assert (scene.tip, scene.log()) == (theirs, logged)
    assert not list(scene.common.glob("refs/**/*.lock"))


def test_a_lock_is_respected(scene: Scene) -> None:
    """What somebody else holds is theirs, and stays."""
    lock = scene.common / f"{REF}.lock"
    lock.touch()
    assert not scene.move()
    assert scene.tip == scene.before
    assert lock.exists()


def test_a_commit_that_is_not_there_is_refused(scene: Scene) -> None:
    """A branch never leads to nothing, nor to what is no commit."""
    tree = git(scene.top, "rev-parse", "main^{tree}").strip()
    for name in ("1" * 40, tree):
        scene.made = name
        assert not scene.move()
        assert scene.tip == scene.before


@pytest.mark.parametrize("what", ["packed", "hook", "hooks elsewhere", "checked out", "no log", "odd log"])
def test_what_is_unusual_is_left_to_git(scene: Scene, asked: list[str], what: str) -> None:
    """The branch moves all the same, with everything that git does besides."""
    log = scene.common / "logs" / REF
    seen = scene.top.parent / "seen"
    hooks = scene.top.parent / "hooks" if what == "hooks elsewhere" else scene.common / "hooks"
    if what == "packed":
        git(scene.top, "pack-refs", "--all")
    elif what.startswith("hook"):
        hooks.mkdir(exist_ok=True)
        hook = hooks / "reference-transaction"
        hook.write_text(f"#!/bin/sh\ncat >> {seen}\n")
        hook.chmod(0o755)
        git(scene.top, "config", "core.hooksPath", str(hooks)) if what == "hooks elsewhere" else None
    elif what == "checked out":
        git(scene.top, "symbolic-ref", "HEAD", REF)
    elif what == "no log":
        log.unlink()
    else:
        log.write_text("nothing\n")
    assert scene.move()
    assert scene.tip == scene.made
    assert asked == ["update-ref"]
    assert scene.log()[-1].endswith(WHY)
    if what.startswith("hook"):
        assert REF in seen.read_text()
    if what == "checked out":
        assert scene.log("HEAD")[-1].endswith(WHY)


NEW = "autopilot/deep/new"


def test_a_branch_is_made_as_git_makes_it(scene: Scene, asked: list[str]) -> None:
    """Its file, its log and who is named there are the same, down to the last byte but the time."""
    found = []
    for name, made in (("ours", scene.repository.make_branch), ("gits", None)):
        if made:
            assert made(f"autopilot/deep/{name}", scene.before).returncode == 0
        else:
            git(scene.top, "branch", "--no-track", f"autopilot/deep/{name}", scene.before)
        ref = f"refs/heads/autopilot/deep/{name}"
        found.append([(scene.common / ref).read_bytes(), scene.log(ref), (scene.common / ref).stat().st_mode])
    assert found[0] == found[1]
    assert asked == []
    assert not list(scene.common.glob("refs/**/*.lock"))
    git(scene.top, "fsck", "--strict")


@pytest.mark.parametrize("there", [NEW, "autopilot/deep", f"{NEW}/er"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_name_that_is_taken_stays_as_it_is(scene: Scene, there: str, *, packed: bool) -> None:
    """Also by a branch above or below, and also if git has put them all into one file."""
    git(scene.top, "branch", there, scene.made)
    if packed:
        git(scene.top, "pack-refs", "--all")
    before = git(scene.top, "for-each-ref")
    refused = scene.repository.make_branch(NEW, scene.before)
    assert refused.returncode != 0
    assert refused.stderr.startswith("fatal: ")
    assert git(scene.top, "for-each-ref") == before
    assert not list(scene.common.glob("refs/**/*.lock"))


def test_a_lock_on_a_new_name_is_respected(scene: Scene) -> None:
    """Another process is just making that branch."""
    lock = scene.common / f"refs/heads/{NEW}.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    assert scene.repository.make_branch(NEW, scene.before).returncode != 0
    assert lock.exists()
    assert git(scene.top, "branch", "--list", NEW) == ""


@pytest.mark.parametrize(
    "name", ["no..name", "ends.lock", "-option", "a b", "HEAD", "deep/.hidden", "at@{1}"]
)
def test_a_name_that_git_may_not_take_is_judged_by_git(scene: Scene, asked: list[str], name: str) -> None:
    """What it says is what the user reads."""
    made = scene.repository.make_branch(name, scene.before)
    assert made.returncode != 0
    assert made.stderr
    assert asked == ["branch"]


@pytest.mark.parametrize("what", ["hook", "hooks elsewhere", "no logs", "old log"])
def test_what_is_unusual_for_a_new_branch_is_left_to_git(scene: Scene, asked: list[str], what: str) -> None:
    """The branch is made all the same, with everything that git does besides."""
    log, seen = scene.common / f"logs/refs/heads/{NEW}", scene.top.parent / "seen"
    hooks = scene.top.parent / "hooks" if what == "hooks elsewhere" else scene.common / "hooks"
    if what.startswith("hook"):
        hooks.mkdir(exist_ok=True)
        hook = hooks / "reference-transaction"
        hook.write_text(f"#!/bin/sh\ncat >> {seen}\n")
        hook.chmod(0o755)
    if what == "hooks elsewhere":
        git(scene.top, "config", "core.hooksPath", str(hooks))
    if what == "no logs":
        git(scene.top, "config", "core.logAllRefUpdates", "false")
    if what == "old log":
        log.parent.mkdir(parents=True)
        log.write_text("of a branch that was deleted\n")
    assert scene.repository.make_branch(NEW, scene.before).returncode == 0
    assert asked == ["branch"]
    assert git(scene.top, "rev-parse", NEW).strip() == scene.before
    assert log.exists() is (what != "no logs")
    assert seen.exists() is what.startswith("hook")
