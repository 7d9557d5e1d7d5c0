"""Who owns what: the three forms of `deconflict-paths`, which of them counts, and what must be proven."""

import pytest

from isolation.claims import disjoint
from isolation.errors import ClaimError
from runner.core.errors import BacklogError, SettingsError
from runner.core.model import Story, StoryId
from runner.core.settings import Settings
from runner.plan.claims import Ownership, assign_claims, read_ownership, require_ownership
from runner.plan.settings.load import Loaded

FLAG = "flag --deconflict-paths"


def story(name: str, *owns: str, after: str = "") -> Story:
    """Return a story that owns these globs."""
    depends_on = (StoryId(after),) if after else ()
    return Story(id=StoryId(name), title=name, prompt="x", owns=owns, depends_on=depends_on)


def read(*specs: str, stories: str = "a b checkout", origin: str = FLAG, complete: bool = True) -> Ownership:
    """Take specs apart for a backlog of these ids."""
    loaded = Loaded(settings=Settings(deconflict_paths=specs), origins={"deconflict-paths": origin}, notes=())
    return read_ownership(loaded, [story(name) for name in stories.split()], complete=complete)


def test_the_three_forms_are_distinguished() -> None:
    """A glob is a boundary, `{id}` makes a pattern, `ID=` names a story; repeated specs add up."""
    ownership = read("packages/**", "!packages/old/", "packages/{id}/**", "a=x/**, y", "a=z", "k/=v", "[=]x")
    assert ownership.boundary == ("packages/**", "!packages/old/", "k/=v", "[=]x")
    assert ownership.patterns == ("packages/{id}/**",)
    assert ownership.named == {"a": ("x/**", "y", "z")}


def test_what_is_nearer_to_the_story_counts() -> None:
    """A named claim beats `owns`, `owns` beats the pattern; only specs know `{id}`."""
    ownership = read("packages/{id}/**", "!packages/{id}/dist/", "a=named/{id}")
    assert ownership.globs_of(story("a", "own/**")) == ("named/a",)
    assert ownership.globs_of(story("b", "own/{id}")) == ("own/{id}",)
    assert ownership.globs_of(story("checkout")) == ("packages/checkout/**", "!packages/checkout/dist/")
    assert read("a=x").globs_of(story("b")) == ()


def test_an_unknown_story_is_named_with_the_nearest() -> None:
    """A claim for a story that does not exist is a mistake."""
    with pytest.raises(SettingsError) as caught:
        read("chekout=x/**")
    assert caught.value.message == "--deconflict-paths: no story has the id 'chekout'"
    assert "did you mean 'checkout'?" in caught.value.hint
    assert "[=]" in caught.value.hint


def test_a_settings_file_may_name_stories_that_this_run_leaves_out() -> None:
    """With only some stories named on the command line a file's other claims rest; a flag's do not."""
    assert read("zebra=x", origin="autopilot-multi.toml", complete=False).named == {"zebra": ("x",)}
    with pytest.raises(SettingsError, match=r"^autopilot-multi\.toml: deconflict-paths: no story has the id"):
        read("zebra=x", origin="autopilot-multi.toml")
    with pytest.raises(SettingsError):
        read("zebra=x", complete=False)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("a=", "the glob '' is empty"),
        ("a=x,,y", "the glob '' is empty"),
        ("/x", "the glob '/x' is absolute"),
        ("x/{id}/../y", "component '..'"),
        ("!x", "owns nothing"),
        ("a=b**c", "'**' inside"),
    ],
)
def test_an_unusable_glob_says_where_it_is(spec: str, problem: str) -> None:
    """Globs are checked before any story is looked at."""
    with pytest.raises(ClaimError) as caught:
        read(spec, origin="environment AUTOPILOT_MULTI_DECONFLICT_PATHS")
    assert caught.value.message.startswith("AUTOPILOT_MULTI_DECONFLICT_PATHS: ")
    assert problem in caught.value.message
    assert caught.value.hint


def test_several_stories_in_one_tree_need_specs() -> None:
    """Acceptance 16: refused without specs; fine with specs, in worktrees, or one story at a time."""
    with pytest.raises(SettingsError, match="max-stories 2 needs --deconflict-paths"):
        require_ownership(Settings(bg_isolation="none", max_stories=2))
    require_ownership(Settings(bg_isolation="none", max_stories=1))
    require_ownership(Settings(bg_isolation="none", max_stories=2, deconflict_paths=("**",)))
    require_ownership(Settings(max_stories=2))


def test_in_one_tree_every_story_needs_a_claim() -> None:
    """Stories that own nothing are named, all of them."""
    for stories, named in (
        ([story("a", "x"), story("b")], "story b owns"),
        ([story("a"), story("b")], "stories a, b own"),
    ):
        with pytest.raises(BacklogError, match=named):
            assign_claims(stories, Ownership(), isolation="none", folding=False, at_once=3)


def test_one_story_at_a_time_needs_no_claim() -> None:
    """It owns everything, or what the boundary holds; the others keep what they own."""
    stories, alone = [story("a", "x"), story("b")], [story("b")]
    claimed = assign_claims(stories, Ownership(), isolation="none", folding=False, at_once=1)
    assert [one.owns for one in claimed.stories] == [("x",), ("**",)]
    (note,) = claimed.notes
    assert note.startswith(
        "no claim for b: with one story at a time it has the whole tree; a story builds on"
    )
    bounded = Ownership(boundary=("src/**",))
    claimed = assign_claims(alone, bounded, isolation="none", folding=False, at_once=3)
    assert claimed.stories[0].owns == ("src/**",)
    assert claimed.notes == ("no claim for b: with one story at a time it has src/**",)
    with pytest.raises(ClaimError, match="outside of src"):
        assign_claims(stories, bounded, isolation="none", folding=False, at_once=1)


def test_in_one_tree_an_overlap_is_refused_with_its_witness() -> None:
    """Acceptance 17: the path, both stories, both globs, and what to do, even if one waits for the other."""
    stories = [story("a", "src/**"), story("b", "lib/**"), story("c", "src/*/x", "!src/a/x", after="a")]
    with pytest.raises(ClaimError) as caught:
        assign_claims(stories, Ownership(), isolation="none", folding=False, at_once=3)
    assert caught.value.message == "stories a and c both own src/b/x: a by 'src/**', c by 'src/*/x'"
    assert "narrow" in caught.value.hint
    apart = [story("a", "src/**", "!src/*/x"), *stories[1:]]
    claimed = assign_claims(apart, Ownership(), isolation="none", folding=False, at_once=3)
    assert claimed.disjoint
    assert claimed.stories == tuple(apart)
    assert assign_claims(apart[:1], Ownership(), isolation="none", folding=False, at_once=3).disjoint is None


def test_case_counts_only_where_the_file_system_says_so() -> None:
    """Two spellings of one file are an overlap on a file system that folds case."""
    stories = [story("a", "README.md"), story("b", "readme.md")]
    assert assign_claims(stories, Ownership(), isolation="none", folding=False, at_once=3).disjoint
    with pytest.raises(ClaimError, match=r"both own readme\.md: a by 'README\.md', b by 'readme\.md'"):
        assign_claims(stories, Ownership(), isolation="none", folding=True, at_once=3)


HOSTILE = (f"lib/{'?' * 25}*", f"!lib/*a{'?' * 20}*")


@pytest.fixture
def _small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """End a search sooner; that the real budget ends it, too, is shown where the search is tested."""
    monkeypatch.setattr(disjoint, "STEPS_A_PAIR", disjoint.STEPS_A_PAIR // 50)


@pytest.mark.usefixtures("_small_budget")
def test_what_cannot_be_proven_is_refused_in_one_tree() -> None:
    """Too complex is not disjoint: both stories and their globs are named."""
    with pytest.raises(ClaimError) as caught:
        assign_claims(
            [story("x", "doc/**"), story("a", *HOSTILE), story("b", "lib/*z")],
            Ownership(),
            isolation="none",
            folding=False,
            at_once=3,
        )
    assert caught.value.message.startswith(
        "whether stories a and b share a path cannot be proven: too complex"
    )
    assert "'lib/*z'" in caught.value.message
    assert caught.value.hint


@pytest.mark.usefixtures("_small_budget")
@pytest.mark.parametrize("isolation", ["none", "worktree"])
def test_every_claim_must_lie_within_the_boundary(isolation: str) -> None:
    """What lies outside of all the globs of a boundary is shown, with the story and its glob."""
    inside = [story("a", "packages/a/**"), story("b", "ci/b.yml")]
    boundary = Ownership(boundary=("packages/**", "ci/*.yml"))
    assert assign_claims(inside, boundary, isolation=isolation, folding=False, at_once=3).disjoint
    with pytest.raises(ClaimError) as caught:
        assign_claims([*inside, story("c", "ci/*")], boundary, isolation=isolation, folding=False, at_once=3)
    assert caught.value.message == "story c owns ci/a by 'ci/*', outside of packages/**, ci/*.yml"
    hostile = Ownership(boundary=(HOSTILE[1].removeprefix("!"),))
    with pytest.raises(ClaimError, match="story a and the boundary: too complex"):
        assign_claims([story("a", HOSTILE[0])], hostile, isolation=isolation, folding=False, at_once=3)


def test_in_worktrees_an_overlap_is_a_note() -> None:
    """Branches that touch the same paths may conflict; those that build on each other do not."""
    stories = [story("a", "src/**"), story("b", "src/x"), story("c", "src/y", after="a"), story("d")]
    claimed = assign_claims(stories, Ownership(), isolation="worktree", folding=False, at_once=3)
    assert claimed.disjoint is False
    (note,) = claimed.notes
    assert note.startswith("stories a and b both own src/x: a by 'src/**', b by 'src/x'")
    assert "conflict when merged" in note
    assert [(each.stories, each.files) for each in claimed.overlaps] == [(("a", "b"), ("src/x",))]
    assert (
        assign_claims(stories[2:], Ownership(), isolation="worktree", folding=False, at_once=3).disjoint
        is None
    )


def test_many_overlaps_are_a_few_notes() -> None:
    """Nobody reads a thousand warnings."""
    stories = [story(f"s{number}", "src/**") for number in range(10)]
    claimed = assign_claims(stories, Ownership(), isolation="worktree", folding=False, at_once=3)
    assert len(claimed.notes) == 4
    assert "more stories own the same paths" in claimed.notes[-1]
    assert len(claimed.overlaps) == 45, "the forecast has them all"


@pytest.mark.usefixtures("_small_budget")
def test_in_worktrees_what_cannot_be_proven_is_a_note_too() -> None:
    """A plan for worktrees does not fail on claims that cannot be compared."""
    stories = [story("a", *HOSTILE), story("b", "lib/*z")]
    claimed = assign_claims(stories, Ownership(), isolation="worktree", folding=False, at_once=3)
    assert claimed.disjoint is None
    assert "stories a and b share a path cannot be proven" in claimed.notes[0]


def test_in_worktrees_the_boundary_holds_stories_without_a_claim() -> None:
    """A boundary is not a claim of its own, so nothing overlaps by it, but it is checked as one."""
    claimed = assign_claims(
        [story("a"), story("b"), story("c", "src/c")],
        Ownership(boundary=("src/**",)),
        isolation="worktree",
        folding=False,
        at_once=3,
    )
    assert [one.owns for one in claimed.stories] == [("src/**",), ("src/**",), ("src/c",)]
    assert claimed.notes == ()
