"""YAML of others is refused where a short text stands for an endless value, wherever it is read."""

from pathlib import Path

import pytest
import yaml

from runner.core.errors import BacklogError, SettingsError
from runner.plan.settings.load import load_settings
from runner.plan.stories.sources import load_stories
from runner.records import signals
from runner.records.bounded_yaml import load_yaml

LAUGHS = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
MERGES = "m0: &m0 {k0: 1}\n" + "".join(
    f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}], k{n}: 1}}\n" for n in range(1, 40)
)
WIDE = f"base: &base {{{', '.join(f'k{n}: 1' for n in range(500))}}}\nall: {{<<: [{'*base, ' * 999}*base]}}\n"
ITSELF = "a: &a [*a]\n"
DEEP = "a: " + "[" * 500 + "]" * 500 + "\n"
HOSTILE = {"laughs": LAUGHS, "merges": MERGES, "wide": WIDE, "itself": ITSELF, "deep": DEEP}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_endless_values_are_refused_by_every_reader(text: str, tmp_path: Path) -> None:
    """Stories and lists name the file and the line, as do settings; another program's state says nothing."""
    (tmp_path / "stories").mkdir()
    for name, content in (("one.md", f"---\n{text}---\nDo it.\n"), ("all.yaml", f"{text}stories: []\n")):
        (tmp_path / "stories" / name).write_text(content)
        with pytest.raises(BacklogError, match=rf"stories/{name}:\d+: not valid YAML: "):
            load_stories((f"stories/{name}",), top=tmp_path, default="stories")
    indented = "".join(f"  {line}\n" for line in text.splitlines())
    (tmp_path / "AGENTS.md").write_text(f"```yaml\nautopilot:\n{indented}```\n")
    with pytest.raises(SettingsError, match=r"AGENTS.md:\d+: the 'autopilot:' block is not valid YAML: "):
        load_settings(top=tmp_path, flags={}, environ={})
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude/STATE.md").write_text(f"---\nrecommended-mode: deep\n{text}---\n")
    assert signals._recommendation(tmp_path) is None


def test_what_people_write_is_read() -> None:
    """Aliases and merges are fine as long as they stay small; what is refused says where."""
    text = "base: &base {a: 1, b: [x]}\nall:\n" + "".join(f"- {{<<: *base, n: {n}}}\n" for n in range(1000))
    read, node = load_yaml(text)
    assert node is not None
    assert read["all"][999] == {"a": 1, "b": ["x"], "n": 999}
    assert load_yaml("") == (None, None)
    with pytest.raises(yaml.MarkedYAMLError, match="refer to themselves"):
        load_yaml(ITSELF)
