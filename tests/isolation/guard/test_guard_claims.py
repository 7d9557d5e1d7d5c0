"""Stories in one tree: what one writes outside its own folder never reaches it, and at `divert` is kept."""

import os
import stat
from pathlib import Path

import pytest

from isolation.errors import GuardError
from isolation.guard import guard
from isolation.kernel.overlay import ChangeKind, OverlayChange, overlay_changes
from isolation.model import EnforcementLevel, Means
from isolation.shared_tree.levels import LEVELS
from tests.isolation.guard.guard_scenes import FILES, play, require
from tests.isolation.guard.test_guard import ESCAPES, open_folder, user

__all__ = ["open_folder", "user"]

ROUNDS = 25
OWN = "echo mine > {own}/mine && mkdir {own}/deep && mv {own}/mine {own}/deep/mine"
FOREIGN = (
    "echo foreign > lib/new",
    "echo foreign > README.md",
    "echo foreign >> lib/c.py",
    "rm pkg/a.py",
    "mv pkg/deep/b.py pkg/moved.py",
    "ln -s nowhere link",
    "chmod 600 .gitignore",
    "rm -r lib/deep && mkdir lib/deep && echo foreign > lib/deep/again",
    "ln -s {main}/lib {own}/way && echo foreign > {own}/way/through",
    f"for n in $(seq {ROUNDS}); do echo foreign > other-$n; done",
)
ALWAYS_REFUSED = (
    "ln README.md {own}/hard && echo foreign >> {own}/hard",
    "git commit -qam evil",
    "echo x >> {git}/config",
)
STORIES = pytest.mark.parametrize("stories", [4, 8])


def listing(root: Path) -> dict[str, str]:
    """Read what is in the tree; `.git` and the stories' own folders are not looked at."""
    found = {}
    for path in root.rglob("*"):
        name = path.relative_to(root).as_posix()
        if name.split("/")[0] != ".git" and not name.startswith("pack") and not path.is_dir():
            found[name] = path.read_text() if path.is_file() else "link"
    return found


def untouched() -> dict[str, str]:
    return {name: f"{name}\n" for name in FILES} | {".gitignore": "node_modules/\n", "first": "work"}


def script(acts: tuple[str, ...]) -> str:
    """Do own work, then every act, and count those that went through."""
    counted = "".join(f"( {act} ) && through=$((through+1))\n" for act in acts)
    return f"through=0\n{OWN} || exit 99\n{counted}exit $through"


def changes(folder: Path, story: str) -> dict[str, OverlayChange]:
    return {change.path: change for change in overlay_changes(folder / "layers" / story / "upper")}


@STORIES
def test_diverted_writes_are_kept_with_their_story(open_folder: Path, user: int | None, stories: int) -> None:
    """Open cases 1, 2 and 4 at `divert`: all succeed, none reaches the tree, each is in its own overlay."""
    require(EnforcementLevel.DIVERT, Means.MOUNTS)
    commands = {f"{number}": script((*FOREIGN, f"echo {number} > whose")) for number in range(stories)}
    ended = play("claim", open_folder, user, level="divert", commands=commands)
    assert {code for code, _ in ended.values()} == {len(FOREIGN) + 1}, ended
    root = open_folder / "repo"
    assert listing(root) == untouched()
    assert stat.S_IMODE((root / ".gitignore").stat().st_mode) != 0o600
    for story in commands:
        assert (root / f"pack{story}" / "deep" / "mine").read_text() == "mine\n"
        found = changes(open_folder, story)
        upper = open_folder / "layers" / story / "upper"
        assert (upper / "whose").read_text() == f"{story}\n"
        kinds = {name: change.kind for name, change in found.items() if change.kind is not ChangeKind.FOLDER}
        others = [f"other-{n}" for n in range(1, ROUNDS + 1)]
        written = ("lib/new", "README.md", "lib/c.py", "pkg/moved.py", ".gitignore", "lib/deep/again")
        assert kinds == {
            **dict.fromkeys((*written, "lib/through", "whose", *others), ChangeKind.FILE),
            **dict.fromkeys(("pkg/a.py", "pkg/deep/b.py"), ChangeKind.DELETED),
            "link": ChangeKind.LINK,
        }
        assert found[".gitignore"].mode == 0o600
        assert found["lib/deep"].replaced
        assert not found["lib"].replaced
        assert (upper / "lib" / "c.py").read_text() == "lib/c.py\nforeign\n"


@STORIES
@pytest.mark.parametrize("means", list(Means))
def test_denied_writes_reach_nothing(open_folder: Path, user: int | None, means: Means, stories: int) -> None:
    """Open cases 1 to 3 at `deny`: no foreign write goes through, every own one does."""
    require(EnforcementLevel.DENY, means)
    acts = tuple(act for act in (*FOREIGN, *ALWAYS_REFUSED) if not act.startswith("chmod"))
    commands = {f"{number}": script(acts) for number in range(stories)}
    ended = play("claim", open_folder, user, level="deny", means=means, commands=commands)
    assert {code for code, _ in ended.values()} == {0}, ended
    assert listing(open_folder / "repo") == untouched()
    for story in commands:
        assert (open_folder / "repo" / f"pack{story}" / "deep" / "mine").read_text() == "mine\n"


@pytest.mark.parametrize(
    ("level", "means"),
    [("divert", Means.MOUNTS), ("deny", Means.MOUNTS), ("deny", Means.LANDLOCK)],
)
def test_there_is_no_way_to_the_real_tree(
    open_folder: Path, user: int | None, level: str, means: Means
) -> None:
    """Remounts, more namespaces and the keeper's view do not lead around an overlay or closed folder."""
    require(EnforcementLevel(level), means)
    commands = {f"{number}": act for number, act in enumerate(ESCAPES.values())}
    play("claim", open_folder, user, level=level, means=means, commands=commands)
    assert listing(open_folder / "repo") == untouched()


def test_a_commit_in_a_shared_tree_fails_cleanly(open_folder: Path, user: int | None) -> None:
    """Open cases 3 and 10 at `divert`: git and hard links are refused, and no lock is left behind."""
    require(EnforcementLevel.DIVERT, Means.MOUNTS)
    commands = {"0": script(ALWAYS_REFUSED), "1": "git status --short && git log --oneline"}
    ended = play("claim", open_folder, user, level="divert", commands=commands)
    assert (ended["0"][0], ended["1"][0]) == (0, 0)
    assert "index.lock': Read-only file system" in ended["0"][1]
    assert not list((open_folder / "repo" / ".git").glob("*.lock"))
    assert (open_folder / "repo" / "README.md").read_text() == "README.md\n"


def test_folders_that_are_not_there_yet(tmp_path: Path, repo: Path) -> None:
    """At `deny` an owned folder is made, since the session cannot; at `divert` the overlay has it."""
    require(EnforcementLevel.DIVERT, Means.MOUNTS)
    (tmp_path / "scratch").mkdir()
    diverted = LEVELS[EnforcementLevel.DIVERT].confine(repo, ["new/pack"], tmp_path / "scratch")
    assert diverted is not None
    assert diverted.writable == ()
    assert not (repo / "new").exists()
    denied = LEVELS[EnforcementLevel.DENY].confine(repo, ["new/pack"], tmp_path / "scratch")
    assert denied is not None
    assert denied.writable == (repo / "new" / "pack",)
    assert denied.read_only[repo] == "paths that it does not own"
    assert LEVELS[EnforcementLevel.DETECT].confine(repo, ["new"], tmp_path / "scratch") is None


@pytest.mark.parametrize("name", ["way", "way/inner", "../outside"])
def test_a_claim_cannot_lead_out_of_the_tree(tmp_path: Path, repo: Path, name: str) -> None:
    """Open case 2: a folder that is a link would open what it leads to."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    (repo / "way").symlink_to(tmp_path / "outside")
    with pytest.raises(GuardError, match="outside"):
        LEVELS[EnforcementLevel.DENY].confine(repo, [name], tmp_path / "scratch")


def test_a_layer_in_its_own_tree_is_refused(repo: Path) -> None:
    """The kernel could not mount it, so it is said before."""
    require(EnforcementLevel.DIVERT, Means.MOUNTS)
    (repo / "scratch").mkdir()
    with pytest.raises(GuardError, match="lies inside the tree"):
        LEVELS[EnforcementLevel.DIVERT].confine(repo, ["pkg"], repo / "scratch")


@pytest.mark.parametrize("folder", ["with space", "a,b:c\\d", "ümlaut"])
async def test_names_need_no_care(tmp_path: Path, folder: str) -> None:
    """Characters that separate mount options are names like any other."""
    where = tmp_path / folder
    where.mkdir()
    require(EnforcementLevel.DIVERT, Means.MOUNTS)
    assert guard.attempt(guard.OVERLAID, Means.MOUNTS, where) == ""
    assert guard.attempt(guard.READ_ONLY, Means.MOUNTS, where) == ""
    assert os.listdir(where) == []  # noqa: PTH208  nothing is left
