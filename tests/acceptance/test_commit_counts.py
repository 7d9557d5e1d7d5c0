"""The commit is what counts: stories whose worktree looks well, and whose branch does not hold it."""

from pathlib import Path

from tests.acceptance.program import commit_stories, run, write_story
from tests.conftest import git

COMMIT = "echo x > x && git add x && git commit -qm mine"


MARKED = r"printf '<<<<<<< HEAD\none\n=======\ntwo\n>>>>>>> other\n'"


def test_what_the_commit_lacks_or_leaves_open_fails_the_attempt(repo: Path) -> None:
    """Hidden edits, conflict markers and unfinished merges; the next session learns what is wrong.

    One that puts it right in its second attempt is done. Titles underlined by `=` are no markers, and files
    that are meant to hold some say so by git's own attribute.
    """
    hide = "echo y >> README.md; git update-index --{}; echo x >> x"
    aside = "git switch -q -c aside-{0} && echo {0} > README.md && git commit -qam aside && git switch -q -"
    conflict = f"{aside} && echo ours > README.md && git commit -qam ours && ! git {{1}} aside-{{0}}"
    once = "grep -q '{}' $AUTOPILOT_PROMPT_FILE && {{ {}; exit 0; }}; "
    checked = ["grep -q y README.md"]
    write_story(repo, "skip", command=hide.format("skip-worktree README.md"), verify=checked)
    write_story(repo, "assume", command=hide.format("assume-unchanged README.md"), verify=checked)
    write_story(repo, "marked", command=f"{MARKED} > m.txt; git add m.txt; git commit -qm m; echo x >> x")
    merge = conflict.format("merge", "merge -q")
    write_story(repo, "merging", command=f"test -f .git/x || {merge}; true")
    seen = once.format("hid that from git", "git commit -qam open")
    write_story(repo, "revealed", command=seen + hide.format("skip-worktree README.md"), verify=checked)
    finish = once.format("in the middle of a rebase", "git rebase --skip")
    write_story(repo, "rebased", command=finish + conflict.format("rebased", "rebase -q"))
    legit = r"printf 'Seven!!\n=======\n' > a.md; printf '>>>>>>> x\n<<<<<<< y\n' > b.md; "
    legit += f"echo 'sample conflict-marker-size=32' > .gitattributes; {MARKED} > sample"
    write_story(repo, "legit", command=legit)
    commit_stories(repo)
    ran = run(repo, "--json", "--no-guard")  # a branch beside the story's own takes a lock that is shared
    keys = ("status", "attempt", "reason")
    found = {story["id"]: tuple(story[key] for key in keys) for story in ran.data["stories"]}
    hid = "gave up after 4 attempts: it hid changes from git by skip-worktree or assume-unchanged: README.md"
    assert found["skip"] == found["assume"] == ("failed", 4, hid)
    marked = "gave up after 4 attempts: conflict markers were committed: m.txt"
    assert found["marked"] == ("failed", 4, marked)
    assert found["merging"][:2] == ("failed", 4)
    assert "is in the middle of a merge" in found["merging"][2]
    assert found["revealed"][:2] == found["rebased"][:2] == ("done", 2), found
    assert found["legit"] == ("done", 1, "1 commit, no verify commands")
    assert git(repo, "show", "autopilot/revealed:README.md") == "hello\ny\n"


def test_what_git_ignores_is_out_of_the_way_of_verify(repo: Path) -> None:
    """A module that git ignores, an empty folder or a file made by an earlier verify helps no story.

    What was brought along and caches stay, and all is back when verify is over. The next session learns what
    was missing.
    """
    (repo / ".gitignore").write_text("local/\n*.secret\n.env\n.pytest_cache/\nbuilt\n")
    (repo / ".worktreeinclude").write_text(".env\n")
    (repo / ".env").write_text("KEY=1\n")
    (repo / "autopilot-multi.toml").write_text('[hooks]\nafter_create = "echo made > hook.secret"\n')
    module = "mkdir -p local && echo x > local/dep && echo y >> y"
    write_story(repo, "module", command=module, verify=["test -e local/dep"])
    write_story(repo, "folder", command="mkdir -p out && echo y >> y", verify=["touch out/report"])
    forced = "grep -q 'ran without' $AUTOPILOT_PROMPT_FILE && git add -f local/dep; "
    write_story(repo, "forced", command=forced + module, verify=["test -e local/dep"])
    cached = "mkdir .pytest_cache && touch .pytest_cache/x a.secret && echo y > y"
    seen = "grep -q 1 .env && grep -q made hook.secret && test -e .pytest_cache/x"
    builds = ["test ! -e a.secret && touch built", "test -e built"]
    write_story(repo, "honest", command=cached, verify=[seen, *builds])
    commit_stories(repo)
    ran = run(repo, "--json")
    found = {story["id"]: (story["status"], story["attempt"]) for story in ran.data["stories"]}
    assert found == {
        "module": ("failed", 4),
        "folder": ("failed", 4),
        "forced": ("done", 2),
        "honest": ("done", 1),
    }
    reason = ran.story("module")["reason"]
    assert reason.endswith("verify `test -e local/dep`: exit code 1, without local/, which no commit holds")
    strict = "grep -q 1 .env && grep -q made hook.secret && test ! -e .pytest_cache && test -e y"
    write_story(repo, "strict", command=cached + "; echo KEY=2 > .env", verify=[strict, "test ! -e y.new"])
    base = git(repo, "rev-parse", "main").strip()
    edited = "touch y; echo KEY=2 > .env; mkdir -p local; touch local/dep"
    write_story(repo, "edited", command=f"{edited}; echo z >> y", verify=["grep -q 2 .env", "false"])
    asks = f'test "$AUTOPILOT_BASE" = {base} && test -z "$(git branch --show-current)"'
    write_story(repo, "asks", command="echo z > z", verify=[asks])
    clean = run(repo, "--json", "--verify-in=clean", "--max-attempts=1", "strict", "edited", "asks")
    assert [clean.story(name)["status"] for name in ("strict", "edited", "asks")] == [
        "done",
        "failed",
        "done",
    ]
    assert "`grep -q 2 .env`: exit code 1, without local/, which no commit" in clean.story("edited")["reason"]
    root = repo.with_name("repo.worktrees")
    assert sorted(path.name for path in root.glob("_*")) == []
    assert (root / "module/local/dep").read_text() == "x\n"
    assert (root / "folder/out").is_dir()
    assert not (root / ".aside").exists()
    assert git(repo, "ls-tree", "-r", "--name-only", "autopilot/forced", "local").split() == ["local/dep"]


def test_what_verify_builds_is_not_held_against_the_session(repo: Path) -> None:
    """An environment that the command makes in each attempt is no work that was not committed.

    What a session made is named in the reason and in the next prompt, not among the lines of the output.
    """
    (repo / ".gitignore").write_text("env/\nlocal/\n")
    read = "cat $AUTOPILOT_PROMPT_FILE >> read; echo y >> y; "
    builds = ["mkdir env && echo $((1 + 2)) of 9 passed && false"]
    write_story(repo, "builds", command=read, verify=builds, max_attempts=3)
    made = read + "mkdir -p local; touch local/x"
    write_story(repo, "makes", command=made, verify=builds, max_attempts=3)
    commit_stories(repo)
    ran = run(repo, "--no-base-check")
    gave_up = "gave up after 3 attempts: verify failed, exit code 1"
    command = f"\n    $ {builds[0]}\n    3 of 9 passed\n    next: "
    assert f"builds failed: {gave_up}{command}" in ran.out
    assert f"makes failed: {gave_up}, without local/, which no commit holds{command}" in ran.out
    assert "exit code 1, without local/, which no commit holds — 3 of 9 passed" in ran.err
    prompts = {name: git(repo, "show", f"autopilot/{name}:read") for name in ("builds", "makes")}
    assert ["ran without" in text for text in prompts.values()] == [False, True]
    assert "local/" in prompts["makes"].split()


def test_a_branch_with_the_files_of_its_base_is_no_work(repo: Path) -> None:
    """Empty, reverted and undone commits are none, whatever the session reports; nor are they a success.

    What depends on such a story is skipped, unless the story says that no change is fine.
    """
    claimed = """ && echo '{"status": "done"}' > $AUTOPILOT_RESULT_FILE"""
    write_story(repo, "fine", command="true", allow_no_change=True, verify=["true"])
    write_story(repo, "after-fine", command="echo y > y", depends_on=["fine"])
    write_story(repo, "empty", command="git commit -q --allow-empty -m nothing" + claimed)
    write_story(repo, "reverted", command=f"{COMMIT} && git revert --no-edit HEAD" + claimed)
    write_story(repo, "undone", command=f"{COMMIT} && git reset -q --hard HEAD~1" + claimed, verify=["true"])
    write_story(repo, "after-empty", command="echo y > y", depends_on=["empty"])
    commit_stories(repo)
    well = run(repo, "--json", "--only", "after-fine")
    assert well.code == 0, well.err
    assert (well.story("fine")["status"], well.story("after-fine")["status"]) == ("no_work", "done")
    assert well.story("fine")["reason"] == "no change was needed, verified"
    ran = run(repo, "--json")
    assert ran.code == 4, ran.err
    found = {story["id"]: (story["status"], story["reason"]) for story in ran.data["stories"]}
    assert found["empty"] == ("no_work", "its 1 commit leaves every file as it was")
    assert found["reverted"] == ("no_work", "its 2 commits leave every file as it was")
    assert found["undone"] == ("no_work", "the session changed nothing")
    assert found["after-empty"] == ("skipped", "depends on empty, which had nothing to commit")
    assert found["after-fine"][0] == "done"
    assert git(repo, "rev-list", "--count", "main..autopilot/reverted") == "2\n"
