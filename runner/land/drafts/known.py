"""The stories that have drafts, or may get them, over the newest runs, and where their events go."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from msgspec import Struct, field

from isolation.git.repository import Repository
from isolation.paths import journal_path
from runner.core.drafts.stack import below, in_order
from runner.core.errors import NotFoundError
from runner.core.events import drafts as df
from runner.core.events.events import Body, Event
from runner.core.events.fold import apply, fold
from runner.core.events.folds.draft_fold import draft_after
from runner.core.model import RunId, RunSnapshot, Story, StoryId, StorySnapshot
from runner.core.progress.draft import Draft
from runner.core.settings import Settings
from runner.core.text.names import did_you_mean
from runner.core.text.redaction import Redactor
from runner.forge.drafts.hosted import Forge
from runner.land.known import Known, Past, landed_in, load_known
from runner.plan.settings.json_form import redactor_for
from runner.records.journal import Journal
from runner.run.drafts.places import forge_of, report_of, target_of
from runner.run.drafts.publisher import Desk, Publisher


class Office(Struct, kw_only=True):
    """What commands about drafts share: the forge, the journal, and the runs as they are now. Blocking.

    Without a `journal` that can be written, nothing may be recorded.
    """

    repository: Repository
    settings: Settings
    forge: Forge
    onto: str
    journal: Journal
    past: Past
    redactor: Redactor
    drafts: dict[StoryId, Draft]
    runs: dict[RunId, RunSnapshot] = field(default_factory=dict)
    publishers: dict[RunId, Publisher] = field(default_factory=dict)

    def run_of(self, story_id: StoryId) -> RunSnapshot:
        """Return the run that has worked on a story."""
        run_id = self.past.stories[story_id].worked_in
        if run_id not in self.runs:
            self.runs[run_id] = fold(run_id, self.journal.events(run_id))
        return self.runs[run_id]

    def story(self, story_id: StoryId) -> StorySnapshot:
        """Return a story in that run."""
        return self.run_of(story_id).stories[story_id]

    def draft(self, story_id: StoryId) -> Draft:
        """Return what all runs together know of a story's draft."""
        return self.drafts.get(story_id, Draft())

    def record(self, run_id: RunId, body: Body) -> None:
        """Record an event in a run that is not active; it is durable when this returns."""
        (clean,) = self.redactor.value((body,))
        event = Event(run_id=run_id, at=time.time(), body=clean)
        self.journal.append([event])
        if run_id in self.runs:
            self.runs[run_id] = apply(self.runs[run_id], event)
        if isinstance(clean, df.DraftBody):
            self.drafts[clean.story_id] = draft_after(self.draft(clean.story_id), clean)

    def publisher(self, story_id: StoryId) -> Publisher:
        """Return what publishes the drafts of the run that has worked on a story."""
        run_id = self.run_of(story_id).run_id
        if run_id not in self.publishers:
            desk = Desk(
                repository=self.repository,
                settings=self.settings,
                forge=self.forge,
                onto=self.onto,
                redactor=self.redactor,
                report=report_of(self.settings, run_id, os.environ),
            )
            self.publishers[run_id] = Publisher(
                desk,
                snapshot=lambda: self.runs[run_id],
                written=self._written,
                record=lambda body: self.record(run_id, body),
                known=self.draft,
            )
        return self.publishers[run_id]

    def _written(self, story_id: StoryId) -> Story | None:
        known = self.past.stories.get(story_id)
        return known.story if known else None

    def chosen(self, names: Sequence[str]) -> tuple[StoryId, ...]:
        """Return the stories to publish: those named with what they build on, or all that are done."""
        needs = {name: each.story.depends_on for name, each in self.past.stories.items()}
        if not names:
            found = [name for name, each in self.past.stories.items() if each.is_done and self._is_open(each)]
            return in_order(found, needs)
        for name in names:
            if StoryId(name) not in self.past.stories:
                known = self.past.stories
                hint = did_you_mean(name, known) or f"known are: {', '.join(sorted(known)) or 'none'}."
                raise NotFoundError(f"no run has worked on a story '{name}'", hint=hint)
        wanted = [StoryId(name) for name in names]
        beneath = {each for name in wanted for each in below(name, needs)} & set(self.past.stories)
        stacked = [each for each in sorted(beneath) if self._is_open(self.past.stories[each])]
        return in_order([*wanted, *(each for each in stacked if each not in wanted)], needs)

    def _is_open(self, known: Known) -> bool:
        """Whether a story has work that is not in the target yet."""
        if not known.commit or not known.commits:
            return False
        target = self.repository.branch_tip(self.onto)
        if target is None:
            return True
        return not (
            self.repository.is_ancestor(known.commit, target) or landed_in(self.repository, known, target)
        )


@contextmanager
def open_office(
    repository: Repository,
    settings: Settings,
    journal: Journal | None = None,
    *,
    say: Callable[[str], None] = lambda _: None,
) -> Iterator[Office]:
    """Read what is known; without a journal it is opened to be read only."""
    opened = journal or Journal.open_readonly(journal_path(repository.common_dir))
    try:
        yield Office(
            repository=repository,
            settings=settings,
            forge=forge_of(repository, settings, say=say),
            onto=target_of(repository, settings),
            journal=opened,
            past=load_known(opened, repository),
            redactor=redactor_for(settings, os.environ, repository),
            drafts=_drafts_in(opened),
        )
    finally:
        if journal is None:
            opened.close()


def _drafts_in(journal: Journal) -> dict[StoryId, Draft]:
    """Return what all runs together know of drafts."""
    found: dict[StoryId, Draft] = {}
    for event in journal.events_of(*df.KINDS):
        body = event.body
        if isinstance(body, df.DraftBody):
            found[body.story_id] = draft_after(found.get(body.story_id, Draft()), body)
    return found
