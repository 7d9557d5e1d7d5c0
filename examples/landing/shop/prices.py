"""What things cost, in cents."""

RATE = 20


def tax(net: int) -> int:
    """Return the tax on a net price."""
    return net * RATE // 100
