"""The proof that claims are disjoint: exact, by automata of another library and by trying everything."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolation.claims import globs as claims
from isolation.claims.disjoint import STEPS, Proof
from isolation.errors import ClaimError
from tests.isolation.claims import oracle

SHORT_PATHS = oracle.short_paths()


def shared(first: list[str], second: list[str], *, folding: bool = False) -> str | None:
    """Return the witness, after checking that both claims really own it."""
    one, another = claims.compile(first, folding=folding), claims.compile(second, folding=folding)
    found = Proof().overlap(one, another)
    if found is None:
        return None
    assert one.owns(found.path)
    assert another.owns(found.path)
    assert found.first in one.globs
    assert found.second in another.globs
    assert claims.compile([found.first.text], folding=folding).owns(found.path)
    assert claims.compile([found.second.text], folding=folding).owns(found.path)
    return found.path


def stray(claim: list[str], fence: list[str]) -> str | None:
    """Return what lies outside of the fence, after checking that it does."""
    one, around = claims.compile(claim), claims.compile(fence)
    found = Proof().outside(one, around)
    if found is None:
        return None
    path, glob = found
    assert one.owns(path)
    assert not around.owns(path)
    assert glob in one.globs
    return path


@settings(max_examples=100)
@given(oracle.claim_texts, oracle.claim_texts)
def test_overlap_agrees_with_automata(first: list[str], second: list[str]) -> None:
    """There is a witness exactly when the languages meet, and none is shorter."""
    expected = oracle.length(oracle.owned(first) & oracle.owned(second))
    witness = shared(first, second)
    assert (None if witness is None else len(witness)) == expected


@settings(max_examples=100)
@given(oracle.claim_texts, oracle.claim_texts)
def test_inclusion_agrees_with_automata(claim: list[str], fence: list[str]) -> None:
    """A claim lies within a fence exactly when nothing of it is left without the fence."""
    expected = oracle.length(oracle.owned(claim) - oracle.owned(fence))
    witness = stray(claim, fence)
    assert (None if witness is None else len(witness)) == expected


@given(oracle.claim_texts, oracle.claim_texts)
def test_no_short_path_is_overlooked(first: list[str], second: list[str]) -> None:
    """Trying every short path with the matcher finds nothing that the proof denies, and nothing shorter."""
    one, another = claims.compile(first), claims.compile(second)
    both = [path for path in SHORT_PATHS if one.owns(path) and another.owns(path)]
    witness = shared(first, second)
    if both:
        assert witness is not None
        assert len(witness) <= min(map(len, both))


@given(oracle.claim_texts, oracle.claim_texts)
def test_overlap_is_symmetric(first: list[str], second: list[str]) -> None:
    """Who is asked first makes no difference."""
    forth, back = shared(first, second), shared(second, first)
    assert (forth is None) is (back is None)
    assert len(forth or "") == len(back or "")


@given(oracle.claim_texts)
def test_a_claim_lies_within_itself_and_meets_itself_unless_empty(claim: list[str]) -> None:
    """Inclusion is reflexive, and only a claim without paths is disjoint with itself."""
    assert stray(claim, claim) is None
    assert (shared(claim, claim) is None) is oracle.owned(claim).isempty()


@pytest.mark.parametrize(
    ("first", "second", "witness"),
    [
        (["src/**"], ["src/*.py"], "src/.py"),
        (["src/**"], ["src/a/b/c"], "src/a/b/c"),
        (["**"], ["**"], "a"),
        (["a/**/b"], ["a/c"], None),
        (["a/**/b"], ["a/*"], "a/b"),
        (["README.md"], ["readme.md"], None),
        (["*.md"], ["READ*"], "READ.md"),
        (["packages/auth/**"], ["packages/billing/**"], None),
        (["packages/auth/**"], ["packages/auth-ui/**"], None),
        (["packages/a*/**"], ["packages/*b/**"], "packages/ab"),
        (["docs/**", "!docs/api/**"], ["docs/api/**"], None),
        (["docs/**", "!docs/api/**", "docs/api/new/**"], ["docs/api/**"], "docs/api/new"),
        (["docs/**", "!docs/api/**"], ["docs/*/*.md", "!docs/[!a]*/**"], "docs/a/.md"),
        (["**", "!**"], ["**"], None),
        (["*/" * 3, "!a/**", "!*/a/**"], ["**"], "b/b/a"),
        (["[!a-z]"], ["?"], "0"),
        (["[!a-zA-Z0-9]"], ["?"], "_"),
        (["[!!-~]"], ["?"], " "),
        (["[! -~]"], ["?"], "¡"),
        (["[\x01-\x03]"], ["?"], "\x01"),
        (["[.-0]"], ["?"], "0"),
        (["[.-0]"], ["[!0-9.]"], None),
        (["[.]"], ["*"], None),
        (["[.][.]"], ["**"], None),
        (["[.]*"], [".?"], ".a"),
        (["*/.*"], ["a/[.][.]*"], "a/..a"),
        (["ä*"], ["*ö"], "äö"),
        (["a?*"], ["*?b"], "ab"),
        (["*a" + "?" * 20], ["*b" + "?" * 20], None),
    ],
)
def test_the_witness_is_short_and_readable(first: list[str], second: list[str], witness: str | None) -> None:
    """What is shown looks like a path that a person might have written."""
    assert shared(first, second) == witness


@pytest.mark.parametrize(
    ("claim", "fence", "witness"),
    [
        (["packages/a/**"], ["packages/**"], None),
        (["packages/a/**", "ci/a.yml"], ["packages/**"], "ci/a.yml"),
        (["packages/a/**", "ci/a.yml"], ["packages/**", "ci/*.yml"], None),
        (["packages/**"], ["packages/*/**"], "packages"),
        (["packages/*/**"], ["packages/**", "!packages/old/**"], "packages/old"),
        (["packages/*/**", "!packages/old/**"], ["packages/**", "!packages/old/**"], None),
        (["**"], ["**"], None),
        (["src/*"], ["src/[a-m]*", "src/[!a-m]*"], None),
        (["src/*"], ["src/[a-m]*", "src/[n-z]*"], "src/0"),
    ],
)
def test_what_lies_outside_of_a_fence_is_shown(
    claim: list[str], fence: list[str], witness: str | None
) -> None:
    """A claim must lie within the union of the globs of a fence; the rest is named."""
    assert stray(claim, fence) == witness


@pytest.mark.parametrize(
    ("first", "second", "witness"),
    [
        (["README.md"], ["readme.md"], "readme.md"),
        (["Src/**"], ["src/*.PY"], "src/.py"),
        (["cafe\u0301/**"], ["CAF\u00c9/x"], "caf\u00e9/x"),
        (["Stra\u00dfe"], ["STRASSE"], "strasse"),
        (["[A-C]"], ["[c-e]"], "c"),
        (["[A-C]"], ["[d-e]"], None),
        (["[!A]"], ["a"], None),
        (["?"], ["[!a-z0-9]", "!?"], None),
        (["[!a-z0-9]"], ["?"], "_"),
        (["[\u00df]"], ["?"], None),
        (["[\U0002fa1e-\U00030001]"], ["[\U00030001-\U00030002]"], "\U00030001"),
        (["[A-\U0010ffff]"], ["a"], "a"),
        (["docs/**", "!docs/API/**"], ["docs/api/x"], None),
    ],
)
def test_case_does_not_tell_paths_apart_where_the_file_system_folds_it(
    first: list[str], second: list[str], witness: str | None
) -> None:
    """Reliability case 7: two spellings of one file are one path, and the witness is the folded one."""
    assert shared(first, second, folding=True) == witness


def test_a_claim_that_folds_owns_every_spelling() -> None:
    """The matcher folds paths as the proof folds globs."""
    claim = claims.compile(["Docs/Caf\u00e9*"], folding=True)
    assert claim.owns("docs/CAFE\u0301.md")
    assert not claims.compile(["Docs/*"]).owns("docs/a")


spelled = st.text(alphabet="aAbB\u00e9\u00c9", min_size=1, max_size=2)


@given(spelled, spelled)
def test_plain_names_overlap_exactly_when_they_fold_alike(first: str, second: str) -> None:
    """For plain names folding is comparing without case."""
    assert (shared([first], [second], folding=True) is not None) is (first.casefold() == second.casefold())


def test_different_beginnings_are_told_apart_without_a_search() -> None:
    """The packages of a monorepo cost not a single step of the budget."""
    owners = [claims.compile([f"packages/p{number}/**", f"ci/p{number}/*.yml"]) for number in range(20)]
    assert list(Proof(steps=0).overlaps(owners)) == []


def test_every_pair_that_overlaps_is_found() -> None:
    """Pairs are told by the numbers of their claims."""
    owners = [claims.compile([glob]) for glob in ("a/**", "b/**", "a/x", "*/x")]
    found = [(first, second, overlap.path) for first, second, overlap in Proof().overlaps(owners)]
    assert found == [(0, 2, "a/x"), (0, 3, "a/x"), (1, 3, "b/x"), (2, 3, "a/x")]


# To say which names this does not fit, a table of a million rows would be needed.
HOSTILE = f"!lib/*a{'?' * 20}*"


def test_what_is_too_complex_is_refused_and_never_passed() -> None:
    """A question beyond the budget names the globs and says what to simplify."""
    with pytest.raises(ClaimError) as caught:
        shared(["lib/?*", HOSTILE, "!lib/?"], ["lib/*[!a]?", "!lib/??", "!lib/??*?"])
    assert "'lib/?*' and 'lib/*[!a]?'" in caught.value.message
    assert f"'{HOSTILE}'" in caught.value.message
    assert "different folders" in caught.value.hint


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["[ab]/" * 25, f"!**/a{'/*' * 20}/**"], ["*/" * 25, f"!**/b{'/*' * 20}/**"]),
        (["/".join(["**", "a"] * 300)], ["/".join(["**", "*"] * 300)]),
        (["*" + "a?" * 2000], ["*" + "?b" * 2000]),
        (["x*" + "".join(f"[{chr(0x4E00 + number)}-\u9fff]*" for number in range(500))], ["*y"]),
    ],
)
def test_no_kind_of_size_escapes_the_budget(first: list[str], second: list[str]) -> None:
    """Depth, length and the number of classes all count: each of these would take minutes.

    A part of the budget is enough to see that.
    """
    with pytest.raises(ClaimError, match="too complex"):
        Proof(steps=STEPS // 20).overlap(claims.compile(first), claims.compile(second))


def test_long_globs_are_cut_in_the_refusal() -> None:
    """A message stays readable, whatever the globs are."""
    with pytest.raises(ClaimError) as caught:
        Proof(steps=3).overlap(claims.compile(["*a" * 60]), claims.compile(["*a" * 61]))
    assert len(caught.value.message) < 200
    assert caught.value.message.count("*a*…'") == 2


def test_all_pairs_share_one_budget() -> None:
    """Many questions of moderate cost come to an end like a single hard one."""
    owners = [claims.compile([f"*{letter}*{letter}*"]) for letter in "abcdefgh"]
    assert len(list(Proof().overlaps(owners))) == 28
    cost = next(steps for steps in range(1, STEPS) if _proven(owners[:2], steps))
    assert not _proven(owners, 2 * cost)


def _proven(owners: list[claims.Claim], steps: int) -> bool:
    try:
        list(Proof(steps=steps).overlaps(owners))
    except ClaimError:
        return False
    return True
