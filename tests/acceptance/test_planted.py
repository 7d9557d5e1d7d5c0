"""What a session plants for git to execute: the program's own git commands must not carry it out of the tree.

In each attack the planted program writes a file into the main checkout. In the session itself that path is
the story's own tree, so such a file can only come from a command of the coordinator.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.program import run, write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount

guarded = pytest.mark.skipif(not can_mount(), reason="this machine cannot mount, and Landlock not in /tmp")


def payload(repo: Path, name: str, path: str) -> str:
    """Return the shell command that plants a program at a path of the story's tree."""
    lines = ("#!/bin/sh", f"echo ran >> {repo}/planted-{name}", "cat")
    texts = " ".join(f"'{line}'" for line in lines)
    return f"mkdir -p $(dirname {path}) && printf '%s\\n' {texts} > {path} && chmod +x {path}"


def attributes(name: str) -> str:
    """Return the shell command that switches a filter on."""
    return f"echo '*.dat filter={name}' > .gitattributes && echo x > x.dat"


def attacks(repo: Path, outside: Path) -> dict[str, str]:
    """Return the command of each hostile story."""
    admin = "$(git rev-parse --git-dir)"
    evil = outside / "evil"
    return {
        "worktree-config": f"{payload(repo, 'worktree-config', 'p')} && {attributes('own')} && "
        "git config --worktree filter.own.clean ./p && git config --worktree core.fsmonitor ./p",
        "common-dir": f"{payload(repo, 'common-dir', 'p')} && {attributes('own')} && cp -r "
        f"$(git rev-parse --git-common-dir) {evil} && git config -f {evil}/config filter.own.clean ./p && "
        f"echo {evil} > {admin}/commondir",
        "filter": f"{payload(repo, 'filter', 'tools/clean')} && {attributes('relative')}",
        "hooks": " && ".join(
            payload(repo, "hooks", f".husky/{name}")
            for name in ("post-index-change", "reference-transaction", "pre-commit", "post-commit")
        ),
        "nested": "git init -q inner && cd inner && "
        f"{payload(repo, 'nested', 'p')} && {attributes('own')} && git add -A && git commit -qm inner && "
        "git config filter.own.clean ./p && git config core.fsmonitor ./p && echo y > x.dat && "
        "cd .. && git add inner",
        "later": f"{payload(repo, 'later', 'tools/smudge')} && {attributes('relative')}",
    }


@guarded
def test_what_a_story_planted_for_git_stays_in_its_tree(repo: Path, tmp_path: Path) -> None:
    """Configuration, filters, hooks and nested repositories of a session never reach the main checkout."""
    git(repo, "config", "extensions.worktreeConfig", "true")
    git(repo, "config", "core.hooksPath", ".husky")
    git(repo, "config", "filter.relative.clean", "tools/clean")
    git(repo, "config", "filter.relative.smudge", "tools/smudge")
    outside = tmp_path / "outside"
    outside.mkdir()
    for name, command in attacks(repo, outside).items():
        write_story(repo, name, command=command)
    # The files of another story's branch are checked out here.
    write_story(repo, "after", command="echo x > x", depends_on=["later"])
    ran = run(repo, "--json", "--max-stories=8")
    assert sorted(path.name for path in repo.glob("planted-*")) == []
    for name in attacks(repo, outside):
        tree = repo.parent / f"{repo.name}.worktrees" / name
        assert ran.story(name)["status"] == "done" or tree.is_dir(), ran.story(name)
    # The filter has run, so that git could not have been kept from writing by not being asked.
    assert ran.story("filter")["status"] != "no-work"
    # Under mounts it cannot even be written; otherwise git commands are not led by it.
    named = "the link to the repository: commondir" if can_mount() else "does not lead to the repository"
    assert named in ran.story("common-dir")["reason"]


@guarded
def test_filters_of_the_user_work_on_a_storys_tree(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A filter on PATH works at both ends; that of git-lfs has tests of its own, with the real program."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "shout").write_text('#!/bin/sh\nif [ "$1" = clean ]; then tr a-z A-Z; else tr A-Z a-z; fi\n')
    (programs / "shout").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    # A file of its own: tests have no global configuration.
    own = tmp_path / "gitconfig"
    own.write_text('[filter "loud"]\n\tclean = shout clean\n\tsmudge = shout smudge\n\trequired = true\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(own))
    write_story(repo, "a", command="echo '*.bin filter=loud' > .gitattributes && echo large > a.bin")
    write_story(repo, "b", command="cat a.bin > seen", depends_on=["a"])
    ran = run(repo, "--json")
    assert [ran.story(name)["status"] for name in "ab"] == ["done", "done"], ran.data["stories"]
    assert git(repo, "show", "autopilot/a:a.bin") == "LARGE\n"
    assert git(repo, "show", "autopilot/b:seen") == "large\n"


EXCHANGED = {
    "fifo": 'rm -f "$AUTOPILOT_RESULT_FILE"; mkfifo "$AUTOPILOT_RESULT_FILE"',
    "device": 'ln -sf /dev/zero "$AUTOPILOT_RESULT_FILE"',
    "link": 'ln -sf "$HOME/secret" "$AUTOPILOT_RESULT_FILE"',
    "folder": 'mkdir "$AUTOPILOT_RESULT_FILE"',
    "huge": 'truncate -s 3G "$AUTOPILOT_RESULT_FILE"',
    # All folders of the worktrees, through which the next prompt would be written.
    "exchange": 'mv .orchestrator old && ln -s "$HOME/elsewhere" .orchestrator',
}


@guarded
def test_strange_files_in_the_exchange_folder_are_neither_followed_nor_waited_for(repo: Path) -> None:
    """A link, a FIFO, a device, a folder or a huge file as the result: ignored by name, and the run ends."""
    home = Path.home()
    (home / "secret").write_text('{"status": "needs-decision", "decision": {"question": "secret?"}}')
    (home / "elsewhere").mkdir()
    prompts = repo.parent / f"{repo.name}.worktrees"
    for name, command in EXCHANGED.items():
        # The first attempt fails, so that another session follows in the same tree.
        write_story(
            repo, name, command=f"if [ -e tried ]; then echo x > x; else touch tried; {command}; exit 1; fi"
        )
    ran = run(repo, "--json", "--max-stories=8")
    told = {name: ran.story(name) for name in EXCHANGED}
    assert {name: story["status"] for name, story in told.items()} == dict.fromkeys(EXCHANGED, "done")
    assert list((home / "elsewhere").iterdir()) == []
    assert not prompts.exists() or not list(prompts.glob("*/.orchestrator/secret"))
    assert "secret" not in ran.out


@guarded
def test_a_state_folder_that_leads_out_of_the_tree_is_not_written_to(repo: Path, memory: Path) -> None:
    """A session swaps the folder of the state file for a link into the main checkout: nothing is written."""
    del memory
    (repo / "_docs").mkdir()
    (repo / "_docs" / "README.md").write_text("mine\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "docs")
    write_story(repo, "a", flow="greenfield", command=f"rm -rf _docs; ln -s {repo}.outside/_docs _docs")
    outside = repo.parent / f"{repo.name}.outside" / "_docs"
    outside.mkdir(parents=True)
    ran = run(repo, "--json", "--max-sessions=1")
    assert list(outside.iterdir()) == []
    assert ran.story("a")["status"] == "failed", ran.story("a")
    assert "leads out of its tree" in ran.story("a")["reason"]


SHARED = ("--bg-isolation", "none", "--deconflict-paths", "packages/{id}/**")


@guarded
@pytest.mark.parametrize("level", ["deny", "divert"])
def test_what_a_story_planted_in_a_shared_tree_stays_in_its_claim(repo: Path, level: str) -> None:
    """Filters and hooks that the user keeps in a folder that a story owns cannot leave that folder."""
    tools = repo / "packages" / "a"
    (repo / "packages" / "b").mkdir(parents=True)
    tools.mkdir()
    for path in (tools / "x", repo / "packages" / "b" / "x"):
        path.write_text("x\n")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "packages")
    git(repo, "config", "core.hooksPath", "packages/a/hooks")
    git(repo, "config", "filter.relative.clean", "packages/a/clean")
    names = ("post-index-change", "reference-transaction")
    planted = [payload(repo, "shared", f"packages/a/hooks/{name}") for name in names]
    planted += [payload(repo, "shared", "packages/a/clean"), "cd packages/a", attributes("relative")]
    write_story(repo, "a", command=" && ".join(planted))
    write_story(repo, "b", command="echo new > packages/b/x", depends_on=["a"])
    ran = run(repo, "--json", *SHARED, "--enforce", level)
    assert not (repo / "planted-shared").exists()
    assert [ran.story(name)["status"] for name in "ab"] == ["done", "done"], ran.data["stories"]
    assert git(repo, "show", "autopilot/a:packages/a/x.dat") == "x\n"


@guarded
@pytest.mark.parametrize("bit", ["--skip-worktree", "--assume-unchanged"])
def test_a_foreign_edit_behind_a_bit_of_the_index_fails_the_story(
    make_repository: Callable[..., Path], bit: str
) -> None:
    """At deny a file beside the claim is found by its looks, not by git's index; one elsewhere is refused."""
    notes = "packages/a/notes.txt"
    repo = make_repository(files={"packages/a/x": "a\n", notes: "mine\n"})
    git(repo, "update-index", bit, notes, "README.md")
    write_story(
        repo, "a", command=f"echo y > packages/a/x; echo evil >> {notes}; echo evil >> README.md; true"
    )
    only_x = ("--bg-isolation", "none", "--deconflict-paths", "packages/{id}/x")
    ran = run(repo, "--json", *only_x, "--enforce", "deny")
    assert ran.story("a")["status"] == "failed"
    assert f"changed outside its claim: {notes}" in ran.story("a")["reason"]
    assert "tried to change outside its claim: README.md" in ran.story("a")["reason"]
    assert ((repo / notes).read_text(), (repo / "README.md").read_text()) == ("mine\n", "hello\n")


def test_versions_of_a_file_that_two_stories_wrote_are_kept_where_nothing_prevents_it(
    make_repository: Callable[..., Path],
) -> None:
    """At detect both the intruder's version and the owner's can be had, and a note names file and stories."""
    repo = make_repository(files={"packages/a/x": "a\n", "packages/b/x": "b\n"})
    flag = "$HOME/flag"
    wait = "until [ -e {0} ]; do sleep 0.01; done"
    # The owner writes again when the intruder's session has ended and been compared.
    ended = "until grep -q . $HOME/ended; do sleep 0.01; done"
    write_story(
        repo,
        "b",
        command=f"echo first > packages/b/x; touch {flag}; {ended}; echo last > packages/b/x",
    )
    intruder = f"{wait.format(flag)}; echo evil > packages/b/x; echo fine > packages/a/x"
    write_story(repo, "a", command=intruder)
    (repo / "autopilot-multi.toml").write_text(
        '[hooks]\nafter_run = "echo $AUTOPILOT_STORY_ID >> $HOME/ended"\n'
    )
    ran = run(repo, "--json", *SHARED, "--enforce", "detect", "--max-stories=2")
    assert [ran.story(name)["status"] for name in "ab"] == ["done", "done"], ran.data["stories"]
    assert git(repo, "show", "autopilot/b:packages/b/x") == "last\n"
    kept = run(repo, "quarantine", "list", "--json").data["quarantines"]
    assert {tuple(one["story_ids"]) for one in kept} == {("b", "a")}
    assert "evil\n" in [git(repo, "show", f"{one['ref']}:files/packages/b/x") for one in kept]
    assert "it is not known who wrote what, since a could write there, too: packages/b/x" in ran.err
