"""The system keeps a session out of the main checkout and its siblings: as root, and as anybody else."""

import os
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from isolation.errors import KeeperError
from isolation.keeper.client import open_keeper
from isolation.model import Confinement, EnforcementLevel, Means, Overlay
from tests.conftest import git
from tests.isolation.guard.guard_scenes import FILES, play, require
from tests.isolation.keeper.scenes import SHAPES, living, ready, shape_spec, spec

NOBODY = 65534
USERS = [None, NOBODY] if os.getuid() == 0 else [None]
FOREIGN = {
    "create": "echo x > {there}/new",
    "append": "echo x >> {there}/README.md",
    "overwrite": "echo x > {there}/README.md",
    "truncate": "truncate -s 0 {there}/README.md",
    "delete": "rm -f {there}/README.md",
    "rename": "mv {there}/README.md {there}/moved",
    "take away": "mv {there}/README.md taken",
    "bring": "echo x > brought && mv brought {there}/brought",
    "link": "ln -s x {there}/link",
    "hard link": "ln {there}/README.md hard && echo x >> hard",
    "folder": "mkdir {there}/folder",
    "remove a folder": "rm -r {there}/pkg",
    "through a link": "ln -sfn {there} way && echo x > way/through",
    "by a shortcut": "echo x > {main}/../shortcut/new",
    "in place": "sed -i s/R/x/ {there}/README.md",
}
ATTRIBUTES = {
    "mode": "chmod 600 {there}/README.md",
    "time": "touch -d 2001-01-01 {there}/README.md",
}
GIT = {
    "config": "git config user.name evil",
    "hook": "echo x > {git}/hooks/pre-commit",
    "branch": "git update-ref refs/heads/main HEAD",
    "tag": "git tag evil",
    "commit in main": "git -C {main} commit --allow-empty -m evil",
    "index of main": "touch {main}/x; git -C {main} add -f x",
    "packed refs": "echo x >> {git}/packed-refs",
    "journal": "mkdir -p {git}/autopilot && echo x > {git}/autopilot/journal.db",
    "a worktree to come": "mkdir {sibling}/../three && echo x > {sibling}/../three/README.md",
    "another worktree's HEAD": "echo x > {git}/worktrees/two/HEAD",
}
ESCAPES = {
    "remount": "mount -o remount,rw,bind {main}; echo x > {main}/new",
    "unmount": "umount -l {main}; echo x > {main}/new",
    "another namespace": "unshare -Urm sh -c 'mount -o remount,rw,bind {main}; umount -l {main}; "
    "mount --bind / /mnt; echo x > /mnt{main}/new; echo x > {main}/new'",
    "the keeper's view": "echo x > /proc/$PPID/root{main}/new",
    "the keeper's namespace": "nsenter -t $PPID -m sh -c 'echo x > {main}/new'",
    "a device file": "mknod disk b 254 0",
}
OWN = {
    "file": "echo x > mine && mkdir -p a/b && mv mine a/b && rm -r a",
    "commit": "echo x > mine && git add mine && git commit -qm mine && git commit -q --amend -m again",
    "pick": "git checkout -qb autopilot/other && echo y > y && git add y && git commit -qm y && "
    "git checkout -q autopilot/one && git cherry-pick autopilot/other",
    "temporary": "mktemp && mktemp -d",
    "home": "echo x > $HOME/a && mv $HOME/a $HOME/b && mkdir -p $HOME/.cache/x",
    "device": "echo x > /dev/null",
    "shared on purpose": "echo x > {main}/node_modules/cache",
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Return a folder that any user may use."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        yield Path(os.path.realpath(name))


@pytest.fixture(params=USERS, ids=["me", "nobody"][: len(USERS)])
def user(request: pytest.FixtureRequest) -> int | None:
    """Return every user that the tests can be."""
    found: int | None = request.param
    return found


@pytest.fixture(params=list(Means))
def means(request: pytest.FixtureRequest) -> Means:
    """Return every means that this machine has."""
    wanted: Means = request.param
    require(EnforcementLevel.DENY, wanted)
    return wanted


def state(folder: Path) -> dict[str, object]:
    """Return all that a story must not change: two checkouts, other branches, config, hooks."""
    main = folder / "repo"
    trusting = ("-c", f"safe.directory={main}")
    listed = git(main, *trusting, "for-each-ref", "--format=%(refname)", "refs/heads/main", "refs/tags")
    subjects = git(main, *trusting, "log", "--format=%s", "main").split()
    config = git(main, *trusting, "config", "--local", "--name-only", "--list").split()
    hooks = sorted(path.name for path in (main / ".git" / "hooks").glob("*[!e]"))
    files = {}
    for there in (main, folder / "repo.worktrees" / "two"):
        paths = (path for path in there.rglob("*") if path.is_file() or path.is_symlink())
        own = [path for path in paths if ".git" not in path.parts and "node_modules" not in path.parts]
        files[there.name] = {str(path.relative_to(there)): path.read_text() for path in own}
    return {"refs": listed, "log": subjects, "config": config, "hooks": hooks, "files": files}


def untouched() -> dict[str, object]:
    """Return the state that every scene begins with."""
    files = {name: f"{name}\n" for name in FILES} | {".gitignore": "node_modules/\n", "first": "work"}
    config = ["core.repositoryformatversion", "core.filemode", "core.bare", "core.logallrefupdates"]
    return {
        "refs": "refs/heads/main\n",
        "log": ["first"],
        "config": config,
        "hooks": [],
        "files": {"repo": files, "two": files},
    }


def in_both(commands: dict[str, str]) -> dict[str, str]:
    """Do it to the main checkout and to the sibling's worktree."""
    places = ("{main}", "{sibling}")
    return {
        f"{name} {place}": text.replace("{there}", place)
        for name, text in commands.items()
        for place in places
    }


def worked(ended: dict[str, tuple[int, str]]) -> set[str]:
    return {name for name, (code, _) in ended.items() if code == 0}


def test_foreign_writes_are_refused(open_folder: Path, user: int | None, means: Means) -> None:
    """Open cases 1 to 3: no way of writing reaches the main checkout, a sibling or git's own files."""
    commands = {**in_both(FOREIGN), **GIT}
    ended = play("worktree", open_folder, user, means=means, commands=commands)
    assert worked(ended) == set()
    refusals = ("Read-only file system", "Permission denied", "cross-device", "busy")
    assert [out for _, out in ended.values() if not any(words in out for words in refusals)] == []
    assert state(open_folder) == untouched()


def test_attributes_are_kept_by_mounts_alone(open_folder: Path, user: int | None, means: Means) -> None:
    """Open case 4: modes and times change only where Landlock is all there is, as the docs say."""
    ended = play("worktree", open_folder, user, means=means, commands=in_both(ATTRIBUTES))
    assert worked(ended) == (set(ended) if means is Means.LANDLOCK else set())


def test_own_work_goes_on_as_ever(open_folder: Path, user: int | None, means: Means) -> None:
    """Its worktree, commits on its branch, home, temporary files and shared folders stay open."""
    ended = play("worktree", open_folder, user, means=means, commands=OWN)
    assert {name: out for name, (code, out) in ended.items() if code != 0} == {}
    assert state(open_folder) == untouched()
    assert (open_folder / "repo" / "node_modules" / "cache").exists()


def test_there_is_no_way_out(open_folder: Path, user: int | None, means: Means) -> None:
    """Neither unmounting, nor further namespaces, nor the keeper's own view reach the real tree."""
    ended = play("worktree", open_folder, user, means=means, commands=ESCAPES)
    device = worked(ended) & {"a device file"}
    assert worked(ended) == device
    assert not device or (means is Means.LANDLOCK and user is None), "a user cannot make devices"
    assert state(open_folder) == untouched()


async def test_what_cannot_be_guarded_does_not_start(tmp_path: Path) -> None:
    """A confinement that fails is an error that names the guard; the program never runs."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    overlay = Overlay(target=tmp_path, upper=tmp_path / "none", work=tmp_path / "none")
    broken = Confinement(level=EnforcementLevel.DIVERT, means=Means.MOUNTS, overlay=overlay)
    order = replace(spec(tmp_path, "touch", str(tmp_path / "started")), confinement=broken)
    with trio.fail_after(30):
        async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper:
            with pytest.raises(KeeperError, match="write guard could not be set up: No such file") as caught:
                async with keeper.start(order):
                    pass
    assert "--no-guard" in caught.value.hint
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("program", "match"), [("no-such-program", "No such file"), ("./plain", "Permission denied")]
)
async def test_a_guarded_program_that_does_not_start_says_why(
    tmp_path: Path, means: Means, program: str, match: str
) -> None:
    """The same errors as without a guard."""
    (tmp_path / "plain").write_text("no program")
    confinement = Confinement(level=EnforcementLevel.DENY, means=means)
    with trio.fail_after(30):
        async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper:
            with pytest.raises(KeeperError, match=match):
                async with keeper.start(replace(spec(tmp_path, program), confinement=confinement)):
                    pass


@pytest.mark.parametrize("shape", SHAPES)
async def test_guarded_trees_are_ended_as_any_other(tmp_path: Path, means: Means, shape: str) -> None:
    """Open cases 11 and 12: whatever the shape, nothing is left after a stop."""
    token = uuid.uuid4().hex
    (tmp_path / "closed").mkdir()
    closed = {tmp_path / "closed": "a folder"}
    confinement = Confinement(
        level=EnforcementLevel.DENY, means=means, read_only=closed, witnessed=tmp_path / "closed"
    )
    order = replace(shape_spec(tmp_path, shape, token), confinement=confinement)
    with trio.fail_after(30):
        async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper, keeper.start(order) as session:
            await ready(session)
            session.stop(grace=0.2)
            end = await session.wait()
            assert not any(living(token) for _ in range(20))
    assert (end.stopped, end.survivors) == (True, ())
