"""`init` and `completion`: the first minute with the program."""

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from runner.cli.overview import COMMANDS
from runner.plan.settings.project import find_test_commands
from tests.acceptance.program import LIMIT, command, run
from tests.acceptance.written_runs import autopilot, document


def test_init_writes_settings_and_a_first_story_that_plans(repo: Path) -> None:
    """What init writes is valid: the settings load and the plan shows the story."""
    done = autopilot(repo, "init")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[:2] == ["wrote autopilot-multi.toml", "wrote stories/001-hello.md"]
    assert "autopilot-multi plan" in done.stdout
    assert "autopilot-multi.toml" in document(repo, "config")["data"]["settings"]["max-stories"]["origin"]
    assert [story["id"] for story in document(repo, "plan")["data"]["stories"]] == ["001-hello"]


PLACEHOLDER = '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'
SCRIPT = '{"scripts": {"test": "node --test"}}'


def _project(top: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    return top


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({"pyproject.toml": "[tool.pytest.ini_options]\n"}, ["python3 -m pytest -q"]),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n", "uv.lock": ""}, ["uv run pytest -q"]),
        ({"pyproject.toml": "[project]\n", "tests/notes.txt": ""}, []),
        ({"pytest.ini": "", "poetry.lock": ""}, ["poetry run pytest -q"]),
        ({"setup.cfg": "[tool:pytest]\n"}, ["python3 -m pytest -q"]),
        ({"tests/unit/test_a.py": ""}, ["python3 -m pytest -q"]),
        ({"pytest.ini": "", ".venv/bin/python": ""}, [".venv/bin/python -m pytest -q"]),
        ({"pytest.ini": "", "venv/bin/python": ""}, ["python3 -m pytest -q"]),
        ({"package.json": SCRIPT}, ["npm test"]),
        ({"package.json": SCRIPT, "pnpm-lock.yaml": ""}, ["pnpm test"]),
        ({"package.json": SCRIPT, "yarn.lock": ""}, ["yarn test"]),
        ({"package.json": PLACEHOLDER}, []),
        ({"package.json": "[1, {"}, []),
        ({"package.json": "[]", "pyproject.toml": "tool = 1"}, []),
        ({"Cargo.toml": ""}, ["cargo test --quiet"]),
        ({"go.mod": ""}, ["go test ./..."]),
        ({"Makefile": "all test: build\n\ttrue\n"}, ["make test"]),
        ({"Makefile": "test := 1\ntest ::= 2\n# test:\n\ttest: x\nlatest:\n"}, []),
        ({"Makefile": "test:\n\tcargo test\n", "Cargo.toml": ""}, ["make test", "cargo test --quiet"]),
    ],
)
def test_the_test_command_of_a_project_is_found(
    tmp_path: Path, files: dict[str, str], commands: list[str]
) -> None:
    """Each kind of project is known by its files; what is broken or a placeholder says nothing."""
    found = find_test_commands(_project(tmp_path, files), lambda folder: folder in {".venv", "node_modules"})
    assert [each.command for each in found] == commands
    assert all(each.found for each in found)


def test_init_sets_what_it_found(repo: Path, tmp_path: Path) -> None:
    """The one test command, its folder and the one agent are set, each with where it was found."""
    _project(repo, {"package.json": SCRIPT, "node_modules/a/index.js": "", ".gitignore": "node_modules/\n"})
    program = tmp_path / "bin" / "codex"
    _project(program.parent, {"codex": "#!/bin/sh\n"})
    program.chmod(0o755)
    done = run(repo, "init", env={"PATH": f"{program.parent}:/usr/bin:/bin"})
    assert done.code == 0
    assert 'set verify = ["npm test"] (package.json has a script "test")' in done.out
    text = (repo / "autopilot-multi.toml").read_text()
    assert '# Found: package.json has a script "test".\nverify = ["npm test"]\n' in text
    assert tomllib.loads(text) == {
        "max-stories": 3,
        "verify": ["npm test"],
        "agent": "codex",
        "symlink-directories": ["node_modules"],
    }


def test_init_names_packages_that_git_does_not_ignore(repo: Path) -> None:
    """They cannot be linked into worktrees; with the line in .gitignore and a second `init` they are."""
    _project(repo, {"package.json": SCRIPT, "node_modules/a/index.js": ""})
    done = run(repo, "init")
    assert "note: git does not ignore node_modules/, so stories cannot share it. Add it to" in done.out
    assert "symlink-directories" not in tomllib.loads((repo / "autopilot-multi.toml").read_text())
    (repo / ".gitignore").write_text("node_modules/\n")
    (repo / "autopilot-multi.toml").unlink()
    done = run(repo, "init")
    assert "does not ignore" not in done.out
    assert tomllib.loads((repo / "autopilot-multi.toml").read_text())["symlink-directories"] == [
        "node_modules"
    ]


def test_init_leaves_the_choice_among_several(repo: Path) -> None:
    """Without a terminal each candidate is a comment, and the document has them all."""
    _project(repo, {"Makefile": "test:\n\tcargo test\n", "Cargo.toml": ""})
    data = document(repo, "init")["data"]
    assert [each["value"] for each in data["found"]["verify"]] == ["make test", "cargo test --quiet"]
    assert "verify" not in data["set"]
    text = (repo / "autopilot-multi.toml").read_text()
    assert "verify" not in tomllib.loads(text)
    assert '# Found: there is a Cargo.toml:\n# verify = ["cargo test --quiet"]\n' in text


@pytest.mark.parametrize(
    ("typed", "verify"), [(b"2\n", ["cargo test --quiet"]), (b"\n", None), (b"\x04", None)]
)
def test_init_asks_at_a_terminal(repo: Path, typed: bytes, verify: list[str] | None) -> None:
    """The answer is what is written; without one, the choice stays open in the file."""
    _project(repo, {"Makefile": "test:\n\tcargo test\n", "Cargo.toml": ""})
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        command("init"), cwd=repo, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    shown = b""
    while b"choose later]: " not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, typed)
    assert process.wait(LIMIT) == 0
    os.close(ours)
    assert tomllib.loads((repo / "autopilot-multi.toml").read_text()).get("verify") == verify


def test_init_never_overwrites(repo: Path) -> None:
    """What is there stays byte for byte, in a second run as in a first."""
    (repo / "autopilot-multi.toml").write_text("max-stories = 1\n")
    (repo / "stories").mkdir()
    (repo / "stories" / "mine.md").write_text("My own work\n")
    for _ in range(2):
        data = document(repo, "init")["data"]
        assert (data["written"], data["kept"], data["set"]) == (
            [],
            ["autopilot-multi.toml", "stories/"],
            {},
        )
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


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "tcsh"])
def test_completion_knows_every_command(repo: Path, shell: str) -> None:
    """The script names all commands and, where shtab can do that, the flags of run."""
    script = autopilot(repo, "completion", shell)
    assert (script.returncode, script.stderr) == (0, "")
    assert all(name in script.stdout for name in COMMANDS)
    assert "max-stories" in script.stdout or shell == "tcsh"


def test_unknown_shell_is_a_usage_error(repo: Path) -> None:
    """A shell that nobody taught us is refused with the list of those that we know."""
    failed = autopilot(repo, "completion", "elvish")
    assert failed.returncode == 1
    assert "bash" in failed.stderr
