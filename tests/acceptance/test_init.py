"""`init` and `completion`: the first minute with the program."""

import subprocess
from pathlib import Path

import pytest

from runner.cli.overview import COMMANDS
from tests.acceptance.written_runs import autopilot, document


def test_init_writes_settings_and_a_first_story_that_plans(repo: Path) -> None:
    """What init writes is valid: the settings load and the plan shows the story."""
    done = autopilot(repo, "init")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == ["wrote autopilot-multi.toml", "wrote stories/001-hello.md"]
    assert "autopilot-multi plan" in done.stdout
    assert "autopilot-multi.toml" in document(repo, "config")["data"]["settings"]["max-stories"]["origin"]
    assert [story["id"] for story in document(repo, "plan")["data"]["stories"]] == ["001-hello"]


def test_init_never_overwrites(repo: Path) -> None:
    """What is there stays byte for byte, in a second run as in a first."""
    (repo / "autopilot-multi.toml").write_text("max-stories = 1\n")
    (repo / "stories").mkdir()
    (repo / "stories" / "mine.md").write_text("My own work\n")
    for _ in range(2):
        assert document(repo, "init")["data"] == {
            "written": [],
            "kept": ["autopilot-multi.toml", "stories/"],
        }
    assert (repo / "autopilot-multi.toml").read_text() == "max-stories = 1\n"
    assert [path.name for path in (repo / "stories").iterdir()] == ["mine.md"]


def test_init_respects_settings_in_the_config_folder(repo: Path) -> None:
    """A settings file in .config counts; a second one beside it would only confuse."""
    (repo / ".config").mkdir()
    (repo / ".config" / "autopilot-multi.toml").write_text("max-stories = 1\n")
    assert document(repo, "init")["data"]["written"] == ["stories/001-hello.md"]


def test_init_writes_through_no_link(repo: Path, tmp_path: Path) -> None:
    """A link that leads nowhere is somebody's too: it stays, and nothing appears at its end."""
    (repo / "autopilot-multi.toml").symlink_to(tmp_path / "elsewhere.toml")
    assert document(repo, "init")["data"]["kept"] == ["autopilot-multi.toml"]
    assert not (tmp_path / "elsewhere.toml").exists()


def test_init_in_a_place_that_cannot_be_written(repo: Path) -> None:
    """A file in the way of the stories folder is an error that names it."""
    (repo / "stories").write_text("in the way")
    failed = autopilot(repo, "init")
    assert failed.returncode == 2
    assert f"cannot write {repo}/stories/001-hello.md" in failed.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_completion_knows_every_command(repo: Path, shell: str) -> None:
    """The script names all commands and, where shtab can do that, the flags of run."""
    script = autopilot(repo, "completion", shell)
    assert (script.returncode, script.stderr) == (0, "")
    assert all(name in script.stdout for name in COMMANDS)
    assert "--max-stories" in script.stdout or shell == "tcsh"


def test_bash_completes_a_command(repo: Path) -> None:
    """A real bash offers `status` for `st`."""
    script = autopilot(repo, "completion", "bash").stdout
    ask = 'COMP_WORDS=(autopilot-multi st); COMP_CWORD=1; _shtab_autopilot_multi; echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True, check=True)
    assert "status" in done.stdout.split()


def test_unknown_shell_is_a_usage_error(repo: Path) -> None:
    """A shell that nobody taught us is refused with the list of those that we know."""
    failed = autopilot(repo, "completion", "fish")
    assert failed.returncode == 1
    assert "bash" in failed.stderr
