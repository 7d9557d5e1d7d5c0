"""A fresh checkout of every done branch passes its verify; `make chaos` tries two hundred."""

from pathlib import Path

import pytest

from tests.acceptance.fresh_checkouts import DISHONEST, HONEST, failing, judge

KINDS = len(HONEST) + len(DISHONEST)


@pytest.mark.parametrize(("count", "seed"), [(KINDS, 1), pytest.param(200, 2, marks=pytest.mark.chaos)])
def test_a_fresh_checkout_of_every_done_branch_passes_its_verify(repo: Path, count: int, seed: int) -> None:
    """The honest are done, the dishonest are not, and no done branch lacks what verify passed with."""
    ran, deeds = judge(repo, count, seed)
    done = {story["id"] for story in ran.data["stories"] if story["status"] == "done"}
    wrong = [story for story in ran.data["stories"] if (story["id"] in done) != deeds[story["id"]].honest]
    assert [(story["id"], story["status"], story["reason"]) for story in wrong] == []
    assert ran.code == 4
    assert len(ran.data["stories"]) == count
    assert failing(repo, ran, deeds) == []
