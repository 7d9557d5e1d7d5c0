"""Which story owns which paths: claims from `deconflict-paths` and the stories' own `owns`.

The first source that gives a story globs decides: `ID=GLOB,GLOB` for this story, its `owns`, a pattern with
`{id}`. A glob alone is a boundary that every claim must lie within. In a shared tree all claims are proven
disjoint, or the plan is refused; in worktrees an overlap only causes a note.

A shared tree in which one story works at a time needs no claims: a story without one owns everything, or all
within the boundary.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field
from msgspec.structs import replace

from isolation.claims import globs as claims
from isolation.claims.disjoint import Overlap, Proof
from isolation.claims.globs import Claim
from isolation.errors import ClaimError, UnprovenError
from runner.core.errors import BacklogError, SettingsError
from runner.core.flow import DEFAULT_DOCS, QUICK, docs_folder
from runner.core.forecast.clashes import Clash
from runner.core.model import Story, StoryId
from runner.core.schedule.graph import dependents
from runner.core.settings import Settings
from runner.core.text.names import did_you_mean, shown
from runner.core.text.screen import neutral
from runner.plan.settings.load import Loaded

KEY = "deconflict-paths"
ID = "{id}"
SHARED = "none"
EVERYTHING = "**"
_NOT_IN_IDS = frozenset("/*?[]!{}")
_NOTES = 3
_MOST_OVERLAPS = 200
_STEPS_FOR_NOTES = 500_000
"""The effort that a note is worth: about half a second."""


class Ownership(Struct, frozen=True, kw_only=True):
    """The parsed `deconflict-paths`. `named` are the globs of single stories."""

    boundary: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    named: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def globs_of(self, story: Story) -> tuple[str, ...]:
        """Return the globs that a story owns; none when no source gives any."""
        named = self.named.get(story.id, ())
        if story.owns and not named:
            return story.owns
        return tuple(glob.replace(ID, story.id) for glob in named or self.patterns)


class ClaimedStories(Struct, frozen=True, kw_only=True):
    """Stories with their claims; `disjoint` is None with fewer than two claims, or where it is not known.

    `overlaps` are pairs in worktrees that may conflict, each with a path that both own.
    """

    stories: tuple[Story, ...]
    disjoint: bool | None = None
    notes: tuple[str, ...] = ()
    overlaps: tuple[Clash, ...] = ()


def require_ownership(settings: Settings) -> None:
    """Refuse several parallel stories in a shared tree without `deconflict-paths`, and `squash` there."""
    if settings.bg_isolation == SHARED and settings.squash:
        raise SettingsError(
            "squash does not work with bg-isolation 'none': there a branch records what was committed from "
            "the shared tree, step by step",
            hint="remove one of the two settings.",
        )
    if settings.bg_isolation == SHARED and settings.max_stories > 1 and not settings.deconflict_paths:
        raise SettingsError(
            f"bg-isolation 'none' with max-stories {settings.max_stories} needs --{KEY}: "
            "stories in one working tree must own different paths",
            hint=f"for example --{KEY} 'packages/{ID}/**'; or run one story at a time: --max-stories 1.",
        )


def read_ownership(loaded: Loaded, stories: Iterable[Story], *, complete: bool) -> Ownership:
    """Parse and check `deconflict-paths`; `complete` means that no other stories exist.

    A settings file may name stories that this run leaves out; a flag may not.
    """
    source, from_flag = _source(loaded.origins[KEY])
    known = {str(story.id) for story in stories}
    boundary: list[str] = []
    patterns: list[str] = []
    named: dict[str, tuple[str, ...]] = {}
    for spec in loaded.settings.deconflict_paths:
        name, equals, globs = spec.partition("=")
        if equals and not _NOT_IN_IDS & set(name):
            if name not in known and (complete or from_flag):
                nearest = did_you_mean(name, known) or "`autopilot-multi plan` lists the stories."
                hint = f"{nearest} A plain '=' in a glob is written '[=]'."
                raise SettingsError(f"{source}: no story has the id {shown(name)}", hint=hint)
            named[name] = (*named.get(name, ()), *(glob.strip() for glob in globs.split(",")))
        else:
            (patterns if ID in spec else boundary).append(spec)
    # Compiled only to find errors early; whether case matters is known later.
    for globs_given in (boundary, patterns, *named.values()):
        _compiled(globs_given, source, folding=False)
    return Ownership(boundary=tuple(boundary), patterns=tuple(patterns), named=named)


def assign_claims(
    stories: Sequence[Story],
    ownership: Ownership,
    *,
    isolation: str,
    folding: bool,
    at_once: int,
    docs: str = DEFAULT_DOCS,
) -> ClaimedStories:
    """Assign every story its claim, and prove what must be true of the claims.

    `folding` means that `README` and `readme` are one file here, `at_once` how many stories may run. `docs`
    is the setting `docs-folder`: what a story that follows a flow writes there is its own.
    """
    _require_own_docs(stories, docs)
    owners = tuple(replace(story, owns=ownership.globs_of(story)) for story in stories)
    compiled = {
        story.id: _compiled(story.owns, f"story {story.id}", folding=folding)
        for story in owners
        if story.owns
    }
    _require_within(compiled, ownership.boundary, folding=folding)
    owners = tuple(_with_docs(story, docs) for story in owners)
    if isolation == SHARED:
        if len(compiled) < len(owners) and 1 in {at_once, len(owners)}:
            return _one_at_a_time(owners, ownership.boundary, docs)
        # A story without globs is not among the compiled claims, so that no proof would notice it.
        _require_claims(owners)
        _require_disjoint({story.id: claims.compile(story.owns, folding=folding) for story in owners})
        return ClaimedStories(stories=owners, disjoint=True if len(owners) > 1 else None)
    disjoint, notes, overlaps = _compared(compiled, owners)
    # Without a claim of its own, a story in a worktree is still held by the boundary.
    bounded = tuple(
        story if story.owns else _with_docs(replace(story, owns=ownership.boundary), docs) for story in owners
    )
    return ClaimedStories(stories=bounded, disjoint=disjoint, notes=notes, overlaps=overlaps)


def claim_additions(
    new: Sequence[Story],
    present: Sequence[Story],
    ownership: Ownership,
    settings: Settings,
    *,
    folding: bool,
) -> tuple[Story, ...]:
    """Return stories that join a run with their claims, proven as in its plan against those it has.

    What the run has keeps its claims: they are what is enforced.
    """
    owners = tuple(replace(story, owns=ownership.globs_of(story)) for story in new)
    shared, one_at_a_time = settings.bg_isolation == SHARED, settings.max_stories == 1
    if shared and one_at_a_time:
        whole = ownership.boundary or (EVERYTHING,)
        return tuple(_with_docs(replace(one, owns=one.owns or whole), settings.docs_folder) for one in owners)
    if shared:
        _require_claims(owners)
    claimed = assign_claims(
        new,
        ownership,
        isolation=settings.bg_isolation,
        folding=folding,
        at_once=settings.max_stories,
        docs=settings.docs_folder,
    ).stories
    if shared:
        others = (story for story in present if story.id not in {one.id for one in claimed})
        require_disjoint_stories((*others, *claimed), folding=folding)
    return claimed


def require_disjoint_stories(stories: Iterable[Story], *, folding: bool) -> None:
    """Refuse stories of a shared tree that may own a path together; the error names one."""
    _require_disjoint({story.id: claims.compile(story.owns, folding=folding) for story in stories})


def _with_docs(story: Story, docs: str) -> Story:
    """Return a story whose claim, if it has one, contains the folder of its documents."""
    if story.flow == QUICK.name or not story.owns:
        return story
    return replace(story, owns=(*story.owns, f"{docs_folder(docs, story.id)}/**"))


def _require_own_docs(stories: Sequence[Story], docs: str) -> None:
    """Refuse stories that would keep their documents in one folder at the same time."""
    following = [story for story in stories if story.flow != QUICK.name]
    if ID in docs or len(following) <= 1:
        return
    later = {story.id: set(dependents(stories, story.id)) for story in following}
    for place, one in enumerate(following):
        for another in following[place + 1 :]:
            if another.id not in later[one.id] and one.id not in later[another.id]:
                raise SettingsError(
                    f"stories {one.id} and {another.id} would both keep their state file in {docs}/",
                    hint=f'set docs-folder = "{DEFAULT_DOCS}", or let one depend on the other.',
                )


def _one_at_a_time(stories: Sequence[Story], boundary: tuple[str, ...], docs: str) -> ClaimedStories:
    """Let stories without a claim have the whole tree, or all within the boundary, one after the other."""
    without = [story.id for story in stories if not story.owns]
    what = ", ".join(boundary) or "the whole tree"
    note = f"no claim for {', '.join(without)}: with one story at a time it has {what}"
    if len(stories) > 1:
        note += "; a story builds on what those before it have changed there"
    claim = boundary or (EVERYTHING,)
    owners = tuple(story if story.owns else _with_docs(replace(story, owns=claim), docs) for story in stories)
    return ClaimedStories(stories=owners, notes=(note,))


def _source(origin: str) -> tuple[str, bool]:
    """Return the name of the source as the user wrote it, and whether it is the command line."""
    kind, _, name = origin.partition(" ")
    return (name if kind in {"flag", "environment"} else f"{origin}: {KEY}"), kind == "flag"


def _compiled(globs: Iterable[str], where: str, *, folding: bool) -> Claim:
    try:
        return claims.compile(globs, folding=folding)
    except ClaimError as error:
        raise ClaimError(f"{where}: {error.message}", hint=error.hint) from error


def _require_claims(stories: Iterable[Story]) -> None:
    without = [story.id for story in stories if not story.owns]
    if without:
        whose = f"story {without[0]} owns" if len(without) == 1 else f"stories {', '.join(without)} own"
        raise BacklogError(
            f"{whose} no paths, which bg-isolation 'none' requires",
            hint=f"pass --{KEY} '{without[0]}=GLOB', or add 'owns' to the story.",
        )


def _require_within(owners: Mapping[StoryId, Claim], boundary: Sequence[str], *, folding: bool) -> None:
    if not boundary:
        return
    around, proof = claims.compile(boundary, folding=folding), Proof()
    for story_id, claim in owners.items():
        try:
            stray = proof.outside(claim, around)
        except UnprovenError as error:
            raise ClaimError(
                f"story {story_id} and the boundary: {error.message}", hint=error.hint
            ) from error
        if stray is not None:
            path, glob = stray
            raise ClaimError(
                f"story {story_id} owns {neutral(path)} by '{neutral(glob.text)}', "
                f"outside of {', '.join(boundary)}",
                hint=f"narrow its claim, or add a --{KEY} glob that contains it.",
            )


def _require_disjoint(owners: Mapping[StoryId, Claim]) -> None:
    ids = tuple(owners)
    try:
        for first, second, overlap in Proof().overlaps(tuple(owners.values())):
            raise ClaimError(
                _overlap_text(ids[first], ids[second], overlap),
                hint="narrow one of the globs, or exclude the path with '!' in one claim; "
                "in worktrees (--bg-isolation worktree) claims may overlap.",
            )
    except UnprovenError as error:
        raise ClaimError(_unproven_text(ids, error), hint=error.hint) from error


def _compared(
    owners: Mapping[StoryId, Claim], stories: Sequence[Story]
) -> tuple[bool | None, tuple[str, ...], tuple[Clash, ...]]:
    """Return whether claims are disjoint, with notes on those that are not, and the pairs.

    Stories that depend on each other are left out: the later one starts from the commits of the other.
    """
    if len(owners) <= 1:
        return None, (), ()
    ids = tuple(owners)
    later = {story_id: set(dependents(stories, story_id)) for story_id in ids}
    notes: list[str] = []
    overlaps: list[Clash] = []
    try:
        for first, second, overlap in Proof(steps=_STEPS_FOR_NOTES).overlaps(tuple(owners.values())):
            one, another = ids[first], ids[second]
            if another in later[one] or one in later[another]:
                continue
            if len(overlaps) == _MOST_OVERLAPS:
                break
            overlaps.append(Clash(stories=(one, another), files=(overlap.path,)))
            notes.append(f"{_overlap_text(one, another, overlap)}; their branches may conflict when merged")
    except UnprovenError as error:
        unproven = f"{_unproven_text(ids, error)}; they may conflict when merged"
        return False if notes else None, (*notes[:_NOTES], unproven), tuple(overlaps)
    if notes[_NOTES:]:
        notes[_NOTES:] = ["more stories own the same paths; give each its own to merge without conflicts"]
    return not notes, tuple(notes), tuple(overlaps)


def _overlap_text(one: StoryId, another: StoryId, overlap: Overlap) -> str:
    globs = f"{one} by '{neutral(overlap.first.text)}', {another} by '{neutral(overlap.second.text)}'"
    return f"stories {one} and {another} both own {neutral(overlap.path)}: {globs}"


def _unproven_text(ids: Sequence[StoryId], error: UnprovenError) -> str:
    one, another = error.pair
    return f"whether stories {ids[one]} and {ids[another]} share a path cannot be proven: {error.message}"
