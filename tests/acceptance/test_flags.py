"""Flags, output and exit codes of the real program."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, write_story, writes


@pytest.fixture
def backlog(repo: Path) -> Path:
    """Return a repository with one story that works."""
    write_story(repo, "a", command=writes("a.txt"), verify=["test -s a.txt"])
    commit_stories(repo)
    return repo


def test_too_many_stories_are_clamped_and_said(backlog: Path) -> None:
    """Acceptance 1: 99 stories become 50, and stderr says so."""
    ran = run(backlog, "plan", "--max-stories", "99", "--json")
    assert ran.code == 0
    assert ran.data["max_stories"] == 50
    assert "99" in ran.err
    assert "50" in ran.err


@pytest.mark.parametrize(
    ("flag", "given", "used"),
    [("max-hours", "0.01", "0.5"), ("inactivity-timeout", "5", "60"), ("stall-seconds", "99999", "3600")],
)
def test_numbers_out_of_bounds_are_clamped_and_said(backlog: Path, flag: str, given: str, used: str) -> None:
    """Acceptance 2: hours, inactivity and stall are held within their bounds, aloud."""
    ran = run(backlog, "plan", f"--{flag}", given)
    assert ran.code == 0
    assert f"--{flag}" in ran.err
    assert given in ran.err
    assert used in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--max-stories", "abc"),
        ("--max-stories", "3.9x"),
        ("--max-storys", "3"),
        ("--continue", "sometimes"),
        ("--max-stories",),
    ],
)
def test_a_bad_flag_gives_one_json_error_with_a_hint(backlog: Path, arguments: tuple[str, ...]) -> None:
    """Acceptance 3: usage errors exit 1 and stdout is one JSON error that says what to do."""
    ran = run(backlog, "run", "--json", *arguments)
    assert ran.code == 1
    assert ran.document["success"] is False
    assert ran.document["command"] == "run"
    assert ran.document["error"]["message"]
    assert ran.document["error"]["hint"]
    assert "Traceback" not in ran.err


def test_an_unknown_flag_suggests_the_nearest(backlog: Path) -> None:
    """Acceptance 3: the hint names the flag that was probably meant."""
    ran = run(backlog, "--max-storys=3")
    assert ran.code == 1
    assert "--max-stories" in ran.err


def test_apply_and_dry_run_exclude_each_other(backlog: Path) -> None:
    """Acceptance 4: both at once is a usage error."""
    ran = run(backlog, "run", "--apply", "--dry-run")
    assert ran.code == 1
    assert "--dry-run" in ran.err


def _fingerprint(root: Path) -> dict[str, str]:
    found = {}
    for path in sorted(root.rglob("*")):
        stat = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        digest = hashlib.sha256(content).hexdigest()
        found[str(path.relative_to(root))] = f"{stat.st_mode:o} {stat.st_mtime_ns} {digest}"
    return found


@pytest.mark.parametrize("arguments", [("plan",), ("run", "--dry-run"), ("--dry-run", "--json")])
def test_planning_leaves_the_repository_byte_identical(backlog: Path, arguments: tuple[str, ...]) -> None:
    """Acceptance 5: no worktree, branch, lock, record or file is created by a plan."""
    before, beside = _fingerprint(backlog), sorted(backlog.parent.iterdir())
    assert run(backlog, *arguments).code == 0
    assert _fingerprint(backlog) == before
    assert sorted(backlog.parent.iterdir()) == beside


def test_space_and_equals_mean_the_same(backlog: Path) -> None:
    """Acceptance 6: `--k v` and `--k=v` give the same plan."""
    apart, joined = (
        run(backlog, "plan", "--json", *flag).data for flag in (("--max-stories", "2"), ("--max-stories=2",))
    )
    for plan in (apart, joined):
        del plan["tier"], plan["tier_reason"]  # what the machine has left changes from look to look
    assert apart == joined
    assert apart["max_stories"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("plan",),
        ("run",),
        ("status",),
        ("config",),
        ("doctor",),
        ("gc",),
        ("resume", "no-such-run"),
        ("logs", "no-such-story"),
        ("stop",),
        ("run", "no-such-story"),
        ("run", "--nonsense"),
        ("status", "--nonsense"),
    ],
)
def test_json_is_exactly_one_document_on_every_path(backlog: Path, arguments: tuple[str, ...]) -> None:
    """Acceptance 7: stdout holds one JSON document of one schema, whatever happens."""
    ran = run(backlog, *arguments, "--json")
    document = ran.document
    assert document["schema"] == 1
    assert document["command"] == arguments[0]
    assert document["success"] is (ran.code == 0)
    assert ("data" in document) is not ("error" in document)


def test_a_bug_is_told_in_one_json_error_and_a_log(backlog: Path) -> None:
    """Acceptance 7: a crash of the program itself is one JSON document too, its traceback in a log."""
    broken = (
        "import runner.plan.plan as p\n"
        "def make_plan(request): raise ZeroDivisionError('a bug')\n"
        "p.make_plan = make_plan\n"
        "from runner.cli.main import run_program\n"
        "raise SystemExit(run_program(['run', '--json']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", broken], cwd=backlog, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert error["code"] == "bug"
    log = Path(error["hint"].split("details are in ")[1].split(";")[0])
    assert "Traceback" in log.read_text()
    log.unlink()


def test_a_machine_that_refuses_is_told_in_words(backlog: Path) -> None:
    """Acceptance 7: an error of the operating system names the path, and is no traceback."""
    (backlog / ".git" / "autopilot").write_text("a file where a folder must be")
    ran = run(backlog, "run", "--json")
    assert ran.code == 2
    assert ran.document["error"]["code"] == "system"
    assert "autopilot" in ran.document["error"]["message"]
    assert "Traceback" not in ran.err


class TestExitCodes:
    """Acceptance 8: how a run ended is told by the exit code."""

    def test_all_done_is_0(self, backlog: Path) -> None:
        """Every story done ends with 0."""
        assert run(backlog).code == 0

    def test_some_failed_is_4(self, backlog: Path) -> None:
        """A failure beside a success ends with 4."""
        write_story(backlog, "b", command="false")
        assert run(backlog).code == 4

    def test_all_failed_is_3(self, repo: Path) -> None:
        """Stories that all fail are none productive: 3."""
        write_story(repo, "b", command="false")
        assert run(repo).code == 3

    def test_nothing_changed_is_3(self, repo: Path) -> None:
        """A story that runs well and changes nothing is not productive: 3."""
        write_story(repo, "b", command="true")
        ran = run(repo, "--json")
        assert ran.code == 3
        assert ran.story("b")["status"] == "no_work"

    def test_only_open_decisions_is_5(self, repo: Path) -> None:
        """A story that needs a person ends with 5."""
        result = json.dumps({"status": "needs-decision", "decision": {"question": "red or blue?"}})
        write_story(repo, "b", command=f"echo '{result}' > $AUTOPILOT_RESULT_FILE")
        ran = run(repo, "--json")
        assert ran.code == 5
        assert ran.story("b")["status"] == "parked"
        assert "red or blue?" in ran.story("b")["reason"]

    def test_nothing_to_do_is_0(self, backlog: Path) -> None:
        """A backlog that an earlier run finished ends with 0 and runs nothing."""
        assert run(backlog).code == 0
        again = run(backlog, "--json")
        assert again.code == 0
        assert again.story("a")["sessions"] == 0
        assert "already done" in again.story("a")["reason"]

    def test_user_error_is_1(self, repo: Path) -> None:
        """A backlog that is not there is the user's error: 1, with a hint."""
        ran = run(repo)
        assert ran.code == 1
        assert "hint:" in ran.err

    def test_outside_a_repository_is_1(self, tmp_path: Path) -> None:
        """Outside of git there is nothing to run in."""
        ran = run(tmp_path)
        assert ran.code == 1
        assert "git" in ran.err

    def test_system_error_is_2(self, backlog: Path) -> None:
        """A journal that cannot be written is the machine's error: 2."""
        (backlog / ".git" / "autopilot" / "journal.db").mkdir(parents=True)
        ran = run(backlog)
        assert ran.code == 2
        assert "journal" in ran.err
        assert "Traceback" not in ran.err

    def test_a_folder_that_is_not_there_is_1(self, backlog: Path) -> None:
        """`-C` with a typing error is no leave to run in the repository around it."""
        ran = run(backlog, "-C", "vendor/libb")
        assert ran.code == 1
        assert "no such folder: 'vendor/libb'" in ran.err
        assert not (backlog / ".git" / "autopilot").exists()
