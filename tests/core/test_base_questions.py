"""What is asked of a base before stories start from it."""

from runner.core.base.check import questions
from runner.core.model import Story, StoryId
from runner.core.settings import Settings


def _story(name: str, *depends_on: str) -> Story:
    return Story(id=StoryId(name), title=name, prompt="", depends_on=tuple(map(StoryId, depends_on)))


def test_stories_that_start_from_the_base_ask() -> None:
    """One that depends on another starts from its commits, unless that one works in another repository."""
    stories = [_story("a"), _story("b", "a"), _story("c", "far"), _story("d", "far", "a")]
    (asked,) = questions(stories, Settings(verify=("make test",)), elsewhere={StoryId("far")})
    assert asked.stories == ("a", "c")
