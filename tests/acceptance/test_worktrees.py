"""Stories in worktrees of their own, by the real program."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.program import command, commit_stories, run, started, wait_until, write_story, writes
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount


def _state(root: Path) -> tuple[str, str, str, bytes]:
    return (
        git(root, "status", "--porcelain", "--untracked-files=all"),
        git(root, "rev-parse", "HEAD"),
        git(root, "symbolic-ref", "HEAD"),
        (root / ".git" / "index").read_bytes(),
    )


def test_stories_have_their_own_places_and_the_checkout_is_untouched(repo: Path) -> None:
    """Acceptance 9: distinct worktrees, branches and indexes; the main checkout stays as it was."""
    report = (
        'git rev-parse --show-toplevel --absolute-git-dir --abbrev-ref HEAD > "where-$AUTOPILOT_STORY_ID"'
    )
    for name in ("a", "b"):
        write_story(repo, name, command=report)
    (repo / "README.md").write_text("a change that the user has not committed\n")
    (repo / "notes.txt").write_text("untracked\n")
    git(repo, "add", "README.md")
    before = _state(repo)
    assert run(repo).code == 0
    assert _state(repo) == before
    seen = [git(repo, "show", f"autopilot/{name}:where-{name}").split() for name in ("a", "b")]
    # Each sees its own tree under the path of the checkout.
    assert {place for place, _, _ in seen} == {str(repo) if can_mount() else f"{repo}.worktrees/a"}
    for first, second in zip(*(there[1:] for there in seen), strict=True):
        assert first != second
    assert all(not git_dir.startswith(str(repo) + "/") for _, git_dir, _ in seen)


def test_repositories_of_one_name_share_no_path(make_repository: Callable[..., Path], tmp_path: Path) -> None:
    """Acceptance 10: two repositories called `app` never meet, also below one configured root."""
    places = []
    for parent in ("one", "two"):
        root = make_repository(f"{parent}/app")
        (root / "autopilot-multi.toml").write_text(f'worktree-root = "{tmp_path}/trees"\n')
        write_story(root, "a", command="pwd > where.txt")
        assert run(root, "--no-guard").code == 0
        places.append(git(root, "show", "autopilot/a:where.txt").strip())
    assert places[0] != places[1]
    assert all(place.startswith(f"{tmp_path}/trees/app-") for place in places)


def test_an_id_that_escapes_is_refused_before_any_write(repo: Path) -> None:
    """Acceptance 11: `../x` as an id is an error and leaves nothing behind."""
    path = write_story(repo, "a", id="../x", command="true")
    ran = run(repo)
    assert ran.code == 1
    assert path.name in ran.err
    assert not (repo / ".git" / "autopilot").exists()
    assert not (repo.parent / f"{repo.name}.worktrees").exists()


def test_a_root_that_leads_elsewhere_is_refused(repo: Path, tmp_path: Path) -> None:
    """Acceptance 11: a worktree root that is a symbolic link is not followed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (repo.parent / f"{repo.name}.worktrees").symlink_to(elsewhere)
    write_story(repo, "a", command=writes("a.txt"))
    ran = run(repo, "--json")
    assert ran.story("a")["status"] == "failed"
    assert not list(elsewhere.iterdir())
    assert not git(repo, "branch", "--list", "autopilot/*")


def test_a_branch_without_worktree_is_reattached(repo: Path) -> None:
    """Acceptance 12: the commits of an earlier attempt are kept and built upon."""
    git(repo, "branch", "autopilot/a")
    git(repo, "worktree", "add", "-q", str(repo.parent / "by-hand"), "autopilot/a")
    (repo.parent / "by-hand" / "early.txt").write_text("early\n")
    git(repo.parent / "by-hand", "add", "-A")
    git(repo.parent / "by-hand", "commit", "-q", "-m", "early work")
    git(repo, "worktree", "remove", str(repo.parent / "by-hand"))
    write_story(repo, "a", command="test -f early.txt && echo late > late.txt")
    ran = run(repo, "--json")
    assert ran.code == 0
    assert ran.story("a")["commits"] == 2
    assert git(repo, "show", "autopilot/a:early.txt") == "early\n"


def test_a_dirty_worktree_is_kept_and_reported(repo: Path) -> None:
    """Acceptance 13: what is not committed stays, at the close and at `gc`."""
    write_story(repo, "a", command="echo precious > precious.txt; false")
    ran = run(repo, "--json")
    kept = Path(ran.story("a")["workspace"])
    assert (kept / "precious.txt").read_text() == "precious\n"
    swept = run(repo, "gc", "--apply", "--json")
    assert (kept / "precious.txt").exists()
    (row,) = swept.data["worktrees"]
    assert row["verdict"] == "kept"
    assert "precious.txt" in row["reason"]


def test_gc_removes_what_is_safe_and_keeps_the_branch(repo: Path) -> None:
    """Acceptance 13: a clean worktree of a failed story goes with `gc --apply`, and only then.

    `gc --undo` brings it back, and once more what the run itself removed, with what git ignores.
    """
    (repo / ".git" / "info" / "exclude").write_text("*.log\n")
    write_story(repo, "a", command=writes("a.txt"), verify=["false"])
    write_story(repo, "b", command=f"echo built > b.log; {writes('b.txt')}", verify=["true"])
    kept = Path(run(repo, "--json").story("a")["workspace"])
    assert kept.exists()
    assert run(repo, "gc", "--json").data["worktrees"][0]["verdict"] == "removable"
    assert kept.exists()
    assert run(repo, "gc", "--apply", "--json").data["worktrees"][0]["verdict"] == "removed"
    assert not kept.exists()
    assert git(repo, "show", "autopilot/a:a.txt") == "made\n"
    assert run(repo, "gc", "--apply", "--undo").code == 1
    assert run(repo, "gc", "--undo").out == f"restored   {kept}  (on autopilot/a)\n"
    assert git(kept, "status", "--porcelain", "--branch") == "## autopilot/a\n"
    (row,) = run(repo, "gc", "--undo", "--json").data["worktrees"]
    assert (row["verdict"], (kept.parent / "b" / "b.log").read_text()) == ("restored", "built\n")
    assert run(repo, "gc", "--undo").out.startswith("nothing to bring back")
    assert [row["verdict"] for row in run(repo, "gc", "--json").data["worktrees"]] == ["removable"] * 2


def test_a_finished_story_leaves_only_its_branch(repo: Path) -> None:
    """Acceptance 14: worktree and git metadata are gone, the branch stays."""
    write_story(repo, "a", command=writes("a.txt"))
    assert run(repo).code == 0
    assert git(repo, "worktree", "list").count("\n") == 1
    assert not (repo.parent / f"{repo.name}.worktrees").exists()
    assert (
        not list((repo / ".git" / "worktrees").glob("*")) if (repo / ".git" / "worktrees").exists() else True
    )
    assert git(repo, "show", "autopilot/a:a.txt") == "made\n"


def test_a_change_outside_the_claim_fails_the_story(repo: Path) -> None:
    """Acceptance 19: in a worktree too, a path outside the claim is named and fails its story."""
    write_story(repo, "a", owns=["src/**"], command="mkdir -p src && echo x > src/x && echo y > README.md")
    write_story(repo, "b", owns=["src/**"], command="mkdir -p src && echo x > src/y")
    ran = run(repo, "--json")
    assert ran.code == 4
    assert ran.story("a")["status"] == "failed"
    assert "README.md" in ran.story("a")["reason"]
    assert ran.story("b")["status"] == "done"


def test_checkpoints_carry_trailers(repo: Path) -> None:
    """A commit of the runner names its run, story and step."""
    write_story(repo, "a", title="Make a file", command=writes("a.txt"))
    ran = run(repo, "--json")
    message = git(repo, "log", "-1", "--format=%B", "autopilot/a")
    assert message.startswith("Make a file\n")
    assert f"Autopilot-Run: {ran.data['run_id']}" in message
    assert "Autopilot-Story: a" in message
    assert "Autopilot-Step: 1 Implement" in message
    assert git(repo, "log", "-1", "--format=%an", "autopilot/a") == "Test\n"


def test_the_session_contract(repo: Path) -> None:
    """A session gets its prompt on stdin, then EOF, and is told by its environment where it is."""
    script = "cat > prompt.txt; env | grep ^AUTOPILOT_ | sort > env.txt; pwd > cwd.txt"
    write_story(repo, "a", body="Paint it red.", command=script, owns=["*.txt"], verify=["true"])
    ran = run(repo, "--json", env={"GIT_DIR": "/nonsense", "GIT_INDEX_FILE": "/nonsense"})
    assert ran.code == 0
    show = {name: git(repo, "show", f"autopilot/a:{name}.txt") for name in ("prompt", "env", "cwd")}
    assert "Paint it red." in show["prompt"]
    values = dict(line.split("=", 1) for line in show["env"].splitlines() if "=" in line)
    assert values["AUTOPILOT_STORY_ID"] == "a"
    assert values["AUTOPILOT_RUN_ID"] == ran.data["run_id"]
    assert values["AUTOPILOT_ATTEMPT"] == "1"
    assert values["AUTOPILOT_OWNS"] == "*.txt"
    assert int(values["AUTOPILOT_AGENTS_PER_WAVE"]) >= 0
    assert values["AUTOPILOT_PROMPT_FILE"].startswith(show["cwd"].strip())


def test_ignored_files_and_links_are_brought_along(repo: Path) -> None:
    """`.worktreeinclude` copies ignored files, `symlink-directories` links big ones, both unseen by git."""
    (repo / ".gitignore").write_text(".env\nnode_modules/\n")
    (repo / ".worktreeinclude").write_text(".env\n")
    (repo / "autopilot-multi.toml").write_text('symlink-directories = ["node_modules"]\n')
    commit_stories(repo)
    (repo / ".env").write_text("SECRET=1\n")
    (repo / "node_modules").mkdir()
    (repo / "node_modules" / "dep.js").write_text("dep\n")
    write_story(repo, "a", command="cat .env node_modules/dep.js > seen.txt")
    ran = run(repo, "--json")
    assert ran.code == 0
    assert git(repo, "show", "autopilot/a:seen.txt") == "SECRET=1\ndep\n"
    assert git(repo, "show", "--stat", "--format=", "autopilot/a").count("|") == 1


def test_hooks_run_around_the_work(repo: Path) -> None:
    """Hooks run in the workspace; a failing `after_create` fails the story, `after_run` does not."""
    settings = repo / "autopilot-multi.toml"
    settings.write_text('[hooks]\nafter_create = "echo ready > ready.txt"\nafter_run = "false"\n')
    write_story(repo, "a", command="test -f ready.txt && echo x > x.txt")
    assert run(repo).code == 0
    settings.write_text('[hooks]\nafter_create = "echo why not; false"\n')
    ran = run(repo, "--again", "--json")
    assert ran.story("a")["status"] == "failed"
    assert "after_create" in ran.story("a")["reason"]
    told = Path(ran.story("a")["next"].removeprefix("see "))
    assert told.read_text() == "why not\n", "what it printed is where the report says"


def test_a_place_where_no_worktree_can_be_made_is_named(repo: Path) -> None:
    """The story fails with the setting that mends it; nobody is sent to a crash log."""
    (repo / "autopilot-multi.toml").write_text('worktree-root = "/sys/kernel"\n')
    write_story(repo, "a", command="echo x > x.txt")
    ran = run(repo, "--json")
    assert ran.story("a")["status"] == "failed"
    assert "cannot create the folder for worktrees: /sys/kernel/" in ran.story("a")["reason"]
    assert "worktree-root" in ran.story("a")["next"]


def test_an_agent_of_the_users_own(repo: Path) -> None:
    """`[agents.mine]` with placeholders does the work of stories without a command."""
    (repo / "agent.sh").write_text('#!/bin/sh\ncat > "$1.txt"\n')
    (repo / "agent.sh").chmod(0o755)
    (repo / "autopilot-multi.toml").write_text(
        'agent = "mine"\n[agents.mine]\nargv = ["./agent.sh", "{id}"]\n'
    )
    write_story(repo, "a", body="Say hello.")
    commit_stories(repo)
    assert run(repo).code == 0
    assert "Say hello." in git(repo, "show", "autopilot/a:a.txt")


def test_a_story_without_any_agent_is_an_error_before_anything_starts(repo: Path) -> None:
    """No command and no agent: exit 1, and the hint shows the way."""
    write_story(repo, "a", body="Say hello.")
    ran = run(repo)
    assert ran.code == 1
    assert "[agents." in ran.err
    assert not (repo / ".git" / "autopilot").exists()


def test_two_runs_have_ids_and_records_that_join(repo: Path) -> None:
    """Acceptance 66: ten stories started in one second have unique ids; records join both ways."""
    for number in range(10):
        write_story(repo, f"s{number}", command=writes(f"{number}.txt"))
    assert run(repo, "--max-stories=10", "--json").code == 0
    path = repo / ".orchestrator" / "metrics" / "autopilot.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    stories = [record for record in records if record["kind"] == "story"]
    (whole,) = [record for record in records if record["kind"] == "run"]
    assert len({record["autopilot_run_id"] for record in stories}) == 10
    assert {record["parent_run_id"] for record in stories} == {whole["autopilot_run_id"]}
    assert set(whole["child_run_ids"]) == {record["autopilot_run_id"] for record in stories}
    sessions = [json.loads(line) for line in (path.parent / "sessions.jsonl").read_text().splitlines()]
    assert {record["autopilot_run_id"] for record in sessions} == set(whole["child_run_ids"])


def test_runs_under_another_identity_when_there_is_none(repo: Path) -> None:
    """Without an identity the runner commits under its own name and says so."""
    write_story(repo, "a", command=writes("a.txt"))
    blank = {f"GIT_{role}_{part}": "" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")}
    done = subprocess.run(
        ["env", *(f"-u{name}" for name in blank), *command("run")],
        cwd=repo,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert git(repo, "log", "-1", "--format=%an", "autopilot/a") == "autopilot-multi\n"
    assert "identity" in done.stderr + done.stdout


def test_a_session_is_told_its_own_folder(repo: Path) -> None:
    """Acceptance 9: PWD names the folder of the session; a program that believes it stays in its tree."""
    write_story(repo, "a", command=["printenv", "PWD"])
    run(repo, env={"PWD": "/"})
    assert run(repo, "logs", "a").out.split()[-1] == (str(repo) if can_mount() else f"{repo}.worktrees/a")
    run(repo, "--no-guard", env={"PWD": str(repo)})
    assert run(repo, "logs", "a").out.split()[-1] == f"{repo}.worktrees/a"


def test_a_worktree_that_is_deleted_while_its_story_works(repo: Path) -> None:
    """No further session starts in an empty folder; the story fails, says why, and runs again."""
    go, tree = repo.parent / "go", repo.parent / f"{repo.name}.worktrees" / "a"
    waits = (
        f"touch begun; for _ in $(seq 600); do [ -f {go} ] && break; sleep 0.05; done; cat README.md > a.txt"
    )
    write_story(repo, "a", command=waits)
    with started(repo, "--json") as program:
        wait_until((tree / "begun").exists, what="the session works")
        shutil.rmtree(tree)
        go.touch()
        ran = program.finish()
    story = ran.story("a")
    assert (story["status"], story["workspace"]) == ("failed", None)
    assert "is gone" in story["reason"]
    assert not tree.exists()
    assert run(repo, "--retry-failed", "--json").story("a")["status"] == "done"


def test_a_worktree_that_is_cut_off_before_it_is_verified(repo: Path) -> None:
    """No command judges a folder that git does not know any more; the folder stays, and is named."""
    ran_on, tree = repo.parent / "ran-on", repo.parent / f"{repo.name}.worktrees" / "a"
    write_story(repo, "a", command=writes("a.txt"), verify=["rm .git", f"touch {ran_on}"])
    story = run(repo, "--json", "--no-guard", "--no-base-check").story("a")
    assert (story["status"], story["workspace"]) == ("failed", str(tree))
    assert "no longer connected to the repository" in story["reason"]
    assert not ran_on.exists()
    assert (tree / "a.txt").exists()


def test_what_the_machine_refuses_is_told_in_its_words(repo: Path) -> None:
    """Acceptance 72: an error of the system fails its story and names the path, not a bug of ours."""
    (repo / ".orchestrator").write_text("in the way of the folder for prompts and results\n")
    commit_stories(repo)
    git(repo, "rm", "-q", ".orchestrator")
    git(repo, "commit", "-q", "-m", "out of the way")
    write_story(repo, "a", command=writes("a.txt"))
    ran = run(repo, "--base=HEAD~1", "--json")
    assert ran.story("a")["status"] == "failed"
    assert ran.story("a")["reason"].startswith("cannot access ")
    assert ".orchestrator" in ran.story("a")["reason"]
