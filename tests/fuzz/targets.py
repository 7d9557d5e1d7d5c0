"""All targets; importing this registers them."""

from tests.fuzz import (
    agent_targets,
    draft_targets,
    forge_targets,
    plan_targets,
    program_targets,
    record_targets,
)
from tests.fuzz.registry import TARGETS, Target

__all__ = [
    "TARGETS",
    "Target",
    "agent_targets",
    "draft_targets",
    "forge_targets",
    "plan_targets",
    "program_targets",
    "record_targets",
]
