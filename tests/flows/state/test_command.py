"""`autopilot-multi state`: what people and git get to see."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.cli.commands.show import state as command
from runner.cli.output import Output
from runner.cli.parser import CommandLineError, parse
from runner.core.errors import NotFoundError, UsageError
from runner.flows.state.errors import StateError, UnreadableStateError
from runner.flows.state.reading import parse_state
from tests.conftest import git
from tests.flows.state.samples import text_of


def run(*argv: str, as_json: bool = False) -> int:
    """Run the command as the program does once it has parsed its name."""
    return command.execute(parse("state", command, argv), Output(command="state", as_json=as_json))


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with files of all dialects in their usual places."""
    monkeypatch.chdir(tmp_path)
    for path, name in (
        ("_docs/_autodev_state.md", "autodev-implement"),
        ("_docs/_autopilot_state.md", "rich-failed"),
        ("_docs/stories/a/_autopilot_state.md", "pointer-failed"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(text_of(name).encode())
    return tmp_path / "_docs"


def test_show_finds_the_usual_files(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a path: all under _docs, each with place, sub-step and what needs attention."""
    assert run("show", "-C", str(docs.parent)) == 0
    out = capsys.readouterr().out
    assert (
        "_autodev_state.md (autodev, existing-code, cycle 3)\n"
        "  step 10 Implement: in progress, retry 0 of 3\n"
    ) in out
    assert "  sub-step 7" in out
    assert "  sub-step 7 — batch-loop (batch 2 of ~4)\n" in out
    assert "  blocker: Step 2b" in out
    assert "  attempt 4 at step 2b failed: no test cases\n" in out
    assert out.count("_state.md (") == 3


def test_show_as_json(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One document with all states; an unreadable one makes it a failure."""
    assert run("show", as_json=True) == 0
    document = json.loads(capsys.readouterr().out)
    assert [item["dialect"] for item in document["data"]["states"]] == ["autodev", "rich", "pointer"]
    (docs / "_autodev_state.md").write_text("nothing")
    assert run("show", as_json=True) == 1
    assert not json.loads(capsys.readouterr().out)["success"]


def test_show_named_files(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unreadable files, unknown sub-steps, decisions and problems are told, and nothing is obeyed."""
    path = docs / "x.md"
    path.write_text(
        text_of("autodev-plan").replace("phase: 4", "phase: 4.5").replace("name: Plan", "name: \x1b[31mPlan")
    )
    plan = docs / "plan.md"
    plan.write_text(text_of("rich-plan"))
    assert run("show", str(path), str(plan), "no.md") == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "sub-step unknown; derived from the folders\n  problem: line 8: sub_step phase '4.5'" in out
    assert "  decided: Tech stack" in out
    assert "no.md\n  unreadable: cannot be read: No such file" in out


def test_show_without_any_file_says_so(tmp_path: Path) -> None:
    """Nothing there is an error with a hint."""
    with pytest.raises(NotFoundError, match="no state files under"):
        run("show", "-C", str(tmp_path))


def test_check_lists_every_problem(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 0 and one line of comfort, or exit 1 and all problems of all files."""
    good = str(docs / "_autodev_state.md")
    assert run("check", good) == 0
    assert capsys.readouterr() == ("", "no problems\n")
    bad = docs / "bad.md"
    bad.write_text(text_of("autodev-plan").replace("in_progress", "going").replace("cycle: 1", "cycle: x"))
    assert run("check", good, str(bad), "none.md") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(
        f"{bad}: line 7: status 'going' is not allowed; allowed: not_started, in_progress"
    )
    assert lines[1].startswith(f"{bad}: line 13: cycle 'x' is not allowed")
    assert lines[2] == "none.md: No such file or directory"
    assert run("check", str(bad), as_json=True) == 1
    document = json.loads(capsys.readouterr().out)
    assert [(item["line"], item["key"]) for item in document["data"]["problems"]] == [
        (7, "status"),
        (13, "cycle"),
    ]


def test_convert_prints_or_writes_a_new_file(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The source stays; the answer goes to stdout or to a file that did not exist."""
    source = docs / "_autopilot_state.md"
    assert run("convert", "--to", "autodev", "--flow", "existing-code", str(source)) == 0
    out, err = capsys.readouterr()
    assert parse_state(out).step == "3"
    assert "warning: autodev has no field for: retry log; copied to '## Imported'" in err
    argv = (
        "convert",
        "--to",
        "pointer",
        "--flow",
        "existing-code",
        "--step",
        "2",
        str(source),
        "--output",
        "new.md",
    )
    assert run(*argv) == 0
    assert parse_state(Path("new.md").read_text()).retry_count == 3
    assert capsys.readouterr().out == ""
    with pytest.raises(UsageError, match=r"new\.md already exists"):
        run(*argv)
    assert source.read_bytes() == text_of("rich-failed").encode()
    assert run("convert", "--to", "rich", str(source), as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["data"]["unheld"] == []


def test_convert_finds_the_step_by_what_it_leaves(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One name may stand for two steps of a flow; the flow's editions tell which is which."""
    path = docs / "tests.md"
    for step, meant in (("6", "7"), ("10", "11")):
        path.write_text(
            text_of("pointer-failed").replace("step: 2", f"step: {step}").replace("Test Spec", "Run Tests")
        )
        assert run("convert", "--to", "autodev", str(path)) == 0
        assert parse_state(capsys.readouterr().out).step == meant
    path.write_text(path.read_text().replace("step: 10", "step: 6"))
    with pytest.raises(StateError, match=r"rich has no step for step 6 \(Run Tests\)"):
        run("convert", "--to", "rich", str(path))
    assert run("convert", "--to", "rich", "--step", "2h", str(path)) == 0
    assert parse_state(capsys.readouterr().out).step == "2h"
    path.write_text(text_of("autodev-config-review"))
    with pytest.raises(StateError, match="flow 'meta-repo' is not allowed"):
        run("convert", "--to", "pointer", str(path))


def test_a_users_flow_is_known_where_it_lies(docs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Flow files beside the state extend what is allowed."""
    path = docs / "own.md"
    path.write_text(text_of("autodev-plan").replace("greenfield", "release").replace("step: 3", "step: 2"))
    assert run("check", str(path)) == 1
    (docs.parent / "flows").mkdir()
    steps = "".join(
        f'[[steps]]\nnumber = "{n}"\nname = "{name}"\nprompt = "x"\n' for n, name in ((1, "Cut"), (2, "Plan"))
    )
    (docs.parent / "flows" / "release.toml").write_text(steps)
    capsys.readouterr()
    assert run("check", str(path)) == 0
    assert run("show", str(path)) == 0
    assert "(autodev, release)" in capsys.readouterr().out
    assert run("convert", "--to", "pointer", str(path)) == 0
    assert "flow: release\nstep: 2\n" in capsys.readouterr().out
    path.write_text(path.read_text().replace("release", "quick").replace("step: 2", "step: 1"))
    assert run("convert", "--to", "pointer", str(path)) == 0


def test_convert_refuses_what_it_cannot_tell(docs: Path) -> None:
    """A missing flow, a missing file and an unreadable one are errors with hints."""
    with pytest.raises(StateError, match="flow"):
        run("convert", "--to", "autodev", str(docs / "_autopilot_state.md"))
    with pytest.raises(NotFoundError, match="No such file"):
        run("convert", "--to", "autodev", "none.md")
    (docs / "bad.md").write_text("nothing")
    with pytest.raises(UnreadableStateError, match=r"cannot convert .*bad\.md: "):
        run("convert", "--to", "autodev", str(docs / "bad.md"))


@pytest.mark.parametrize(
    "argv", [("check",), ("convert", "a"), ("convert", "--to", "rich"), ("merge-driver", "a")]
)
def test_missing_arguments_are_named(argv: tuple[str, ...]) -> None:
    """Each action says what it needs."""
    with pytest.raises(UsageError, match=f"`state {argv[0]}` needs "):
        run(*argv)


@pytest.mark.parametrize("argv", [(), ("paint",), ("show", "--jsn")])
def test_unknown_arguments_are_refused(argv: tuple[str, ...]) -> None:
    """The grammar is strict, with a hint."""
    with pytest.raises(CommandLineError) as caught:
        run(*argv)
    assert caught.value.hint


def test_help_lists_the_actions_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """The merge driver itself is for git and not listed; installing it is for people."""
    with pytest.raises(SystemExit):
        run("--help")
    out = capsys.readouterr().out
    assert "convert" in out
    assert "\nmerge-driver" not in out
    assert "\ninstall-merge-driver" in out


def test_the_merge_driver_writes_ours(docs: Path) -> None:
    """As git calls it: base, ours, theirs; the result is in ours, bytes that are no text included."""
    base, ours, theirs = (docs / name for name in "OAB")
    text = text_of("autodev-plan")
    base.write_text(text)
    ours.write_bytes(text.replace("step: 3", "step: 4").encode() + b"\n## Odd\n\xff\n")
    theirs.write_text(text.replace("step: 3", "step: 5"))
    ours.chmod(0o600)
    assert run("merge-driver", str(base), str(ours), str(theirs)) == 0
    assert b"step: 5\n" in ours.read_bytes()
    assert ours.read_bytes().endswith(b"\n## Odd\n\xff\n")
    assert ours.stat().st_mode & 0o777 == 0o600


def test_git_merges_story_branches_through_the_driver(repo: Path) -> None:
    """Two branches move the same file: git merges without a conflict, and the further one counts."""
    path = repo / "_docs" / "_autodev_state.md"
    path.parent.mkdir()
    path.write_text(text_of("autodev-plan"))
    (repo / ".gitattributes").write_text("_docs/_autodev_state.md merge=autopilot-state\n")
    code = (
        "import sys; from pathlib import Path; from runner.cli.commands.show.state import _merge;"
        " _merge([*map(Path, sys.argv[1:])])"
    )
    git(repo, "config", "merge.autopilot-state.driver", f"{sys.executable} -c '{code}' %O %A %B")
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "state")
    for branch, step in (("one", "4"), ("two", "9")):
        git(repo, "checkout", "-q", "-b", branch, "main")
        path.write_text(
            text_of("autodev-plan").replace("step: 3", f"step: {step}") + f"\n## {branch}\nkept\n"
        )
        git(repo, "commit", "-q", "-a", "-m", branch)
    git(repo, "checkout", "-q", "main")
    for branch in ("one", "two"):
        git(repo, "merge", "-q", "--no-ff", "--no-edit", branch)
    merged = path.read_text()
    assert parse_state(merged).step == "9"
    assert "## one\nkept" in merged
    assert "## two\nkept" in merged


@pytest.fixture
def session(docs: Path, make_repository: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in a session of a story whose state file is autodev's; gives that file."""
    workspace = make_repository()
    docs.rename(workspace / "_docs")
    monkeypatch.setenv("AUTOPILOT_STATE_FILE", "_docs/_autodev_state.md")
    monkeypatch.setenv("AUTOPILOT_RESULT_FILE", str(workspace / ".orchestrator/01.result.json"))
    return workspace / "_docs/_autodev_state.md"


@pytest.mark.parametrize(
    ("phase", "name", "words"),
    [
        ("6", "batch-loop", "phase 6 does not follow 7: the next one is 8"),
        ("9", "batch-loop", "phase 9 does not follow 7: the next one is 8"),
        ("1b", "variant", "must be a whole number from 0, not '1b'"),
        ("7.5", "half", "must be a whole number from 0, not '7.5'"),
        ("8", "Not_Kebab", "'Not_Kebab' is not kebab-case"),
        ("8", "awaiting-invocation", "reserved"),
    ],
)
def test_a_sub_step_that_breaks_a_rule_is_refused(session: Path, phase: str, name: str, words: str) -> None:
    """Acceptance 56: fractional, falling and not kebab-case; the file stays as it is."""
    before = session.read_bytes()
    with pytest.raises((StateError, UsageError), match=words):
        run("sub-step", phase, name)
    assert session.read_bytes() == before


def test_a_sub_step_is_written_and_nothing_else(session: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The next one may be higher; a new invocation begins anew. The older dialects get it as one text."""
    before = parse_state(session.read_text())
    assert run("sub-step", "8", "report", "two left") == 0
    assert "sub-step 8 — report (two left)" in capsys.readouterr().out
    now = parse_state(session.read_text())
    assert replace(now, sub_step=before.sub_step) == before
    assert run("sub-step", "0", "awaiting-invocation") == 0
    assert run("sub-step", "1", "draft", as_json=True) == 0
    assert "phase: 1\n  name: draft\n" in session.read_text()


def test_saving_a_sub_step_shows_what_the_runner_asks_of_the_session(
    session: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A notice about its context, as soon as there is one."""
    notice = session.with_name("context.md")
    monkeypatch.setenv("AUTOPILOT_CONTEXT_FILE", str(notice))
    assert run("sub-step", "8", "report") == 0
    assert capsys.readouterr().out.splitlines() == [f"{session}: sub-step 8 — report"]
    notice.write_text("Context zone: caution.\n")
    assert run("sub-step", "9", "report") == 0
    assert capsys.readouterr().out.endswith("sub-step 9 — report\n\nContext zone: caution.\n")
    assert run("sub-step", "9", "report", as_json=True) == 0
    assert '"context": "Context zone: caution."' in capsys.readouterr().out


def test_the_older_dialects_hold_a_sub_step_as_one_text(
    session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a shared tree, too, where the exchange is a story's own folder."""
    monkeypatch.setenv("AUTOPILOT_STATE_FILE", "_docs/stories/a/_autopilot_state.md")
    exchange = session.parent.parent / ".orchestrator" / "a"
    monkeypatch.setenv("AUTOPILOT_RESULT_FILE", str(exchange / "01.result.json"))
    path = session.parent / "stories/a/_autopilot_state.md"
    for words, text in (
        (("4", "review"), "4 — review"),
        (("1b", "Test Case Generation", "batch 2"), "1b — Test Case Generation (batch 2)"),
        (("0", "awaiting-invocation"), "0"),
    ):
        assert run("sub-step", *words) == 0
        assert str(parse_state(path.read_text()).sub_step) == text
    with pytest.raises(UsageError, match="a number such as 4 or 1b, not 'four'"):
        run("sub-step", "four", "review")
    assert [path.name for path in exchange.iterdir()] == ["state.lock"]


@pytest.mark.usefixtures("session")
def test_a_sub_step_outside_of_a_session_is_an_error_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who types it at a terminal, or a story that has no state file, learns where it belongs."""
    with pytest.raises(UsageError, match="needs PHASE NAME"):
        run("sub-step", "1")
    for value in ("", None):
        if value is None:
            monkeypatch.delenv("AUTOPILOT_RESULT_FILE")
        else:
            monkeypatch.setenv("AUTOPILOT_STATE_FILE", value)
        with pytest.raises(UsageError, match="works only inside a session"):
            run("sub-step", "1", "draft")
