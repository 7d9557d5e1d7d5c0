"""What people see of a landing: live, from another process, in reports, and after it was killed."""

import json
import os
import re
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

from isolation.paths import journal_path
from tests.acceptance.program import (
    Ran,
    commit_stories,
    on_terminal,
    run,
    started,
    wait_until,
    write_story,
    writes,
)
from tests.acceptance.test_land_kills import HOOK
from tests.conftest import git
from tests.schemas import complaints

SCHEMA = Path(__file__).resolve().parents[2] / "docs" / "reference" / "status.schema.json"
WAITS = "until test -e $(git rev-parse --git-common-dir)/go; do sleep 0.05; done"


def done_stories(repo: Path, *names: str, land_verify: str = "true") -> Ran:
    """Run stories that each make a file of their own; landing them is verified by a command of its own."""
    settings = {"max-stories": 4, "window": "fixed", "verify": ["true"], "land-verify": [land_verify]}
    lines = (f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    (repo / "autopilot-multi.toml").write_text("".join(lines))
    for name in names:
        write_story(repo, name, command=writes(f"{name}.txt"))
    commit_stories(repo)
    ran = run(repo, "--json")
    assert ran.code == 0, ran.err
    return ran


def landing_of(repo: Path) -> dict[str, object]:
    """Return the landing that `status` shows, and check the document."""
    document = run(repo, "status", "--json").document
    assert complaints(json.loads(SCHEMA.read_text()), document) == []
    landing: dict[str, object] = document["data"]["last_landing"]
    return landing


def verifying(repo: Path, count: int = 1) -> bool:
    """Whether the journal says that the commands have begun, on so many sequences."""
    with closing(sqlite3.connect(journal_path(repo / ".git"))) as journal:
        query = "SELECT COUNT(*) FROM events WHERE kind = 'LandingBatchStarted'"
        return bool(journal.execute(query).fetchone()[0] >= count)


def test_a_landing_in_progress_is_seen_from_everywhere(repo: Path) -> None:
    """Its events as JSON lines, the train in status and its JSON, then the result in every report."""
    write_story(repo, "clash", command=writes("a.txt", "other"))
    ran = done_stories(repo, "a", "b", land_verify=WAITS)
    assert ran.data["next"] == "autopilot-multi land"
    with started(repo, "land", "a", "b", "clash", "--events") as landing:
        wait_until(lambda: verifying(repo), what="the train is verified")
        seen = landing_of(repo)
        assert (seen["state"], seen["onto"]) == ("verifying", "main")
        assert seen["verifying"] == [["b", "a"]], "all is expected to be green"
        assert [(each["id"], each["state"]) for each in seen["train"]] == [  # type: ignore[attr-defined]  # a list
            ("b", "verifying"),
            ("a", "verifying"),
            ("clash", "conflict"),
        ]
        shown = run(repo, "status").out
        assert f"landing {seen['landing_id']} on main: verifying for" in shown
        assert "  verifying now: 2 stories (b … a)\n" in shown
        assert "  conflict: clash\n" in shown
        assert "next:" not in shown, "what lands already is not offered"
        assert "verifying" in run(repo, "report", "--format", "html").out
        (repo / ".git" / "go").touch()
        ended = landing.finish()
    assert ended.code == 4, ended.err
    lines = [json.loads(line) for line in ended.out.splitlines()]
    kinds = [line["kind"] for line in lines]
    assert kinds[:3] == ["LandingPlanned", "LandingMergeConflicted", "LandingBatchStarted"]
    assert kinds.count("LandingBatchStarted") == kinds.count("LandingBatchEnded")
    assert [kind for kind in kinds[3:] if "Batch" not in kind] == [
        "LandingVerified",
        "Landed",
        "StoryNotLanded",
        "DecisionAsked",
        "LandingEnded",
    ]
    assert lines[1]["story"] == "clash"
    assert lines[2]["stories"] == lines[-1]["landed"] == ["b", "a"]
    assert {line["landing_id"] for line in lines if "landing_id" in line} == {seen["landing_id"]}
    outcomes = {tuple(line["stories"]): line["outcome"] for line in lines if "outcome" in line}
    assert outcomes == {("b", "a"): "green"}
    after = landing_of(repo)
    assert (after["state"], after["verify_runs"], after["verifying"]) == ("landed", 1, [])
    assert [each["state"] for each in after["train"]] == ["landed", "landed", "not landed"]  # type: ignore[attr-defined]  # a list
    shown = run(repo, "status").out
    assert "2 stories landed at " in shown
    page = run(repo, "report", "--format", "html").out
    assert "<h2>Landings</h2>" in page
    assert "Landed on <code>main</code>" in page
    assert "### Landings" in run(repo, "report", "--format", "markdown").out


def test_the_train_is_drawn_on_a_terminal(repo: Path) -> None:
    """Each story with its state, then nothing of it is left and the branch has moved."""
    done_stories(repo, "a", "b", land_verify=WAITS)
    with on_terminal(repo, "land") as screen:
        screen.await_text("landing on main")
        screen.await_text("verifying 2 stories (a … b)")
        screen.await_text("Ctrl-C:")
        (repo / ".git" / "go").touch()
        assert screen.process.wait(60) == 0
    assert (repo / "a.txt").exists()


def test_ctrl_c_ends_a_landing_and_status_says_so(repo: Path) -> None:
    """The branch has not moved, and the landing is recorded as given up."""
    done_stories(repo, "a", land_verify=WAITS)
    before = git(repo, "rev-parse", "main")
    with started(repo, "land") as landing:
        wait_until(lambda: verifying(repo), what="the train is verified")
        assert "verifying a on main" in landing.err
        landing.send_and_await(signal.SIGINT, "stopping:")
        landing.send_and_await(signal.SIGINT, "stopping:")
        ended = landing.finish()
    assert ended.code == 130, ended.err
    assert "main has not moved" in ended.err
    assert git(repo, "rev-parse", "main") == before
    assert landing_of(repo)["state"] == "abandoned"
    assert "given up: stopped by you" in run(repo, "status").out


def test_resume_abandons_a_landing_that_was_killed_while_it_verified(repo: Path) -> None:
    """`status` and `doctor` name it with the command; afterwards nothing of it is left."""
    done_stories(repo, "a", land_verify=WAITS)
    before = git(repo, "rev-parse", "main")
    with started(repo, "land") as landing:
        wait_until(lambda: verifying(repo), what="the train is verified")
        os.kill(landing.pid, signal.SIGKILL)
        landing.finish()
    assert landing_of(repo)["state"] == "interrupted"
    assert "interrupted; finish it with `autopilot-multi resume`" in run(repo, "status").out
    checks = {each["name"]: each for each in run(repo, "doctor", "--json").data["checks"]}
    assert "was interrupted" in checks["landing"]["detail"]
    assert "autopilot-multi resume" in checks["landing"]["hint"]
    resumed = run(repo, "resume")
    assert resumed.code == 0, resumed.err
    assert "was interrupted while it verified; main has not moved" in resumed.err
    assert landing_of(repo)["state"] == "abandoned"
    assert git(repo, "rev-parse", "main") == before
    assert git(repo, "worktree", "list").count("\n") == 1
    assert "landing" not in {each["name"] for each in run(repo, "doctor", "--json").data["checks"]}
    assert "interrupted" not in run(repo, "resume").err
    (repo / ".git" / "go").touch()
    assert run(repo, "land").code == 0


def test_resume_finishes_a_landing_first_and_then_the_run(repo: Path) -> None:
    """The branch had moved, so the landing is complete; the exit code is that of the run, which goes on."""
    done_stories(repo, "a")
    hook = repo / ".git" / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(HOOK)
    hook.chmod(0o755)
    (repo / ".git" / "kill-at").write_text("committed")
    assert run(repo, "land").code == -signal.SIGKILL
    (repo / ".git" / "kill-at").unlink()
    write_story(repo, "later", command=f"{WAITS}; {writes('later.txt')}")
    with started(repo, "--only", "later") as running:
        wait_until(lambda: "session 1 started" in running.err, what="the story runs")
        os.kill(running.pid, signal.SIGKILL)
        running.finish()
    (repo / ".git" / "go").touch()
    resumed = run(repo, "resume", "--json")
    assert resumed.code == 0, resumed.err
    assert "it is complete now" in resumed.err
    assert resumed.story("later")["status"] == "done"
    assert (repo / "a.txt").exists()
    assert git(repo, "log", "-1", "--format=%s", "main").startswith("Merge story a")


TWO_COMMITS = "echo 1 > {0}.txt; git add {0}.txt; git commit -qm first; echo 2 >> {0}.txt"


def test_what_was_merged_by_hand_has_landed(repo: Path) -> None:
    """Merged, squashed, picked one by one: each counts, on every face; what is left is offered."""
    (repo / "autopilot-multi.toml").write_text('verify = ["true"]\n')
    for name in ("merged", "squashed", "picked"):
        write_story(repo, name, command=TWO_COMMITS.format(name))
    write_story(repo, "half", command=TWO_COMMITS.format("half"))
    write_story(repo, "open", command=writes("open.txt"))
    commit_stories(repo)
    ran = run(repo, "--json")
    assert ran.code == 0, ran.err
    assert ran.story("picked")["commits"] == 2
    git(repo, "commit", "-q", "--allow-empty", "-m", "something else")
    git(repo, "merge", "-q", "--no-edit", "autopilot/merged")
    git(repo, "merge", "-q", "--squash", "autopilot/squashed")
    git(repo, "commit", "-q", "-m", "By hand")
    git(repo, "cherry-pick", f"{ran.story('picked')['base']}..autopilot/picked")
    git(repo, "cherry-pick", "autopilot/half~1")

    status = run(repo, "status", "--json")
    found = {name: status.story(name)["merged"] for name in ("merged", "squashed", "picked", "half", "open")}
    assert found == {"merged": "main", "squashed": "main", "picked": "main", "half": None, "open": None}
    assert status.data["next"] == status.story("open")["next"] == "autopilot-multi land"
    shown = run(repo, "status").out
    assert re.findall(r"^(\w+) +landed ", shown, re.MULTILINE) == ["merged", "picked", "squashed"]
    page = run(repo, "report", "--format", "html").out
    assert page.count("Landed on <code>main</code>") == 3
    plan = run(repo, "land", "--dry-run", "--json").data
    assert {each["id"] for each in plan["train"]} == {"half", "open"}
    assert set(plan["contained"]) == {"merged", "squashed", "picked"}


def test_a_landing_that_was_reverted_does_not_count(repo: Path) -> None:
    """Its squashed commit is still in the history, and the story can land again."""
    done_stories(repo, "a")
    assert run(repo, "land", "--style", "squash").code == 0
    git(repo, "commit", "-q", "--allow-empty", "-m", "later")
    assert run(repo, "undo", "--yes", "--json").data["how"] == "revert"
    status = run(repo, "status", "--json")
    assert status.story("a")["merged"] is None
    assert landing_of(repo)["state"] == "undone"
    assert [each["id"] for each in run(repo, "land", "--dry-run", "--json").data["train"]] == ["a"]


def test_the_command_names_the_branch_that_the_stories_began_from(repo: Path) -> None:
    """Where that is not the one checked out, `land` must be told."""
    (repo / "autopilot-multi.toml").write_text('verify = ["true"]\nbase = "develop"\n')
    write_story(repo, "a", command=writes("a.txt"))
    commit_stories(repo)
    git(repo, "branch", "develop")
    ran = run(repo, "--json")
    assert ran.data["next"] == "autopilot-multi land --onto develop"
    shown = run(repo, "status").out
    assert "\nnext: autopilot-multi land --onto develop\n" in shown
    assert run(repo, *ran.data["next"].split()[1:]).code == 0
    assert git(repo, "ls-tree", "--name-only", "develop", "a.txt")
    git(repo, "checkout", "-q", "--detach")
    write_story(repo, "b", command=writes("b.txt"))
    commit_stories(repo)
    assert run(repo, "--base", "HEAD", "b", "--json").data["next"] == "autopilot-multi land --onto BRANCH"
