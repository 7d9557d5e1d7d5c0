"""What sessions print: any size, any bytes, bounded memory, a harmless screen."""

import json
import re
from pathlib import Path

import pytest

from tests.acceptance.program import run, started, wait_until, write_story, writes

MIB = 1 << 20


def _peak_memory(pid: int) -> int:
    """Read the peak resident size of a live process in bytes, 0 once it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


def _run_flood(repo: Path, size: int) -> tuple[int, int]:
    write_story(repo, "a", command=f"head -c {size} /dev/zero; echo; echo the end; echo x > x.txt")
    peak = 0
    with started(repo, "run", "--json", real_start=True) as program:

        def ended() -> bool:
            nonlocal peak
            peak = max(peak, _peak_memory(program.pid))
            return "ended:" in program.err

        wait_until(ended, what="the run ends", limit=120)
        ran = program.finish()
    assert ran.code == 0, ran.err
    (log,) = (repo / ".git" / "autopilot" / "runs").glob("*/a/01-implement-1.log")
    assert log.read_bytes().endswith(b"\nthe end\n"), "the end of the output is kept"
    return peak, log.stat().st_size


def test_a_flood_on_one_line_costs_no_memory(repo: Path) -> None:
    """160 MiB without a newline: the coordinator stays below 150 MiB and the log below its cap."""
    peak, logged = _run_flood(repo, 160 * MIB)
    assert 0 < peak < 150 * MIB
    assert logged < 65 * MIB


@pytest.mark.chaos
def test_two_gibibytes_on_one_line(repo: Path) -> None:
    """2 GiB without a newline: the coordinator stays below 150 MiB and the log below its cap."""
    peak, logged = _run_flood(repo, 2048 * MIB)
    print(f"peak of the coordinator: {peak / MIB:.0f} MiB, log {logged / MIB:.0f} MiB")  # noqa: T201  a figure
    assert 0 < peak < 150 * MIB
    assert logged < 65 * MIB


def test_escapes_never_reach_the_screen_but_stay_in_the_log(repo: Path) -> None:
    """Colors, titles and cursor movements of a session are neutralised; the log has the raw bytes."""
    noise = r"printf '\033]0;pwned\007\033[2J\033[31mred\033[0m \377\376 end\n'"
    write_story(repo, "a", command=f"{noise}; false")
    ran = run(repo)
    logs = run(repo, "logs", "a")
    for text in (ran.out, ran.err, logs.out):
        assert "\x1b" not in text
        assert "\x07" not in text
    assert "red" in logs.out
    raw = next((repo / ".git" / "autopilot" / "runs").glob("*/a/01-implement-1.log")).read_bytes()
    assert raw == b"\x1b]0;pwned\x07\x1b[2J\x1b[31mred\x1b[0m \xff\xfe end\n"


def test_a_failure_s_output_is_in_the_next_prompt(repo: Path) -> None:
    """1 run + 3 retries; what the verify command printed stands in the prompt of the next attempt."""
    write_story(
        repo,
        "a",
        command="cp $AUTOPILOT_PROMPT_FILE prompt-$AUTOPILOT_ATTEMPT.txt",
        verify=["echo the moon is $((40 + 2)) cheese; false"],
    )
    ran = run(repo, "--json")
    assert ran.story("a")["status"] == "failed"
    assert ran.story("a")["retry_count"] == 3
    tree = Path(ran.story("a")["workspace"])
    prompts = [(tree / f"prompt-{attempt}.txt").read_text() for attempt in (1, 2, 3, 4)]
    assert ["moon is 42" in prompt for prompt in prompts] == [False, True, True, True]


def test_events_name_their_kind_and_that_of_their_session(repo: Path) -> None:
    """Every line of --events says what happened; a session's own kind does not take that place."""
    write_story(repo, "a", command=writes("a"), verify=["true"])
    lines = [json.loads(line) for line in run(repo, "--events").out.splitlines()]
    kinds = [line["kind"] for line in lines]
    assert (kinds[0], kinds[-1]) == ("RunStarted", "RunEnded")
    begun = [line["session_kind"] for line in lines if line["kind"] == "SessionStarted"]
    assert begun == ["work", "verify"]
