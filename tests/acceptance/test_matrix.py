"""`matrix`: the backlog as jobs of GitHub, GitLab or anything else; it reads and writes nothing."""

import json
from pathlib import Path

import pytest
import yaml

from tests.acceptance.ci import make_ci
from tests.acceptance.program import commit_stories, run, write_story, writes
from tests.conftest import git


@pytest.fixture
def backlog(repo: Path) -> Path:
    """Return a repository with a chain of two, and one story alone."""
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "b", command=writes("b.txt"), depends_on=["a"])
    write_story(repo, "c", agent="nowhere-installed")
    commit_stories(repo)
    (repo / "autopilot-multi.toml").write_text(
        'max-stories = 2\ncontinue = "never"\n[agents.nowhere-installed]\nargv = ["no-such-program"]\n'
    )
    return repo


def github(text: str) -> dict[str, str]:
    """Read the outputs as the runner of a job does."""
    return dict(line.split("=", 1) for line in text.splitlines())


def test_github_gets_a_strategy_for_each_stage(backlog: Path) -> None:
    """Settings become fail-fast and max-parallel; no agent need be installed where the jobs are planned."""
    ran = run(backlog, "matrix", "--format", "github")
    assert ran.code == 0, ran.err
    outputs = github(ran.out)
    first, second = json.loads(outputs["stages"])
    assert outputs["count"] == "2"
    assert outputs["base"] == git(backlog, "rev-parse", "HEAD").strip()
    assert (first["fail-fast"], first["max-parallel"]) == (True, 2)
    assert [job["name"] for job in first["matrix"]["include"]] == ["a", "c"]
    assert second["matrix"]["include"][0]["only"] == "--only=b"
    assert second["matrix"]["include"][0]["needs"] == ["a"]
    assert run(backlog, "matrix", "--format", "github").out == ran.out


def test_nothing_is_written(backlog: Path) -> None:
    """Acceptance 5: the repository is byte-identical afterwards."""

    def look() -> dict[str, bytes]:
        files = (path for path in backlog.rglob("*") if path.is_file())
        return {str(path): path.read_bytes() for path in files}

    before = look()
    for form in ("github", "gitlab", "json"):
        assert run(backlog, "matrix", "--format", form).code == 0
    assert look() == before


def test_gitlab_gets_a_pipeline_with_as_many_slots_as_stories_may_run(backlog: Path) -> None:
    """Jobs extend the included template, stage by stage, and share the resource groups in turn."""
    pipeline = yaml.safe_load(run(backlog, "matrix", "--format", "gitlab", "--include", "/ci/a.yml").out)
    assert pipeline["include"] == [{"local": "/ci/a.yml"}]
    assert pipeline["stages"] == ["stage-1", "stage-2", "join"]
    assert pipeline["story b"] == {
        "extends": ".autopilot-story",
        "stage": "stage-2",
        "needs": ["story a"],
        "resource_group": "autopilot-1",
        "variables": {"AUTOPILOT_JOB": "b", "AUTOPILOT_ONLY": "--only=b"},
    }
    assert pipeline["story a"]["needs"] == [], "it starts at once, and downloads nothing"
    assert {pipeline[f"story {name}"]["resource_group"] for name in "abc"} == {"autopilot-1", "autopilot-2"}
    assert pipeline["join"]["extends"] == ".autopilot-join"


def test_only_what_is_not_done_is_there(repo: Path) -> None:
    """What an earlier run has finished has no job; with nothing left there is no stage."""
    write_story(repo, "a", command=writes("a.txt"))
    write_story(repo, "b", command="test -e ../../now && touch b.txt", depends_on=["a"])
    commit_stories(repo)
    assert run(repo, "--json").code == 4
    assert run(repo, "matrix", "--json").data["stories"] == ["b"]
    assert run(repo, "matrix", "--retry-failed", "--json").data["stories"] == ["b"]
    assert run(repo, "matrix", "--only", "a", "--json").data["stages"] == []
    empty = run(repo, "matrix", "--only", "a", "--format", "gitlab")
    assert "nothing to do" in yaml.safe_load(empty.out)
    assert run(repo, "matrix", "--again", "--json").data["stories"] == ["a", "b"]


def test_shards_of_an_earlier_pipeline_are_done(tmp_path: Path, repo: Path) -> None:
    """`--shard-in` leaves out what they have done, and keeps what failed."""
    ci = make_ci(tmp_path, repo, {"bad": {"command": "false"}, "good": {"command": writes("g.txt")}})
    ci.run_all()
    asked = ci.run("again", "matrix", "--shard-in", str(ci.shards), "--json")
    assert asked.data["stories"] == ["bad"]
    failed = ci.run("failed", "matrix", "--shard-in", str(ci.shards), "--retry-failed", "--json")
    assert failed.data["stories"] == ["bad"]


def test_more_jobs_than_github_makes_are_refused_or_put_together(repo: Path) -> None:
    """257 stories are no matrix; in shards they are, and each story is in one."""
    entries = [{"id": f"s{number:03}", "prompt": "x", "command": "true"} for number in range(257)]
    (repo / "many.json").write_text(json.dumps({"stories": entries}))
    refused = run(repo, "matrix", "many.json", "--format", "github")
    assert refused.code == 1
    assert refused.out == ""
    assert "257 jobs, but GitHub accepts at most 256" in refused.err
    assert "--shards 256" in refused.err
    ran = run(repo, "matrix", "many.json", "--format", "github", "--shards", "256")
    (stage,) = json.loads(github(ran.out)["stages"])
    jobs = stage["matrix"]["include"]
    assert len(jobs) == 256
    assert sorted(name for job in jobs for name in job["stories"]) == [entry["id"] for entry in entries]


def test_a_job_that_needs_more_than_gitlab_allows_waits_for_the_stage(repo: Path) -> None:
    """It downloads only what it needs all the same; with 50 it still starts as soon as they are there."""
    roots = [f"s{number:02}" for number in range(51)]
    entries = [{"id": name, "prompt": "x", "command": "true"} for name in roots]
    entries.append({"id": "most", "prompt": "x", "command": "true", "depends_on": roots[1:]})  # type: ignore[dict-item]
    entries.append({"id": "all", "prompt": "x", "command": "true", "depends_on": roots})  # type: ignore[dict-item]
    (repo / "many.json").write_text(json.dumps({"stories": entries}))
    pipeline = yaml.safe_load(run(repo, "matrix", "many.json", "--format", "gitlab").out)
    assert len(pipeline["story most"]["needs"]) == 50
    assert "needs" not in pipeline["story all"]
    assert len(pipeline["story all"]["dependencies"]) == 51


def test_shards_follow_the_durations_of_the_records(repo: Path) -> None:
    """The story that took long before has a job of its own."""
    for name in "abcd":
        write_story(repo, name, command="true")
    metrics = repo / ".orchestrator" / "metrics"
    metrics.mkdir(parents=True)
    lines = [
        {"kind": "story", "story_id": name, "duration_seconds": seconds}
        for name, seconds in {"a": 10, "b": 300, "c": 12, "d": 11}.items()
    ]
    text = "\n".join(["not a record", *(json.dumps(line) for line in lines)])
    (metrics / "autopilot.jsonl").write_text(text)
    (stage,) = run(repo, "matrix", "--shards", "2", "--json").data["stages"]
    assert [job["stories"] for job in stage] == [["b"], ["a", "c", "d"]]
    assert [job["seconds"] for job in stage] == [300, 33]


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--format", "jenkins"), "invalid choice"),
        (("--shards", "0"), "--shards must be a whole number above 0, not '0'"),
        (("--stages", "x"), "--stages must be a whole number above 0, not 'x'"),
        (("--chain", "--stages", "2"), "--chain and --stages cannot be combined"),
        (("--shard-in", "nowhere"), "no folder nowhere to read shards from"),
    ],
)
def test_what_cannot_be_is_said(backlog: Path, flags: tuple[str, ...], said: str) -> None:
    """Acceptance 3: exit 1 and one JSON error with a hint."""
    ran = run(backlog, "matrix", *flags, "--json")
    assert ran.code == 1
    assert said in ran.document["error"]["message"]
    assert ran.document["error"]["hint"]
