"""What is printed on a parcel."""


def label(name: str) -> str:
    """Return a name as it is printed."""
    return name.title()
