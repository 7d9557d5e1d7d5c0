"""What a landing leaves in the history: styles, messages with trailers, signatures, by the real program."""

import subprocess
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, write_story, writes
from tests.conftest import git

STYLES = ("merge", "squash", "rebase")


def tip_of(repo: Path, name: str = "main") -> str:
    return git(repo, "rev-parse", name).strip()


def own_commits(name: str) -> str:
    """Return a command that makes two commits under another name, the second of them later undone."""
    commit = "git commit -q --author 'Ann <ann@example.org>' --date '2001-02-03T04:05:06+0100'"
    return (
        f"echo 1 > {name}.txt; git add -A; {commit} -m 'First of {name}';"
        f"echo 2 >> {name}.txt; git add -A; {commit} -m 'Second of {name}' "
        "-m 'Co-authored-by: Bob <b@x.org>';"
        f"echo 3 > {name}-rest.txt"
    )


def trailers(repo: Path, commit: str) -> list[str]:
    return git(repo, "log", "-1", "--format=%(trailers:only,unfold)", commit).split("\n")


def test_rebase_leaves_the_commits_of_stories_in_a_straight_line(repo: Path) -> None:
    """Authors, their dates and messages stay; merges become plain commits, empty commits are left out."""
    (repo / "autopilot-multi.toml").write_text('verify = ["true"]\nland-style = "rebase"\n')
    write_story(repo, "a", command=own_commits("a"))
    merges = (
        "git switch -q --detach; echo side > side.txt; git add -A; git commit -q -m side;"
        "side=$(git rev-parse HEAD); git switch -q -;"
        "echo b > b.txt; git add -A; git commit -q -m 'On b'; git merge -q --no-ff -m 'Merge side' $side;"
        "echo same > same.txt; git add -A; git commit -q -m 'The same'"
    )
    write_story(repo, "b", command=merges)
    write_story(repo, "c", command=writes("a.txt", "other"))
    commit_stories(repo)
    assert run(repo, "--json").code == 0
    (repo / "same.txt").write_text("same\n")
    git(repo, "add", "same.txt")
    git(repo, "commit", "-q", "-m", "Somebody else made the same")
    before = tip_of(repo)
    landed = run(repo, "land", "--json")
    assert landed.code == 4, landed.err
    assert (landed.data["style"], landed.data["landed"]) == ("rebase", ["b", "a"])
    assert [(each["id"], each["why"]) for each in landed.data["not_landed"]] == [("c", "conflict")]
    log = git(repo, "log", "--reverse", "--format=%p|%s|%an|%aI", f"{before}..main").splitlines()
    assert all(" " not in line.partition("|")[0] for line in log), "one parent each"
    subjects = [line.split("|")[1] for line in log]
    assert subjects == ["On b", "Merge side", "First of a", "Second of a", "a"]
    assert "|Ann|2001-02-03T04:05:06+01:00" in log[2]
    assert (repo / "side.txt").read_text() == "side\n"
    assert trailers(repo, "main~1")[:3] == [
        "Co-authored-by: Bob <b@x.org>",
        f"Autopilot-Landing: {landed.data['landing_id']}",
        "Autopilot-Story: a",
    ]
    assert sum("Autopilot-Story" in line for line in trailers(repo, "main")) == 1, "it had this one already"
    assert git(repo, "status", "--porcelain") == ""
    assert run(repo, "land", "a", "--dry-run", "--json").data["contained"] == ["a"]
    assert run(repo, "undo", "--yes").code == 0
    assert tip_of(repo) == before


def test_the_message_is_a_template_with_real_trailers(repo: Path) -> None:
    """An unknown placeholder is refused when settings are read, and named with those that are known."""
    settings = repo / "autopilot-multi.toml"
    settings.write_text('verify = ["true"]\n')
    write_story(repo, "a", title="First\tstory", command=writes("a.txt"))
    write_story(repo, "b", title="Second", command=writes("b.txt"))
    commit_stories(repo)
    ran = run(repo, "--json")
    assert ran.code == 0
    bad = {
        "{nope} {id}": "{nope}",
        "{title:>9}": "{title:>9}",
        "{id": "brace",
        "{id.x}": "{id.x}",
        " ": "no text",
    }
    for template, word in bad.items():
        settings.write_text(f'verify = ["true"]\nland-message = "{template}"\n')
        refused = run(repo, "land")
        assert refused.code == 1
        assert word in refused.err
        assert "autopilot-multi.toml: land-message has" in refused.err
        assert "{id}, {title}, {onto}" in refused.err
    text = "{title} ({id}) on {onto}\\n\\n{branch} {{{style}}}\\n\\nSigned-off-by: {run} <x>"
    settings.write_text(f'verify = ["true"]\nland-message = "{text}"\n')
    landed = run(repo, "land", "a", "--style", "squash", "--json")
    assert landed.code == 0, landed.err
    run_id, landing = ran.data["run_id"], landed.data["landing_id"]
    assert git(repo, "log", "-1", "--format=%B").strip() == (
        "First story (a) on main\n\nautopilot/a {squash}\n\n"
        f"Signed-off-by: {run_id} <x>\nAutopilot-Landing: {landing}\nAutopilot-Story: a"
    )
    assert len([line for line in trailers(repo, "main") if line]) == 3
    settings.write_text('verify = ["true"]\n')
    assert run(repo, "land", "b").code == 0
    assert git(repo, "log", "-1", "--format=%s").strip() == "Merge story b: Second"


def test_a_line_of_commits_overtakes_a_target_that_moves(repo: Path) -> None:
    """Somebody commits while the train is verified: it is put on the new tip, and verified there."""
    (repo / "autopilot-multi.toml").write_text("guard = false\n")
    for name in ("a", "b"):
        write_story(repo, name, command=writes(f"{name}.txt"))
    commit_stories(repo)
    assert run(repo, "--json").code == 0
    before = tip_of(repo)
    flag = repo.parent / "flag"
    other = f"(cd {repo}; date +%N > other.txt; git add other.txt; git commit -qm other)"
    moves = f"test -e {flag} || {other}; echo run >> {flag}"
    (repo / "autopilot-multi.toml").write_text(f'guard = false\nland-verify = ["{moves}"]\n')
    for style in ("rebase", "squash"):
        landed = run(repo, "land", "a" if style == "rebase" else "b", "--style", style, "--json")
        assert landed.code == 0, landed.err
        assert landed.data["rebuilds"] == 1
        assert flag.read_text() == "run\nrun\n", "once for each tip"
        flag.unlink()
    log = git(repo, "log", "--reverse", "--format=%s", f"{before}..main").split()
    assert log == ["other", "a", "other", "b"]
    assert git(repo, "rev-list", "--merges", f"{before}..main") == ""


@pytest.fixture
def signing(repo: Path, tmp_path: Path) -> Path:
    """Have git sign commits with a new ssh key, and return the key."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    allowed = tmp_path / "allowed"
    allowed.write_text(f"* {key.with_suffix('.pub').read_text()}")
    for name, value in {
        "gpg.format": "ssh",
        "user.signingKey": str(key),
        "gpg.ssh.allowedSignersFile": str(allowed),
        "commit.gpgSign": "true",
    }.items():
        git(repo, "config", name, value)
    return key


def test_what_lands_is_signed_as_git_is_configured(repo: Path, signing: Path) -> None:
    """Git verifies every commit that a landing made, in each style, and the revert of it."""
    (repo / "autopilot-multi.toml").write_text('verify = ["true"]\n')
    for style in STYLES:
        write_story(repo, style, command=own_commits(style))
    commit_stories(repo)
    assert run(repo, "--json").code == 0
    for style in STYLES:
        before = tip_of(repo)
        landed = run(repo, "land", style, "--style", style, "--json")
        assert landed.code == 0, landed.err
        assert git(repo, "rev-parse", "main^{tree}").strip() == landed.data["tree"]
        made = git(repo, "rev-list", "--first-parent", f"{before}..main").split()
        assert len(made) == (3 if style == "rebase" else 1)
        for commit in made:
            git(repo, "verify-commit", commit)
    git(repo, "commit", "-q", "--allow-empty", "-m", "later")
    assert run(repo, "undo", "--yes").code == 0
    git(repo, "verify-commit", "main")

    write_story(repo, "late", command=writes("late.txt"))
    commit_stories(repo)
    assert run(repo, "late", "--json").code == 0
    before, key = tip_of(repo), signing.read_bytes()
    signing.unlink()
    for style in STYLES:
        refused = run(repo, "land", "late", "--style", style, "--json")
        assert refused.code == 1, refused.out
        assert refused.document["error"]["code"] == "signing"
        assert "could not sign a commit" in refused.document["error"]["message"]
        assert tip_of(repo) == before
    signing.write_bytes(key)
    signing.chmod(0o600)
    assert run(repo, "land", "late").code == 0
    git(repo, "verify-commit", "main")
