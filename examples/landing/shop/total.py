"""What a customer pays."""

from shop.prices import tax


def total(net: int) -> int:
    """Return a price with its tax."""
    return net + tax(net)
