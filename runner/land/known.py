"""What the newest runs say about stories: what each has done, where its own work begins, where it landed."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from isolation.git.repository import Repository
from runner.core.events import events as ev
from runner.core.events import landing as ld
from runner.core.events.fold import fold
from runner.core.events.run_stories import entries_of, story_in
from runner.core.left_out.evidence import CONFLICT, RED_TOGETHER
from runner.core.model import RunId, RunSnapshot, Status, Story, StoryId, StorySnapshot
from runner.records.journal import Journal
from runner.run.several.belonging import Belonging

RUNS_SEARCHED = 50


class Known(Struct, frozen=True, kw_only=True):
    """A story according to the newest run that has worked on it.

    A later run that only found it done adds nothing but where it has landed since; `run` is the newest of
    them, `worked_in` the one with its sessions. `fork` is the commit on which its own work begins, `since`
    when the first run began that knew the story, `losses` how many landings left it out in favor of others.
    """

    story: Story
    run: RunSnapshot
    worked_in: RunId
    status: Status
    branch: str
    commit: str
    commits: int
    fork: str
    since: float = 0.0
    losses: int = 0
    landed_as: tuple[str, ...] = ()

    @property
    def is_done(self) -> bool:
        """Whether it is done and has left a commit."""
        return self.status is Status.DONE and bool(self.commit and self.commits)


class Past(Struct, frozen=True, kw_only=True):
    """The stories that were worked on, and what became of them.

    `replaced` are commits that landed as other commits, `undone` the tips before and after landings that were
    undone.
    """

    stories: Mapping[StoryId, Known]
    replaced: frozenset[str]
    undone: frozenset[tuple[str, str]]


def load_known(journal: Journal, repository: Repository) -> Past:
    """Read what the newest runs say about the stories that work in a repository."""
    own = Belonging(journal, repository)
    found: dict[StoryId, Known] = {}
    settled: set[StoryId] = set()
    replaced: set[str] = set()
    since: dict[StoryId, float] = {}
    undone: set[tuple[str, str]] = set()
    losses: dict[StoryId, set[str]] = {}
    taken_back: set[str] = set()
    for run_id in journal.runs()[:RUNS_SEARCHED]:
        events = journal.events(run_id)
        run = fold(run_id, events)
        stories = {story.id: story for story in _stories_of(events)}
        replaced |= set(_landed_as_others(events, run))  # commits of other repositories are never met here
        taken_back |= {each.id for each in run.landings if each.was_undone}
        undone |= {(each.before, each.after) for each in run.landings if each.was_undone}
        for body in (event.body for event in events if isinstance(event.body, ld.StoryNotLanded)):
            if body.others and body.why in {CONFLICT, RED_TOGETHER}:
                losses.setdefault(body.story_id, set()).add(body.landing_id)
        since |= dict.fromkeys(run.stories, run.started_at)  # the runs come newest first
        for state in run.stories.values():
            # A run that never got to a story says nothing about it.
            if not own.has(run_id, state.id):
                continue
            if state.id in settled or not (state.sessions or state.workspace.commit):
                continue
            found[state.id] = _joined(found.get(state.id), state, stories[state.id], run)
            settled |= {state.id} if state.sessions else set()
    aged = {
        story_id: replace(each, since=since[story_id], losses=len(losses.get(story_id, set()) - taken_back))
        for story_id, each in found.items()
    }
    return Past(stories=aged, replaced=frozenset(replaced), undone=frozenset(undone))


def landed_in(repository: Repository, known: Known, tip: str) -> bool:
    """Whether a landing has brought the story to a branch as other commits, and they are still there."""
    asked = ("merge-base", "--is-ancestor")
    return any(not repository.run(*asked, commit, tip, check=False).returncode for commit in known.landed_as)


def _joined(newer: Known | None, state: StorySnapshot, story: Story, run: RunSnapshot) -> Known:
    """Add what an older run says; the one with sessions knows best where the work begins and ends."""
    workspace = state.workspace
    landed = (workspace.landed_as,) if workspace.landed_as else ()
    fork = workspace.base or run.base_of(state.repo)
    if newer is not None:
        commit = (workspace.commit if state.sessions else None) or newer.commit
        landed = (*newer.landed_as, *landed)
        return replace(newer, worked_in=run.run_id, commit=commit, fork=fork, landed_as=landed)
    return Known(
        story=story,
        run=run,
        worked_in=run.run_id,
        status=state.status,
        branch=workspace.branch or "",
        commit=workspace.commit or "",
        commits=workspace.commits,
        fork=fork,
        landed_as=landed,
    )


def _stories_of(events: Sequence[ev.Event]) -> Iterator[Story]:
    return map(story_in, entries_of(events).values())


def _landed_as_others(events: Sequence[ev.Event], run: RunSnapshot) -> Iterator[str]:
    for event in events:
        body = event.body
        if isinstance(body, ld.LandingVerified) and body.style != "merge":
            stories = (run.stories.get(StoryId(name)) for name in body.stories)
            yield from (story.workspace.commit for story in stories if story and story.workspace.commit)
