"""The examples do what their pages say: each is copied into a repository and run for real."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.program import Ran, run
from tests.acceptance.shell_blocks import blocks_of
from tests.acceptance.typed_program import folder_with_program
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount
from tests.schemas import check_files

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PACKAGES = ("auth", "billing", "catalog", "mail", "search", "web")


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let `python3` be this interpreter: the script of a version manager takes longer than what it starts."""
    folder = tmp_path / "interpreter"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)


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
        """Return a repository with some code, and the stories beside it, not committed."""
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

    def test_the_landing_of_the_page_brings_everything(self, repo: Path) -> None:
        """The README's last command leaves the work of all four stories in the checkout."""
        assert run(repo).code == 0
        page = (EXAMPLES / "first" / "README.md").read_text()
        (land,) = re.findall(r"^autopilot-multi (land.*)$", page, re.MULTILINE)
        landed = run(repo, *shlex.split(land))
        assert landed.code == 0, landed.err
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
        assert "\nautopilot-multi land\n" in (EXAMPLES / "monorepo" / "README.md").read_text()
        assert run(repo, "land").code == 0
        for name in PACKAGES:
            package = json.loads((repo / "packages" / name / "package.json").read_text())
            assert package["engines"] == {"node": ">=20"}
        assert (repo / ".nvmrc").read_text() == "20\n"

    def test_all_packages_change_in_the_one_checkout(self, tmp_path: Path) -> None:
        """The page's second way: no worktree, the same branches, and the work in the files."""
        repo = _copy("monorepo", tmp_path / "shop")
        page = (EXAMPLES / "monorepo" / "README.md").read_text()
        (typed,) = re.findall(r"^autopilot-multi (--bg-isolation none .*)$", page, re.MULTILINE)
        ran = run(repo, *shlex.split(typed), "--enforce", "detect", "--json")
        assert _verdicts(ran) == dict.fromkeys(self.IDS, "done"), ran.err
        root = ran.story("node-20")["commit"]
        for name in PACKAGES:
            own = {f"packages/{name}/package.json", f"packages/{name}/README.md"}
            branch = f"autopilot/{name}-node-20"
            assert set(git(repo, "diff", "--name-only", root, branch).split()) == own
        changed = git(repo, "diff", "--name-only").split()
        assert len(changed) == 2 * len(PACKAGES) + 1
        assert not git(repo, "diff", "--cached", "--name-only")

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


class TestOneTree:
    """One batch change over forty packages, all in the one checkout."""

    @pytest.mark.slow
    def test_forty_packages_change_in_one_checkout(self, tmp_path: Path) -> None:
        """40 commits, each within its package, eight at a time; no worktree, and nothing staged."""
        root = tmp_path / "shop"
        subprocess.run([sys.executable, EXAMPLES / "one-tree" / "begin.py", root], check=True)
        ids = sorted(path.name for path in (root / "packages").iterdir())
        level = "auto" if can_mount(overlay=True) else "detect"
        ran = run(root, "--enforce", level, "--json")
        assert len(ids) == 40
        assert ran.code == 0, ran.err
        assert _verdicts(ran) == dict.fromkeys(ids, "done")
        for name in ids:
            own = {f"packages/{name}/{file}" for file in ("pyproject.toml", "setup.cfg")}
            assert _changed(root, f"autopilot/{name}") == own
            assert ran.story(name)["commits"] == 1
        assert git(root, "worktree", "list").count("\n") == 1
        assert not git(root, "diff", "--cached", "--name-only")
        assert git(root, "status", "--porcelain").count(" D packages/") == 40

    def test_the_commands_of_the_page_do_what_it_says(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Each block is pasted as it is, at the top of a clone; all are done in both copies.

        The forty are ten here; forty at once are in another test.
        """
        clone = tmp_path / "clone"
        (clone / "examples").mkdir(parents=True)
        shutil.copytree(EXAMPLES / "one-tree", clone / "examples" / "one-tree")
        begin = clone / "examples" / "one-tree" / "begin.py"
        begin.write_text(re.sub(r"(\ncatalog: .*\n)(\w+: .*\n){30}", r"\1", begin.read_text()))
        monkeypatch.setenv("PATH", str(folder_with_program()), prepend=os.pathsep)
        if not can_mount(overlay=True):
            monkeypatch.setenv("AUTOPILOT_MULTI_ENFORCE", "detect")  # the consent that the page asks for
        blocks = [block.text for block in blocks_of(EXAMPLES / "one-tree" / "README.md")]
        assert len(blocks) == 2
        for text in blocks:
            ran = subprocess.run(
                ["sh", "-e"], input=text, cwd=clone, capture_output=True, text=True, check=False
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
            assert "10 done in" in ran.stdout
            assert ("landed 10 stories on main" in ran.stdout) == (text is blocks[0])


class TestLanding:
    """Six stories, green alone: two conflict in a changelog, two are red only together."""

    def test_land_ends_with_a_green_main_and_names_the_pair(self, tmp_path: Path) -> None:
        """The page's commands, in its order: all that can be there is on main, and the rest is explained."""
        repo = _copy("landing", tmp_path / "shop")
        page = (EXAMPLES / "landing" / "README.md").read_text()
        (block,) = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
        typed = [shlex.split(line) for line in block.splitlines() if line.startswith("autopilot-multi")]
        assert [argv[1:] for argv in typed] == [[], ["land"], ["status"]]
        ran = run(repo, "--json")
        _all_done(ran, ("invoice", "label", "mail", "readme", "search", "vat"))
        assert ran.data["next"] == "autopilot-multi land"
        landed = run(repo, "land", "--json")
        assert landed.code == 4, landed.err
        left = {each["id"]: each for each in landed.data["not_landed"]}
        assert {"label", "readme"} < set(landed.data["landed"])
        assert len(landed.data["landed"]) == 4
        conflicts = next(each for each in left.values() if each["why"] == "conflict")
        assert {conflicts["id"], *conflicts["with"]} == {"search", "mail"}
        assert conflicts["files"] == ["CHANGELOG.md"]
        together = next(each for each in left.values() if each["why"] == "red-together")
        assert {together["id"], *together["with"]} == {"vat", "invoice"}
        assert any("ImportError" in line for line in together["output"])
        green = [sys.executable, "-B", "-m", "unittest", "-q"]
        assert subprocess.run(green, cwd=repo, capture_output=True, check=False).returncode == 0
        assert git(repo, "rev-parse", "HEAD^{tree}").strip() == landed.data["tree"]
        assert git(repo, "status", "--porcelain") == ""
        shown = run(repo, "status").out
        assert len(re.findall(r"^\w+ +landed ", shown, re.MULTILINE)) == 4
        assert f"not landed: red together with {together['with'][0]}" in shown


class TestCi:
    """A backlog as a TOML list; `tests/ci` runs the pipelines that spread it over jobs."""

    GITHUB = tuple(f".github/workflows/autopilot{end}.yml" for end in ("", "-stories", "-drafts"))
    ACTION = ".github/actions/autopilot-job/action.yml"

    @staticmethod
    def _ids() -> list[str]:
        backlog = tomllib.loads((EXAMPLES / "ci" / "backlog.toml").read_text())
        return [story["id"] for story in backlog["stories"]]

    @staticmethod
    def _yaml(path: str) -> dict[Any, Any]:
        loaded: dict[Any, Any] = yaml.safe_load((EXAMPLES / "ci" / path).read_text())
        return loaded

    def _steps(self, job: str) -> list[dict[str, Any]]:
        steps: list[dict[str, Any]] = self._yaml(self.GITHUB[1])["jobs"][job]["steps"]
        return steps

    def test_the_pipeline_that_is_written_is_one_too(self, tmp_path: Path) -> None:
        """What `matrix --format gitlab` prints fits the schema as well."""
        repo = _copy("ci", tmp_path / "project")
        (tmp_path / "child.yml").write_text(run(repo, "matrix", "backlog.toml", "--format", "gitlab").out)
        check_files("gitlab-ci", tmp_path / "child.yml")

    def test_every_name_in_an_expression_exists(self) -> None:
        """Jobs, outputs and inputs that the workflow speaks of are there, and every action has a hash."""
        text = (EXAMPLES / "ci" / self.GITHUB[1]).read_text()
        workflow = self._yaml(self.GITHUB[1])
        called = workflow[True]["workflow_call"]  # YAML reads the key `on` as a truth
        for name, job in workflow["jobs"].items():
            needs = job.get("needs", [])
            known = {needs} if isinstance(needs, str) else set(needs)
            used = set(re.findall(r"needs\.([\w-]+)\.", yaml.safe_dump(job)))
            assert used <= known <= set(workflow["jobs"]) - {name}
        assert set(re.findall(r"needs\.plan\.outputs\.([\w-]+)", text)) <= set(
            workflow["jobs"]["plan"]["outputs"]
        )
        assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(called["inputs"])
        assert set(re.findall(r"secrets\.([\w-]+)", text)) == set(called["secrets"])
        action = self._yaml(self.ACTION)
        assert set(self._steps("stage-1")[1]["with"]) == set(action["inputs"])
        used = {match for path in (*self.GITHUB, self.ACTION) for match in self._uses(path)}
        assert all(re.fullmatch(r"\./\S+|[\w/-]+@[0-9a-f]{40}", one) for one in used)

    @staticmethod
    def _uses(path: str) -> list[str]:
        return re.findall(r"\buses: (\S+)", (EXAMPLES / "ci" / path).read_text())

    def test_a_job_that_finds_all_in_order_succeeds(self, tmp_path: Path) -> None:
        """Merged, and run again without a journal, every story succeeds without a commit."""
        repo = _copy("ci", tmp_path / "project")
        assert run(repo, "backlog.toml").code == 0
        git(repo, "merge", "-q", "--no-edit", "autopilot/word-count", "autopilot/trailing-space")
        git(tmp_path, "clone", "-q", "--single-branch", str(repo), "next")
        ran = run(tmp_path / "next", "backlog.toml", "--json")
        assert (ran.code, _verdicts(ran)) == (0, dict.fromkeys(self._ids(), "no_work")), ran.err
        assert {story["commits"] for story in ran.data["stories"]} == {0}
