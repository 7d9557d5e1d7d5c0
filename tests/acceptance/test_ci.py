"""CI end to end: a matrix, one process a job in its own shallow clone, and one run again at the end."""

import json
import os
import shutil
import signal
from base64 import b64encode
from pathlib import Path

import pytest

from tests.acceptance.ci import Ci, Stories, make_ci, state_of
from tests.acceptance.program import commit_stories, processes_with, run, run_in, wait_until, write_story
from tests.conftest import git
from tests.schemas import complaints

DOCS = Path(__file__).resolve().parents[2] / "docs"
DONE = dict.fromkeys(("base", "left", "right", "top", "alone"), "done")


@pytest.fixture
def ci(tmp_path: Path, repo: Path) -> Ci:
    """Return a pipeline over the diamond."""
    return make_ci(tmp_path, repo)


def verdicts(data: dict[str, list[dict[str, str]]]) -> dict[str, str]:
    """Return each story's status."""
    return {story["id"]: story["status"] for story in data["stories"]}


def text_at(repo: Path, branch: str, path: str) -> str:
    """Return a file as a branch has it."""
    return git(repo, "show", f"{branch}:{path}")


def test_a_pipeline_is_one_run_again(ci: Ci) -> None:
    """Matrix, jobs, aggregate: every dependant saw its parents' commits, and all branches arrive.

    Each job's clone is one commit deep and on no branch, git knows no identity there, the home cannot be
    written to, and nothing is a terminal.
    """
    assert ci.run_all() == dict.fromkeys(DONE, 0)
    place = ci.clone("join")
    diff = "+++ b/top.txt"
    assert diff not in run(place, "report", str(ci.shards)).out, "it has no commits yet"
    joined = run(
        place, "aggregate", str(ci.shards), "--matrix", str(ci.root / "matrix.json"), "--branches", "--json"
    )
    assert joined.code == 0, joined.err
    assert verdicts(joined.data) == DONE
    assert joined.data["shards"] == {"count": 5, "missing": [], "problems": [], "remarks": []}
    assert joined.data["state"] == "ended"
    schema = json.loads((DOCS / "reference" / "status.schema.json").read_text())
    assert complaints(schema, joined.document) == []
    assert text_at(place, "autopilot/top", "top.txt") == "base\nleft\nbase\nright\n"
    assert diff in run(place, "report", str(ci.shards)).out
    for parent in ("base", "left", "right"):
        git(place, "merge-base", "--is-ancestor", f"autopilot/{parent}", "autopilot/top")
    assert git(place, "log", "-1", "--format=%an", "autopilot/alone").strip() == "autopilot-multi"
    assert not (place / ".git" / "autopilot" / "journal.db").exists()
    sessions = {story["id"]: story["sessions"] for story in state_of(ci.shards / "top")["stories"]}
    assert sessions == {"base": 0, "left": 0, "right": 0, "top": 1}


def test_a_joined_run_in_the_repository_is_a_run_like_any_other(ci: Ci) -> None:
    """With --into-repo its status, logs and records are there, once, and a later run finds all done."""
    ci.run_all()
    place = ci.clone("join")
    arguments = ("aggregate", str(ci.shards), "--branches", "--into-repo")
    first = run(place, *arguments, "--json")
    assert run(place, *arguments).code == 0
    shown = run(place, "status", "--json")
    assert verdicts(shown.data) == DONE
    assert shown.data["run_id"] == first.data["run_id"]
    more: dict[str, object] = {
        "blockers": [],
        "retries": [],
        "last_landing": None,
        "spare_worktrees": 0,
    }
    assert {**shown.data, "shards": first.data["shards"]} == {**first.data, **more}
    assert "Implement, attempt 1" in run(place, "logs", "base").out
    records = (place / ".orchestrator" / "metrics" / "autopilot.jsonl").read_text().splitlines()
    loaded = [json.loads(line) for line in records]
    assert [record["kind"] for record in loaded].count("run") == 1
    assert {record["story_id"] for record in loaded if record["kind"] == "story"} == set(DONE)
    assert {record["worktree_path"] for record in loaded if record["kind"] == "story"} == {None}
    assert git(place, "status", "--short") == ""
    again = run(place, "--json")
    assert again.code == 0
    assert {story["sessions"] for story in again.data["stories"]} == {0}


def test_a_failed_story_holds_back_the_jobs_behind_it(tmp_path: Path, repo: Path) -> None:
    """Acceptance 22: in jobs of their own the dependants are skipped because of it, and the whole exits 4."""
    stories: Stories = {
        "bad": {"command": "false"},
        "after": {"command": "touch after.txt", "depends_on": ["bad"]},
        "good": {"command": "touch good.txt"},
    }
    ci = make_ci(tmp_path, repo, stories)
    assert ci.run_all() == {"bad": 3, "good": 0, "after": 3}
    joined = run(ci.clone("join"), "aggregate", str(ci.shards), "--json")
    assert verdicts(joined.data) == {"bad": "failed", "after": "skipped", "good": "done"}
    assert "bad" in joined.story("after")["reason"]
    assert joined.code == 4
    told = next(story for story in state_of(ci.shards / "after")["stories"] if story["id"] == "bad")
    assert (told["status"], told["sessions"]) == ("failed", 0)
    assert told["reason"] == state_of(ci.shards / "bad")["stories"][0]["reason"]
    alone = run(repo, "--json")
    assert (alone.code, verdicts(alone.data)) == (joined.code, verdicts(joined.data))


def test_a_job_that_was_killed_leaves_no_shard_and_is_missed(tmp_path: Path, repo: Path) -> None:
    """Its dependants say whom they lack, the sum names it and is no success; running it again mends all."""
    marker = f"sleep-{os.getpid()}-{tmp_path.name}"
    stories: Stories = {
        "slow": {"command": f": {marker}; test -e {tmp_path}/go || sleep 600; touch slow.txt"},
        "after": {"command": "touch after.txt", "depends_on": ["slow"]},
    }
    ci = make_ci(tmp_path, repo, stories)
    with ci.begin("slow", *ci.story_job("slow")) as running:
        wait_until(lambda: processes_with(marker), what="the session runs")
        os.killpg(running.pid, signal.SIGKILL)
        assert running.finish().code == -signal.SIGKILL
    wait_until(lambda: not processes_with(marker), what="the session is gone")
    assert list(ci.shards.iterdir()) == []
    after = ci.run("after", *ci.story_job("after"), "--json")
    assert after.code == 2
    assert verdicts(after.data) == {"slow": "stopped", "after": "skipped"}
    place = ci.clone("join")
    joined = run(place, "aggregate", str(ci.shards), "--json")
    assert joined.code == 2
    assert joined.data["shards"]["missing"] == ["slow"]
    assert "story slow has no shard" in joined.data["shards"]["problems"][0]
    assert joined.story("slow")["reason"] == "its job left no shard"
    (tmp_path / "go").touch()
    for job in ("slow", "after"):
        assert ci.run(f"{job}-again", *ci.story_job(job, job=f"{job}-2")).code == 0
    mended = run(place, "aggregate", str(ci.shards), "--json")
    assert mended.code == 0, mended.data["shards"]
    assert verdicts(mended.data) == {"slow": "done", "after": "done"}
    assert "story after ran more than once" in mended.data["shards"]["remarks"][0]


def test_a_job_that_ran_twice_counts_once_and_what_was_built_on_the_first_is_told(ci: Ci) -> None:
    """The newer shard counts; a dependant of the older one is a contradiction, never a success."""
    ci.run_all()
    shutil.move(ci.shards / "alone", ci.root / "aside")
    place = ci.clone("join")
    ran = ci.run("alone-again", *ci.story_job("alone", job="alone-2"))
    assert ran.code == 0
    shutil.move(ci.root / "aside", ci.shards / "alone")
    twice = run(place, "aggregate", str(ci.shards), "--json")
    assert twice.code == 0
    assert [line[:30] for line in twice.data["shards"]["remarks"]] == ["story alone ran more than once"]
    shutil.copytree(ci.shards / "left", ci.shards / "copy-of-left")
    assert "two copies of the shard" in run(place, "aggregate", str(ci.shards)).err
    assert ci.run("base-again", *ci.story_job("base", "--again", job="base-2")).code == 0
    torn = run(place, "aggregate", str(ci.shards), "--json")
    assert torn.code == 2
    assert {line.split(" ran with")[0] for line in torn.data["shards"]["problems"]} == {
        "story left",
        "story right",
    }


def test_one_missing_artifact_is_missed_and_a_smaller_matrix_does_not_miss_it(ci: Ci) -> None:
    """Without --matrix or --only the whole backlog must be there."""
    for name in ("base", "alone"):
        ci.run(name, *ci.story_job(name))
    place = ci.clone("join")
    whole = run(place, "aggregate", str(ci.shards), "--json")
    assert whole.code == 2
    assert whole.data["shards"]["missing"] == ["left", "right", "top"]
    part = run(place, "aggregate", str(ci.shards), "--only", "base", "--only", "alone", "--json")
    assert part.code == 0
    assert verdicts(part.data) == {"base": "done", "alone": "done"}
    refused = run(place, "aggregate", str(ci.shards), "--only", "bose")
    assert refused.code == 1
    assert "did you mean 'base'?" in refused.err


def test_a_chain_is_one_job_and_needs_no_other(ci: Ci) -> None:
    """`matrix --chain` gives jobs that carry their dependencies themselves."""
    asked = ci.run("plan", "matrix", "--chain", "--json")
    (stage,) = asked.data["stages"]
    only = {job["name"]: job["only"] for job in stage}
    assert set(only) == {"alone", "base+3"}
    ran = ci.run("chain", "run", *only["base+3"].split(), "--shard-out", str(ci.shards / "chain"), "-q")
    assert ran.code == 0
    joined = run(ci.clone("join"), "aggregate", str(ci.shards), "--only", "base", "--json")
    assert verdicts(joined.data) == {name: "done" for name in DONE if name != "alone"}


def test_secrets_of_the_job_leave_it_in_no_file(tmp_path: Path, repo: Path) -> None:
    """A token that a session prints, or fails with, is hidden in every file of the shard, and not printed."""
    stories: Stories = {"leak": {"command": 'echo "the key is $DEPLOY_TOKEN"; exit 3'}}
    ci = make_ci(tmp_path, repo, stories)
    token = "s3cr3t-value-of-the-job"  # noqa: S105  made up
    ran = ci.run(
        "leak", *ci.story_job("leak"), "--max-sessions=1", "--seal=writes", env={"DEPLOY_TOKEN": token}
    )
    assert token not in ran.out + ran.err
    shard = ci.shards / "leak"
    files = [path for path in shard.rglob("*") if path.is_file()]
    assert [path.name for path in files if token.encode() in path.read_bytes()] == []
    (log,) = shard.glob("logs/runs/*/leak/01-*.log")
    assert log.read_text() == "the key is [redacted]\n"


def test_the_token_of_the_checkout_leaves_the_job_in_no_file(tmp_path: Path, repo: Path) -> None:
    """A story prints git's header, encoded and decoded, and a variable that only the settings call secret."""
    token, login = "t0k3n-of-the-checkout", "plain-looking-login"
    header = b64encode(f"x-access-token:{token}".encode()).decode()
    other = b64encode(f"oauth2:{login}".encode()).decode()
    encoded = "git config http.https://example.org/.extraheader | cut -d' ' -f3"
    script = f"git config --list; {encoded}; {encoded} | base64 -d"
    leaks = f"{script}; echo; echo $DEPLOY_LOGIN; printf oauth2:$DEPLOY_LOGIN | base64 -w0; exit 3"
    (repo / "autopilot-multi.toml").write_text('secret-variables = ["DEPLOY_LOGIN"]\n')
    ci = make_ci(tmp_path, repo, {"leak": {"command": leaks}})
    place = ci.clone("leak")
    git(place, "config", "http.https://example.org/.extraheader", f"AUTHORIZATION: basic {header}")
    job = [*ci.story_job("leak"), "--max-sessions=1", "--seal=writes"]
    ran = run_in(place, *job, environ=ci.environment(DEPLOY_LOGIN=login))
    junit = run(tmp_path, "report", str(ci.shards), "--format", "junit")
    shard = ci.shards / "leak"
    (log,) = shard.glob("logs/runs/*/leak/01-*.log")
    assert log.read_text().count("[redacted]") == 5
    files = [path for path in shard.rglob("*") if path.is_file()]
    texts = {path.name: path.read_bytes() for path in files} | {
        "out": (ran.out + ran.err + junit.out).encode()
    }
    for secret in (token, header, login, other):
        assert [name for name, text in texts.items() if secret.encode() in text] == []
    assert "[redacted]" in junit.out


def test_branches_are_pushed_only_when_asked_for_and_never_by_force(ci: Ci) -> None:
    """Without --push the remote stays as it was; a branch that went another way there is told of."""
    plain = ci.run("alone", *ci.story_job("alone"))
    assert plain.code == 0
    assert "autopilot/" not in git(ci.origin, "branch", "--list", "autopilot/*")
    pushed = ci.run("alone-2", *ci.story_job("alone", "--push", job="alone-2"))
    assert pushed.code == 0, pushed.err
    tip = git(ci.origin, "rev-parse", "autopilot/alone")
    write_story(ci.origin, "alone", command="echo other > alone.txt")
    git(ci.origin, "commit", "-q", "-a", "-m", "other work")
    refused = ci.run("alone-3", *ci.story_job("alone", "--push", job="alone-3"))
    assert refused.code == 2
    assert "cannot push autopilot/alone to origin (" in refused.err
    assert "[rejected]" in refused.err
    assert git(ci.origin, "rev-parse", "autopilot/alone") == tip
    assert (ci.shards / "alone-3" / "shard.json").exists()


@pytest.mark.parametrize("address", ["https://me:secret-word@localhost:1/x.git", ""])
def test_a_remote_that_takes_no_push_costs_no_session(repo: Path, address: str) -> None:
    """It is asked first; the error names it without credentials, and nothing was started or written."""
    write_story(repo, "a", command="touch ../started")
    commit_stories(repo)
    if address:
        git(repo, "remote", "add", "origin", address)
    refused = run(repo, "--push", "--json")
    assert refused.code == 1
    error = refused.document["error"]
    assert error["message"].startswith("cannot push to origin")
    assert "git remote -v" in error["hint"]
    assert "secret-word" not in refused.out + refused.err
    assert not (repo.parent / "started").exists()
    assert git(repo, "branch", "--list", "autopilot/*") == ""


def test_a_push_says_what_went_where(repo: Path, tmp_path: Path) -> None:
    """The branch, its commit, the remote and its address; what another run pushed is there already."""
    write_story(repo, "a", command="echo x > x.txt")
    commit_stories(repo)
    git(tmp_path, "init", "-q", "--bare", "hub.git")
    git(repo, "remote", "add", "hub", str(tmp_path / "hub.git"))
    for how in ("new", "already there"):
        pushed = run(repo, "--push", "--remote=hub")
        tip = git(tmp_path / "hub.git", "rev-parse", "autopilot/a").strip()
        assert f"pushed autopilot/a at {tip[:12]} to hub ({tmp_path}/hub.git): {how}\n" in pushed.err


def test_a_cancelled_job_still_leaves_its_shard(tmp_path: Path, repo: Path) -> None:
    """SIGTERM ends the story as stopped; the shard says so and the sum exits 2."""
    marker = f"cancel-{os.getpid()}-{tmp_path.name}"
    ci = make_ci(tmp_path, repo, {"slow": {"command": f": {marker}; sleep 600"}})
    with ci.begin("slow", *ci.story_job("slow"), "--grace-seconds=0") as running:
        wait_until(lambda: processes_with(marker), what="the session runs")
        running.send(signal.SIGTERM)
        assert running.finish().code == 143
    assert verdicts(state_of(ci.shards / "slow")) == {"slow": "stopped"}
    joined = run(ci.clone("join"), "aggregate", str(ci.shards), "--json")
    assert (joined.code, joined.data["kill_switch"]["name"]) == (2, "user-abort")


def test_a_decision_of_a_job_is_answered_after_the_pipeline(tmp_path: Path, repo: Path) -> None:
    """Acceptance 64: parked in CI, exit 5; taken into a clone, `decide` and `resume` finish it there."""
    ask = json.dumps({"status": "needs-decision", "decision": {"question": "red or blue?"}})
    script = f"test -e asked && touch done.txt || {{ touch asked; echo '{ask}' > $AUTOPILOT_RESULT_FILE; }}"
    ci = make_ci(tmp_path, repo, {"ask": {"command": script}})
    assert ci.run("ask", *ci.story_job("ask")).code == 5
    place = ci.clone("desk")
    assert run(place, "aggregate", str(ci.shards), "--into-repo", "--branches").code == 5
    assert run(place, "decide", "ask", "A").code == 0
    resumed = run(place, "resume", "--json")
    assert resumed.code == 0, resumed.out
    assert text_at(place, "autopilot/ask", "done.txt") == ""


def test_a_taken_place_is_refused_before_anything_runs(ci: Ci) -> None:
    """A shard replaces nothing, and a long run must not find that out at its end."""
    (ci.shards / "alone").mkdir(parents=True)
    (ci.shards / "alone" / "mine.txt").write_text("mine")
    ran = ci.run("alone", *ci.story_job("alone"), "--json")
    assert ran.code == 1
    assert ran.document["error"]["code"] == "shard"
    assert git(ci.root / "jobs" / "alone", "branch", "--list", "autopilot/*") == ""


def test_shards_of_another_commit_or_backlog_are_refused(ci: Ci) -> None:
    """Neither a dependant nor the sum takes them for its own."""
    ci.run("base", *ci.story_job("base"))
    write_story(ci.origin, "base", command="echo other > base.txt")
    git(ci.origin, "commit", "-q", "-a", "-m", "another backlog")
    late = ci.run("left", *ci.story_job("left"), "--json")
    assert late.code == 1
    assert "starts from commit" in late.document["error"]["message"]
    ci.run("alone", *ci.story_job("alone"))
    mixed = run(ci.clone("join"), "aggregate", str(ci.shards), "--json")
    assert mixed.code == 2
    assert f"{ci.shards / 'base'} is not used: it starts from commit" in mixed.data["shards"]["problems"][0]
    assert verdicts(mixed.data)["alone"] == "done"
