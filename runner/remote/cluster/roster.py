"""Which workers serve a run: found at the scheduler, greeted, compared, and opened.

A worker is known by its instance, which is one process. If its connection to the scheduler broke and it has
joined again, its link continues at the new address. If a new process has its name, the old one is lost.
"""

import math
import os
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version

import trio
from trio import to_thread

from isolation.git.repository import Repository
from isolation.paths import run_dir
from runner.core.events import events as ev
from runner.core.model import StoryId
from runner.core.progress.repositories import HOME
from runner.remote.cluster.link import Link, Stream, unless
from runner.remote.cluster.travelling import settings_for_workers
from runner.remote.cluster.wire.hub import Hub
from runner.remote.cluster.wire.messages import (
    PROTOCOL,
    Close,
    ClusterError,
    Greeting,
    Hello,
    Open,
    Opened,
    Place,
    Prepare,
    Prepared,
)
from runner.story.context.context import RunContext

FIND_SECONDS = 1.0
FIRST_SECONDS = 5.0
"""For how long the run waits for all workers that are there at its start, once one serves it."""
ALONE_SECONDS = 3.0
"""For how long there may be no worker until the user should know."""
GREET_SECONDS = 10.0
OPEN_SECONDS = 600.0
CLOSE_SECONDS = 20.0


class Roster:
    """The links of a run; `replaced` are instances whose name another process has by now."""

    def __init__(
        self, hub: Hub, context: RunContext, stream: Stream, *, examine: bool, wake: Callable[[], None]
    ) -> None:
        self.links: list[Link] = []
        self.replaced: set[str] = set()
        self._hub = hub
        self._context = context
        self._stream = stream
        self._examine = examine
        self._wake = wake
        self._log = context.log
        self._run_id = context.log.snapshot.run_id
        self._repositories: dict[str, Repository] = {
            here.repo: here.repository for here in context.everywhere
        }
        self._folder = run_dir(context.repository.common_dir, self._run_id) / "cluster"
        self._said: dict[str, str] = {}
        self._greeted: set[str] = set()
        self._answered = trio.Event()
        self._alone_since = math.inf
        self._keep: Callable[[Link], None] = lambda _: None

    def of_instance(self, instance: str) -> Link | None:
        """Return the link to a process, if it serves the run."""
        return next((link for link in self.links if link.instance == instance), None)

    async def serve(
        self, keep: Callable[[Link], None], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Find workers until cancelled, and have each be kept; started once the first ones are there."""
        self._keep = keep
        async with trio.open_nursery() as greeters:
            await self._find(greeters)
            patient_until = trio.current_time() + FIRST_SECONDS
            while self._greeted and not (self.links and trio.current_time() > patient_until):
                with trio.move_on_after(FIND_SECONDS):
                    await self._answered.wait()
            task_status.started()
            while True:
                await trio.sleep(FIND_SECONDS)
                await self._find(greeters)
                await self._say_whether_alone()

    async def _say_whether_alone(self) -> None:
        """Have the user read that there is no worker, which may not be for a moment only."""
        if self.links:
            self._alone_since = math.inf
            self._said.pop("alone", None)
            return
        self._alone_since = min(self._alone_since, trio.current_time())
        if trio.current_time() - self._alone_since > ALONE_SECONDS:
            where = f"the cluster is at {self._hub.address}"
            await self.say_once("alone", f"no worker serves this run now, so its stories wait; {where}")

    async def close(self) -> None:
        """Say to every worker that the run has ended."""
        with trio.move_on_after(CLOSE_SECONDS, shield=True):
            async with trio.open_nursery() as nursery:
                for link in self.links:
                    nursery.start_soon(self._close, link)

    async def _close(self, link: Link) -> None:
        try:
            await self._hub.ask(link.address, Close(run_id=self._run_id), limit=CLOSE_SECONDS)
        except (ConnectionError, ClusterError):
            return  # it ends by itself when it hears nothing

    async def _find(self, greeters: trio.Nursery) -> None:
        """Greet the workers that are new."""
        try:
            addresses = await self._hub.workers()
        except ConnectionError:
            return
        served = {link.address for link in self.links}
        for address in addresses:
            if address not in served and address not in self._greeted:
                self._greeted.add(address)
                greeters.start_soon(self._greet, address)

    async def _greet(self, address: str) -> None:
        name = address
        try:
            hello = Hello(version=version("autopilot-multi"))
            greeting = await self._hub.ask(address, hello, limit=GREET_SECONDS)
            if isinstance(greeting, Greeting):
                name = greeting.name
                await self._join(address, greeting)
        except ConnectionError:
            return  # it is asked again in a second
        except ClusterError as error:
            await self.say_once(address, f"worker {name} is not used: {error.message}")
        finally:
            self._greeted.discard(address)
            self._answered.set()
            self._answered = trio.Event()

    async def say_once(self, about: str, words: str) -> None:
        """Have the user read something about a worker, unless it was the last thing said about it."""
        if self._said.get(about) != words:
            self._said[about] = words
            await self._log.record(ev.Noted(message=words))

    async def _join(self, address: str, greeting: Greeting) -> None:
        """Open the run on a worker, and take what it sends from then on."""
        own = version("autopilot-multi")
        if (greeting.version, greeting.protocol) != (own, PROTOCOL):
            raise ClusterError(
                f"it has autopilot-multi {greeting.version} (protocol {greeting.protocol}), and this "
                f"coordinator {own} (protocol {PROTOCOL}); install the same version on both"
            )
        if greeting.run_id not in {"", self._run_id}:
            raise ClusterError(f"it serves run {greeting.run_id}")
        before = self.of_instance(greeting.instance)
        if before is not None:
            before.address = address  # what it is asked, and has not answered, is asked there
            return
        self._note_replaced(greeting)
        link = Link(
            hub=self._hub,
            address=address,
            greeting=greeting,
            run_id=self._run_id,
            repositories=self._repositories,
            folder=self._folder,
            silence=self._context.settings.cluster_timeout,
        )
        opened = await self._open_unless_gone(link)
        link.carrying, link.machine = dict(opened.carrying), opened.machine
        self.links.append(link)
        for story_id, fence in opened.carrying.items():
            story = self._log.snapshot.stories.get(StoryId(story_id))
            if story is None or story.workspace.fence != fence or story.workspace.instance != link.instance:
                link.fence(story_id, fence)
        self._keep(link)
        self._wake()

    def _note_replaced(self, greeting: Greeting) -> None:
        """Lose the processes that had the name of this one: two cannot have it at a time."""
        for link in self.links:
            if link.name == greeting.name:
                link.lose(f"worker {link.name} was started again")
        self.replaced.update(
            story.workspace.instance
            for story in self._log.snapshot.stories.values()
            if story.workspace.worker == greeting.name and story.workspace.instance != greeting.instance
        )

    async def _open_unless_gone(self, link: Link) -> Opened:
        """Open the run on a worker; raises ConnectionError if the scheduler loses it meanwhile."""
        gone, opening = partial(self._until_gone, link.address), partial(self._open, link)
        return await unless(gone, opening, lambda: f"worker {link.name} left the cluster")

    async def _until_gone(self, address: str) -> None:
        while True:
            await trio.sleep(FIND_SECONDS)
            try:
                if address not in await self._hub.workers():
                    return
            except ConnectionError:
                continue

    async def _open(self, link: Link) -> Opened:
        home = link.clone(HOME)
        prepared = await self._hub.ask(link.address, Prepare(repository=home.key), limit=GREET_SECONDS)
        if not isinstance(prepared, Prepared):
            raise ClusterError(f"it answered {type(prepared).__name__}")
        await home.learn(prepared)
        settings = self._context.settings
        await link.bring(HOME, [self._context.base])
        events = tuple(self._stream.events)
        request = Open(
            run_id=self._run_id,
            places={
                here.repo: await to_thread.run_sync(_place, here, link.clone(here.repo).key)
                for here in self._context.everywhere
            },
            env={name: os.environ[name] for name in settings.cluster_env if name in os.environ},
            clock=time.time(),
            patience=max(600.0, 4 * settings.cluster_timeout),
            examine=self._examine,
            events=events,
        )
        opened = await self._hub.ask(link.address, request, limit=OPEN_SECONDS)
        if not isinstance(opened, Opened):
            raise ClusterError(f"it answered {type(opened).__name__}")
        link.opened_with(len(events))
        return opened


def _place(here: RunContext, key: str) -> Place:
    """Return a repository of the run as a worker must know it. Blocking."""
    return Place(
        repository=key,
        base=here.base,
        settings=settings_for_workers(here.settings),
        identity=_identity(here.repository),
    )


def _identity(repository: Repository) -> tuple[str, str] | None:
    """Return the name and address under which the user commits; None if git has none."""
    found = repository.run("-c", "user.useConfigOnly=true", "var", "GIT_AUTHOR_IDENT", check=False)
    if found.returncode != 0:
        return None
    name, _, rest = found.stdout.partition(" <")
    return name, rest.partition(">")[0]
