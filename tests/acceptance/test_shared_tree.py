"""Several stories in one working tree, by the real program, at every level that the machine has."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance.program import Ran, run, started, wait_until, write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import require

PATTERN = ("--deconflict-paths", "packages/{id}/**")
SHARED = ("run", "--bg-isolation", "none", *PATTERN)
DETECT = (*SHARED, "--enforce", "detect")


@pytest.fixture
def batch(make_repository: Callable[..., Path]) -> Path:
    """Return a repository of eight packages, with things of the user's that nobody may touch."""
    names = "abcdefgh"
    root = make_repository(
        files={f"packages/{name}/x": f"{name}\n" for name in names} | {"root.txt": "root\n"}
    )
    (root / "staged.txt").write_text("staged\n")
    git(root, "add", "staged.txt")
    (root / "README.md").write_text("edited, not staged\n")
    (root / "notes.txt").write_text("untracked\n")
    return root


@pytest.fixture(params=["divert", "deny", "detect"])
def level(request: pytest.FixtureRequest) -> str:
    """Return each level of enforcement; one that the machine lacks is skipped."""
    name: str = request.param
    if name != "detect":
        require(EnforcementLevel(name), Means.MOUNTS)
    return name


def _users(root: Path) -> tuple[bytes, str, str, dict[str, str]]:
    """Look at all that is the user's."""
    return (
        (root / ".git" / "index").read_bytes(),
        git(root, "rev-parse", "HEAD"),
        git(root, "symbolic-ref", "HEAD"),
        {name: (root / name).read_text() for name in ("staged.txt", "README.md", "notes.txt", "root.txt")},
    )


def _story(root: Path, name: str, script: str = "", **keys: object) -> None:
    write_story(root, name, body="Do it.", command=f"echo new > packages/{name}/x; {script}", **keys)


def _reasons(ran: Ran) -> dict[str, str]:
    return {story["id"]: f"{story['status']}: {story['reason']}" for story in ran.data["stories"]}


def test_eight_stories_make_eight_commits_of_their_own_paths(batch: Path, level: str) -> None:
    """Acceptance 20: eight commits, each with only its own paths; index, HEAD and other files untouched."""
    for name in "abcdefgh":
        _story(
            batch,
            name,
            f"mkdir packages/{name}/d; echo deep > packages/{name}/d/e",
            verify=["test -f root.txt"],
        )
    before = _users(batch)
    ran = run(batch, *SHARED, "--enforce", level, "--max-stories", "8", "--window", "fixed", "--json")
    assert ran.code == 0, _reasons(ran)
    assert ran.data["enforcement"] == level
    assert _users(batch) == before
    for name in "abcdefgh":
        log = git(batch, "log", "--format=%H", "--name-only", f"main..autopilot/{name}").split()
        assert log[1:] == [f"packages/{name}/d/e", f"packages/{name}/x"]
        assert git(batch, "rev-parse", f"autopilot/{name}^", "main").split() == [before[1].strip()] * 2
        assert f"Autopilot-Story: {name}" in git(batch, "log", "-1", f"autopilot/{name}")
        assert ran.story(name)["workspace"] == str(batch)
    status = git(batch, "status", "--porcelain", "--", "packages").splitlines()
    assert status == sorted(f" M packages/{name}/x" for name in "abcdefgh") + sorted(
        f"?? packages/{name}/d/" for name in "abcdefgh"
    )
    assert not git(batch, "worktree", "list", "--porcelain").count("branch refs/heads/autopilot")


def test_the_next_command_commits_the_story_on_the_users_branch(batch: Path) -> None:
    """What the report says to type puts the work on the branch, and nothing that was staged beside it."""
    _story(batch, "a", "echo more > packages/a/new")
    ran = run(batch, *SHARED, "--max-stories", "1", "--json")
    assert ran.data["next"] == "autopilot-multi land"
    landed = run(batch, "land", "--yes")
    assert landed.code == 0, landed.err
    assert git(batch, "diff", "--name-only", "HEAD~1", "HEAD").split() == ["packages/a/new", "packages/a/x"]
    assert git(batch, "diff", "--cached", "--name-only").split() == ["staged.txt"]
    assert git(batch, "diff", "autopilot/a", "HEAD") == ""


FOREIGN = """
echo x > new.txt; echo x > README.md; rm notes.txt; mv root.txt moved.txt; ln -s x link
ln -s ../../packages/b packages/a/way; echo x > packages/a/way/x; echo x >> packages/c/x
"""
NAMED = ["README.md", "link", "moved.txt", "new.txt", "notes.txt", "packages/b/x", "packages/c/x", "root.txt"]


@pytest.mark.parametrize("kept", ["divert", "detect"])
def test_a_foreign_write_fails_the_story_and_is_kept(batch: Path, kept: str) -> None:
    """Acceptance 18: the story fails, the writes are named and kept, the owners' bytes are unchanged."""
    if kept == "divert":
        require(EnforcementLevel.DIVERT, Means.MOUNTS)
    _story(batch, "a", FOREIGN)
    before = _users(batch)
    ran = run(batch, *SHARED, "--enforce", kept, "--json")
    assert ran.story("a")["status"] == "failed"
    assert "changed outside its claim: README.md, link, moved.txt" in ran.story("a")["reason"]
    first = run(batch, "quarantine", "--json").data["quarantines"][0]
    assert first["story_ids"] == ["a"]
    assert sorted(change["path"] for change in first["changes"]) == NAMED
    assert git(batch, "show", f"{first['ref']}:files/moved.txt") == "root\n"
    assert _users(batch) == before
    assert [(batch / f"packages/{name}/x").read_text() for name in "bc"] == ["b\n", "c\n"]
    assert not {"new.txt", "moved.txt", "link"} & {path.name for path in batch.iterdir()}


def test_one_bad_story_fails_alone(batch: Path) -> None:
    """Open case 1 without the system's help: suspects are tried one at a time, and the innocent are done."""
    for name in "abc":
        _story(batch, name, "sleep 0.3")
    _story(batch, "d", "sleep 0.1; echo bad > root.txt; sleep 0.2")
    # Up to eight sessions, half of them one after the other: long on a machine with much else to do.
    ran = run(batch, *DETECT, "--max-stories", "4", "--window", "fixed", "--json", limit=180)
    assert {name: ran.story(name)["status"] for name in "abcd"} == {
        **dict.fromkeys("abc", "done"),
        "d": "failed",
    }
    assert "changed outside its claim: root.txt" in ran.story("d")["reason"]
    assert (batch / "root.txt").read_text() == "root\n"


def test_what_is_denied_never_happens(batch: Path) -> None:
    """Open cases 1 and 4 at `deny`: the write is refused by the system, and the story says so."""
    require(EnforcementLevel.DENY, Means.MOUNTS)
    before = _users(batch)
    _story(batch, "a", "chmod 600 root.txt; touch notes.txt; echo x > root.txt")
    ran = run(batch, *SHARED, "--enforce", "deny", "--max-sessions", "1", "--json")
    assert ran.story("a")["status"] != "done"
    assert _users(batch) == before
    assert "Read-only file system" in run(batch, "logs", "a").out


def test_several_without_the_systems_help_need_consent(batch: Path) -> None:
    """Open case 27: detection alone is never chosen silently for several stories."""
    for name in "ab":
        _story(batch, name)
    for command in ("run", "plan"):
        flags = ("--bg-isolation", "none", *PATTERN, "--no-guard", "--json")
        ran = run(batch, command, *flags)
        assert ran.code == 1
        assert "can only be found afterwards" in ran.document["error"]["message"]
        assert "--enforce detect" in ran.document["error"]["hint"]
    assert not git(batch, "branch", "--list", "autopilot/*")
    ran = run(batch, *SHARED, "--no-guard", "--max-stories", "1", "--json")
    assert (ran.code, ran.data["enforcement"]) == (0, "detect")


def test_another_base_is_refused(batch: Path) -> None:
    """The checkout is worked on as it is."""
    git(batch, "commit", "-q", "-m", "staged", "staged.txt")
    _story(batch, "a")
    ran = run(batch, *DETECT, "--base", "HEAD~1", "--json")
    assert ran.code == 1
    assert "is not checked out" in ran.document["error"]["message"]


def test_a_dirty_claim_fails_its_story_and_names_the_file(batch: Path) -> None:
    """What the user has not committed in a claim is never swallowed; the other stories go on."""
    for name in "ab":
        _story(batch, name)
    (batch / "packages/a/x").write_text("the user's\n")
    ran = run(batch, *DETECT, "--json")
    assert ran.story("a")["status"] == "failed"
    assert "packages/a/x" in ran.story("a")["reason"]
    assert (batch / "packages/a/x").read_text() == "the user's\n"
    assert ran.story("b")["status"] == "done"


def test_repositories_of_a_sessions_own_can_be_committed_to(batch: Path, tmp_path: Path) -> None:
    """A test suite that makes repositories elsewhere works as ever."""
    inner = tmp_path / "inner"
    _story(batch, "a", f"git init -q {inner} && git -C {inner} commit -q --allow-empty -m fine")
    assert run(batch, *DETECT, "--json").code == 0
    assert git(inner, "log", "--format=%s").strip() == "fine"


def test_dependants_build_on_each_other(batch: Path, level: str) -> None:
    """Acceptance 22, 23: B starts with A's commit in its history and its work in the tree; D never starts."""
    _story(batch, "a")
    write_story(batch, "b", command="cp packages/a/x packages/b/x", depends_on=["a"])
    write_story(batch, "c", command="exit 1")
    _story(batch, "d", depends_on=["c"])
    ran = run(batch, *SHARED, "--enforce", level, "--json")
    assert [ran.story(name)["status"] for name in "abcd"] == ["done", "done", "failed", "skipped"]
    assert git(batch, "show", "autopilot/b:packages/b/x") == "new\n"
    assert git(batch, "rev-parse", "autopilot/b^").split() == git(batch, "rev-parse", "autopilot/a").split()
    assert git(batch, "diff", "--name-only", "autopilot/a", "autopilot/b").split() == ["packages/b/x"]


def test_a_killed_run_goes_on_where_it_was(batch: Path, tmp_path: Path, level: str) -> None:
    """Acceptance 68: SIGKILL in a session; its unfinished work is there again, nothing is done twice."""
    go, ready = tmp_path / "go", tmp_path / "ready"
    _story(batch, "a", "echo once >> packages/a/log")
    script = f"echo half > packages/b/half; touch {ready}; until test -f {go}; do sleep 0.05; done"
    _story(batch, "b", script, depends_on=["a"])
    before = _users(batch)
    with started(batch, *SHARED, "--enforce", level, "--json") as program:
        wait_until(ready.exists, what="the second story works")
        program.send(signal.SIGKILL)
    go.touch()
    ran = run(batch, "resume", "--json")
    assert ran.code == 0, _reasons(ran)
    assert git(batch, "show", "autopilot/a:packages/a/log") == "once\n"
    assert git(batch, "show", "autopilot/b:packages/b/half") == "half\n"
    assert [ran.story(name)["commits"] for name in "ab"] == [1, 1]
    assert _users(batch) == before


def test_a_failed_story_takes_its_own_work_up_again(batch: Path, tmp_path: Path) -> None:
    """What it left in its claim is its own in a later run, and only that."""
    cured = tmp_path / "cured"
    _story(batch, "a", f"echo half > packages/a/half; test -f {cured}")
    assert run(batch, *DETECT, "--max-sessions", "1").code != 0
    cured.touch()
    ran = run(batch, *DETECT, "--json")
    assert ran.code == 0, _reasons(ran)
    assert git(batch, "show", "autopilot/a:packages/a/half") == "half\n"


def test_exchange_and_state_files_do_not_collide(batch: Path, tmp_path: Path) -> None:
    """Each story has its own exchange folder, and a flow its state file in `_docs/stories/<id>/`."""
    flow = '[[steps]]\nnumber = "1"\nname = "Build"\nprompt = "Build it."\n'
    (batch / "flows").mkdir()
    (batch / "flows/tiny.toml").write_text(f'name = "tiny"\n{flow}')
    for name in "ab":
        seen = tmp_path / name
        script = f'cp "$AUTOPILOT_STATE_FILE" {seen}.state; echo $AUTOPILOT_RESULT_FILE > {seen}'
        write_story(batch, name, flow="tiny", command=f"echo new > packages/{name}/x; {script}")
    ran = run(batch, *DETECT, "--json")
    assert ran.code == 0, _reasons(ran)
    for name in "ab":
        assert f"/.orchestrator/{name}/" in (tmp_path / name).read_text()
        assert "status: in_progress" in (tmp_path / f"{name}.state").read_text()
        changed = git(batch, "diff", "--name-only", "main", f"autopilot/{name}").split()
        assert changed == [f"_docs/stories/{name}/_autodev_state.md", f"packages/{name}/x"]
    assert "autodev" in (batch / ".orchestrator/state.md").read_text()


def test_shared_caches_may_be_written_by_all(batch: Path, level: str) -> None:
    """Folders such as `node_modules`, and those of the setting `shared-writable`, belong to everybody."""
    (batch / ".gitignore").write_text("node_modules\nbuild\n")
    git(batch, "add", ".gitignore")
    git(batch, "commit", "-q", "-m", "ignore", ".gitignore")
    for name in ("node_modules", "build"):
        (batch / name).mkdir()
    (batch / "autopilot-multi.toml").write_text('shared-writable = ["**/node_modules/**", "build/**"]\n')
    for name in "ab":
        _story(batch, name, f"echo {name} > node_modules/{name}; echo {name} > build/{name}")
    ran = run(batch, *SHARED, "--enforce", level, "--json")
    assert ran.code == 0, _reasons(ran)
    assert {path.name for folder in ("node_modules", "build") for path in (batch / folder).iterdir()} == {
        "a",
        "b",
    }


def test_quarantine_lists_shows_and_brings_out(batch: Path, tmp_path: Path) -> None:
    """What was kept can be looked at and brought out; wrong words are errors with a hint."""
    _story(batch, "a", "printf 'kept\\n' > root.txt; echo new > new.txt")
    run(batch, *DETECT, "--max-sessions", "1")
    listed = run(batch, "quarantine")
    name = listed.out.split()[0]
    assert "new.txt, root.txt" in listed.out
    shown = run(batch, "quarantine", "show", name)
    assert "changed       root.txt" in shown.out
    assert "created       new.txt" in shown.out
    assert run(batch, "quarantine", "restore", name, "--to", str(tmp_path / "out")).code == 0
    assert (tmp_path / "out/root.txt").read_text() == "kept\n"
    again = run(batch, "quarantine", "restore", name, "--to", str(tmp_path / "out"), "--json")
    assert (again.code, again.document["error"]["code"]) == (1, "workspace")
    assert run(batch, "quarantine", "restore", name, "--apply").code == 0
    assert (batch / "root.txt").read_text() == "kept\n"
    for words in (["show"], ["list", name], ["restore", name], ["show", name, "--apply"], ["show", "nope"]):
        refused = run(batch, "quarantine", *words, "--json")
        assert refused.code == 1
        assert refused.document["error"]["hint"]


def test_a_damaged_list_of_a_quarantine_is_an_error_with_a_way_to_its_files(repo: Path) -> None:
    """Somebody has rewritten the commit; the command names it instead of failing with a trace."""
    (repo / "changes.json").write_text('{"run_id": 1}\n')
    blob = git(repo, "hash-object", "-w", "changes.json").strip()
    (repo / "entry").write_text(f"100644 blob {blob}\tchanges.json\n")
    with (repo / "entry").open("rb") as entry:
        made = subprocess.run(["git", "mktree"], cwd=repo, stdin=entry, capture_output=True, check=True)
    git(repo, "update-ref", "refs/autopilot/quarantine/run/a/1", made.stdout.decode().strip())
    ran = run(repo, "quarantine")
    assert ran.code != 0
    assert "refs/autopilot/quarantine/run/a/1 holds cannot be read" in ran.err
    assert "git ls-tree -r refs/autopilot/quarantine/run/a/1" in ran.err
