"""Estimated costs."""

import pytest

from runner.core.agent_settings import Price
from runner.core.limits.prices import priced
from runner.core.model import Usage


def test_tokens_of_a_listed_model_get_an_estimate() -> None:
    """Fresh, cached and output tokens each have their price, and the cost is marked as an estimate."""
    usage = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000)
    found = priced(usage, "big", {"big": Price(input=2, cached=0.5, output=10)})
    assert found.cost_usd == pytest.approx(1.2 + 0.2 + 1.0)
    assert found.estimated is True


def test_a_reported_cost_and_an_unknown_price_stay() -> None:
    """A reported cost is never replaced; an unknown model or unknown tokens give no cost."""
    reported = Usage(input_tokens=5, cost_usd=1.0)
    assert priced(reported, "gpt-5", {}) == reported
    assert priced(Usage(input_tokens=5), "who-knows", {}).cost_usd is None
    assert priced(Usage(), "gpt-5", {}) == Usage()


def test_the_users_price_comes_first() -> None:
    """The table of the settings overrides ours."""
    free = priced(Usage(input_tokens=10), "gpt-5", {"gpt-5": Price(input=0, output=0)})
    assert free.cost_usd == 0
