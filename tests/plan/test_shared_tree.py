"""What a run decides about a shared tree before stories work in it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from isolation.git.repository import Repository
from isolation.guard.guard import Support
from isolation.model import EnforcementLevel, Means
from isolation.shared_tree import levels
from isolation.shared_tree.levels import LEVELS, Level
from runner.core.errors import SettingsError
from runner.core.model import RunId, Story, StoryId
from runner.core.settings import Settings
from runner.plan import shared_tree

ONE_TREE = Settings(bg_isolation="none", max_stories=3)


def _story(name: str, *owns: str) -> Story:
    return Story(id=StoryId(name), title=name, prompt="", owns=owns)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Pretend that the machine offers some levels."""

    def offers(*names: str) -> None:
        def support_for(self: Level, _top: Path, _where: Path | None = None) -> Support:
            has, reason = self.name in names, "the test says so"
            return Support(level=self.name, available=has, means=Means.MOUNTS, reason=reason)

        for level in LEVELS.values():
            monkeypatch.setattr(type(level), "support_for", support_for)

    return offers


@pytest.mark.parametrize(
    ("asked", "offers", "level"),
    [
        ("auto", ("divert", "deny", "detect"), "divert"),
        ("auto", ("deny", "detect"), "deny"),
        ("deny", ("divert", "deny", "detect"), "deny"),
        ("detect", ("divert", "deny", "detect"), "detect"),
    ],
)
def test_the_best_level_is_taken_or_the_one_asked_for(
    machine: Callable[..., None], tmp_path: Path, asked: str, offers: tuple[str, ...], level: str
) -> None:
    """Automatic means the best that the machine can do."""
    machine(*offers)
    settings = replace(ONE_TREE, enforce=asked)
    chosen = shared_tree.require_level(settings, tmp_path / "x.worktrees", tmp_path / "x")
    assert chosen.name == level


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            replace(ONE_TREE, enforce="divert"),
            "level 'divert' is not available on this machine: the test says so",
        ),
        (ONE_TREE, "such writes can only be found afterwards"),
        (replace(ONE_TREE, guard=False), "such writes can only be found afterwards"),
    ],
)
def test_a_level_is_never_lowered_silently(
    machine: Callable[..., None], tmp_path: Path, settings: Settings, words: str
) -> None:
    """Open case 27: an unavailable level is an error that names the consent."""
    machine("detect")
    with pytest.raises(SettingsError, match=words) as caught:
        shared_tree.require_level(settings, tmp_path / "x.worktrees", tmp_path / "x")
    assert "--enforce detect" in caught.value.hint


def test_one_story_at_a_time_needs_no_consent(machine: Callable[..., None], tmp_path: Path) -> None:
    """Then it is clear whose write it was."""
    machine("detect")
    alone = replace(ONE_TREE, max_stories=1)
    chosen = shared_tree.require_level(alone, tmp_path / "x.worktrees", tmp_path / "x")
    assert chosen.name is EnforcementLevel.DETECT


def test_a_claim_all_over_the_tree_cannot_be_closed_around(machine: Callable[..., None], repo: Path) -> None:
    """At `deny` folders are closed, so a claim must begin with one."""
    machine("deny", "detect")
    with pytest.raises(SettingsError, match="story docs may own paths all over the tree"):
        shared_tree.require_enforcement(
            Repository.open(repo), ONE_TREE, repo / "w", [_story("docs", "**/*.md")]
        )


def test_no_folder_can_be_closed_where_it_has_many_spellings(
    machine: Callable[..., None], repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At `deny` a session could not write anywhere; the plan is refused before it starts."""
    machine("deny", "detect")
    monkeypatch.setattr(levels, "folds_case", lambda _top: True)
    with pytest.raises(SettingsError, match="treats `A` and `a` as one name"):
        shared_tree.require_enforcement(Repository.open(repo), ONE_TREE, repo / "w", [_story("a", "src/**")])


@pytest.mark.parametrize(
    ("glob", "words"), [("/build/**", "is absolute"), ("a/../b", "has the component '..'")]
)
def test_a_shared_glob_that_cannot_be_used_is_named(repo: Path, glob: str, words: str) -> None:
    """Open case 8: the setting and what is wrong with it."""
    settings = replace(ONE_TREE, shared_writable=(glob,))
    repository = Repository.open(repo)
    with pytest.raises(SettingsError, match=f"shared-writable: .*{words}"):
        shared_tree.require_shareable(settings, repository, repository.resolve("HEAD"))


async def test_the_files_of_others_are_no_sign_of_a_storys_life(repo: Path, tmp_path: Path) -> None:
    """Where a story's own changes appear is known, so that a silent one does not live on its siblings."""
    settings = replace(ONE_TREE, enforce="detect")
    stories = [_story("a", "pkg/a/**"), _story("b", "**/*.md")]
    root = tmp_path / "x.worktrees"
    level = shared_tree.require_level(settings, root, repo)
    with trio.fail_after(30):
        async with shared_tree.open_shared_tree(
            Repository.open(repo), RunId("run-1"), stories, settings, root, level=level
        ) as shared:
            assert shared is not None
            layer = tmp_path / "x.layers" / "run-1"
            assert shared.activity_paths(repo, "a") == (
                repo / "pkg/a",
                repo / ".orchestrator/a",
                layer / "a/upper",
            )
            assert shared.activity_paths(repo, "b") == (repo, layer / "b/upper")
    assert not layer.parent.exists()
