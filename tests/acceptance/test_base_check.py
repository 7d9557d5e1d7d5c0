"""The base is asked before the first session: what cannot succeed costs nothing, and is said at once."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import (
    Ran,
    commit_stories,
    processes_with,
    run,
    started,
    wait_until,
    write_story,
    writes,
)
from tests.conftest import git


def test_a_red_base_costs_no_session(repo: Path) -> None:
    """A general command that fails on the base ends the run, named with its last lines; nothing stays."""
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "b", command=writes("b.txt"), depends_on=["a"])
    commit_stories(repo)
    ran = run(repo, "--json", "--verify", "echo 3 of 9 failed; exit 4")
    assert (ran.code, _sessions(ran), _left(repo)) == (1, 0, [])
    switch = ran.data["kill_switch"]
    assert switch["name"] == "base-not-ready"
    assert "`echo 3 of 9 failed; exit 4` already fails on the base" in switch["detail"]
    assert "exit code 4: 3 of 9 failed" in switch["detail"]
    assert "--no-base-check" in switch["hint"]
    assert {story["status"] for story in ran.data["stories"]} == {"stopped"}
    assert [check["answer"] for check in ran.data["base_checks"]] == ["fails"]
    assert ran.data["base_checks"][0]["output"] == ["3 of 9 failed"]
    shown = run(repo, "status").out
    assert "    $ echo 3 of 9 failed; exit 4\n    3 of 9 failed\n" in shown
    assert "`autopilot-multi logs --base` shows all of its output" in shown
    title = "--- verify 1: `echo 3 of 9 failed; exit 4` fails\n"
    assert run(repo, "logs", "--base", "-f").out == f"{title}3 of 9 failed\n"
    assert run(repo, "plan", "--json", "--verify", "false").data["base_check"] == ["false"]

    assert run(repo, "--verify", "false", "--no-base-check", "--only", "a").code == 3, "you can start anyway"
    write_story(repo, "a", command=writes("a.txt"), verify=["test -s a.txt"])
    fixed = run(repo, "--json", "--verify", "test -s a.txt", "--only", "a")
    assert (fixed.code, fixed.story("a")["status"]) == (0, "done"), "a story's own command may be red first"


def test_a_missing_program_costs_no_session(repo: Path) -> None:
    """It is named; a story's own command that cannot start ends that story alone."""
    write_story(repo, "a", command=writes("a.txt"), verify=["no-such-checker --all"])
    write_story(repo, "b", command=writes("b.txt"), verify=["./made.sh || test -s b.txt"])
    ran = run(repo, "--json")
    assert (ran.code, ran.story("b")["status"], ran.story("a")["sessions"]) == (4, "done", 0)
    assert "no-such-checker is not installed here" in ran.story("a")["reason"]
    assert "no-such-checker" in ran.story("a")["next"]
    ran = run(repo, "--json", "--verify", "no-such-suite -q", "--only", "c", "do c")
    assert ran.code == 1
    write_story(repo, "c", command=writes("c.txt"))
    ran = run(repo, "--json", "--verify", "no-such-suite -q")
    assert (ran.code, ran.story("c")["sessions"]) == (1, 0)
    assert "no-such-suite" in ran.data["kill_switch"]["detail"]
    warned = run(repo, "--json", "--verify", "no-such-suite", env={"AUTOPILOT_MULTI_BASE_CHECK": "warn"})
    assert warned.story("c")["sessions"] > 0


def test_a_program_that_is_missing_later_uses_no_retries(repo: Path) -> None:
    """A verify command or a story's own command ends the story at once; a script of the tree is retried."""
    gone = repo.parent / "gone"
    (repo.parent / "bin").mkdir()
    program = repo.parent / "bin" / "checker"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    write_story(repo, "a", command=f"echo x > a; mv {program} {gone}", verify=["checker --all"])
    write_story(repo, "b", command="no-such-worker --do")
    write_story(repo, "c", command=["no-such-worker", "--do"])
    write_story(repo, "d", command="date +%N > d", verify=["./made.sh"], max_attempts=2)
    ran = run(repo, "--json", env={"PATH": f"{program.parent}:{os.environ['PATH']}"})
    assert [ran.story(name)["status"] for name in "abcd"] == ["failed"] * 4
    assert [ran.story(name)["sessions"] for name in "abcd"] == [2, 1, 1, 4]
    assert "`checker --all` cannot start: checker is not installed here" in ran.story("a")["reason"]
    for name in "bc":
        assert "its command cannot start: no-such-worker is not installed" in ran.story(name)["reason"]


def test_an_answer_is_asked_once_for_a_tree_and_a_command(repo: Path) -> None:
    """A second run from the same base asks nothing, unless the answer would end it; another tree is asked."""
    asked = repo.parent / "asked"
    check = f"echo x >> {asked}"
    write_story(repo, "a", command=writes("a.txt"))
    commit_stories(repo)
    first = run(repo, "--json", "--verify", check)
    planned = run(repo, "plan", "--json", "--again", "--verify", check, "--verify", "true").data
    assert (planned["base_check"], planned["base_known"]) == ([check, "true"], [check])
    shown = run(repo, "plan", "--again", "--verify", check, "--verify", "true").out
    assert "first, on the untouched base: true\n" in shown
    assert f"not asked of the base again, since an earlier run did: {check}" in " ".join(shown.split())
    again = run(repo, "--json", "--again", "--verify", check)
    assert [ran.data["base_checks"][0]["known"] for ran in (first, again)] == [False, True]
    assert asked.read_text().split() == ["x"] * 3, "the base once, and the story of each run"
    assert run(repo, "logs", "--base").out == f"--- verify 1: `{check}` passes, as an earlier run found\n"
    (repo / "more.txt").write_text("more")
    commit_stories(repo)
    changed = run(repo, "--json", "--again", "--verify", check)
    assert changed.data["base_checks"][0]["known"] is False

    flag = repo.parent / "installed"
    assert run(repo, "--again", "--verify", f"test -e {flag}").code == 1
    assert run(repo, "plan", "--json", "--verify", f"test -e {flag}").data["base_known"] == []
    flag.touch()
    assert run(repo, "--again", "--verify", f"test -e {flag}").code == 0, "a refusal is asked again"


def test_the_base_is_prepared_like_a_story(repo: Path) -> None:
    """Ignored files, links and hooks are there, the checkout itself is not changed, and nothing is left."""
    (repo / ".gitignore").write_text(".env\nlib/\nseen\n")
    (repo / ".worktreeinclude").write_text(".env\n")
    (repo / ".env").write_text("KEY=1\n")
    (repo / "lib").mkdir()
    (repo / "autopilot-multi.toml").write_text(
        'symlink-directories = ["lib"]\n'
        'verify = ["test -s .env && test -d lib && test -s made && touch seen"]\n'
        '[hooks]\nafter_create = "echo $AUTOPILOT_STORY_ID > made"\n'
    )
    write_story(repo, "a", command=writes("a.txt"))
    commit_stories(repo)
    ran = run(repo, "--json")
    assert (ran.code, ran.data["base_checks"][0]["answer"]) == (0, "passes")
    assert not (repo / "seen").exists()
    assert _left(repo) == []
    (repo / "autopilot-multi.toml").write_text('verify = "true"\n[hooks]\nafter_create = "echo no; exit 3"\n')
    ran = run(repo, "--json", "--again")
    assert (ran.code, _sessions(ran)) == (1, 0)
    assert (
        "the hook after_create fails in a fresh checkout of the base: exit code 3: no"
        in (ran.data["kill_switch"]["detail"])
    )
    assert "logs --base" in ran.data["kill_switch"]["hint"]
    assert run(repo, "logs", "--base").out == "--- hook after_create\nno\n"
    logged = run(repo, "logs", "--base", "--json").data
    assert ([hook["text"] for hook in logged["hooks"]], logged["checks"]) == (["no\n"], [])
    for wrong in (("logs",), ("logs", "a", "--base"), ("logs", "--base", "--session", "2")):
        assert run(repo, *wrong).code == 1, wrong


@pytest.mark.parametrize("how", ["ctrl-c", "kill"])
def test_a_run_that_ends_during_the_check_leaves_nothing(repo: Path, how: str) -> None:
    """Stopped by a user or killed: the command is gone, and the next run asks as if there had been none."""
    marker = f"sleep 86{os.getpid()}"
    write_story(repo, "a", command=writes("a.txt"))
    (repo / "autopilot-multi.toml").write_text(f'verify = "{marker}"\n')
    with started(repo) as program:
        wait_until(lambda: processes_with(marker), what="the base is checked")
        assert f"checking the base: {marker}" in program.err
        program.send(signal.SIGINT if how == "ctrl-c" else signal.SIGKILL)
        code = program.finish().code
    wait_until(lambda: not processes_with(marker), what="the command has ended")
    assert code == (130 if how == "ctrl-c" else -signal.SIGKILL)
    if how == "ctrl-c":
        assert _left(repo) == []
    again = run(repo, "--json", "--verify", "true")
    assert (again.code, again.story("a")["status"], _left(repo)) == (0, "done", [])


def test_a_checkout_that_was_cut_off_is_removed_although_nothing_is_asked(repo: Path) -> None:
    """A killed `git worktree add` has registered it, with a HEAD that points at nothing."""
    root, places = repo.with_name(f"{repo.name}.worktrees"), ("_base", "_verify-a")
    theirs = root / "_review-a"
    add = ("worktree", "add", "-q", "--detach", "--no-checkout")
    git(repo, *add, str(theirs))
    for name in places:
        git(repo, *add, "--lock", "--reason", f"autopilot-multi run r1 story {name}", str(root / name))
        (repo / ".git" / "worktrees" / name / "HEAD").write_text("0" * 40 + "\n")
    assert subprocess.run(["git", "fsck"], cwd=repo, check=False, capture_output=True).returncode
    write_story(repo, "a", command=writes("a.txt"))
    assert run(repo, "--no-base-check").code == 0
    git(repo, "fsck")
    assert not any((root / name).exists() for name in places)
    assert (theirs / ".git").exists(), "it is not ours"


def test_the_first_session_does_not_wait_until_the_checkout_is_looked_through(repo: Path) -> None:
    """Without verify commands the note about it follows; a run that is over by then still has it."""
    write_story(repo, "a", command=writes("a.txt"))
    commit_stories(repo)
    (repo / "new.py").touch()
    lines = [json.loads(line) for line in run(repo, "--events").out.splitlines()]
    seen = [f"{line['kind']} {line.get('message', '')}" for line in lines]
    note = "Noted 1 uncommitted file that stories will not see: new.py"
    assert seen.index("SessionStarted ") < seen.index(note) < seen.index("RunEnded ")


def test_what_stories_will_not_see_costs_no_session(repo: Path) -> None:
    """A script that is not committed is refused by name; other uncommitted and ignored files are noted."""
    (repo / "check.sh").write_text("exit 0\n")
    (repo / ".gitignore").write_text("data.json\ntools/\n")
    (repo / "data.json").write_text("{}")
    (repo / "tools").mkdir()
    (repo / "tools" / "work").write_text("#!/bin/sh\n")
    write_story(repo, "a", command=writes("a.txt"))
    ran = run(repo, "--json", "--verify", "sh check.sh --all")
    assert (ran.code, ran.document["error"]["code"]) == (1, "backlog")
    assert "verify `sh check.sh --all` runs check.sh" in ran.document["error"]["message"]
    assert "commit check.sh" in ran.document["error"]["hint"]
    write_story(repo, "b", command="./tools/work", depends_on=[])
    ran = run(repo, "--json", "--only", "b")
    assert ran.code == 1
    assert "the command of story b runs tools/work" in ran.document["error"]["message"]
    assert "symlink-directories" in ran.document["error"]["hint"]
    assert not (repo / ".git" / "autopilot").exists(), "nothing was begun"
    (repo / "env").mkdir()
    (repo / "env" / "pyvenv.cfg").touch()
    ran = run(repo, "--json", "--only", "a", "--verify", "test -f a.txt || cat data.json; true")
    assert ran.code == 0
    assert "names data.json" in ran.err
    notes = " ".join(note["message"] for note in ran.data["notes"])
    assert "2 uncommitted files that stories will not see: .gitignore, check.sh" in notes
    assert "git does not ignore installed packages; add to .gitignore: env/" in notes


@pytest.mark.parametrize(
    ("path", "said", "brought"),
    [
        ("src/demo/_version.py", "No module named 'demo._version'", ".worktreeinclude"),
        ("conf/local.json", "cannot open conf/local.json: no such file", ".worktreeinclude"),
        ("fixtures/big", "fixtures/big: not found", 'symlink-directories = ["fixtures"]'),
        ("conf/local.json", "no locale, and the localhost refused", ""),
    ],
)
def test_an_ignored_file_that_the_base_lacks_is_named(repo: Path, path: str, said: str, brought: str) -> None:
    """The command passes in the checkout alone; the note says why, and what it says makes it pass."""
    (repo / ".gitignore").write_text("_version.py\nlocal.json\nfixtures/\n__pycache__/\n")
    for each in (path, "src/demo/__pycache__/x.pyc"):
        (repo / each).parent.mkdir(parents=True, exist_ok=True)
        (repo / each).write_text("x")
    write_story(repo, "a", command=writes("a.txt"))
    commit_stories(repo)
    verify = ("--verify", f'test -s {path} || {{ echo "{said}"; false; }}')
    ran = run(repo, "--json", *verify)
    assert (ran.code, _sessions(ran)) == (1, 0)
    named = [note["message"] for note in ran.data["notes"] if "the output names" in note["message"]]
    if not brought:
        assert named == []
        return
    (note,) = named
    shown = "fixtures" if "fixtures" in path else path
    assert note.startswith(f"the output names {shown}, which is in your checkout, but stories will not see")
    assert brought.partition(" ")[0] in note
    if " " in brought:
        (repo / "autopilot-multi.toml").write_text(brought)
    else:
        (repo / brought).write_text(f"{path}\n")
    assert run(repo, "--again", *verify).code == 0


def test_an_empty_submodule_costs_no_session(repo: Path) -> None:
    """The command that needs it fails on the base; a note names the submodule and the hook that fills it."""
    other = repo.parent / "other"
    allow = ("-c", "protocol.file.allow=always")
    for args in (
        ("init", "-q", str(other)),
        ("-C", str(other), "commit", "-q", "--allow-empty", "-m", "x"),
        (*allow, "-C", str(repo), "submodule", "add", "-q", str(other), "lib"),
    ):
        subprocess.run(["git", *args], check=True, capture_output=True)
    (repo / "lib" / "code").write_text("x")
    write_story(repo, "a", command=writes("a.txt"))
    commit_stories(repo)
    ran = run(repo, "--json", "--verify", "test -s lib/code")
    assert (ran.code, _sessions(ran)) == (1, 0)
    notes = " ".join(note["message"] for note in ran.data["notes"])
    assert "submodules that are empty in stories' worktrees: lib" in notes
    assert "git submodule update --init" in notes


def test_a_shared_tree_is_only_searched_for_programs(repo: Path) -> None:
    """Nothing runs in the user's own checkout before a story owns it; a missing program is found anyway."""
    ran_there = repo.parent / "ran-there"
    write_story(repo, "a", command=writes("a.txt"), owns=["a.txt"])
    commit_stories(repo)
    shared = ("--json", "--bg-isolation", "none", "--max-stories", "1")
    ran = run(repo, *shared, "--verify", "no-such-checker --all")
    assert (ran.code, _sessions(ran)) == (1, 0)
    assert "no-such-checker" in ran.data["kill_switch"]["detail"]
    ran = run(repo, *shared, "--verify", f"test -s a.txt && echo x >> {ran_there}")
    assert (ran.code, ran_there.read_text()) == (0, "x\n")


def _sessions(ran: Ran) -> int:
    counts: list[int] = [story["sessions"] for story in ran.data["stories"]]
    return sum(counts)


def _left(repo: Path) -> list[Any]:
    """Return the worktrees that are left beside the checkout."""
    listed = subprocess.run(
        ["git", "worktree", "list", "--porcelain"], cwd=repo, check=True, capture_output=True, text=True
    ).stdout
    folder = repo.parent / f"{repo.name}.worktrees"
    return [*listed.split("\n\n")[1:-1], *(folder.iterdir() if folder.exists() else ())]
