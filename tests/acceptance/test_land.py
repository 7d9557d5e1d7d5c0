"""`land`: from the branches of done stories to one verified main, by the real program."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.acceptance.landing_project import six_stories
from tests.acceptance.program import commit_stories, run, write_story, writes
from tests.conftest import git


def tree_of(repo: Path, name: str) -> str:
    return git(repo, "rev-parse", f"{name}^{{tree}}").strip()


def tip_of(repo: Path, name: str = "main") -> str:
    return git(repo, "rev-parse", name).strip()


def test_six_stories_end_in_a_green_main(make_repository: Callable[..., Path]) -> None:
    """All that can be there is on main and green; the conflict and the pair that is red are named."""
    repo = six_stories(make_repository)
    ran = run(repo, "--max-stories=3", "--json")
    assert ran.code == 0, ran.err
    before = tip_of(repo)
    (repo / "notes.txt").write_text("mine\n")
    shown = run(repo, "land", "--dry-run")
    assert shown.code == 0, shown.err
    assert all(story in shown.out for story in ("a-search", "d-invoice", "f-docs"))
    assert tip_of(repo) == before

    landed = run(repo, "land", "--json")
    assert landed.code == 4, landed.err
    data = landed.data
    assert set(data["landed"]) == {"a-search", "c-vat", "e-label", "f-docs"}
    left = {each["id"]: each for each in data["not_landed"]}
    assert set(left) == {"b-mail", "d-invoice"}
    assert (left["b-mail"]["why"], left["b-mail"]["with"]) == ("conflict", ["a-search"])
    assert left["b-mail"]["files"] == ["CHANGELOG.md"]
    assert (left["d-invoice"]["why"], left["d-invoice"]["with"]) == ("red-together", ["c-vat"])
    assert any("ImportError" in line for line in left["d-invoice"]["output"])
    assert data["before"] == before
    assert tip_of(repo) == data["after"]
    assert tree_of(repo, "main") == data["tree"]
    green = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "-q"], cwd=repo, check=False, capture_output=True
    )
    assert green.returncode == 0, green.stderr
    assert (repo / "README.md").read_text() == "# Shop\n"
    assert git(repo, "status", "--porcelain").strip() == "?? notes.txt"
    message = git(repo, "log", "-1", "--format=%B")
    assert f"Autopilot-Landing: {data['landing_id']}" in message
    assert "Autopilot-Story: " in message
    assert tip_of(repo, f"refs/autopilot/landed/{data['landing_id']}") == before
    assert tip_of(repo, "autopilot/d-invoice")

    status = run(repo, "status", "--json")
    assert status.story("a-search")["merged"] == "main"
    again = run(repo, "land")
    assert again.code == 3
    assert "not landed: d-invoice: red together with c-vat" in again.out or "with it on main" in again.out
    undone = run(repo, "undo", "--yes")
    assert undone.code == 0, undone.err
    assert tip_of(repo) == before
    assert git(repo, "status", "--porcelain").strip() == "?? notes.txt"
    assert run(repo, "status", "--json").story("a-search")["merged"] is None


def done_stories(repo: Path, *names: str, verify: str = "") -> None:
    """Run stories that each make a file of their own."""
    if verify:
        (repo / "autopilot-multi.toml").write_text(f"verify = [{verify!r}]\n")
    for name in names:
        write_story(repo, name, command=writes(f"{name}.txt"))
    commit_stories(repo)
    ran = run(repo, "--json")
    assert ran.code == 0, ran.err


def test_without_a_verify_command_land_asks(repo: Path) -> None:
    """What is not configured did not pass; --yes agrees. A landing under later commits is reverted."""
    done_stories(repo, "a", "b")
    before = tip_of(repo)
    refused = run(repo, "land")
    assert refused.code == 1
    assert "no verify command is known" in refused.err
    assert "--yes" in refused.err
    assert tip_of(repo) == before
    landed = run(repo, "land", "--yes")
    assert landed.code == 0, landed.err
    assert "not verified" in landed.out
    assert (repo / "a.txt").read_text() == "made\n"
    assert run(repo, "land").out.startswith("nothing to land on main\nalready there: a, b")

    git(repo, "commit", "-q", "--allow-empty", "-m", "later")
    later = tip_of(repo)
    shown = run(repo, "undo", "--dry-run")
    assert "would be reverted" in shown.out
    assert "newer commits on main" in shown.out
    assert tip_of(repo) == later
    refused = run(repo, "undo")
    assert refused.code == 1
    undone = run(repo, "undo", "--yes", "--json")
    assert undone.data["how"] == "revert"
    assert git(repo, "rev-parse", "main~1").strip() == later
    assert not (repo / "a.txt").exists()
    assert git(repo, "status", "--porcelain") == ""
    assert run(repo, "undo", "--yes").code == 1


def test_undo_reverts_what_was_pushed_or_has_something_on_it(repo: Path, tmp_path: Path) -> None:
    """Also where only a part was pushed; the plan says why, and the remote takes the result without force."""
    remote, aside = tmp_path / "remote.git", tmp_path / "aside"
    done_stories(repo, "a", "b", verify="true")
    git(tmp_path, "init", "-q", "--bare", str(remote))
    git(repo, "remote", "add", "origin", str(remote))
    git(repo, "push", "-q", "origin", "main")
    before = tip_of(repo)
    assert run(repo, "land").code == 0
    assert "main would move back" in run(repo, "undo", "--dry-run").out, "what was there before is pushed"
    git(repo, "tag", "v1")
    assert "because it is in refs/tags/v1" in run(repo, "undo", "--dry-run").out
    git(repo, "tag", "-d", "v1")
    git(repo, "worktree", "add", "-q", "--detach", str(aside), "main")
    assert f"because it is in the checkout {aside}" in run(repo, "undo", "--dry-run").out
    git(repo, "worktree", "remove", str(aside))
    git(repo, "push", "-q", "origin", "main~1:main")
    assert tip_of(repo) != tip_of(repo, "origin/main") != before
    shown = run(repo, "undo")
    assert (shown.code, tip_of(repo, "main~1")) == (1, tip_of(repo, "origin/main"))
    assert "would be reverted by commit" in shown.err
    assert "because it was pushed (origin/main)" in shown.err
    undone = run(repo, "undo", "--yes", "--json")
    assert (undone.data["how"], undone.data["because"]) == ("revert", ["refs/remotes/origin/main"])
    assert tree_of(repo, "main") == tree_of(repo, before)
    git(repo, "push", "-q", "origin", "main")


def test_files_of_the_user_stop_a_landing_before_anything_moves(repo: Path) -> None:
    """The file is named; another dirty file is no obstacle and stays byte-identical."""
    (repo / "mine.txt").write_text("committed\n")
    done_stories(repo, "a", verify="true")
    (repo / "mine.txt").write_bytes(b"dirty\r\n\xff")
    (repo / "a.txt").write_text("untracked\n")
    before = tip_of(repo)
    refused = run(repo, "land", "--json")
    assert refused.code == 1
    assert refused.document["error"]["code"] == "target"
    assert "a.txt" in refused.document["error"]["message"]
    assert "mine.txt" not in refused.document["error"]["message"]
    assert (tip_of(repo), (repo / "a.txt").read_text()) == (before, "untracked\n")
    (repo / "a.txt").unlink()
    (repo / ".git" / "MERGE_HEAD").write_text(before)
    assert "in the middle of a merge" in run(repo, "land").err
    (repo / ".git" / "MERGE_HEAD").unlink()
    assert run(repo, "land").code == 0
    assert (repo / "mine.txt").read_bytes() == b"dirty\r\n\xff"
    assert git(repo, "status", "--porcelain").split() == ["M", "mine.txt"]


def test_a_red_target_and_land_verify(repo: Path, tmp_path: Path) -> None:
    """A target that is red by itself is not blamed on stories; names, --onto and squash are obeyed.

    A target that is checked out elsewhere: that checkout follows, and a file of the user's there is named.
    """
    done_stories(repo, "a", "b", verify="true")
    settings = repo / "autopilot-multi.toml"
    settings.write_text('land-verify = ["echo broken; false"]\n')
    red = run(repo, "land", "--json")
    assert red.code == 3
    assert red.data["red_target"] == "echo broken; false"
    assert red.data["landed"] == []
    settings.write_text('land-verify = ["test -e b.txt && test ! -e a.txt"]\n')
    elsewhere = tmp_path / "elsewhere"
    git(repo, "worktree", "add", "-q", "-b", "release", str(elsewhere))
    (elsewhere / "b.txt").write_text("mine\n")
    refused = run(repo, "land", "b", "--onto", "release")
    assert (refused.code, tip_of(repo, "release")) == (1, tip_of(repo))
    assert f"{elsewhere} has changes of yours in files that release would get: b.txt" in refused.err
    (elsewhere / "b.txt").unlink()
    landed = run(repo, "land", "b", "--onto", "release", "--style", "squash", "--json")
    assert landed.code == 0, landed.err
    assert landed.data["landed"] == ["b"]
    assert git(repo, "rev-list", "--count", "main..release").strip() == "1"
    assert landed.data["after"] == tip_of(repo, "release")
    assert (elsewhere / "b.txt").read_text() == "made\n"
    assert git(elsewhere, "status", "--porcelain") == ""
    assert not (repo / "b.txt").exists()
    assert run(repo, "status", "--json").story("b")["merged"] == "release"
    assert "nothing to land on release" in run(repo, "land", "b", "--onto", "release").out
    assert run(repo, "land", "nonsense").code == 1
    assert run(repo, "land", "--onto", "nowhere").code == 1


def test_what_the_child_of_a_squashed_parent_deleted_stays_deleted(repo: Path) -> None:
    """The parent lands as one commit; its child, which deleted a file of it, does not bring it back later."""
    (repo / "autopilot-multi.toml").write_text('verify = ["true"]\n')
    write_story(repo, "parent", command="echo draft > draft.txt; echo kept > kept.txt")
    write_story(repo, "child", command="rm draft.txt; echo final > final.txt", depends_on=["parent"])
    write_story(repo, "late", command="echo late > late.txt", depends_on=["child"])
    commit_stories(repo)
    assert run(repo, "--json").code == 0
    first = run(repo, "land", "parent", "--style", "squash", "--json")
    assert first.data["landed"] == ["parent"], first.err
    assert (repo / "draft.txt").exists()
    second = run(repo, "land", "--json")
    assert second.data["landed"] == ["child", "late"], second.err
    assert not (repo / "draft.txt").exists()
    assert {path.name for path in repo.glob("*.txt")} == {"kept.txt", "final.txt", "late.txt"}
    assert git(repo, "status", "--porcelain") == ""


def test_a_dependent_of_what_did_not_land_stays(repo: Path) -> None:
    """It says because of which story; a command that differs by story runs as that story's."""
    done_stories(repo, "a", verify="true")
    settings = repo / "autopilot-multi.toml"
    write_story(repo, "b", command=writes("b.txt"), verify=['test "$AUTOPILOT_STORY_ID" = b'])
    write_story(repo, "c", command=writes("c.txt"), depends_on=["b"])
    settings.write_text(settings.read_text() + 'land-verify = ["test ! -e b.txt"]\n')
    commit_stories(repo)
    assert run(repo, "b", "c", "--json").code == 0
    data = run(repo, "land", "--json").data
    assert data["landed"] == ["a"], "of an earlier run"
    left = {each["id"]: each for each in data["not_landed"]}
    assert left["b"]["reason"] == "`test ! -e b.txt` fails (exit code 1) with it on main"
    assert left["c"]["reason"] == "depends on b, which did not land"
    status = run(repo, "status", "--json")
    assert status.story("b")["not_landed"] == left["b"]["reason"]
    settings.write_text('land-verify = ["true"]\n')
    git(repo, "commit", "-q", "-a", "-m", "less strict")
    assert run(repo, "land", "c", "--json").data["landed"] == ["b", "c"]
    assert "landed" in run(repo, "status").out
