"""Commands that only show something, and a run that has nothing to do, load what they need and no more."""

import subprocess
import sys
from pathlib import Path

from tests.acceptance.program import run, write_story

_SCRIPT = (
    "import sys; from runner.cli.main import run_program; code = run_program({args!r});"
    "heavy = {{'trio', 'git', 'pydantic', 'rich', 'psutil', 'yaml', 'statistics', "
    "'dataclasses', 'typing_extensions'}} & set(sys.modules);"
    "sys.exit(f'loaded {{heavy}}' if heavy else code)"
)


def test_a_plan_and_an_empty_run_load_no_heavy_library(repo: Path) -> None:
    """Neither trio nor GitPython, pydantic, psutil or YAML, where stories and settings are plainly right."""
    write_story(repo, "a", command="echo a > a.txt")
    (repo / "autopilot-multi.toml").write_text('max-stories = 2\nverify = ["true"]\n')
    assert run(repo).code == 0
    for args in (["plan"], ["plan", "--again"], ["-q"]):
        loaded = subprocess.run(
            [sys.executable, "-c", _SCRIPT.format(args=args)],
            cwd=repo,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (loaded.returncode, loaded.stderr) == (0, ""), args
