"""The real program as whoever runs the tests, and as an ordinary user where that is root.

An ordinary user can often read neither the checkout nor the interpreter of the tests. So it gets an
interpreter of the same version that it may execute, and a readable copy of the packages.

A machine can be made poor: within a first Landlock nothing can be mounted, and after sixteen the kernel
takes no further one; in a user namespace whose limit is 0 there are no further namespaces. It is the kernel
that refuses then, not a probe that was patched.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest

from isolation.model import EnforcementLevel, Means
from tests.acceptance.preloaded import ProgramServer
from tests.acceptance.program import LIMIT, Ran, run_in
from tests.conftest import GIT_ENVIRONMENT
from tests.isolation.guard.guard_scenes import require

NOBODY = 65534
USERS = {"me": None, "nobody": NOBODY} if os.getuid() == 0 else {"me": None}
NO_MOUNTS, NOTHING = 1, 16
"""How many Landlocks take the mounts away, and how many take everything."""

LANGUAGE = {"LC_ALL": "C"}
"""In which git speaks to everybody."""

_POOR = """
import os, sys
from isolation.kernel import landlock
for _ in range(int(sys.argv[1])):
    landlock.restrict([b"/nowhere"], [])
os.execv(sys.executable, [sys.executable, "-m", "runner", *sys.argv[2:]])
"""
_LIMITED = """
import ctypes, os, sys
user, *argv = sys.argv[1:]
(made, tell), (mapped, go) = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    assert ctypes.CDLL(None).unshare(0x10000000) == 0
    os.write(tell, b"x")
    os.read(mapped, 1)
    for kind in ("user", "mnt"):
        with open(f"/proc/sys/user/max_{kind}_namespaces", "w") as limit:
            limit.write("0")
    os.setgroups([])
    os.setgid(int(user))
    os.setuid(int(user))
    os.execv(argv[0], argv)
os.read(made, 1)
for kind in ("uid_map", "gid_map"):
    with open(f"/proc/{pid}/{kind}", "w") as names:
        names.write("0 0 65536")
os.write(go, b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
_ROOT = Path(__file__).parents[2]
_MEMORY = Path("/dev/shm")  # noqa: S108  a folder of its own is made there


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What a run in one shared tree stands on: the level asked for, and how poor the machine is made."""

    level: EnforcementLevel
    means: Means | None
    landlocks: int = 0

    def require(self) -> None:
        """Skip what this machine lacks."""
        if self.means is not None:
            require(self.level, self.means)
        if self.landlocks:
            require(EnforcementLevel.DENY, Means.LANDLOCK)
            if not os.access(_MEMORY, os.W_OK):
                pytest.skip(
                    f"Landlock needs a repository outside the temporary folders, such as in {_MEMORY}"
                )


GROUNDS = {
    "divert": Ground(level=EnforcementLevel.DIVERT, means=Means.MOUNTS),
    "deny by mounts": Ground(level=EnforcementLevel.DENY, means=Means.MOUNTS),
    "deny by Landlock": Ground(level=EnforcementLevel.DENY, means=Means.LANDLOCK, landlocks=NO_MOUNTS),
    "detect": Ground(level=EnforcementLevel.DETECT, means=None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody with a folder of their own; without `uid`, whoever runs the tests.

    For a person without `namespaces` the tests must be run by root.
    """

    folder: Path
    uid: int | None = None
    landlocks: int = 0
    namespaces: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def python(self) -> str:
        """The interpreter that this person may execute."""
        return sys.executable if self.uid is None else _python_for(self.uid)

    def call(self, *argv: str, cwd: Path, limit: float = LIMIT) -> subprocess.CompletedProcess[str]:
        """Run any program as this person."""
        return subprocess.run(
            argv,
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **self.environment},
            user=self.uid,
            group=self.uid,
            extra_groups=None if self.uid is None else [],
        )

    def command(self, *args: str) -> list[str]:
        """Return the argv that starts the program, on a machine as poor as it is to be."""
        poor = [self.python, "-c", _POOR, str(self.landlocks)]
        return [*(poor if self.landlocks else [self.python, "-m", "runner"]), *args]

    def run(self, cwd: Path, *args: str, limit: float = LIMIT) -> Ran:
        """Run the program to its end."""
        environ = {**os.environ, **self.environment}
        server = _server_for(self.uid)
        if self.namespaces and server.can_run(environ):
            return run_in(cwd, *args, environ=environ, limit=limit, server=server, landlocks=self.landlocks)
        if self.namespaces:
            done = self.call(*self.command(*args), cwd=cwd, limit=limit)
        else:
            limited = [sys.executable, "-c", _LIMITED, str(self.uid or 0), *self.command(*args)]
            done = replace(self, uid=None).call(*limited, cwd=cwd, limit=limit)
        return Ran(code=done.returncode, out=done.stdout, err=done.stderr)

    def git(self, cwd: Path, *args: str) -> str:
        """Run git for a test's own looks and preparations."""
        done = self.call("git", *args, cwd=cwd)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def repository(self, files: Mapping[str, str]) -> Path:
        """Make a repository of this person's with one commit."""
        root = self.folder / "repo"
        for name, text in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        self.hand_over(root)
        self.git(root, "init", "-q", "-b", "main")
        self.git(root, "add", "-A")
        self.git(root, "commit", "-q", "-m", "first")
        return root

    def hand_over(self, path: Path) -> None:
        """Hand a folder, with all that is in it, over to this person."""
        if self.uid is not None:
            for place in (path, *path.rglob("*")):
                os.chown(place, self.uid, self.uid, follow_symlinks=False)

    def story(self, root: Path, name: str, script: str, **keys: object) -> None:
        """Write a story whose work is a shell script."""
        path = root / "stories" / f"{name}.md"
        path.parent.mkdir(exist_ok=True)
        front = {"command": script, **keys}
        text = "".join(f"{key}: {json.dumps(value)}\n" for key, value in front.items())
        path.write_text(f"---\n{text}---\nDo it.\n")
        self.hand_over(path.parent)


@contextmanager
def somebody(name: str, *, landlocks: int = 0, namespaces: bool = True) -> Iterator[Person]:
    """Return a person by name, with a folder that goes when it is done with."""
    uid = USERS[name]
    # Landlock is not taken for a repository among the temporary files.
    where = _MEMORY if (landlocks or not namespaces) and os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=where) as made:
        folder = Path(os.path.realpath(made))
        environment = {
            **GIT_ENVIRONMENT,
            "HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "home" / ".config"),
            "TMPDIR": str(folder / "tmp"),
            **LANGUAGE,
        }
        if uid is not None:
            environment["PYTHONPATH"] = str(_packages())
        person = Person(
            folder=folder, uid=uid, landlocks=landlocks, namespaces=namespaces, environment=environment
        )
        for place in ("home", "tmp"):
            (folder / place).mkdir()
        person.hand_over(folder)
        yield person


@cache
def _python_for(uid: int) -> str:
    """Find an interpreter of this version that a user may execute."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    asking = "import sys; print('%d.%d' % sys.version_info[:2])"
    for place in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3", f"/usr/bin/python{version}"):
        try:
            done = subprocess.run(
                [place, "-c", asking], capture_output=True, text=True, check=False, user=uid, group=uid
            )
        except OSError:
            continue
        if done.stdout.strip() == version:
            return place
    pytest.skip(f"user {uid} has no Python {version} here")


@cache
def _server_for(uid: int | None) -> ProgramServer:
    """Return the program, loaded once, as this user and in the language of `somebody`."""
    environ = {**os.environ, **GIT_ENVIRONMENT, **LANGUAGE}
    if uid is None:
        return ProgramServer(environ=environ)
    environ["PYTHONPATH"] = str(_packages())
    return ProgramServer(python=_python_for(uid), root=_packages(), environ=environ, uid=uid)


@cache
def _packages() -> Path:
    """Put what the program imports where anybody can read it, once a test process."""
    folder = Path(tempfile.mkdtemp(prefix="autopilot-packages-"))
    folder.chmod(0o755)
    import atexit

    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    shutil.copytree(sysconfig.get_path("purelib"), folder, copy_function=_link, dirs_exist_ok=True)
    for name in ("runner", "isolation"):
        shutil.copytree(_ROOT / name, folder / name, copy_function=_link)
    served = folder / "tests" / "acceptance"
    served.mkdir(parents=True)
    for package in (served.parent, served):
        (package / "__init__.py").touch()
    shutil.copy2(_ROOT / "tests" / "acceptance" / "preloaded.py", served)
    return folder


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # another disk
        shutil.copy2(source, target)
