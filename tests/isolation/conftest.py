"""What most of these tests begin with."""

from pathlib import Path

import pytest
import trio

from isolation.git.repository import Repository


@pytest.fixture
def repository(repo: Path) -> Repository:
    return Repository.open(repo)


@pytest.fixture
def limiter() -> trio.CapacityLimiter:
    return trio.CapacityLimiter(2)
