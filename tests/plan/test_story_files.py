"""Files of stories: lists in three languages, and files that are out of proportion."""

import os
from pathlib import Path

import pytest

from tests.plan.backlog import Backlog

YAML_LIST = """
stories:
  - {id: a, prompt: do a, verify: &v [make]}
  - id: b
    command: [ls]
    depends_on: a
    verify: *v
"""
TOML_LIST = """
[[stories]]
id = "a"
prompt = "do a"
verify = ["make"]

[[stories]]
id = "b"
command = ["ls"]
depends_on = "a"
verify = ["make"]
"""
JSON_LIST = """
{"stories": [
  {"id": "a", "prompt": "do a", "verify": ["make"]},
  {"id": "b", "command": ["ls"], "depends_on": "a", "verify": "make"}
]}
"""


@pytest.fixture
def backlog(tmp_path: Path) -> Backlog:
    """Return an empty top folder."""
    top = tmp_path / "top"
    top.mkdir()
    return Backlog(top)


def test_an_oversized_file_is_refused(backlog: Backlog) -> None:
    """A story is not a place for data."""
    assert "4.5 MB large" in backlog.refused(b"x" * (4 * 1024 * 1024 + 512 * 1024)).message


def test_oversized_front_matter_is_refused(backlog: Backlog) -> None:
    """A megabyte of keys is an error, not a wait."""
    error = backlog.refused("---\ntitle: " + "x" * 1024 * 1024 + "\n---\nx")
    assert "front matter is 1024 KB long" in error.message


@pytest.mark.parametrize("path", ["stories/l.yaml", "stories/l.json", "stories/l.toml"])
def test_deep_nesting_is_refused(backlog: Backlog, path: str) -> None:
    """A hundred thousand brackets bring down neither the reader nor the program."""
    start = "stories = " if path.endswith("toml") else ""
    assert "not valid" in backlog.refused(start + "[" * 100_000, path).message


def test_an_alias_bomb_is_refused(backlog: Backlog) -> None:
    """Values that repeat themselves a billion times are neither built nor printed."""
    levels = ["a0: &a0 [x, x]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    error = backlog.refused("---\n" + "\n".join(levels) + "\nverify: *a11\n---\nx")
    assert len(error.message) < 400


def test_a_merge_bomb_is_refused(backlog: Backlog) -> None:
    """Keys that double with every merge stop early."""
    levels = ["a0: &a0 {k: 1, j: 2}"]
    levels += [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40)]
    assert "its aliases repeat too much" in backlog.refused("---\n" + "\n".join(levels) + "\n---\nx").message


def test_a_pipe_is_not_read(backlog: Backlog) -> None:
    """Something that is not a regular file is refused instead of blocking the reader."""
    (backlog.top / "stories").mkdir()
    os.mkfifo(backlog.top / "stories/a.md")
    assert "is not a regular file" in backlog.error().message


def test_a_dangling_link_is_named(backlog: Backlog) -> None:
    """A story that points nowhere is an error, not silence."""
    (backlog.top / "stories").mkdir()
    (backlog.top / "stories/a.md").symlink_to("gone.md")
    assert "cannot read stories/a.md: No such file" in backlog.error().message


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("l.yaml", YAML_LIST),
        ("l.toml", TOML_LIST),
        ("l.json", JSON_LIST),
    ],
)
def test_a_list_in_any_of_three_languages(backlog: Backlog, path: str, text: str) -> None:
    """YAML, TOML and JSON lists give the same stories, in their order."""
    backlog.put(path, text)
    first, second = backlog.load(path)
    assert (first.id, first.prompt, first.verify, first.source) == ("a", "do a", ("make",), f"{path}#1")
    assert (second.id, second.command, second.depends_on) == ("b", ("ls",), ("a",))


@pytest.mark.parametrize(
    ("path", "text", "message"),
    [
        (
            "l.yaml",
            "stories:\n  - id: a\n    prompt: x\n  - id: b\n    verify: [1]\n",
            "l.yaml:5: story b: 'ver",
        ),
        ("l.yaml", "stories:\n  - prompt: x\n", "l.yaml:2: an entry of a list needs an 'id'"),
        ("l.yaml", "stories:\n  - just text\n", "l.yaml:2: entry 1 of 'stories' is not a table"),
        ("l.yaml", "stories:\n  - id: a\n", "l.yaml:2: story a: the story has neither"),
        ("l.yaml", "stories: x\n", "l.yaml: 'stories' must be a list"),
        ("l.yaml", "stories: []\nagent: x\n", "l.yaml: unknown key 'agent' beside 'stories'"),
        ("l.yaml", "other: []\n", "l.yaml has no list 'stories'"),
        ("l.yaml", "", "l.yaml has no list 'stories'"),
        ("l.yaml", "stories: []\n", "no stories in l.yaml"),
        ("l.toml", 'stories = [{id="a", prompt="x", priority="1"}]', "l.toml#1: story a: 'priority' must be"),
        ("l.toml", "stories = [3]", "l.toml: entry 1 of 'stories' is not a table"),
        ("l.toml", "stories = ", "l.toml: not valid TOML"),
        ("l.json", '{"stories": [\n{"id": "a",}]}', "l.json:2: not valid JSON"),
        ("l.json", '{"stories": [{"id": "a", "prompt": "\\ud800"}]}', "'prompt' contains half a character"),
        ("l.json", '{"stories": ' + "9" * 5000 + "}", "l.json: not valid JSON"),
    ],
)
def test_errors_in_a_list_name_the_entry(backlog: Backlog, path: str, text: str, message: str) -> None:
    """A line where the language has lines, else the entry's number."""
    assert message in backlog.refused(text, path).message


def test_unknown_keys_of_all_stories_are_one_error(backlog: Backlog) -> None:
    """A backlog that was written with a wrong key is fixed in one go."""
    backlog.put("stories/a.md", "---\nprioriy: 1\ntitle: A\nverfy: x\n---\nx")
    backlog.put("stories/b.yaml", "stories:\n- id: b\n  promt: x\n")
    error = backlog.error()
    assert error.message.splitlines() == [
        "3 unknown keys:",
        "  stories/a.md:2: 'prioriy': did you mean 'priority'?",
        "  stories/a.md:4: 'verfy': did you mean 'verify'?",
        "  stories/b.yaml:3: story b: 'promt': did you mean 'prompt'?",
    ]
    backlog.put("stories/c.yaml", "stories: []\nagent: x\nverify: y\n")
    assert "unknown keys 'agent', 'verify' beside 'stories'" in backlog.error("stories/c.yaml").message
