"""A setting is declared once: everything that shows or reads settings follows from its declaration."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from docs import generate
from runner.cli.parser import Parser
from runner.cli.run_options import add_plan_flags, flags_of
from runner.core.declaration import Declared, declared_in
from runner.core.settings import SETTINGS, Settings
from runner.plan.settings.load import load_settings
from runner.plan.settings.template import settings_template

ROOT = Path(__file__).parents[2]
PLAIN = [declared for declared in SETTINGS.values() if not declared.is_table]
FLAGGED = [declared for declared in PLAIN if declared.option]
# Every line that can be taken into use: a key or the head of a table.
TEMPLATE = re.sub(r"^# (?=[\w-]+ = |\[)", "", settings_template(), flags=re.MULTILINE)

NEW = """\
    fresh_air: Annotated[
        int,
        Setting(help="how fresh the air is", bounds=Bounds(low=1, high=9, unit="m"), flag="--fresh-air N"),
    ] = 4
    bg_isolation: Annotated["""
ADDED = """
import sys
from pathlib import Path

source = Path("runner/core/settings.py").read_text()
assert source.count("    bg_isolation: Annotated[") == 1
module = type(sys)("runner.core.settings")
sys.modules["runner.core.settings"] = module
exec(source.replace("    bg_isolation: Annotated[", {new!r}), module.__dict__)

from docs.generate import settings_page
from runner.cli.main import run_program
from runner.plan.settings.template import settings_template

assert "| `fresh-air` | `4` | 1 to 9 | `--fresh-air N` | `AUTOPILOT_MULTI_FRESH_AIR` |" in settings_page()
assert "# How fresh the air is (1 to 9).\\n# fresh-air = 4\\n" in settings_template()
assert run_program(["config", "-C", {repo!r}, "--json"]) == 0
assert run_program(["plan", "-C", {repo!r}, "--fresh-air", "thin"]) == 1
run_program(["plan", "--help"])
"""


def _by_key(declared: Declared) -> str:
    return declared.key


def test_every_field_of_the_settings_is_declared() -> None:
    """No setting is left without its `Setting`, and every one has a help text."""
    declared = declared_in(Settings)
    assert [item.field for item in declared] == list(Settings.__struct_fields__)
    assert all(item.setting.help for item in declared)


@pytest.mark.parametrize("declared", FLAGGED, ids=_by_key)
def test_a_declared_flag_sets_its_setting(declared: Declared) -> None:
    """The flag has the name of its key, its help is the declared one, and its value arrives under its key."""
    parser = Parser(prog="autopilot-multi", allow_abbrev=False)
    add_plan_flags(parser)
    assert declared.option.removeprefix("--").removeprefix("no-") == declared.key
    opposite = str(not declared.default).lower() if declared.is_switch else ""
    value = declared.setting.flag_value or opposite or "x"
    argv = [declared.option, *(["x"] if value == "x" else [])]
    assert flags_of(parser.parse_args(argv)) == {declared.key: (value,) if declared.is_list else value}
    text = " ".join(parser.format_help().split())
    assert " ".join((declared.setting.flag_help or declared.setting.help).split()) in text


@pytest.mark.parametrize("declared", PLAIN, ids=_by_key)
def test_a_plain_setting_can_come_from_the_environment(declared: Declared, tmp_path: Path) -> None:
    """The declared example, or the default, is accepted in the declared variable."""
    if not declared.sample:
        pytest.skip("it has neither")
    loaded = load_settings(top=tmp_path, flags={}, environ={declared.variable: declared.sample})
    assert loaded.origins[declared.key] == f"environment {declared.variable}"
    assert loaded.notes == ()


def test_the_reference_has_a_row_for_every_setting() -> None:
    """The page is what the declarations say, and no plain setting is missing."""
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert page == generate.settings_page()
    for declared in PLAIN:
        (row,) = re.findall(rf"^\| `{declared.key}` \|.*$", page, re.MULTILINE)
        assert declared.variable in row
        assert declared.setting.flag in row
        assert declared.heading in row


def test_the_file_of_init_has_every_setting(tmp_path: Path) -> None:
    """As written it is valid, and with every line taken into use it sets every setting."""
    assert set(tomllib.loads(settings_template())) == {"max-stories"}
    (tmp_path / "autopilot-multi.toml").write_text(
        re.sub(r"^# (?=[a-z_-]+ = )", "", TEMPLATE, flags=re.MULTILINE)
    )
    users = {key for key, declared in SETTINGS.items() if declared.setting.own}
    assert set(tomllib.loads(TEMPLATE)) == set(SETTINGS) - users
    loaded = load_settings(top=tmp_path, flags={}, environ={})
    assert {loaded.origins[key] for key in set(SETTINGS) - users} == {"autopilot-multi.toml"}
    for declared in (SETTINGS[key] for key in set(SETTINGS) - users):
        assert declared.heading in " ".join(settings_template().replace("\n#", "").split())


def test_a_new_setting_needs_nothing_but_its_declaration(repo: Path) -> None:
    """A field that is added to the settings is a flag, a variable, and in `config`, `init` and the docs."""
    script = ADDED.format(new=NEW, repo=str(repo))
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env={**os.environ, "AUTOPILOT_MULTI_FRESH_AIR": "12", "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert '"fresh-air": {"value": 9, "origin": "environment AUTOPILOT_MULTI_FRESH_AIR"}' in done.stdout
    assert "AUTOPILOT_MULTI_FRESH_AIR 12 is above 9 m; using 9 m" in done.stdout
    assert "--fresh-air must be a whole number from 1 to 9, not 'thin'" in done.stderr
    assert "how fresh the air is (default: 4; 1 to 9)" in done.stdout
