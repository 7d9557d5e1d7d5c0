"""Everything that can be reached from some stories, by what they need or by what needs them."""

from collections.abc import Collection, Iterable, Mapping

from runner.core.model import StoryId


def closure(stories: Iterable[StoryId], leads_to: Mapping[StoryId, Collection[StoryId]]) -> set[StoryId]:
    """Return stories with all that they lead to, directly or through others."""
    found: set[StoryId] = set()
    left = list(stories)
    while left:
        story = left.pop()
        if story not in found:
            found.add(story)
            left.extend(leads_to.get(story, ()))
    return found
