"""Many files at once, and the page about them."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from runner.flows.state.aggregate import Row, aggregate_markdown, state_json
from runner.flows.state.disk import collection
from runner.flows.state.disk.collection import Cache, Found, collect
from runner.flows.state.model import RetryRow
from runner.flows.state.reading import parse_state
from tests.flows.state.samples import EXPECTED, NAMES, text_of

RETRY = RetryRow(attempt="2", step="3", name="Plan", sub_step="4 — x", reason="a | b", timestamp="now")


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    """Put every sample on disk, long unchanged."""
    made = []
    for name in NAMES:
        path = tmp_path / f"{name}.md"
        path.write_bytes(text_of(name).encode())
        os.utime(path, (1, 1))
        made.append(path)
    return made


def test_files_are_found_in_order_with_their_states(paths: list[Path], tmp_path: Path) -> None:
    """Every dialect, and beside them what is missing, broken or too strange."""
    broken, missing, large = tmp_path / "broken.md", tmp_path / "missing.md", tmp_path / "large.md"
    broken.write_bytes(b"\xff")
    large.write_text(text_of("autodev-plan") + "\n## Notes\n" + "x\n" * 70_000)
    found = collect([missing, *paths, broken, tmp_path, large])
    assert [item.path for item in found] == [missing, *paths, broken, tmp_path, large]
    assert [item.state for item in found[1:-3]] == [EXPECTED[name] for name in NAMES]
    assert found[-1].state == EXPECTED["autodev-plan"]
    assert [bool(item.problem) for item in found] == [True, *(False for _ in paths), True, True, False]
    assert "No such file" in found[0].problem
    assert "not valid UTF-8" in found[-3].problem
    assert not list(tmp_path.glob("*.unreadable*"))


def test_a_cache_spares_files_that_did_not_change(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The second look reads only what is new, changed, or may still change within a clock tick."""
    cache: Cache = {}
    first = collect(paths, cache=cache)
    fresh = paths[0]
    fresh.write_bytes(text_of("autodev-plan").encode())
    read: list[Path] = []
    real = collection._content

    def noted(path: Path) -> bytes:
        read.append(path)
        return real(path)

    monkeypatch.setattr(collection, "_content", noted)
    second = collect([*paths, fresh.with_name("missing")], cache=cache)
    assert read == [fresh, fresh.with_name("missing")]
    assert second[0].state == EXPECTED["autodev-plan"]
    assert [item.state for item in second[1:-1]] == [item.state for item in first[1:]]
    collect([fresh], cache=cache)
    assert read.count(fresh) == 2


def row(name: str, **extra: object) -> Row:
    """Return a sample as a story."""
    found = Found(path=Path(f"{name}.md"), state=parse_state(text_of(name)))
    return Row(story=name, found=found, **extra)  # type: ignore[arg-type]  # keys are the tests' own


def test_acceptance_60_three_dialects_make_one_page() -> None:
    """What needs a person stands first, then one table of all stories."""
    page = aggregate_markdown(
        [
            row("rich-failed"),
            row("rich-plan"),
            row(
                "pointer-plan",
                open_decisions=("start\nimplementation?",),
                retries=(RETRY,),
                decisions=("yes",),
            ),
            row("pointer-failed"),
            row("autodev-implement", blockers=("the licence",)),
            Row(
                story="lost|one",
                found=Found(path=Path("x.md"), problem="has no step"),
                blockers=("see there",),
            ),
        ],
        updated="2026-04-23",
    )
    titles = [line for line in page.split("\n") if line.startswith("#")]
    assert titles == [
        "# State of all stories",
        "## Blockers",
        "## Open decisions",
        "## Retry log",
        "## Stories",
        "## Decisions",
    ]
    loop = "7 — batch-loop (batch 2 of ~4) | 0 | 3 | autodev-implement.md"
    for line in (
        "Updated 2026-04-23.",
        "- **pointer-failed**: step 2 (Test Spec) failed with retry_count 3",
        "- **autodev-implement**: the licence",
        "- **lost|one**: the state file has no step",
        "- **lost|one**: see there",
        "- **pointer-plan**: start implementation?",
        "| pointer-plan | 2 | 3 | Plan | 4 — x | a \\| b | now |",
        f"| autodev-implement | autodev | existing-code | 10 | Implement | in_progress | {loop} |",
        "| lost\\|one | ? |  |  |  | unreadable |  |  |  | x.md |",
        "- **pointer-plan**: yes",
    ):
        assert line in page.split("\n")
    assert page.count("| rich-failed | ") == 5
    assert page.count("- **rich-failed**: ") == 1


def test_a_quiet_page_has_only_its_table() -> None:
    """Without anything to say there are no empty sections."""
    plain = replace(parse_state(text_of("autodev-plan")), sub_step=None)
    page = aggregate_markdown([Row(story="a", found=Found(path=Path("a.md"), state=plain))])
    assert [line for line in page.split("\n") if line.startswith("#")] == [
        "# State of all stories",
        "## Stories",
    ]
    assert page.endswith("| a | autodev | greenfield | 3 | Plan | in_progress |  | 0 | 1 | a.md |\n")


def test_states_as_json_have_the_same_keys_in_every_dialect() -> None:
    """One shape for all; an unreadable file says why."""
    shapes = [state_json(row(name).found) for name in NAMES]
    assert len({tuple(shape) for shape in shapes}) == 1
    by_name = dict(zip(NAMES, shapes, strict=True))
    assert by_name["autodev-plan"]["sub_step"] == {
        "phase": 4,
        "name": "architecture-review-risk-assessment",
        "detail": "",
    }
    assert by_name["pointer-failed"]["sub_step"] == {"number": "1b", "name": "Test Case Generation"}
    assert by_name["rich-plan"]["last_session"]["reason"] == "context limit"
    assert by_name["rich-failed"]["retry_log"][0]["attempt"] == "1"
    unknown = replace(parse_state(text_of("autodev-plan")), sub_step=None)
    assert state_json(Found(path=Path("x"), state=unknown))["sub_step"] is None
    assert state_json(Found(path=Path("x"), problem="no")) == {"path": "x", "problem": "no"}
