"""A name that is no story's id: which story was probably meant."""

import pytest

from runner.core.errors import BacklogError
from runner.core.model import Story, StoryId
from runner.core.schedule.graph import closure, ordered
from runner.core.text.names import did_you_mean_story

API = Story(id=StoryId("api-3"), title="Serve the API", prompt="x", source="stories/A.md")
LISTED = Story(id=StoryId("web-1"), title="Web", prompt="x", source="stories/more.yaml#1")
TYPED = Story(id=StoryId("fix-login"), title="Fix login", prompt="x", source="command line")
UNKNOWN = Story(id=StoryId("docs"), title="Docs", prompt="x")
STORIES = (API, LISTED, TYPED, UNKNOWN)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("API-3", "did you mean 'api-3' (stories/A.md)?"),
        ("A", "did you mean 'api-3' (stories/A.md)?"),
        ("a", "did you mean 'api-3' (stories/A.md)?"),
        ("A.md", "did you mean 'api-3' (stories/A.md)?"),
        ("stories/a", "did you mean 'api-3' (stories/A.md)?"),
        ("serve the api", "did you mean 'api-3' (stories/A.md)?"),
        ("Api_3", "did you mean 'api-3' (stories/A.md)?"),
        ("web-11", "did you mean 'web-1' (stories/more.yaml#1)?"),
        ("Docs", "did you mean 'docs'?"),
        ("more", ""),
        ("", ""),
        ("zzz", ""),
    ],
)
def test_the_story_that_was_meant_is_named_with_its_file(name: str, hint: str) -> None:
    """By its id in capitals, its file, its title, or nearly its id; the file of a list names none of them."""
    assert did_you_mean_story(name, STORIES) == hint


def test_the_surest_guess_comes_first() -> None:
    """An id in capitals says more than the name of another story's file."""
    other = Story(id=StoryId("a"), title="Other", prompt="x", source="stories/other.md")
    assert did_you_mean_story("A", [*STORIES, other]) == "did you mean 'a' (stories/other.md)?"


def test_files_of_one_name_are_all_named() -> None:
    """Two folders may each have such a file."""
    twins = [Story(id=StoryId(f"{name}-1"), title=name, prompt="x", source=f"{name}/b.md") for name in "xy"]
    assert did_you_mean_story("b", twins) == "did you mean 'x-1' (x/b.md) or 'y-1' (y/b.md)?"


def test_a_dependency_by_file_name_is_answered_with_the_id() -> None:
    """Acceptance 25: a dependency that is absent is named, and so is the story that was meant."""
    waiting = Story(id=StoryId("b"), title="B", prompt="x", source="stories/b.md", depends_on=(StoryId("A"),))
    with pytest.raises(BacklogError) as caught:
        ordered([API, waiting])
    assert caught.value.message == "story b (stories/b.md) depends on 'A', which is not in the backlog"
    assert caught.value.hint == "did you mean 'api-3' (stories/A.md)?"


def test_a_story_is_never_offered_to_itself() -> None:
    """The nearest name to a dependency that is missing is often that of the story that waits for it."""
    waiting = Story(id=StoryId("api-4"), title="B", prompt="x", depends_on=(StoryId("api-3"),))
    with pytest.raises(BacklogError) as caught:
        ordered([waiting])
    assert caught.value.hint == "add the story 'api-3' to the run, or remove it from depends_on."


def test_a_story_that_is_chosen_by_its_file_is_found() -> None:
    """`--only` takes ids, and says which one the file has."""
    with pytest.raises(BacklogError) as caught:
        closure(STORIES, ["A"])
    assert caught.value.hint == "did you mean 'api-3' (stories/A.md)?"
