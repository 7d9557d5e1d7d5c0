"""Which hidden places a session has opened: heard of by the keeper, watched by the process it starts."""

from pathlib import Path

import pytest
import trio
from msgspec.structs import replace

from isolation.keeper.client import open_keeper
from isolation.kernel.noticed.reaching import PLACE
from isolation.model import Confinement, EnforcementLevel, Hidden, Means
from tests.isolation.guard.guard_scenes import can_mount
from tests.isolation.keeper.scenes import spec

pytestmark = pytest.mark.skipif(not can_mount(), reason="this machine cannot mount")


@pytest.mark.parametrize("count", [1, 400])
async def test_what_is_opened_is_named_however_many_places_are_hidden(tmp_path: Path, count: int) -> None:
    """The first, the last, and no other; more than fit into one message."""
    tree, home = tmp_path / "tree", tmp_path / "hidden"
    for folder in (tree, home, tmp_path / "empty"):
        folder.mkdir()
    hidden = {}
    for number in range(count):
        place, stand_in = home / f"secret-{number:03}", tmp_path / "empty" / str(number)
        place.write_text("secret")
        stand_in.touch()
        hidden[place] = Hidden(stand_in=stand_in, what="a secret", signs="")
    confinement = Confinement(
        level=EnforcementLevel.DENY,
        means=Means.MOUNTS,
        read_only={home: "home"},
        writable=(tree,),
        hidden=hidden,
        noticed=True,
    )
    first, *_, last = (*hidden, *hidden)
    order = replace(spec(tree, "sh", "-c", f"cat {first} {last}; kill -0 1"), confinement=confinement)
    with trio.fail_after(60):
        async with open_keeper(alive_lock=tmp_path / "alive.lock") as keeper, keeper.start(order) as session:
            output = b""
            while chunk := await session.receive():
                output += chunk
            ended = await session.wait()
    assert b"secret" not in output.replace(b"secret-", b"")
    opened = [name for kind, name in ended.reached if kind == PLACE]
    assert opened == list(dict.fromkeys((str(first), str(last))))
    assert len(ended.reached) == len(opened) + 1, "its calls are heard of as well"
