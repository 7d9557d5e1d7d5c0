"""Claims of stories in several repositories: each repository is claimed, and proven, by itself."""

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from isolation.paths import folds_case
from runner.core.model import Story, StoryId
from runner.plan.claims import ClaimedStories, Ownership, assign_claims
from runner.plan.repositories.site import Site


def claims_in(sites: Mapping[str, Site], stories: Sequence[Story], ownership: Ownership) -> ClaimedStories:
    """Assign every story its claim within its repository; stories in different ones never share a path."""
    found = [
        assign_claims(
            [_within(story, site.name, stories) for story in stories if story.repo == site.name],
            ownership,
            isolation=site.settings.bg_isolation,
            folding=folds_case(site.repository.top),
            at_once=site.settings.max_stories,
            docs=site.settings.docs_folder,
        )
        for site in sites.values()
    ]
    claims = {story.id: story.owns for each in found for story in each.stories}
    proofs = [each.disjoint for each in found if each.disjoint is not None]
    return ClaimedStories(
        stories=tuple(replace(story, owns=claims[story.id]) for story in stories),
        disjoint=all(proofs) if proofs else None,
        notes=tuple(note for each in found for note in each.notes),
        overlaps=tuple(clash for each in found for clash in each.overlaps),
    )


def _within(story: Story, repo: str, stories: Sequence[Story]) -> Story:
    """Return a story as its own repository sees it: without what it depends on elsewhere."""
    here = {each.id for each in stories if each.repo == repo}
    needs: tuple[StoryId, ...] = tuple(name for name in story.depends_on if name in here)
    return story if needs == story.depends_on else replace(story, depends_on=needs)
