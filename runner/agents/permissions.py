"""What an agent may do without asking: the least that works, or everything on the user's word."""

from enum import StrEnum


class Permissions(StrEnum):
    """`edit` lets it change files and run the verify commands; `bypass` lets it do all that the user can."""

    EDIT = "edit"
    BYPASS = "bypass"
