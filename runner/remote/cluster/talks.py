"""An agent's conversation on its way: taken when a session ends, kept here, put in place elsewhere.

The files are those that the agent's declaration names. They travel with the event that ends the session, and
are kept before that event is recorded, so that a story never continues a conversation that has less than its
journal.
"""

import os
import zlib
from pathlib import Path

from msgspec import MsgspecError, msgpack

from isolation.decoding import from_msgpack
from isolation.files.disk import replace_file
from isolation.paths import require_component
from runner.agents.known_agent import KnownAgent
from runner.agents.workers import Workers
from runner.core.model import Conversation, StoryId
from runner.remote.cluster.wire.messages import Talk

MOST_PACKED = 3 << 20
"""A conversation that is larger, packed, stays where it is."""


def take_talk(known: Conversation, workers: Workers) -> Talk | None:
    """Return a conversation for another machine; None if its agent keeps none that can go there. Blocking."""
    agent = _agent_of(known.agent, workers)
    if agent is None or agent.conversation_files is None:
        return None
    found = agent.conversation_files.find(known.id, {**os.environ, **agent.environment})
    packed = {name: zlib.compress(data) for name, data in found.items()}
    if not packed or sum(map(len, packed.values())) > MOST_PACKED:
        return None
    return Talk(agent=known.agent, conversation=known.id, files=packed)


def put_talk(talk: Talk, workers: Workers, workspace: Path) -> bool:
    """Have sessions in this workspace find a conversation; false if they would not. Blocking."""
    agent = _agent_of(talk.agent, workers)
    if agent is None or agent.conversation_files is None:
        return False
    try:
        files = {name: zlib.decompress(data) for name, data in talk.files.items()}
    except zlib.error:
        return False
    environ = {**os.environ, **agent.environment}
    return agent.conversation_files.put(files, talk.conversation, workspace, environ)


def _agent_of(name: str, workers: Workers) -> KnownAgent | None:
    found = next((agent for agent in workers.agents if agent.name == name), None)
    return found if isinstance(found, KnownAgent) else None


class KeptTalks:
    """The newest conversation of each story that came here; all of it blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, story_id: StoryId, talk: Talk) -> None:
        """Keep a conversation in place of an earlier one."""
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_file(self._path(story_id), msgpack.encode(talk), mode=0o600)

    def of(self, story_id: StoryId, known: Conversation | None) -> Talk | None:
        """Return the files of the conversation that a story is in, if they are here."""
        if known is None:
            return None
        try:
            talk = from_msgpack(self._path(story_id).read_bytes(), Talk)
        except (OSError, MsgspecError):
            return None
        return talk if (talk.agent, talk.conversation) == (known.agent, known.id) else None

    def _path(self, story_id: StoryId) -> Path:
        return self._folder / f"{require_component(story_id, 'story')}.talk"
