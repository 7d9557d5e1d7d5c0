"""The examples do what their pages say: each is copied into a repository and run for real."""

import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.program import Ran, run
from tests.conftest import git

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PACKAGES = ("auth", "billing", "catalog", "mail", "search", "web")


def _copy(name: str, root: Path) -> Path:
    """Make a repository of a whole example."""
    shutil.copytree(EXAMPLES / name, root)
    git(root, "init", "-q", "-b", "main")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "Begin")
    return root


def _text(repo: Path, branch: str, path: str) -> str:
    return git(repo, "show", f"{branch}:{path}")


def _verdicts(ran: Ran) -> dict[str, str]:
    return {story["id"]: story["status"] for story in ran.data["stories"]}


def _branches(repo: Path) -> set[str]:
    return set(git(repo, "for-each-ref", "--format=%(refname:lstrip=3)", "refs/heads/autopilot/").split())


def _changed(repo: Path, branch: str) -> set[str]:
    return set(git(repo, "diff", "--name-only", f"main...{branch}").split())


def _all_done(ran: Ran, ids: Iterable[str]) -> None:
    assert ran.code == 0, ran.err
    assert _verdicts(ran) == dict.fromkeys(ids, "done")
    assert all(story["workspace"] is None for story in ran.data["stories"])


class TestFirst:
    """Four stories of plain commands, in a repository that knows nothing of them."""

    IDS = ("editorconfig", "gitattributes", "todo-list", "file-list")

    @pytest.fixture
    def repo(self, repo: Path) -> Path:
        """Give a repository with some code, and the stories beside it, not committed."""
        (repo / "main.c").write_text("int main(void) { return 0; } /* TODO: more */\n")
        git(repo, "add", "-A")
        git(repo, "commit", "-q", "-m", "code")
        shutil.copytree(EXAMPLES / "first" / "stories", repo / "stories")
        return repo

    def test_all_stories_are_done_on_their_branches(self, repo: Path) -> None:
        """Each file is on the branch of its story, and the story that depends on two has their work."""
        _all_done(run(repo, "--json"), self.IDS)
        assert _branches(repo) == set(self.IDS)
        assert "end_of_line = lf" in _text(repo, "autopilot/editorconfig", ".editorconfig")
        assert _text(repo, "autopilot/gitattributes", ".gitattributes") == "* text=auto\n"
        assert "main.c:1:" in _text(repo, "autopilot/todo-list", "TODO.txt")
        listed = _text(repo, "autopilot/file-list", "FILES.txt").split()
        assert {".editorconfig", ".gitattributes", "README.md", "main.c"} <= set(listed)
        assert _changed(repo, "autopilot/todo-list") == {"TODO.txt"}

    def test_the_merge_of_the_page_brings_everything(self, repo: Path) -> None:
        """The README's last command leaves the work of all four stories in the checkout."""
        assert run(repo).code == 0
        page = (EXAMPLES / "first" / "README.md").read_text()
        (merge,) = re.findall(r"^(git merge .*)$", page, re.MULTILINE)
        git(repo, *shlex.split(merge)[1:], "--no-edit")
        for name in (".editorconfig", ".gitattributes", "TODO.txt", "FILES.txt"):
            assert (repo / name).is_file()


class TestMonorepo:
    """One batch change over six packages, after one that all of them wait for."""

    IDS = ("node-20", *(f"{name}-node-20" for name in PACKAGES))

    def test_each_package_changes_on_its_own_branch_and_they_merge(self, tmp_path: Path) -> None:
        """Every branch touches its package alone; merged together, all packages have changed."""
        repo = _copy("monorepo", tmp_path / "shop")
        ran = run(repo, "--json")
        _all_done(ran, self.IDS)
        root = ran.story("node-20")["commit"]
        for name in PACKAGES:
            assert ran.story(f"{name}-node-20")["base"] == root
            branch = f"autopilot/{name}-node-20"
            own = {f"packages/{name}/package.json", f"packages/{name}/README.md"}
            assert _changed(repo, branch) == own | {".nvmrc"}
        git(repo, "merge", "-q", "--no-edit", *(f"autopilot/{name}-node-20" for name in PACKAGES))
        for name in PACKAGES:
            package = json.loads((repo / "packages" / name / "package.json").read_text())
            assert package["engines"] == {"node": ">=20"}
        assert (repo / ".nvmrc").read_text() == "20\n"

    def test_one_package_first_and_the_rest_later(self, tmp_path: Path) -> None:
        """`--only` brings the package and what it depends on; the next run leaves both alone."""
        repo = _copy("monorepo", tmp_path / "shop")
        _all_done(run(repo, "--only", "auth-node-20", "--json"), ("node-20", "auth-node-20"))
        rest = run(repo, "--json")
        _all_done(rest, self.IDS)
        ran = {story["id"] for story in rest.data["stories"] if story["sessions"]}
        assert ran == set(self.IDS) - {"node-20", "auth-node-20"}

    def test_a_package_story_that_reaches_into_another_fails(self, tmp_path: Path) -> None:
        """The claims of the example are what keeps the packages apart."""
        repo = _copy("monorepo", tmp_path / "shop")
        tool = repo / "tools" / "set-engine.sh"
        tool.write_text(tool.read_text() + "echo stray >> packages/web/README.md\n")
        git(repo, "commit", "-q", "-a", "-m", "a tool with a bug")
        ran = run(repo, "--only", "auth-node-20", "--json")
        assert ran.code == 4
        assert _verdicts(ran) == {"node-20": "done", "auth-node-20": "failed"}
        assert "packages/web/README.md" in ran.story("auth-node-20")["reason"]


class TestCi:
    """A backlog as a TOML list, and the two pipelines that run it."""

    @staticmethod
    def _ids() -> list[str]:
        backlog = tomllib.loads((EXAMPLES / "ci" / "backlog.toml").read_text())
        return [story["id"] for story in backlog["stories"]]

    @staticmethod
    def _yaml(path: str) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load((EXAMPLES / "ci" / path).read_text())
        return loaded

    def _lines(self, pipeline: str) -> list[str]:
        """Give the shell lines of a pipeline's job."""
        if pipeline == "gitlab":
            job = self._yaml(".gitlab-ci.yml")["autopilot"]
            return [*job["before_script"], *job["script"]]
        steps = self._yaml(".github/workflows/autopilot.yml")["jobs"]["stories"]["steps"]
        return [line for step in steps for line in step.get("run", "").splitlines()]

    @pytest.mark.parametrize("pipeline", ["github", "gitlab"])
    def test_the_command_of_the_pipeline_runs_the_backlog(self, tmp_path: Path, pipeline: str) -> None:
        """What the job types does the work, and its report is one document."""
        (line,) = (line for line in self._lines(pipeline) if line.startswith("autopilot-multi "))
        command, _, target = line.partition(" > ")
        assert target == "report.json"
        repo = _copy("ci", tmp_path / "project")
        _all_done(run(repo, *shlex.split(command)[1:]), self._ids())
        assert _text(repo, "autopilot/sorted-words", "words.txt") == "apple\nfig\npear\n"
        assert _text(repo, "autopilot/word-count", "words.count") == "3\n"
        assert _text(repo, "autopilot/trailing-space", "notes/week.txt").startswith("Water the plants.\n")

    @pytest.mark.parametrize("pipeline", ["github", "gitlab"])
    def test_the_pipeline_installs_before_it_runs(self, pipeline: str) -> None:
        """A job has the program before it types its name."""
        words = [line.split()[0] for line in self._lines(pipeline)]
        assert words.index("pip") < words.index("autopilot-multi")

    def test_the_push_brings_the_branches(self, tmp_path: Path) -> None:
        """The push of the workflow needs no force, also when an earlier job has pushed."""
        (push,) = (line for line in self._lines("github") if line.startswith("git push "))
        bare = tmp_path / "origin.git"
        git(tmp_path, "init", "-q", "--bare", str(bare))
        for number in ("1", "2"):
            repo = _copy("ci", tmp_path / f"job-{number}")
            assert run(repo, "backlog.toml").code == 0
            git(repo, "remote", "add", "origin", str(bare))
            words = shlex.split(push.replace("${{ github.run_number }}", number))
            git(repo, *words[1:])
        pushed = git(bare, "for-each-ref", "--format=%(refname:lstrip=2)").split()
        assert set(pushed) == {f"autopilot-{number}/{name}" for number in "12" for name in self._ids()}

    def test_a_job_that_finds_all_in_order_succeeds(self, tmp_path: Path) -> None:
        """Merged, and run again without a journal, every story is done without a commit."""
        repo = _copy("ci", tmp_path / "project")
        assert run(repo, "backlog.toml").code == 0
        git(repo, "merge", "-q", "--no-edit", "autopilot/word-count", "autopilot/trailing-space")
        git(tmp_path, "clone", "-q", "--single-branch", str(repo), "next")
        ran = run(tmp_path / "next", "backlog.toml", "--json")
        _all_done(ran, self._ids())
        assert {story["commits"] for story in ran.data["stories"]} == {0}
