"""One run with stories in several repositories, by the real program."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.acceptance.program import run, started, wait_until, write_story, writes
from tests.conftest import git
from tests.schemas import complaints

Make = Callable[..., Path]
SCHEMA = Path(__file__).parents[2] / "docs/reference/status.schema.json"


def tip(repo: Path, name: str = "main") -> str:
    return git(repo, "rev-parse", name).strip()


@pytest.fixture
def app(make_repository: Make) -> Path:
    """Return the repository of the run; one called web is beside it, with a check of its own."""
    make_repository("web", {"autopilot-multi.toml": "verify = ['test ! -e red.txt']\n"})
    return make_repository("app")


@pytest.fixture
def web(app: Path) -> Path:
    """Return the other repository."""
    return app.parent / "web"


def test_one_run_works_in_two_repositories_and_each_lands_by_itself(app: Path, web: Path) -> None:
    """Order holds across them, commits stay apart; a red one leaves the other landed."""
    write_story(app, "a", command=writes("a.txt"))
    write_story(app, "w1", command=writes("w1.txt"), repo="../web")
    write_story(
        app, "w2", command=f"test -f w1.txt && {writes('w2.txt')}", repo="../web", depends_on=["w1", "a"]
    )
    (app / "autopilot-multi.toml").write_text("verify = ['test -f README.md']\n")
    before = tip(web)
    planned = run(app, "plan", "--json")
    assert [one["name"] for one in planned.data["repos"]] == ["app", "web"]
    ran = run(app, "--json")
    assert ran.code == 0, ran.err
    assert not complaints(json.loads(SCHEMA.read_text()), ran.document)
    assert not complaints(json.loads(SCHEMA.read_text()), planned.document)
    assert {each["id"]: each["repo"] for each in ran.data["stories"]} == {
        "a": "app",
        "w1": "web",
        "w2": "web",
    }
    assert ran.story("w2")["base"] == tip(web, "autopilot/w1")
    assert git(web, "branch", "--list", "autopilot/*").split() == ["autopilot/w1", "autopilot/w2"]
    assert git(app, "branch", "--list", "autopilot/*").split() == ["autopilot/a"]
    assert not (web / ".git" / "autopilot" / "journal.db").exists()
    assert "REPO" in run(app, "status").out
    assert "+++ b/w1.txt" in run(app, "diff", "w1").out

    (web / "autopilot-multi.toml").write_text("land-verify = ['test ! -e w2.txt']\n")
    git(web, "commit", "-qam", "a check that w2 fails")
    red = tip(web)
    landed = run(app, "land", "--json")
    assert landed.code == 4, landed.err
    parts = {part["repo"]: part for part in landed.data["repos"]}
    assert parts["app"]["landed"] == ["a"]
    assert parts["web"]["landed"] == ["w1"]
    assert [each["id"] for each in parts["web"]["not_landed"]] == ["w2"]
    assert run(app, "undo", parts["web"]["landing_id"], "--yes").code == 0
    assert tip(web) == red != before
    assert run(app, "status", "--json").story("a")["merged"] == "main"
    assert run(app, "land", "w1", "--repo", "web", "--json").data["landed"] == ["w1"]
    assert run(app, "gc", "--json").data["worktrees"] == []


def test_a_base_that_is_not_ready_fails_only_its_own_stories(app: Path, web: Path) -> None:
    """Those that depend on them are skipped, and stories elsewhere are done."""
    (web / "red.txt").write_text("red\n")
    (web / "autopilot-multi.toml").write_text("verify = ['./missing.sh']\n")
    git(web, "add", ".")
    git(web, "commit", "-qm", "red")
    write_story(app, "a", command=writes("a.txt"))
    write_story(app, "b", command=writes("b.txt"), depends_on=["w"])
    write_story(app, "w", command=writes("w.txt"), repo="../web")
    write_story(app, "x", command=writes("x.txt"), repo="../web", depends_on=["a"])
    ran = run(app, "--json")
    assert {each["id"]: each["status"] for each in ran.data["stories"]} == {
        "a": "done",
        "b": "skipped",
        "w": "failed",
        "x": "failed",
    }
    assert "base of web" in ran.story("w")["reason"]
    assert "base of web" in ran.story("x")["reason"], "it starts from that base, whatever it waits for"


def test_a_kill_loses_nothing_in_either_repository(app: Path, web: Path, tmp_path: Path) -> None:
    """Both leases name the run while it lives, and are taken over; no session is repeated that has ended."""
    ledger, go = tmp_path / "ledger", tmp_path / "go"
    for name, repo in (("a", "."), ("w", "../web")):
        waits = f"until test -f {go}; do sleep 0.05; done"
        write_story(app, f"{name}1", command=f"echo {name}1 >> {ledger}; {writes(f'{name}1.txt')}", repo=repo)
        script = f"echo {name}2 >> {ledger}; {waits}; {writes(f'{name}2.txt')}"
        write_story(app, f"{name}2", command=script, repo=repo, depends_on=[f"{name}1"])
    write_story(web, "own", command="true")

    def begun() -> set[str]:
        return set(ledger.read_text().split()) if ledger.exists() else set()

    with started(app, "run", "--json") as program:
        wait_until(lambda: begun() >= {"a2", "w2"}, what="both repositories are at work")
        taken = run(web, "run", "--json")
        assert taken.document["error"]["code"] == "lease-held"
        assert str(app) in taken.document["error"]["message"]
        assert f"status -C {app}" in run(web, "status", "--json").document["error"]["hint"]
        os.kill(program.pid, signal.SIGKILL)
    go.touch()
    resumed = run(app, "resume", "--json")
    assert resumed.code == 0, resumed.err
    assert {each["status"] for each in resumed.data["stories"]} == {"done"}
    words = ledger.read_text().split()
    assert (words.count("a1"), words.count("w1")) == (1, 1)
    assert git(web, "show", "autopilot/w2:w2.txt").strip() == "made"
    assert run(web, "run", "--json").code in {0, 3}


@pytest.mark.parametrize("isolation", ["worktree", "none"])
def test_sessions_stay_in_their_repository(app: Path, web: Path, isolation: str) -> None:
    """A session cannot write into the checkout or the git directory of another repository of the run."""
    write_story(app, "a", command=f"echo x > {web}/intruder || echo kept; {writes('a.txt')}")
    there = f"echo x > {app}/intruder || echo x > {app}/.git/intruder || echo kept; {writes('w.txt')}"
    write_story(app, "w", command=there, repo="../web")
    ran = run(app, "--bg-isolation", isolation, "--deconflict-paths", "{id}.txt", "--json")
    if isolation == "none" and ran.code == 1:
        pytest.skip("nothing here keeps stories in one tree apart")
    if ran.data["enforcement"] == "none":
        pytest.skip("no write guard on this machine")
    assert not (web / "intruder").exists()
    assert not (app / "intruder").exists()
    assert not (app / ".git" / "intruder").exists()


def test_a_url_is_cloned_when_the_user_agrees(app: Path, web: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without consent nothing is cloned; with it the story works in the clone. The remote stays as it is."""
    write_story(app, "w", command=writes("w.txt"), repo=f"file://{web}")
    monkeypatch.setenv("AUTOPILOT_MULTI_TRUST", "ask")
    asked = run(app, "--json")
    assert asked.document["error"]["code"] == "trust"
    assert f"file://{web}" in asked.document["error"]["message"]
    assert run(app, "plan", "--json").document["error"]["code"] == "not-cloned"
    ran = run(app, "--trust", "--json")
    assert ran.code == 0, ran.err
    clone = Path(next(one["path"] for one in ran.data["repos"] if one["name"] == "web"))
    assert tip(clone, "autopilot/w") == ran.story("w")["commit"]
    assert git(web, "branch", "--list", "autopilot/*") == ""


def test_two_shared_trees_have_claims_of_their_own(app: Path, web: Path) -> None:
    """Stories that own the same path in different repositories run side by side."""
    write_story(app, "a", command=writes("x.txt", "app"), owns=["x.txt"])
    write_story(app, "w", command=writes("x.txt", "web"), owns=["x.txt"], repo="../web")
    ran = run(app, "--bg-isolation", "none", "--deconflict-paths", "**", "--enforce", "detect", "--json")
    assert ran.code == 0, ran.err
    assert (app / "x.txt").read_text().strip() == "app"
    assert (web / "x.txt").read_text().strip() == "web"


def test_what_works_with_one_repository_says_so(app: Path, web: Path, tmp_path: Path) -> None:
    """Jobs of CI systems, and what is pushed for them."""
    write_story(app, "w", command=writes("w.txt"), repo="../web")
    for flags in (("--shard-out", str(tmp_path / "out")), ("--push",)):
        refused = run(app, "run", *flags, "--json")
        assert refused.document["error"]["code"] == "usage", refused.out
        assert "one repository" in refused.document["error"]["message"]
    assert "one repository" in run(app, "matrix", "--json").document["error"]["message"]
    assert web.exists()
