"""A story file: every key, its defaults, and errors that say where and what to do."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from runner.core.model import Story
from runner.plan.stories.keys import KEYS, Fields, plain_fields
from runner.plan.stories.model import MODEL
from tests.plan.backlog import Backlog


@pytest.fixture
def backlog(tmp_path: Path) -> Backlog:
    """Return an empty top folder."""
    top = tmp_path / "top"
    top.mkdir()
    return Backlog(top)


def test_a_story_with_every_key(backlog: Backlog) -> None:
    """All keys arrive in the story; the body is the prompt."""
    story = backlog.one(
        "---\n"
        "id: checkout-17\n"
        "title: Retry payments on timeout\n"
        "priority: 10\n"
        "estimate: 12.5\n"
        "depends_on: [api-3, api-4, api-3]\n"
        'owns: ["services/payments/**"]\n'
        "flow: quick\n"
        "mode: deep\n"
        "agent: claude\n"
        'verify: ["pytest -q services/payments", "ruff check"]\n'
        "---\n\n"
        "Make the payment client retry.\n\n- with care\n"
    )
    assert story == Story(
        id=story.id,
        title="Retry payments on timeout",
        prompt="Make the payment client retry.\n\n- with care",
        priority=10,
        estimate=12.5,
        depends_on=("api-3", "api-4"),  # type: ignore[arg-type]  # plain texts read better here
        owns=("services/payments/**",),
        mode="deep",
        agent="claude",
        verify=("pytest -q services/payments", "ruff check"),
        source="stories/a.md",
    )
    assert story.id == "checkout-17"


def test_a_story_without_front_matter_is_all_prompt(backlog: Backlog) -> None:
    """The file's stem is the id, the first heading the title."""
    story = backlog.one("Some words first.\n\n## Fix the *login* ##\n\nIt is broken.\n", "stories/Login-2.md")
    assert (story.id, story.title) == ("login-2", "Fix the *login*")
    assert story.prompt.startswith("Some words first.")


@pytest.mark.parametrize(
    ("body", "title"),
    [
        ("no heading", "a"),
        ("```sh\n# a comment\n```\n# Real\n", "Real"),
        ("~~~~\n# x\n```\n# y\n~~~~\n# Real\n", "Real"),
        ("```\n# never closed\n", "a"),
        ("#hashtag\n", "a"),
        ("   ### Three spaces\n", "Three spaces"),
        ("# \x1b[31mRed\x1b[0m alert\n", "Red alert"),
    ],
)
def test_the_title_is_the_first_heading_or_the_id(backlog: Backlog, body: str, title: str) -> None:
    """Comments in code are not headings, and nothing in a title controls the terminal."""
    assert backlog.one(body).title == title


def test_one_string_serves_as_a_list(backlog: Backlog) -> None:
    """A single dependency, glob or command needs no brackets."""
    story = backlog.one("---\ndepends_on: b\nowns: src/**\nverify: make test\n---\nx")
    assert (story.depends_on, story.owns, story.verify) == (("b",), ("src/**",), ("make test",))


def test_a_command_may_be_a_string_or_a_list(backlog: Backlog) -> None:
    """A string is for the shell, a list is an argv; the body may then be empty."""
    assert backlog.one("---\ncommand: make all\n---\n").command == ("sh", "-c", "make all")
    listed = backlog.one('---\ncommand: [make, "-j", "2"]\n---\nwords\n')
    assert (listed.command, listed.prompt) == (("make", "-j", "2"), "words")


def test_an_empty_value_is_like_no_key(backlog: Backlog) -> None:
    """`verify:` with nothing behind it does not need to be removed."""
    story = backlog.one("---\nid:\ntitle:\ndepends_on:\nverify:\npriority:\nmode:\n---\nx")
    assert (story.id, story.title, story.depends_on, story.priority) == ("a", "a", (), 0)
    assert story.mode == "multi-story"


@pytest.mark.parametrize(
    "text",
    [
        "\ufeff---\r\nid: b\r\n---\r\n# Hi\r\nthere\r\n",
        "---\rid: b\r---\r# Hi\rthere\r",
        "---  \nid: b\n---\t\n# Hi\nthere",
        "---\nid: b\n...\n# Hi\nthere",
    ],
    ids=["windows", "old mac", "blanks", "dots"],
)
def test_line_ends_and_marks_of_all_systems(backlog: Backlog, text: str) -> None:
    """A file is the same story whichever editor wrote it."""
    story = backlog.one(text)
    assert (story.id, story.title, story.prompt) == ("b", "Hi", "# Hi\nthere")


def test_dashes_in_the_body_stay_in_the_body(backlog: Backlog) -> None:
    """Only the first closing line ends the front matter."""
    assert backlog.one("---\nid: b\n---\none\n\n---\n\ntwo\n").prompt == "one\n\n---\n\ntwo"


def test_the_first_lines_indentation_is_kept(backlog: Backlog) -> None:
    """A prompt may begin with an indented block."""
    assert backlog.one("\n  \n    code\ntext\n\n").prompt == "    code\ntext"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("---\nprioriy: 1\n---\nx", "stories/a.md:2: unknown key 'prioriy'", "did you mean 'priority'?"),
        ("---\ncolour: 1\n---\nx", "unknown key 'colour'", "known keys: id, title"),
        ("---\ntitle: x\nid: 017\n---\nx", "stories/a.md:3: 'id' must be text, but YAML reads 017", '"017"'),
        ("---\nid: yes\n---\nx", "YAML reads yes as true", '"yes"'),
        ("---\nid: 1.5\n---\nx", "YAML reads 1.5 as the number 1.5", '"1.5"'),
        ("---\nid: 2024-01-01\n---\nx", "'id' must be text, not '2024-01-01'", '"2024-01-01"'),
        ("---\nid: [a]\n---\nx", "'id' must be text, not a list", "'id'"),
        ("---\nid: Has Space\n---\nx", "'Has Space' cannot be an id", "id: has-space"),
        ("---\nid: ../../etc\n---\nx", "'../../etc' cannot be an id", "id: etc"),
        ("---\nid: a.lock\n---\nx", "ends with '.' or '.lock'", "id: a-lock"),
        ("---\nid: .git\n---\nx", "'.git' cannot be an id", "id: git"),
        ('---\nid: ""\n---\nx', "'' cannot be an id", "id: story"),
        ("---\ntitle: no\n---\nx", "YAML reads no as false", '"no"'),
        ("---\npriority: high\n---\nx", "'priority' must be a whole number, not 'high'", "priority"),
        ("---\npriority: 1.5\n---\nx", "'priority' must be a whole number, not '1.5'", "priority"),
        ("---\npriority: true\n---\nx", "'priority' must be a whole number, not 'true'", "priority"),
        (
            "---\nestimate: soon\n---\nx",
            "'estimate' must be a number of minutes above 0, not 'soon'",
            "estim",
        ),
        (
            "---\nestimate: true\n---\nx",
            "'estimate' must be a number of minutes above 0, not 'true'",
            "estim",
        ),
        ("---\nestimate: 0\n---\nx", "'estimate' must be above 0", "minutes"),
        ("---\nestimate: -3\n---\nx", "'estimate' must be above 0", "minutes"),
        ("---\nestimate: .inf\n---\nx", "'estimate' must be above 0 and at most 1000000", "minutes"),
        ("---\nestimate: .nan\n---\nx", "'estimate' must be above 0", "minutes"),
        ("---\npriority: 99999999\n---\nx", "'priority' must be from", "whole number"),
        (
            "---\ndepends_on:\n  - a\n  - 5\n---\nx",
            "stories/a.md:4: 'depends_on' must be a story's id",
            '"5"',
        ),
        ("---\ndepends_on: b, c\n---\nx", "names 'b, c', which cannot be an id", "[api-3, api-4]"),
        ("---\ndepends_on: {b: c}\n---\nx", "must be a story's id or a list of ids, not a table", "change"),
        ("---\nowns: [src/**, /etc]\n---\nx", "'owns': the glob '/etc' is absolute", "drop the '/'"),
        ('---\nowns: ""\n---\nx', "'owns' is empty", "glob"),
        ("---\ndialect: ritch\n---\nx", "unknown dialect 'ritch'", "did you mean 'rich'?"),
        ("---\ndialect: zzz\n---\nx", "unknown dialect 'zzz'", "known dialects: rich, pointer, autodev."),
        ('---\nagent: " "\n---\nx', "'agent' is empty", "an agent, or a list"),
        ('---\ncommand: ""\n---\nx', "'command' is empty", "shell command"),
        ("---\ncommand: []\n---\nx", "'command' is empty", "shell command"),
        ("---\ncommand:\n---\nx", "'command' is empty", "shell command"),
        ("---\ncommand: 5\n---\nx", "'command' must be a shell command", '"5"'),
        ("---\ncommand: [make, 5]\n---\nx", "YAML reads 5 as the number 5", '"5"'),
        ('---\ncommand: "a\\0b"\n---\nx', "'command' contains a NUL", "shell command"),
        ("---\nagent: x\ncommand: y\n---\nx", "stories/a.md:3: a story has either", "remove one"),
        ('---\nverify: ["a", ""]\n---\nx', "'verify' is empty", "command"),
        ("---\nprompt: x\n---\n", "'prompt' is a key of list files", "under the '---'"),
        ("---\nid: a\nid: b\n---\nx", "stories/a.md:3: the key 'id' was already given on line 2", "keep one"),
        ("---\nid: [a\n---\nx", "stories/a.md:3: not valid YAML", "quotes"),
        ("---\ntitle: a: b\n---\nx", "stories/a.md:2: not valid YAML", "quotes"),
        ("---\ntitle: 2024-13-45\n---\nx", "stories/a.md: not valid YAML", "quotes"),
        ("---\ntitle: !!python/object:os.system x\n---\nx", "not valid YAML", "quotes"),
        ("---\n- a\n---\nx", "must be lines of 'key: value'", "title"),
        ("---\nid: a\n", "stories/a.md:1: the front matter is never closed", "'---'"),
        ("---\nid: a\n---\n \n", "neither a prompt nor a command", "under the front matter"),
        ("", "neither a prompt nor a command", "under the front matter"),
        (b"---\nid: a\n---\nab\nc\xffd", "stories/a.md:5: this is not UTF-8 text", "UTF-8"),
    ],
)
def test_errors_say_where_what_and_what_to_do(
    backlog: Backlog, text: str | bytes, message: str, hint: str
) -> None:
    """Each names the file, the line if known, the key, and what to do."""
    error = backlog.refused(text)
    assert message in error.message
    assert error.message.startswith("stories/a.md")
    assert hint in error.hint


def test_a_file_name_that_is_no_id_asks_for_one(backlog: Backlog) -> None:
    """Nothing is guessed: the error suggests an id."""
    bare = backlog.refused("x", "stories/My Story.md")
    assert "the file's name 'My Story' cannot be the id" in bare.message
    assert "'id: my-story' into front matter (between" in bare.hint
    headed = backlog.refused("---\ntitle: x\n---\nx", "stories/My Story.md")
    assert "'id: my-story' into the front matter." in headed.hint


_SAMPLES: tuple[object, ...] = (
    *("", " ", "x", "a b", "yes", "3", "a\0b", "\ud800", "x" * 300),
    *(
        True,
        False,
        None,
        0,
        1,
        3,
        -3,
        50,
        51,
        33,
        10**400,
        1_000_001,
        -0.5,
        0.5,
        2.0,
        float("nan"),
        float("inf"),
    ),
    *([], [""], ["x"], ["x", "y z"], ["x", 1], [True], [["x"]], ("x",), {}, {"x": "y"}),
)


@pytest.mark.parametrize("key", KEYS)
def test_what_is_plainly_right_is_what_the_model_says(key: str) -> None:
    """Values are read without pydantic only where it would read the same; the rest is left to it."""
    assert tuple(KEYS) == Fields.__struct_fields__
    plain = 0
    for value in _SAMPLES:
        found = plain_fields({key: value})
        try:
            expected = Fields(**MODEL.model_validate({key: value}).model_dump())
        except ValidationError:
            expected = None
        assert found in (None, expected), value
        plain += found is not None
        assert found is None or repr(found) == repr(expected), value
    assert plain
