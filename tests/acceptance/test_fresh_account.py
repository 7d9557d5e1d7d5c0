"""From the README to the first merged story, with a fresh account of a machine that has only git and uv.

The account is real, and Python is that of Debian, which pip refuses to change. What would be downloaded comes
from the environment of the tests, as wheels; so no network is needed.
"""

import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

from tests.acceptance.sabotage import uv
from tests.acceptance.shell_blocks import blocks_of
from tests.conftest import git

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PYTHON = Path("/usr/bin/python3")
PROGRAMS = ("git", "sh", "mkdir", "cat", "grep")
"""All that is on PATH besides uv: git, and what the commands of the README are made of."""


@pytest.fixture
def account() -> Iterator[pwd.struct_passwd]:
    """Make an account with a home of its own, and remove it afterwards."""
    if os.getuid() != 0 or shutil.which("useradd") is None:
        pytest.skip("only root can make an account, with useradd")
    name = f"autopilot-{os.getpid()}"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        subprocess.run(["useradd", "-m", "-d", f"{folder}/home", "-s", "/bin/sh", name], check=True)
        try:
            yield pwd.getpwnam(name)
        finally:
            subprocess.run(["userdel", name], check=True)


def _require_debian() -> None:
    if not PYTHON.exists():
        pytest.skip(f"there is no {PYTHON}")
    script = "import sys, sysconfig; print(*sys.version_info[:2], sysconfig.get_path('stdlib'))"
    asked = subprocess.run([PYTHON, "-c", script], capture_output=True, text=True, check=True)
    *version, library = asked.stdout.split()
    if not Path(library, "EXTERNALLY-MANAGED").exists():
        pytest.skip(f"{PYTHON} is not managed by the system")
    if [int(part) for part in version] != list(sys.version_info[:2]):
        pytest.skip(f"the wheels of the tests are for another Python than {PYTHON}")


def _pack_wheels(folder: Path) -> None:
    """Pack the installed distributions that the program and its build need back into wheels."""
    wanted, seen = ["hatchling", "autopilot-multi"], set()
    while wanted:
        name = wanted.pop().lower().replace("_", "-")
        if name in seen:
            continue
        seen.add(name)
        try:
            found = distribution(name)
        except ModuleNotFoundError:  # for another system or Python
            continue
        plain = (each for each in found.requires or () if "extra ==" not in each)
        wanted += [re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in plain]
        if name != "autopilot-multi":
            _pack(found, folder)


def _pack(found: Distribution, folder: Path) -> None:
    tags = re.findall(r"^Tag: (\S+)-(\S+)-(\S+)$", found.read_text("WHEEL") or "", re.MULTILINE)
    tag = "-".join(".".join(dict.fromkeys(parts)) for parts in zip(*tags, strict=True))
    files = [path for path in found.files or () if ".." not in path.parts and path.suffix != ".pyc"]
    own = [path for path in files if path.name not in {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}]
    record = next(path for path in files if path.name == "RECORD")
    with zipfile.ZipFile(folder / f"{found.name.replace('-', '_')}-{found.version}-{tag}.whl", "w") as wheel:
        for path in own:
            wheel.write(path.locate(), str(path))
        wheel.writestr(str(record), "".join(f"{path},,\n" for path in [*own, record]))


def _first_steps() -> list[str]:
    """Return the shell blocks of the README's first steps: how to install, and a first story."""
    text = README.read_text(encoding="utf-8")
    begin = text[: text.index("## Install")].count("\n")
    end = text[: text.index("## What the words mean")].count("\n")
    return [block.text for block in blocks_of(README) if begin < block.line < end]


def test_the_first_steps_of_the_readme_end_with_a_merged_story(account: pwd.struct_passwd) -> None:
    """Every command is pasted as it is written there, in one shell, and each succeeds."""
    _require_debian()
    home = Path(account.pw_dir)
    programs, wheels, clone = home.parent / "bin", home.parent / "wheels", home / "autopilot-multi"
    programs.mkdir()
    wheels.mkdir()
    for name in PROGRAMS:
        (programs / name).symlink_to(shutil.which(name) or name)
    (programs / "python3").symlink_to(PYTHON)
    shutil.copy(uv(), programs / "uv")  # where it is installed, an account may have no access
    _pack_wheels(wheels)
    git(ROOT, "clone", "-q", "--no-hardlinks", str(ROOT), str(clone))
    for name in git(ROOT, "ls-files", "-mo", "--exclude-standard").splitlines():
        if (ROOT / name).exists():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, clone / name)
    subprocess.run(["chown", "-R", f"{account.pw_uid}:{account.pw_gid}", clone], check=True)
    blocks = _first_steps()
    assert len(blocks) == 2, "how to install, and a first story"
    done = subprocess.run(
        ["sh", "-e"],
        input="\n".join([*blocks, "command -v autopilot-multi", "git log --first-parent --format=%s"]),
        cwd=clone,
        env={
            "HOME": str(home),
            "USER": account.pw_name,
            "PATH": str(programs),
            "UV_OFFLINE": "1",
            "UV_NO_INDEX": "1",
            "UV_FIND_LINKS": str(wheels),
            "UV_PYTHON_DOWNLOADS": "never",
        },
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    greeting, program, *subjects = done.stdout.splitlines()[-4:]
    assert greeting == "hello", "the work is in the checkout"
    assert program == str(home / ".local" / "bin" / "autopilot-multi")
    assert subjects == ["Merge story hello: Say hello", "Initial commit"], "the story is merged"
    assert "verified" in done.stdout
    interpreter = home / ".local/share/uv/tools/autopilot-multi/bin/python"
    assert os.path.realpath(interpreter) == os.path.realpath(PYTHON)
