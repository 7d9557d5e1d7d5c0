"""Where stories come from: folders, files, ids and prompts, in the order in which they were named."""

from pathlib import Path

import pytest

from tests.plan.backlog import Backlog, ids


@pytest.fixture
def backlog(tmp_path: Path) -> Backlog:
    """Return an empty top folder."""
    top = tmp_path / "top"
    top.mkdir()
    return Backlog(top)


def test_a_folder_is_read_in_order(backlog: Backlog) -> None:
    """Markdown and lists, below as well, hidden things and other files not."""
    backlog.put("stories/b.md", "b")
    backlog.put("stories/a.md", "a")
    backlog.put("stories/c.yaml", "stories: [{id: c1, prompt: x}, {id: c0, prompt: x}]")
    backlog.put("stories/d/e.md", "e")
    backlog.put("stories/.git/x.md", "x")
    backlog.put("stories/.draft.md", "x")
    backlog.put("stories/notes.txt", "x")
    backlog.put("stories/data.json", "[1, 2]")
    backlog.put("stories/compose.yaml", "services: {}")
    (backlog.top / "stories/loop").symlink_to(".")
    assert ids(backlog.load()) == ["a", "b", "c1", "c0", "e"]
    assert ids(backlog.load("stories")) == ids(backlog.load())


def test_a_readme_counts_only_with_front_matter(backlog: Backlog) -> None:
    """A folder may explain itself without becoming work."""
    backlog.put("stories/a.md", "a")
    backlog.put("stories/README.md", "# About these stories\n")
    assert ids(backlog.load()) == ["a"]
    backlog.put("stories/README.md", "---\nid: docs\n---\nWrite it.\n")
    assert ids(backlog.load()) == ["docs", "a"]


def test_a_misspelt_list_in_a_folder_is_not_silence(backlog: Backlog) -> None:
    """`storys:` is far more likely a typo than other data."""
    backlog.put("stories/l.yaml", "storys: [{id: a, prompt: x}]")
    assert backlog.error().message == "stories/l.yaml has no list 'stories'"


@pytest.mark.parametrize("exists", [False, True])
def test_no_stories_at_all_says_how_to_begin(backlog: Backlog, exists: bool) -> None:  # noqa: FBT001  a table
    """A missing or empty default folder points at `init`."""
    if exists:
        backlog.put("stories/README.md", "nothing yet")
    error = backlog.error()
    assert "'stories'" in error.message
    assert "`autopilot-multi init`" in error.hint


def test_a_duplicate_id_names_both_files(backlog: Backlog) -> None:
    """Two stories cannot share a branch."""
    backlog.put("stories/a.md", "a")
    backlog.put("stories/z/l.toml", '[[stories]]\nid = "a"\nprompt = "x"')
    error = backlog.error()
    assert error.message == "two stories have the id 'a': stories/a.md and stories/z/l.toml#1"


def test_sources_keep_their_order_and_count_once(backlog: Backlog) -> None:
    """A file that is named twice, by path and by id, is one story."""
    backlog.put("stories/a.md", "a")
    backlog.put("stories/b.md", "b")
    backlog.put("elsewhere/c.md", "c")
    loaded = backlog.load("elsewhere/c.md", "b", "stories", "stories/../stories/b.md", "a")
    assert ids(loaded) == ["c", "b", "a"]
    assert [story.source for story in loaded] == ["elsewhere/c.md", "stories/b.md", "stories/a.md"]


def test_an_id_brings_its_dependencies_along(backlog: Backlog) -> None:
    """Naming one story is enough to run it."""
    backlog.put("stories/a.md", "a")
    backlog.put("stories/b.md", "---\ndepends_on: a\n---\nb")
    backlog.put("stories/c.md", "c")
    assert ids(backlog.load("b")) == ["a", "b"]


def test_a_path_is_first_looked_for_in_the_current_folder(backlog: Backlog) -> None:
    """Relative paths mean what they mean in a shell; messages still start at the top."""
    backlog.put("sub/stories/a.md", "---\nid: from-sub\n---\na")
    backlog.put("stories/a.md", "---\nid: from-top\n---\na")
    backlog.put("stories/b.md", "b")
    (story,) = backlog.load("stories/a.md", cwd=backlog.top / "sub")
    assert (story.id, story.source) == ("from-sub", "sub/stories/a.md")
    assert ids(backlog.load("stories/b.md", cwd=backlog.top / "sub")) == ["b"]


def test_a_file_outside_is_named_by_its_whole_path(backlog: Backlog, tmp_path: Path) -> None:
    """What does not lie in the repository is not named as if it did."""
    outside = tmp_path / "outside.md"
    outside.write_text("x")
    assert backlog.load(str(outside))[0].source == str(outside)


def test_a_prompt_becomes_a_story(backlog: Backlog) -> None:
    """Quoted words become a story with an id made from them; equal ones get different ids."""
    backlog.put("stories/fix-the-login.md", "x")
    text = "Fix the login"
    long = "  Make the payment client retry on timeouts, with exponential backoff and jitter.\nMore. "
    stories = backlog.load(text, "fix-the-login", text, long)
    assert ids(stories) == [
        "fix-the-login-2",
        "fix-the-login",
        "fix-the-login-3",
        "make-the-payment-client-retry-on",
    ]
    assert (stories[0].title, stories[0].prompt, stories[0].source) == (text, text, "command line")
    assert stories[3].title == "Make the payment client retry on timeouts, with exponential…"
    assert stories[3].prompt == long.strip()


def test_a_very_long_prompt_is_no_path(backlog: Backlog) -> None:
    """A text beyond what a file system takes is still a prompt."""
    assert backlog.load("word " * 2000)[0].id == "word-word-word-word-word-word-word-word"


def test_a_prompt_must_be_text(backlog: Backlog) -> None:
    """Bytes that are not UTF-8 arrive from the shell as half characters, which no file can hold."""
    assert "half a character" in backlog.error("fix \udcff it").message


@pytest.mark.parametrize(
    ("source", "message", "hint"),
    [
        (
            "api-33",
            "'api-33' is neither a file nor a story in stories/",
            "did you mean 'api-3' (stories/api-3.md)?",
        ),
        ("zzz", "'zzz' is neither a file nor a story", "a prompt needs quotes"),
        ("stories/gone.md", "no such file or folder: 'stories/gone.md'", "quotes"),
        ("gone.md", "no such file or folder: 'gone.md'", "quotes"),
        ("Login!", "no such file or folder: 'Login!'", "quotes"),
        ("", "an empty argument names no story", "init"),
        ("  ", "an empty argument names no story", "init"),
        ("empty", "no stories in empty", "init"),
        ("notes.txt", "notes.txt is not a story file", "Markdown"),
    ],
)
def test_a_source_that_names_nothing(backlog: Backlog, source: str, message: str, hint: str) -> None:
    """Each says what was looked for, and the nearest that exists."""
    backlog.put("stories/api-3.md", "x")
    backlog.put("notes.txt", "x")
    (backlog.top / "empty").mkdir()
    error = backlog.error(source)
    assert message in error.message
    assert hint in error.hint
