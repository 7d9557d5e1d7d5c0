"""`forecast`: which stories will conflict, while they run and afterwards, by the real program."""

from pathlib import Path

from tests.acceptance.program import commit_stories, run, started, wait_until, write_story, writes
from tests.acceptance.test_docs import schema
from tests.conftest import git
from tests.schemas import complaints

LINES = [f"line {number}" for number in range(1, 31)]


def edits(line: int, text: str) -> str:
    """Return a command that changes one line of the file that all stories share."""
    return f"sed -i 's/^line {line}$/{text}/' shared.txt"


def prepare(repo: Path, tmp_path: Path) -> tuple[Path, list[Path]]:
    """Write three stories that wait in mid-work, and one that is done at once."""
    go = tmp_path / "go"
    ready = [tmp_path / name for name in ("a-ready", "b-ready", "c-ready")]
    (repo / "shared.txt").write_text("\n".join(LINES) + "\n")
    parts = {
        "a": (edits(3, "a"), edits(25, "a")),
        "b": (edits(3, "b"), "true"),
        "c": ("true", edits(25, "c")),
    }
    for (name, (first, later)), mark in zip(parts.items(), ready, strict=True):
        command = (
            f"{first}; touch {mark}; until test -f {go}; do sleep 0.05; done; {later}; echo x > {name}.txt"
        )
        write_story(repo, name, command=command)
    write_story(repo, "d", command=writes("d.txt"))
    commit_stories(repo)
    return go, ready


def test_conflicts_are_known_while_stories_run_and_the_landing_avoids_them(
    repo: Path, tmp_path: Path
) -> None:
    """Two edit the same line in files that are not committed; in the end the story that costs two is last."""
    go, ready = prepare(repo, tmp_path)
    with started(repo, "run", "--max-stories=4") as program:
        wait_until(lambda: all(mark.exists() for mark in ready), what="three stories work")
        wait_until(lambda: "d  done: 1 commit" in program.err, what="the fourth has committed")
        objects = git(repo, "count-objects")
        seen = run(repo, "forecast", "--json")
        assert seen.code == 0, seen.err
        assert complaints(schema(), seen.document) == []
        assert seen.data["conflicts"] == [{"stories": ["a", "b"], "files": ["shared.txt"], "reason": None}]
        assert seen.data["uncommitted"] == ["a", "b"]
        assert git(repo, "count-objects") == objects, "trial merges are kept elsewhere"
        wait_until(lambda: "will conflict: a and b: shared.txt" in program.err, what="the run says so, too")
        status = run(repo, "status", "--json")
        assert status.data["state"] == "running"
        assert status.data["forecast"]["conflicts"] == seen.data["conflicts"]
        assert "will conflict: a and b: shared.txt (autopilot-multi forecast)" in run(repo, "status").out
        go.touch()
        ended = program.finish()
    assert ended.code == 0, ended.err
    assert "will conflict: a and b: shared.txt; a and c: shared.txt" in ended.out

    shown = run(repo, "forecast", "--matrix")
    assert "2 conflicts among 4 stories, onto main" in shown.out
    assert "left out in it: a" in shown.out
    train = run(repo, "land", "--dry-run", "--json").data
    order = [each["id"] for each in train["train"]]
    assert (order[-1], sorted(order)) == ("a", ["a", "b", "c", "d"])
    assert train["foreseen"]["left_out"] == ["a"]
    assert "left out in this order: a" in run(repo, "land", "--dry-run").out
    page = run(repo, "report", "--format", "markdown").out
    assert "### Conflicts foreseen" in page
    assert "a and b | shared.txt" in page

    landed = run(repo, "land", "--yes", "--json")
    assert sorted(landed.data["landed"]) == ["b", "c", "d"]
    left = run(repo, "forecast", "--json").data
    assert left["conflicts"] == [{"stories": ["a"], "files": ["shared.txt"], "reason": None}]
    assert run(repo, "status", "--json").data["forecast"] is None, "what has landed conflicts with nothing"


def test_claims_that_overlap_are_possible_conflicts_before_the_start(repo: Path) -> None:
    """The plan names the pairs and a path; stories that build on each other are not among them."""
    for name, owns in (("a", "src/**"), ("b", "src/x"), ("e", "docs/**")):
        write_story(repo, name, command="true", owns=[owns])
    write_story(repo, "c", command="true", owns=["src/y"], depends_on=["a"])
    commit_stories(repo)
    document = run(repo, "plan", "--json").document
    assert complaints(schema(), document) == []
    assert document["data"]["possible_conflicts"] == [{"stories": ["a", "b"], "path": "src/x"}]
    assert "may conflict when merged: a and b: src/x" in run(repo, "plan").out


def test_nothing_to_foresee_is_an_answer(repo: Path) -> None:
    """Before the first run an error says what to do; without conflicts it says so."""
    assert run(repo, "forecast", "--json").document["error"]["code"] == "not-found"
    for name in "ab":
        write_story(repo, name, command=writes(f"{name}.txt"))
    commit_stories(repo)
    assert run(repo, "run", "--json").data["forecast"] is None
    shown = run(repo, "forecast")
    assert (shown.code, shown.out) == (0, "no conflicts: 2 stories, in any order, onto main\n")
