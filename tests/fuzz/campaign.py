"""A campaign on one target: many inputs in a process of its own, by atheris or by hypothesis."""

import hashlib
import importlib
import importlib.util
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

_ROOT = Path(__file__).parents[2]
_RUNS = re.compile(r"^(?:Done|#)\s*(\d+)", re.MULTILINE)
_TIMEOUT_SECONDS = 10
_LONGEST_INPUT = 8192
ATHERIS, HYPOTHESIS = "atheris", "hypothesis"
FOUND = "corpus"
"""The folder of the inputs that reached something new."""


class Finding(NamedTuple):
    """An input that a parser did not take as it should."""

    target: str
    input: Path
    error: str

    @property
    def command(self) -> str:
        """What shows it again."""
        return f"python -m tests.fuzz --input {self.input} {self.target}"


class Ended(NamedTuple):
    """What a campaign did."""

    engine: str
    runs: int
    findings: list[Finding]


def run(name: str, seconds: int, folder: Path) -> Ended:
    """Run a campaign in a process of its own; inputs that broke something are kept in the folder."""
    engine = ATHERIS if importlib.util.find_spec("atheris") else HYPOTHESIS
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "tests.fuzz.campaign", engine, name, str(seconds), str(place)]
    done = subprocess.run(argv, cwd=_ROOT, capture_output=True, text=True, errors="replace", check=False)
    output = done.stdout + done.stderr
    findings = [
        Finding(name, path, path.with_suffix(".txt").read_text().strip().splitlines()[-1])
        for path in sorted(place.glob("*.input"))
    ]
    # What stopped the process itself: a hang, or a crash of the interpreter.
    findings += [Finding(name, path, output[-500:]) for path in sorted(place.iterdir()) if _is_artifact(path)]
    if done.returncode and not findings:
        findings.append(Finding(name, place, output[-2000:]))
    runs = [int(number) for number in _RUNS.findall(output)]
    return Ended(engine, max(runs, default=0), findings)


def _is_artifact(path: Path) -> bool:
    return path.name.startswith(("crash-", "timeout-", "oom-", "slow-unit-"))


def _noting(check: Callable[[bytes], None], place: Path) -> Callable[[bytes], None]:
    """Keep the first input of each error, and continue."""
    seen: set[str] = set()

    def checked(data: bytes) -> None:
        try:
            check(data)
        except Exception as error:  # noqa: BLE001  that is what is looked for
            frames = traceback.extract_tb(error.__traceback__)
            where = " ".join(f"{frame.filename}:{frame.lineno}" for frame in frames[-3:])
            key = hashlib.sha256(f"{type(error)} {where}".encode()).hexdigest()[:12]
            if key not in seen:
                seen.add(key)
                (place / f"{key}.input").write_bytes(data)
                (place / f"{key}.txt").write_text("".join(traceback.format_exception(error)))

    return checked


def _with_atheris(name: str, seconds: int, place: Path) -> None:
    atheris: Any = importlib.import_module("atheris")

    with atheris.instrument_imports(include=["runner", "isolation", "yaml", "tomllib"]):
        from tests.fuzz.targets import TARGETS
    from tests.fuzz.inputs import PIECES, words

    dictionary = place / "words"
    entries = [*PIECES, *(word.encode() for word in words(name))]
    dictionary.write_text("".join(f'"{_escaped(entry)}"\n' for entry in entries if 0 < len(entry) < 64))
    found = place / FOUND
    found.mkdir(exist_ok=True)
    argv = [
        sys.argv[0],
        str(found),
        *{str(path.parent) for path in TARGETS[name].samples},
        f"-dict={dictionary}",
        f"-max_total_time={seconds}",
        f"-timeout={_TIMEOUT_SECONDS}",
        f"-max_len={_LONGEST_INPUT}",
        f"-artifact_prefix={place}/",
        "-rss_limit_mb=1500",
        "-print_final_stats=0",
    ]
    atheris.Setup(argv, _noting(TARGETS[name].check, place))
    atheris.Fuzz()


def _escaped(entry: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in entry)


def _with_hypothesis(name: str, seconds: int, place: Path) -> None:
    from hypothesis import HealthCheck, Phase, given, settings, target

    from tests.fuzz.growth import tracing
    from tests.fuzz.inputs import inputs
    from tests.fuzz.targets import TARGETS

    check = _noting(TARGETS[name].check, place)
    end = time.monotonic() + seconds
    runs = 0

    @settings(
        max_examples=2000,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.target),
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs(TARGETS[name]))
    def search(data: bytes) -> None:
        nonlocal runs
        if time.monotonic() > end:
            return
        runs += 1
        lines: set[tuple[str, int]] = set()
        with tracing(lines):
            check(data)
        target(float(len(lines)))

    while time.monotonic() < end:
        search()
    sys.stdout.write(f"Done {runs}\n")


if __name__ == "__main__":
    os.nice(10)
    _engine, _name, _seconds, _place = sys.argv[1:]
    _search = _with_atheris if _engine == ATHERIS else _with_hypothesis
    _search(_name, int(_seconds), Path(_place))
