"""Repositories that keep large files with git-lfs, the real program: stories, landing, and CI jobs."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.ci import Ci, Stories, forge, make_ci
from tests.acceptance.program import commit_stories, run, run_in, write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount

pytestmark = pytest.mark.skipif(shutil.which("git-lfs") is None, reason="git-lfs is not installed")

POINTER = "version https://git-lfs.github.com/spec/v1\n"
IS_CONTENT = "test $(wc -c < {0}) = {1}"


@pytest.fixture
def lfs(repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with a large file, for a user who has set git-lfs up."""
    config = tmp_path / "gitconfig"
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    subprocess.run(["git", "lfs", "install", "--skip-repo"], check=True, capture_output=True, cwd=repo)
    (repo / ".gitattributes").write_text("*.bin filter=lfs diff=lfs merge=lfs -text\n")
    (repo / "old.bin").write_bytes(os.urandom(3000))
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "a large file")
    assert git(repo, "show", "HEAD:old.bin").startswith(POINTER)
    return repo


def test_a_story_sees_content_commits_pointers_and_lands(lfs: Path) -> None:
    """Both the program's commit and the session's own hold a pointer; the landed checkout has the content."""
    write = "head -c {1} /dev/urandom > {0}"
    write_story(lfs, "ours", command=write.format("a.bin", 4000), verify=[IS_CONTENT.format("a.bin", 4000)])
    own = f"{write.format('b.bin', 5000)} && git add -A && git commit -qm own && git lfs fsck"
    write_story(lfs, "own", command=own, verify=[IS_CONTENT.format("old.bin", 3000)])
    commit_stories(lfs)
    done = run(lfs, "run", "--seal=secrets")
    assert done.code == 0, done.out + done.err
    for branch, path in (("ours", "a.bin"), ("own", "b.bin")):
        assert git(lfs, "show", f"autopilot/{branch}:{path}").startswith(POINTER)
    assert run(lfs, "land").code == 0
    assert [(lfs / name).stat().st_size for name in ("a.bin", "b.bin")] == [4000, 5000]
    assert git(lfs, "status", "--porcelain") == ""


@pytest.mark.skipif(not can_mount(), reason="this machine cannot mount")
def test_a_session_adds_large_files_and_removes_none(lfs: Path) -> None:
    """Deleted, changed or forged in a session, the repository's files stay; the session's own is kept."""
    store = lfs / ".git" / "lfs" / "objects"
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    attack = (
        "head -c 4000 /dev/urandom > new.bin && git add -A && git commit -qm new; "
        "for G in $(git rev-parse --git-common-dir) $(git rev-parse --git-common-dir)/autopilot; do "
        "for F in $(find $G/lfs/objects -type f); do chmod u+w $F; cp $F kept; echo evil >> $F; "
        "mv $F $F.x; cat kept > $F; test $(wc -c < kept) = 4000 || rm -f $F; done; done; rm kept; "
        "L=$(git rev-parse --git-common-dir)/lfs/objects; mkdir -p $L/00/00; "
        "echo evil > $L/00/00/" + "0" * 64 + "; mkfifo $L/00/00/" + "1" * 64
    )
    write_story(lfs, "one", command=attack)
    commit_stories(lfs)
    done = run(lfs, "run", "--seal=secrets")
    assert done.code == 0, done.out + done.err
    after = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    assert before.items() <= after.items()
    assert sorted(map(len, after.values())) == [3000, 4000]
    assert not any((lfs / ".git" / "autopilot" / "large-files").iterdir())


def test_content_travels_with_a_shard_and_is_checked(lfs: Path, tmp_path: Path) -> None:
    """A dependant in another clone and the joining job have the content; a forged file is refused by name."""
    stories: Stories = {
        "base": {"command": "head -c 4000 /dev/urandom > base.bin"},
        "next": {
            "command": "cp base.bin next.txt",
            "depends_on": ["base"],
            "verify": [IS_CONTENT.format("next.txt", 4000)],
        },
    }
    ci: Ci = make_ci(tmp_path, lfs, stories)
    assert ci.run_all() == {"base": 0, "next": 0}
    place = ci.clone("join")
    joined = run(place, "aggregate", str(ci.shards), "--branches")
    assert joined.code == 0, joined.out + joined.err
    git(place, "checkout", "-q", "autopilot/next")
    assert (place / "base.bin").read_bytes() == (place / "next.txt").read_bytes()

    (stored,) = (ci.shards / "base" / "lfs").iterdir()
    forged = stored.rename(stored.with_name("0" * 64))
    forge(
        ci.shards / "base",
        lambda each: each["files"].update({f"lfs/{forged.name}": each["files"].pop(f"lfs/{stored.name}")}),
    )
    refused = run(ci.clone("again"), "aggregate", str(ci.shards), "--branches")
    assert refused.code != 0
    assert f"lfs/{forged.name} is not named by the digest of its content" in refused.out + refused.err


def test_missing_filter_and_missing_content_are_named(lfs: Path, tmp_path: Path) -> None:
    """Without the filter, `doctor` and a run say so; without the content, a story fails with what to do."""
    write_story(lfs, "one", command="echo x > x.txt")
    commit_stories(lfs)
    place = tmp_path / "clone"
    skipping = {**os.environ, "GIT_LFS_SKIP_SMUDGE": "1"}
    subprocess.run(["git", "clone", "-q", lfs.as_uri(), str(place)], check=True, env=skipping)
    bare = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull}
    for command in ("doctor", "run"):
        said = run_in(place, command, environ=bare)
        assert "git's filter for it is not set up" in said.out + said.err
        assert "`git lfs install`" in said.out + said.err
    shutil.rmtree(lfs / ".git" / "lfs")  # the remote has lost it
    ran = run(place, "run", "--again")
    assert ran.code == 3
    assert "git-lfs does not have the content of old.bin" in ran.out + ran.err
    assert "`git lfs fetch`" in ran.out + ran.err
