"""The `autopilot:` block: found where people put it, and nothing else taken for it."""

from pathlib import Path

import pytest

from runner.core.errors import SettingsError
from runner.plan.settings.agents_md import load_block, load_common_keys


def values(top: Path, text: str, name: str = "AGENTS.md") -> dict[str, object] | None:
    (top / name).write_text(text)
    block, _ = load_block(top)
    return None if block is None else block.values


@pytest.mark.parametrize(
    "text",
    [
        "autopilot:\n  max-stories: 2\n",
        "# Config\n\nautopilot:   # ours\n\n  # how many\n  max-stories: 2\n\nNext paragraph.\n",
        "```yaml\npersistence: true\nautopilot:\n  max-stories: 2\nother:\n  max-stories: 9\n```\n",
        "```yaml\nsession-config:\n  autopilot:\n    max-stories: 2\n  other: 1\n```\n",
        "    autopilot:\n      max-stories: 2\n",
        "autopilot:\r\n  max-stories: 2\r\n",
        "autopilot:\n\tmax-stories: 2\n",
        "The autopilot: is described below.\nautopilot:\nprose\nautopilot:\n  max-stories: 2\n",
    ],
    ids=["plain", "comments", "fenced", "nested", "code", "windows", "tab", "prose first"],
)
def test_the_block_is_found(tmp_path: Path, text: str) -> None:
    """Fenced or plain, alone or among other keys."""
    assert values(tmp_path, text) == {"max-stories": 2}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "autopilot: on\n",
        "autopilot:\n",
        "autopilot:\nmax-stories: 2\n",
        "autopilot:\n  just some prose words\n",
        "autopilot:\n  # only a comment\n",
        "my-autopilot:\n  max-stories: 2\n",
    ],
)
def test_what_is_no_block_is_left_alone(tmp_path: Path, text: str) -> None:
    """Prose and other programs' keys are not ours to judge."""
    assert values(tmp_path, text) is None


def test_agents_md_counts_before_claude_md(tmp_path: Path) -> None:
    """Two different blocks: the first file counts, with a note."""
    (tmp_path / "CLAUDE.md").write_text("autopilot:\n  max-stories: 9\n")
    block, notes = load_block(tmp_path)
    assert block is not None
    assert (block.file, block.values, notes) == ("CLAUDE.md", {"max-stories": 9}, ())
    (tmp_path / "AGENTS.md").write_text("autopilot:\n  max-stories: 2\n")
    block, notes = load_block(tmp_path)
    assert block is not None
    assert (block.file, block.values) == ("AGENTS.md", {"max-stories": 2})
    assert notes == ("both AGENTS.md and CLAUDE.md have an 'autopilot:' block; using AGENTS.md",)


def test_a_linked_claude_md_is_the_same_block(tmp_path: Path) -> None:
    """Many projects link one file to the other; that is worth no word."""
    (tmp_path / "AGENTS.md").write_text("autopilot:\n  max-stories: 2\n")
    (tmp_path / "CLAUDE.md").symlink_to("AGENTS.md")
    assert load_block(tmp_path)[1] == ()


@pytest.mark.parametrize(
    ("text", "line"),
    [("x\nautopilot:\n  a: 1\n  max-stories: [2\n", 4), ("autopilot:\n  a: 1\n  b: c: d\n", 3)],
)
def test_a_broken_block_names_its_line(tmp_path: Path, text: str, line: int) -> None:
    """The message names the line."""
    with pytest.raises(SettingsError, match=f"AGENTS.md:{line}: the 'autopilot:' block is not valid YAML"):
        values(tmp_path, text)


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    """The file is not ours; only our block must be readable."""
    (tmp_path / "AGENTS.md").write_bytes(b"\xff\xfe\nautopilot:\n  max-stories: 2\n")
    block, _ = load_block(tmp_path)
    assert block is not None
    assert block.values == {"max-stories": 2}


@pytest.mark.parametrize(
    "lines",
    [
        "agents-per-wave: 3\npersistence: false\n",
        "- **agents-per-wave:** 3\n- **persistence:** false\n",
        "```yaml\nagents-per-wave: 3 (deep: 18)   # most\npersistence: false\n```\n",
        "- agents-per-wave: 9\n- agents-per-wave: 3\n- persistence: false\n",
    ],
    ids=["plain", "bold list", "fenced", "last counts"],
)
def test_the_common_keys_are_found_in_their_section_only(tmp_path: Path, lines: str) -> None:
    """Under their heading, in any of the usual forms; elsewhere, and deeper, they mean something else."""
    nested = "autopilot:\n  agents-per-wave: 7\n"
    text = f"agents-per-wave: 8\n\n## Session Config\n\n{lines}{nested}\n## Next\n\npersistence: true\n"
    (tmp_path / "CLAUDE.md").write_text(text)
    section, notes = load_common_keys(tmp_path)
    assert section is not None
    assert (section.file, section.values, notes) == (
        "CLAUDE.md",
        {"agents-per-wave": 3, "persistence": False},
        (),
    )


def test_an_unclear_common_key_is_noted_and_has_no_effect(tmp_path: Path) -> None:
    """The section belongs to other programs, so it never stops a run."""
    (tmp_path / "AGENTS.md").write_text("## Session Config\nagents-per-wave: many\npersistence: true\n")
    section, notes = load_common_keys(tmp_path)
    assert section is not None
    assert section.values == {"persistence": True}
    assert notes == (
        "AGENTS.md: 'agents-per-wave: many' of the Session Config is unclear, and has no effect",
    )
    (tmp_path / "AGENTS.md").write_text("## Session Configuration\npersistence: false\n")
    assert load_common_keys(tmp_path) == (None, ())
