"""The threads of a run are on one processor; what it starts has all that the program was given."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from isolation.keeper.unconfined import run_bounded, run_unconfined
from isolation.kernel import processors
from isolation.kernel.process_tree import load_stat
from tests.acceptance.program import command, write_story
from tests.conftest import git

GIVEN = frozenset(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(GIVEN) < 2, reason="this machine has one processor")
ASK = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
ALL = f"{sorted(GIVEN)}\n"


def test_threads_take_turns_and_commands_have_all_processors() -> None:
    """Also in threads that outlive the block; afterwards this thread has all of them again."""
    seen: list[set[int]] = []
    with processors.threads_on_one():
        thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
        thread.start()
        thread.join()
        own = os.sched_getaffinity(0)
        assert len(own) == 1
        assert own < GIVEN
        assert processors.available() == GIVEN
        assert run_unconfined(ASK, env=os.environ).stdout.decode() == ALL
        done = run_bounded(ASK, env=os.environ, cwd=Path("/"), seconds=30, most=1000)
        assert done.stdout.decode() == ALL
        assert os.sched_getaffinity(0) == own
    assert seen == [own]
    assert os.sched_getaffinity(0) == GIVEN


def test_fewer_processors_stay_fewer(repo: Path, tmp_path: Path) -> None:
    """Who starts the program on one processor keeps its sessions there."""
    one = min(GIVEN)
    assert _seen_by_sessions(repo, tmp_path, "taskset", "--cpu-list", str(one)) == {f"[{one}]"}


@pytest.mark.parametrize("flags", [(), ("--bg-isolation=none", "--deconflict-paths={id}.txt")])
def test_sessions_commands_and_filters_have_all_processors(
    repo: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    """Through the real program: work, verify commands, hooks, and a filter that git starts."""
    asked = f"{' '.join(map(_quoted, ASK))} >> {tmp_path}/filter; cat"
    git(repo, "config", "filter.count.clean", asked)
    (repo / ".gitattributes").write_text("*.txt filter=count\n")
    assert _seen_by_sessions(repo, tmp_path, flags=flags) == {ALL.strip()}
    assert set((tmp_path / "filter").read_text().splitlines()) == {ALL.strip()}


def test_the_threads_of_a_run_are_on_one_processor(repo: Path, tmp_path: Path) -> None:
    """All of them, while sessions work; the keeper of a session and its server have the others."""
    begun, go_on = tmp_path / "begun", tmp_path / "go-on"
    os.mkfifo(begun)
    os.mkfifo(go_on)
    write_story(repo, "one", command=f"echo $PPID > {begun}; cat {go_on} > one.txt")
    _commit(repo)
    with subprocess.Popen(command("--trust", "-q"), cwd=repo, stdout=subprocess.PIPE) as process:
        keeper = int(begun.read_text())
        tasks = Path(f"/proc/{process.pid}/task").iterdir()
        allowed = [os.sched_getaffinity(int(task.name)) for task in tasks]
        beside = [os.sched_getaffinity(each) for each in (keeper, parent_of(keeper))]
        go_on.write_text("go on\n")
        process.communicate()
    assert process.returncode == 0
    assert len(allowed) > 1
    own = set().union(*allowed)
    assert len(own) == 1
    assert beside == [GIVEN - own] * 2


def parent_of(pid: int) -> int:
    stat = load_stat(pid)
    assert stat is not None
    return stat.parent


def _seen_by_sessions(repo: Path, tmp_path: Path, *prefix: str, flags: tuple[str, ...] = ()) -> set[str]:
    seen = tmp_path / "seen"
    ask = f"{' '.join(map(_quoted, ASK))} >> {seen}"
    for name in ("one", "two"):
        write_story(repo, name, command=f"{ask}; echo > {name}.txt", verify=[f"{ask}"])
    (repo / "autopilot-multi.toml").write_text(f"[hooks]\nafter_create = '''{ask}'''\n")
    _commit(repo)
    argv = [*prefix, *command("--trust", "-q", "--max-stories=2", *flags)]
    done = subprocess.run(argv, cwd=repo, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return set(seen.read_text().splitlines())


def _commit(repo: Path) -> None:
    git(repo, "add", "-A")
    git(repo, "commit", "-q", "-m", "stories")


def _quoted(word: str) -> str:
    return f'"{word}"' if " " in word else word
