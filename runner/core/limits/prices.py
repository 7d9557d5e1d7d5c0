"""What tokens cost, for agents that do not report it: list prices of `AS_OF`; prices in the settings win.

An estimate, without discounts, long-context tiers and subscriptions. A model that is not listed has no
price, and its cost stays unknown.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from runner.core.agent_settings import Price
from runner.core.model import Usage

AS_OF = "August 2025"
MILLION = 1_000_000

PRICES: Mapping[str, Price] = {
    "gpt-5": Price(input=1.25, cached=0.125, output=10),
    "gpt-5-codex": Price(input=1.25, cached=0.125, output=10),
    "gpt-5-mini": Price(input=0.25, cached=0.025, output=2),
    "gpt-5-nano": Price(input=0.05, cached=0.005, output=0.4),
    "gpt-4.1": Price(input=2, cached=0.5, output=8),
    "o3": Price(input=2, cached=0.5, output=8),
    "o4-mini": Price(input=1.1, cached=0.275, output=4.4),
    "gemini-2.5-pro": Price(input=1.25, cached=0.31, output=10),
    "gemini-2.5-flash": Price(input=0.3, cached=0.075, output=2.5),
    "qwen3-coder-plus": Price(input=1, cached=0.1, output=5),
}


def has_price(model: str, own: Mapping[str, Price]) -> bool:
    """Return whether it is known what a model costs."""
    return model in own or model in PRICES


def priced(usage: Usage, model: str, own: Mapping[str, Price]) -> Usage:
    """Add an estimated cost where tokens and a price are known, and the agent reported no cost."""
    price = own.get(model) or PRICES.get(model)
    if usage.cost_usd is not None or price is None or usage.tokens is None:
        return usage
    # Cached tokens are part of the input; an agent that counts them separately must not make it negative.
    cached = min(usage.cached_tokens or 0, usage.input_tokens or 0)
    fresh = (usage.input_tokens or 0) - cached
    cheap = price.input if price.cached is None else price.cached
    cost = (fresh * price.input + cached * cheap + (usage.output_tokens or 0) * price.output) / MILLION
    return replace(usage, cost_usd=round(cost, 6), estimated=True)
