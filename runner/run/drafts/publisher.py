"""Opens and updates drafts: what each story's should show, whether it may be, and the acts in their order.

Everything outward has its intent in the journal first, and each act can be repeated: a push moves a branch
forward or does nothing, a draft is looked up by its branch before it is created, a text is replaced by
itself. Nothing is merged, and nothing is pushed by force.
"""

import hashlib
from collections.abc import Callable
from enum import StrEnum
from functools import cached_property

from msgspec import Struct

from isolation.git.diffstat import changes
from isolation.git.remotes import described, push_branches
from isolation.git.repository import Repository
from runner.core.drafts.stack import below, parent_of
from runner.core.errors import RunnerError
from runner.core.events import drafts as df
from runner.core.model import RunSnapshot, Status, Story, StoryId, StorySnapshot
from runner.core.progress.draft import Draft
from runner.core.settings import Settings
from runner.core.text.names import branch_of, one_line
from runner.core.text.redaction import Redactor
from runner.core.text.screen import shorten
from runner.forge.drafts.hosted import Forge, Hosted, PullRequest, Verdict
from runner.forge.errors import RefusedError
from runner.run.drafts.body import DraftFacts, joined, load_template, render, title_of

_WORDS = 130
_BY_HAND = "nothing is pushed by force; look at what is there, and bring both together by hand."
_BY_GIT = "git signs in by itself: `git push --dry-run {}` must work; for GitHub, `gh auth setup-git` helps."


class DraftRefusedError(RunnerError):
    """A draft must not be made, or not like this; nothing was done."""

    code = "draft-refused"


class How(StrEnum):
    """What became of a draft, or would."""

    CREATED = "opened"
    UPDATED = "updated"
    CURRENT = "current"


class Content(Struct, frozen=True, kw_only=True):
    """What the draft of a story should show; `parent` is the story that it is stacked on."""

    story_id: StoryId
    branch: str
    base: str
    commit: str
    title: str
    body: str
    verdict: Verdict
    words: str
    parent: StoryId | None = None

    @property
    def digest(self) -> str:
        """What tells one text from another."""
        return hashlib.sha256(f"{self.title}\n{self.body}".encode()).hexdigest()[:16]


class Outcome(Struct, frozen=True, kw_only=True):
    """What became of the draft of a story, or what would, with every outward act in words."""

    content: Content
    how: How
    number: int = 0
    url: str = ""
    acts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Desk(Struct, frozen=True, kw_only=True):
    """What all drafts of a run share; `report` is where its report can be read, empty if nowhere."""

    repository: Repository
    settings: Settings
    forge: Forge
    onto: str
    redactor: Redactor
    report: str = ""


class Publisher:
    """Publishes the drafts of one run, one at a time. Blocking.

    `snapshot` is the run as it is now, `written` its stories as the plan has them. `known`
    returns what all runs together know of a draft, where that is more.
    """

    def __init__(
        self,
        desk: Desk,
        *,
        snapshot: Callable[[], RunSnapshot],
        written: Callable[[StoryId], Story | None],
        record: Callable[[df.DraftBody], None],
        known: Callable[[StoryId], Draft | None] = lambda _: None,
    ) -> None:
        self._desk = desk
        self._snapshot = snapshot
        self._written = written
        self._record = record
        self._known = known

    def publish(self, story_id: StoryId) -> Outcome:
        """Open or update the draft of a story; raises if it must not be or cannot be."""
        content = self.content(story_id)
        draft = self.draft_of(story_id)
        if _is_current(draft, content):
            return Outcome(content=content, how=How.CURRENT, number=draft.number, url=draft.url)
        found = self._looked_up(content)
        self._record(
            df.DraftPlanned(
                story_id=story_id,
                branch=content.branch,
                base=content.base,
                commit=content.commit,
                verdict=str(content.verdict),
            )
        )
        try:
            outcome = self._carried_out(content, found)
        except (RefusedError, DraftRefusedError) as error:
            self._record(df.DraftRefused(story_id=story_id, reason=error.message))
            raise
        self._record(
            df.DraftPublished(
                story_id=story_id,
                number=outcome.number,
                url=outcome.url,
                base=content.base,
                commit=content.commit,
                digest=content.digest,
                verdict=str(content.verdict),
                created=outcome.how is How.CREATED,
            )
        )
        return outcome

    def plan(self, story_id: StoryId) -> Outcome:
        """Return what `publish` would do, and do nothing; the forge is only read."""
        content = self.content(story_id)
        draft = self.draft_of(story_id)
        if _is_current(draft, content):
            return Outcome(content=content, how=How.CURRENT, number=draft.number, url=draft.url)
        found = self._looked_up(content)
        how = How.UPDATED if found else How.CREATED
        number, url = (found.number, found.url) if found else (0, "")
        return Outcome(content=content, how=how, number=number, url=url, acts=self._acts(content, found))

    def draft_of(self, story_id: StoryId) -> Draft:
        """Return what is known of a story's draft."""
        return self._known(story_id) or self._story(story_id).workspace.draft or Draft()

    def content(self, story_id: StoryId) -> Content:
        """Return what the draft of a story should show now."""
        desk, run, story = self._desk, self._snapshot(), self._story(story_id)
        branch, commit = story.workspace.branch or branch_of(story_id), story.workspace.commit
        if not commit or not story.workspace.commits:
            raise DraftRefusedError(
                f"story {story_id} has no commits, so there is nothing to show in a {desk.forge.noun}",
                hint=f"`autopilot-multi show {story_id}` shows where it is.",
            )
        self._require_tip(story_id, branch, commit)
        needs = {name: one.depends_on for name, one in run.stories.items()}
        parent = parent_of(story_id, needs, {name for name in run.stories if self._is_stacked(name)})
        written = self._written(story_id)
        facts = DraftFacts(
            run_id=run.run_id,
            story=story,
            verify=(written.verify if written else ()) or desk.settings.verify,
            commits=self._subjects(story),
            changes=changes(desk.repository, story.workspace.base or run.base_of(story.repo), commit),
            stack=self._stack(below(story_id, needs)),
            report=desk.report,
        )
        base = desk.onto if parent is None else self._branch(parent)
        text = render(facts, load_template(desk.repository.top, desk.settings.draft_template))
        verdict = _verdict(story.status)
        return Content(
            story_id=story_id,
            branch=branch,
            base=base,
            commit=commit,
            title=desk.redactor.text(title_of(story)),
            body=desk.redactor.text(text),
            verdict=verdict,
            words=desk.redactor.text(_words(story, verdict)),
            parent=parent,
        )

    def _looked_up(self, content: Content) -> PullRequest | None:
        """Return the draft that is there; raises if this one must not be opened or changed."""
        forge, hosted, remote = self._desk.forge, self._hosted, self._desk.settings.draft_remote
        require_writable(hosted, remote)
        if content.branch in {content.base, hosted.default_branch} or forge.is_protected(content.branch):
            raise DraftRefusedError(
                f"{content.branch} is a protected branch of {hosted.name}: nothing is pushed to it",
                hint="rename the story, or lift the protection of branches below autopilot/.",
            )
        if content.parent is None and forge.is_protected(content.base) is None:
            raise DraftRefusedError(
                f"the branch {content.base} is not in {hosted.name}, so no draft can be meant for it",
                hint=f"`git push {remote} {content.base}` pushes it, or set draft-onto to another branch.",
            )
        found = forge.find(content.branch)
        if found is not None and not found.is_open and (not found.merged or found.commit == content.commit):
            done = "is merged" if found.merged else "was closed by somebody"
            raise DraftRefusedError(
                f"{forge.noun} {forge.sign}{found.number} of story {content.story_id} {done}; it stays so",
                hint="open it again on the forge if its story should continue there.",
            )
        return found if found is not None and found.is_open else None

    def _carried_out(self, content: Content, found: PullRequest | None) -> Outcome:
        desk, forge = self._desk, self._desk.forge
        remote = desk.settings.draft_remote
        (pushed,) = push_branches(desk.repository, remote, {content.branch: content.commit})
        if pushed.refusal:
            raise DraftRefusedError(
                f"cannot push {content.branch} to {described(desk.repository, remote)}: {pushed.refusal}",
                hint=_BY_HAND if "[rejected]" in pushed.refusal else _BY_GIT.format(remote),
            )
        acts = self._acts(content, found)
        if found is None:
            made = forge.create(content.branch, content.base, content.title, content.body)
        else:
            made = found
            text = joined(found.body, content.body)
            if text != found.body or content.base != found.base:
                forge.update(found.number, base=content.base, body=text)
        notes: tuple[str, ...] = ()
        try:
            forge.set_status(content.commit, content.verdict, content.words, desk.report)
        except RefusedError as error:
            notes = (error.message,)  # the draft is what counts
        how = How.CREATED if found is None else How.UPDATED
        return Outcome(content=content, how=how, number=made.number, url=made.url, acts=acts, notes=notes)

    def _acts(self, content: Content, found: PullRequest | None) -> tuple[str, ...]:
        forge, remote = self._desk.forge, self._desk.settings.draft_remote
        where = f"{content.branch} -> {content.base}"
        act = (
            f"open a draft {forge.noun} {where}: {content.title}"
            if found is None
            else f"update {forge.noun} {forge.sign}{found.number}, {where}"
        )
        return (
            f"push {content.branch} at {content.commit[:12]} to {described(self._desk.repository, remote)}",
            act,
            f"set the status of {content.commit[:12]}: {content.verdict}",
        )

    @cached_property
    def _hosted(self) -> Hosted:
        return self._desk.forge.hosted()

    def _story(self, story_id: StoryId) -> StorySnapshot:
        return self._snapshot().stories[story_id]

    def _branch(self, story_id: StoryId) -> str:
        return self._story(story_id).workspace.branch or branch_of(story_id)

    def _is_stacked(self, story_id: StoryId) -> bool:
        workspace, repository = self._story(story_id).workspace, self._desk.repository
        if not workspace.commits or not workspace.commit or workspace.landed:
            return False
        target = repository.branch_tip(self._desk.onto)
        return target is None or not repository.is_ancestor(workspace.commit, target)

    def _stack(self, names: frozenset[StoryId]) -> list[str]:
        drafts = [self.draft_of(name) for name in names if name in self._snapshot().stories]
        return [
            f"{self._desk.forge.sign}{one.number}"
            for one in sorted(drafts, key=lambda one: one.number)
            if one.number
        ]

    def _subjects(self, story: StorySnapshot) -> list[str]:
        base, tip = story.workspace.base or self._snapshot().base, story.workspace.commit
        log = ("log", "-z", "--reverse", "--no-merges", "--format=%s", f"{base}..{tip}", "--")
        return list(self._desk.repository.run(*log, check=False).fields())

    def _require_tip(self, story_id: StoryId, branch: str, commit: str) -> None:
        tip = self._desk.repository.branch_tip(branch)
        if tip != commit:
            where = "gone" if tip is None else f"at {tip[:12]}"
            raise DraftRefusedError(
                f"story {story_id}: its branch {branch} is {where}, but {commit[:12]} was judged",
                hint="what is there now was not verified; run the story again, or open the draft by hand.",
            )


def require_writable(hosted: Hosted, remote: str) -> None:
    """Raise if no drafts may be opened in a repository."""
    if hosted.fork_of:
        raise DraftRefusedError(
            f"{remote} is {hosted.name}, a fork of {hosted.fork_of}: drafts are opened only in a "
            "repository that has the branches itself",
            hint="name the remote of that repository with draft-remote, or open the draft by hand.",
        )
    if not hosted.pushes:
        raise DraftRefusedError(
            f"you may not push to {hosted.name}", hint="ask for write access, or name another draft-remote."
        )


def _is_current(draft: Draft, content: Content) -> bool:
    shown = (draft.commit, draft.base, draft.digest, draft.verdict)
    wanted = (content.commit, content.base, content.digest, str(content.verdict))
    return bool(draft.number) and not draft.planned and shown == wanted


def _verdict(status: Status) -> Verdict:
    match status:
        case Status.DONE:
            return Verdict.SUCCESS
        case Status.FAILED:
            return Verdict.FAILURE
        case _:
            return Verdict.PENDING


def _words(story: StorySnapshot, verdict: Verdict) -> str:
    if verdict is Verdict.SUCCESS:
        return "the story is done and verified"
    reason = one_line(story.reason)
    return shorten(reason, _WORDS).strip() if reason and story.status.final else "the story is not done yet"
