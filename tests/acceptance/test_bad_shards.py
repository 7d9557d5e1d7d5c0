"""Shards that are damaged, doubled, foreign or hostile: each is named, and the others are joined.

One pipeline is run once; each test spoils copies of its shards.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.ci import Ci, Stories, event, forge, make_ci, nothing
from tests.acceptance.program import run
from tests.conftest import git

STORIES: Stories = {name: {"command": f"echo {name} > {name}.txt"} for name in ("good", "bad")}


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Ci:
    """Return a pipeline whose two jobs have run."""
    root = tmp_path_factory.mktemp("pipeline")
    repo = root / "repo"
    repo.mkdir()
    git(repo, "init", "-q", "-b", "main")
    for name, value in {"user.name": "Test", "user.email": "test@example.org"}.items():
        git(repo, "config", name, value)
    ci = make_ci(root, repo, STORIES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOPILOT_MULTI_TRUST", "always")  # as for every test, which begins after this
        assert ci.run_all() == dict.fromkeys(STORIES, 0)
    return ci


@pytest.fixture
def shards(pipeline: Ci, tmp_path: Path) -> Path:
    """Return copies of both shards."""
    place = tmp_path / "shards"
    shutil.copytree(pipeline.shards, place)
    return place


def torn_bundle(shard: Path) -> None:
    """Cut the bundle, as a full disk does."""
    data = (shard / "commits.bundle").read_bytes()
    (shard / "commits.bundle").write_bytes(data[:-9])


def sparse_bundle(shard: Path) -> None:
    """Claim a file of many terabytes, which takes no space on the disk."""
    os.truncate(shard / "commits.bundle", 1 << 42)
    forge(shard, lambda manifest: manifest["files"]["commits.bundle"].update(size=1 << 42))


def pipe_in_place_of_events(shard: Path) -> None:
    """Put a pipe where the events were: reading it would never end."""
    (shard / "events.ndjson").unlink()
    os.mkfifo(shard / "events.ndjson")


def folder_in_place_of_backlog(shard: Path) -> None:
    """Put a folder where the backlog was."""
    (shard / "backlog.json").unlink()
    (shard / "backlog.json").mkdir()


def linked_logs(shard: Path) -> None:
    """Let the folder of the logs be a link that leads out of the shard."""
    shutil.move(shard / "logs", shard.parent.parent / "elsewhere")
    (shard / "logs").symlink_to(shard.parent.parent / "elsewhere")


SPOILED: dict[str, tuple[Callable[[Path], object], str]] = {
    "torn bundle": (torn_bundle, "commits.bundle differs from the file that was written"),
    "no bundle": (
        lambda shard: (shard / "commits.bundle").unlink(),
        "commits.bundle cannot be read: No such file",
    ),
    "no bundle in the manifest": (
        lambda shard: forge(shard, lambda manifest: manifest["files"].pop("commits.bundle")),
        "commits.bundle is missing, so there are no commits for autopilot/bad",
    ),
    "no bundle but a digest": (
        lambda shard: forge(shard, nothing, bundle=b"not a bundle"),
        "commits.bundle is not a git bundle",
    ),
    "huge file": (sparse_bundle, "commits.bundle is larger than"),
    "grown file": (
        lambda shard: os.truncate(shard / "backlog.json", 1 << 42),
        "backlog.json differs from the file that was written",
    ),
    "no manifest": (lambda shard: (shard / "shard.json").unlink(), "shard.json cannot be read"),
    "torn manifest": (
        lambda shard: (shard / "shard.json").write_bytes((shard / "shard.json").read_bytes()[:200]),
        "is damaged: shard.json",
    ),
    "empty manifest": (lambda shard: (shard / "shard.json").write_bytes(b""), "is damaged: shard.json"),
    "no events": (lambda shard: (shard / "events.ndjson").unlink(), "events.ndjson cannot be read"),
    "a pipe": (pipe_in_place_of_events, "events.ndjson cannot be read: it is not a plain file"),
    "a folder": (folder_in_place_of_backlog, "backlog.json cannot be read: it is not a plain file"),
    "linked logs": (linked_logs, "is outside the shard"),
    "path traversal": (
        lambda shard: forge(
            shard, lambda manifest: manifest["files"].update({"../x": {"size": 0, "sha256": ""}})
        ),
        "a file cannot be called '../x'",
    ),
    "hostile run": (
        lambda shard: forge(shard, lambda manifest: manifest.update(run_id="../../../hooks")),
        "'../../../hooks' is not the name of a run",
    ),
    "hostile branch": (
        lambda shard: forge(shard, lambda manifest: manifest["branches"].update({"main": "0" * 40})),
        "the branch 'main' does not belong to its stories",
    ),
    "ref outside the namespace": (
        lambda shard: forge(
            shard,
            nothing,
            bundle=(shard / "commits.bundle")
            .read_bytes()
            .replace(b"refs/heads/autopilot/bad", b"refs/tags/v1"),
        ),
        "commits.bundle holds 'refs/tags/v1', which is not a branch",
    ),
    "branch of another": (
        lambda shard: forge(
            shard,
            nothing,
            bundle=(shard / "commits.bundle").read_bytes().replace(b"heads/autopilot/bad", b"heads/main"),
        ),
        "commits.bundle and shard.json disagree about the branch",
    ),
    "hostile story": (
        lambda shard: forge(shard, lambda manifest: manifest.update(stories=["../../x"])),
        "a story cannot be called '../../x'",
    ),
    "endless nesting": (
        lambda shard: forge(shard, nothing, backlog=b"[" * 200_000),
        "is damaged: RecursionError",
    ),
    "impossible time": (
        lambda shard: forge(shard, nothing, events=event(shard, at=float("nan"))),
        "events.ndjson has an impossible number",
    ),
    "events of another run": (
        lambda shard: forge(shard, nothing, events=event(shard, run_id="20200101-000000-00000000")),
        "events.ndjson has events of another run",
    ),
    "wrong content": (
        lambda shard: forge(shard, nothing, events=event(shard, data={"base": 7})),
        "is damaged: TypeError",
    ),
}


def test_every_bad_shard_is_named_and_hides_no_other(pipeline: Ci, shards: Path, tmp_path: Path) -> None:
    """A line each, the good story is joined with its branch, and nothing is written elsewhere."""
    original = tmp_path / "original"
    shutil.move(shards / "bad", original)
    for number, (spoil, _) in enumerate(SPOILED.values()):
        place = tmp_path / f"job-{number}" / "shards" / "bad"
        shutil.copytree(original, place)
        spoil(place)
    folders = [str(shards), *(str(tmp_path / f"job-{number}") for number in range(len(SPOILED)))]
    place = tmp_path / "join"
    git(tmp_path, "clone", "-q", "--depth", "1", pipeline.origin.as_uri(), str(place))
    before = git(place, "for-each-ref")
    joined = run(place, "aggregate", *folders, "--branches", "--json")
    assert joined.code == 2
    problems = joined.data["shards"]["problems"]
    for number, (how, (_, said)) in enumerate(SPOILED.items()):
        named = [line for line in problems if str(tmp_path / f"job-{number}") + "/" in line]
        assert len(named) == 1, how
        assert said in named[0], how
    assert {story["id"]: story["status"] for story in joined.data["stories"]} == {
        "good": "done",
        "bad": "stopped",
    }
    assert joined.data["shards"]["missing"] == ["bad"]
    assert git(place, "show", "autopilot/good:good.txt") == "good\n"
    added = set(git(place, "for-each-ref").splitlines()) - set(before.splitlines())
    assert [line.split("\t")[1] for line in added] == ["refs/heads/autopilot/good"]
    git(place, "fsck", "--strict")


def test_a_bundle_that_git_refuses_holds_back_only_its_own_branch(
    pipeline: Ci, shards: Path, tmp_path: Path
) -> None:
    """Its checksum fits, but what it holds is torn, or lacks the history behind it: the clone stays sound."""
    bundle = (shards / "bad" / "commits.bundle").read_bytes()
    forge(shards / "bad", nothing, bundle=bundle[:-40] + bytes(40))
    place = tmp_path / "join"
    git(tmp_path, "clone", "-q", "--depth", "1", pipeline.origin.as_uri(), str(place))
    joined = run(place, "aggregate", str(shards), "--branches", "--json")
    assert joined.code == 2
    (problem,) = joined.data["shards"]["problems"]
    assert f"git refuses {shards}/bad/commits.bundle" in problem
    assert git(place, "branch", "--list", "autopilot/*").split() == ["autopilot/good"]
    git(place, "fsck", "--strict")


def test_of_foreign_shards_those_of_the_matrix_count(pipeline: Ci, shards: Path, tmp_path: Path) -> None:
    """Without a matrix, the commit that most shards have; a doubled one that differs counts for nothing."""
    other = tmp_path / "other"
    shutil.copytree(shards / "bad", other)
    foreign = "0123456789abcdef0123456789abcdef01234567"
    forge(other, lambda manifest: manifest.update(base=foreign, run_id=manifest["run_id"][:-1] + "x"))
    run_id = json.loads((other / "shard.json").read_text())["run_id"]
    events = "".join(
        json.dumps({**json.loads(line), "run_id": run_id}) + "\n"
        for line in (other / "events.ndjson").read_text().splitlines()
    )
    forge(other, nothing, events=events.encode())
    joined = run(tmp_path, "aggregate", str(shards), str(other), "--json")
    assert joined.code == 2
    (problem,) = joined.data["shards"]["problems"]
    assert problem.startswith(f"{other} is not used: it starts from commit 0123456789ab")
    assert joined.data["counts"]["done"] == 2
    matrix = json.loads((pipeline.root / "matrix.json").read_text())["data"]
    (tmp_path / "matrix.json").write_text(json.dumps({**matrix, "base": foreign}))
    turned = run(tmp_path, "aggregate", str(shards), str(other), "--matrix", "matrix.json", "--json")
    assert turned.code == 2
    assert len([line for line in turned.data["shards"]["problems"] if "is not used" in line]) == 2
    assert turned.data["shards"]["missing"] == ["good"]
    copy = tmp_path / "copy"
    shutil.copytree(shards / "bad", copy)
    forge(copy, lambda manifest: manifest["files"].pop("records/autopilot.jsonl"))
    doubled = run(tmp_path, "aggregate", str(shards), str(copy), "--json")
    assert doubled.code == 2
    assert "differ, so neither is used" in doubled.data["shards"]["problems"][0]
    assert doubled.data["shards"]["missing"] == ["bad"]
    assert doubled.data["counts"]["done"] == 1


@pytest.mark.parametrize("folder", ["empty", "absent"])
def test_without_any_shard_there_is_a_report_that_says_so(pipeline: Ci, tmp_path: Path, folder: str) -> None:
    """Each story of the matrix is named, and it is no success."""
    (tmp_path / "empty").mkdir()
    matrix = str(pipeline.root / "matrix.json")
    joined = run(tmp_path, "aggregate", folder, "--matrix", matrix, "--json")
    assert joined.code == 2
    assert "no shards found" in joined.data["shards"]["problems"][0]
    assert {story["id"]: story["reason"] for story in joined.data["stories"]} == dict.fromkeys(
        ("bad", "good"), "its job left no shard"
    )
    page = run(tmp_path, "report", folder, "--matrix", matrix, "--format", "markdown")
    assert page.code == 0, page.err
    assert "no shards found" in page.out
    assert "its job left no shard" in page.out
    junit = run(tmp_path, "report", folder, "--matrix", matrix, "--format", "junit")
    assert 'errors="2"' in junit.out
    assert "<html" in run(tmp_path, "report", folder, "--matrix", matrix).out


def test_a_job_is_told_of_a_bad_shard_and_runs_without_it(pipeline: Ci, shards: Path, tmp_path: Path) -> None:
    """What it does not need cannot stop it; what it needs counts as not there."""
    torn_bundle(shards / "bad")
    place = tmp_path / "job"
    git(tmp_path, "clone", "-q", "--depth", "1", pipeline.origin.as_uri(), str(place))
    ran = run(
        place, "run", "--only=bad", "--shard-in", str(shards), "--shard-out", str(shards / "bad-2"), "-q"
    )
    assert ran.code == 0, ran.err
    assert f"warning: the shard {shards / 'bad'} is damaged: commits.bundle" in ran.err
    joined = run(place, "aggregate", str(shards), "--json")
    assert joined.data["counts"]["done"] == 2
    assert (joined.code, joined.data["shards"]["problems"]) == (0, []), "nothing is lost"
    (remark,) = joined.data["shards"]["remarks"]
    assert f"the shard {shards / 'bad'} is damaged: commits.bundle" in remark
    assert remark.endswith("A newer run of its job is used.")
    shutil.rmtree(shards / "bad")
    shutil.copytree(pipeline.shards / "bad", shards / "bad")
    torn_bundle(shards / "bad-2")
    older = run(place, "aggregate", str(shards), "--json")
    assert older.code == 2, "what the newer run did is lost"
    shutil.rmtree(shards / "bad-2")
    torn_bundle(shards / "bad")
    shutil.copytree(shards / "bad", shards / "twin")
    forge(shards / "twin", lambda manifest: manifest.update(run_id="20200101-000000-00000000", stories=[]))
    assert run(place, "aggregate", str(shards), "--json").code == 2
