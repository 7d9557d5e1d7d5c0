"""Who owns a path, found quickly, is who owns it when every claim is asked."""

from hypothesis import given
from hypothesis import strategies as st

from isolation.claims import globs as claims
from isolation.claims.owners import ANYBODY, Owners, roots

_NAMES = st.sampled_from(["a", "b", "*", "**", "[ab]", "x.py"])
_GLOBS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_PATHS = st.lists(st.sampled_from(["a", "b", "c", "x.py"]), min_size=1, max_size=4).map("/".join)


@given(st.lists(st.lists(_GLOBS, min_size=1, max_size=2), min_size=1, max_size=4), _PATHS)
def test_the_owner_is_one_whose_claim_holds_the_path(globs: list[list[str]], path: str) -> None:
    """The index of beginnings loses no owner and invents none."""
    owners = {str(number): claims.compile(each) for number, each in enumerate(globs)}
    found = Owners(owners).of(path, working="")
    holding = {name for name, claim in owners.items() if claim.owns(path)}
    assert found in holding if holding else found is None


@given(st.lists(_GLOBS, min_size=1, max_size=3), _PATHS)
def test_everything_that_is_owned_lies_below_a_root(globs: list[str], path: str) -> None:
    """A look at the roots alone misses nothing; no roots means everywhere."""
    claim = claims.compile(globs)
    places = roots(claim)
    if places and claim.owns(path):
        assert any(path == place or path.startswith(f"{place}/") for place in places)


def test_folders_above_a_claim_are_known() -> None:
    """What must exist for a claim to exist is told from what lies beside it."""
    owners = Owners({"a": claims.compile(["one/two/three/**"])})
    assert owners.leads_to_owned("one")
    assert owners.leads_to_owned("one/two")
    assert not owners.leads_to_owned("one/other")


def test_a_claim_that_folds_case_is_looked_for_everywhere() -> None:
    """Folded beginnings name no place on disk."""
    folding = claims.compile(["Src/**"], folding=True)
    assert roots(folding) == ()
    assert Owners({"a": folding}).of("src/X", working="a") == "a"


def test_where_claims_overlap_a_path_belongs_to_whoever_works() -> None:
    """One story at a time may own what another one owns as well."""
    owners = Owners({"a": claims.compile(["**"]), "b": claims.compile(["src/**"])})
    assert [owners.of("src/x", working=name) for name in ("a", "b")] == ["a", "b"]
    assert owners.of("x", working="b") == "a"


def test_what_is_open_to_all_is_so_inside_the_claim_of_another_story() -> None:
    """A cache in a package of another story belongs to anybody; the one that works owns its own first."""
    writable = claims.compile(["**/__pycache__/**"])
    owners = Owners({"a": claims.compile(["src/a/**"]), ANYBODY: writable})
    assert owners.of("src/a/__pycache__/x.pyc", working="b") == ANYBODY
    assert owners.of("src/a/__pycache__/x.pyc", working="a") == "a"
    assert owners.of("src/a/x.py", working="b") == "a"
