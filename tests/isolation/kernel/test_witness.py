"""The witness reports every refused write of a session, from any of its processes and by any call."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
import trio

from isolation.guard import guard
from isolation.kernel import seccomp, syscall_filter
from isolation.kernel.syscall_effects import effects
from isolation.kernel.witness import MOST_NAMES
from isolation.model import Means
from tests.isolation.guard.guard_scenes import play
from tests.isolation.guard.test_guard import means, open_folder, user
from tests.isolation.kernel.filters import answer_of

__all__ = ["means", "open_folder", "user"]

Seen = set[tuple[str, str]]

PRELUDE = """
import ctypes, os, sys, threading
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *arguments):
    made = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    libc.syscall(ctypes.c_long(number), *made)
def write(path, *, dir_fd=None):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT, dir_fd=dir_fd))
    except OSError:
        pass
def apart(script):
    if not os.fork():
        try:
            exec(script, globals())
        except OSError as error:
            print(error)
        finally:
            sys.stdout.flush()
            os._exit(0)
    os.wait()
"""

# By name: the arguments, as Python text, and what is to be seen. {old} is there, {new} is not.
HERE, FD = "-100", "os.open({old}, os.O_RDONLY)"
CONTENT = {
    "open": ("{old}, os.O_WRONLY", "write"),
    "openat": (f"{HERE}, {{new}}, os.O_RDWR | os.O_CREAT, 0o600", "create"),
    "openat2": (f"{HERE}, {{old}}, (os.O_WRONLY | os.O_TRUNC).to_bytes(24, 'little'), 24", "write"),
    "creat": ("{new}, 0o600", "create"),
    "truncate": ("{old}, 0", "write"),
    "mkdir": ("{new}, 0o700", "create"),
    "mkdirat": (f"{HERE}, {{new}}, 0o700", "create"),
    "mknod": ("{new}, 0o10600, 0", "create"),
    "mknodat": (f"{HERE}, {{new}}, 0o10600, 0", "create"),
    "symlink": ("b'x', {new}", "create"),
    "symlinkat": (f"b'x', {HERE}, {{new}}", "create"),
    "unlink": ("{old}", "delete"),
    "unlinkat": (f"{HERE}, {{old}}, 0", "delete"),
    "rmdir": ("b'lib/deep'", "delete lib/deep"),
    "rename": ("{old}, b'own/r'", "delete"),
    "renameat": (f"{HERE}, b'own/mine', {HERE}, {{new}}", "create"),
    "renameat2": (f"{HERE}, b'own/mine', {HERE}, {{old}}, 0", "write"),
    "link": ("b'own/mine', {new}", "create"),
    "linkat": (f"{HERE}, {{old}}, {HERE}, b'own/l', 0", "open"),
}
ATTRIBUTES = {
    "chmod": "{old}, 0o711",
    "fchmod": f"{FD}, 0o711",
    "fchmodat": f"{HERE}, {{old}}, 0o711",
    "fchmodat2": f"{HERE}, {{old}}, 0o711, 0",
    "chown": "{old}, 12, -1",
    "lchown": "{old}, -1, 12",
    "fchown": f"{FD}, 12, 12",
    "fchownat": f"{HERE}, {{old}}, 12, 12, 0",
    "utime": "{old}, 0",
    "utimes": "{old}, 0",
    "futimesat": f"{HERE}, {{old}}, 0",
    "utimensat": f"{FD}, 0, 0, 0",
    "setxattr": "{old}, b'user.x', b'x', 1, 0",
    "lsetxattr": "{old}, b'user.x', b'x', 1, 0",
    "fsetxattr": f"{FD}, b'user.x', b'x', 1, 0",
    "removexattr": "{old}, b'user.x'",
    "lremovexattr": "{old}, b'user.x'",
    "fremovexattr": f"{FD}, b'user.x'",
    "setxattrat": f"{HERE}, {{old}}, 0, b'user.x', bytes(16), 16",
    "removexattrat": f"{HERE}, {{old}}, 0, b'user.x'",
}


def numbers() -> dict[str, int]:
    words = syscall_filter._NUMBERS[os.uname().machine].split()
    return {name: int(number) for name, number in zip(words[::2], words[1::2], strict=True)}


def watch(
    folder: Path, user: int | None, means: Means, scripts: Iterable[str], files: tuple[str, ...] = ()
) -> Seen:
    """Run each script in a process of its own, all in one session, and give what was seen."""
    text = PRELUDE + "".join(f"apart({script!r})\n" for script in scripts)
    files = ("own/mine", *files)
    ended = play("witness", folder, user, means=means, scripts={"all": text}, files=files)
    code, output = ended["all"]
    report = json.loads(output)
    assert code == 0, report["said"]
    return {(act, path) for act, path in report["seen"]}


def test_every_call_that_changes_files_is_known() -> None:
    """The table of this test has every call of the filter, so that none goes without a trial."""
    assert set(numbers()) == (CONTENT | ATTRIBUTES).keys() & set(numbers())


def test_every_call_is_named(open_folder: Path, user: int | None, means: Means) -> None:
    """Acceptance 18: each way of creating, editing, deleting, renaming and linking is seen, with its path.

    Under Landlock attributes are changed, not refused, so they are no attempt.
    """
    here = {name: call[0] for name, call in CONTENT.items()} | ATTRIBUTES
    known = {name: number for name, number in numbers().items() if name in here}
    scripts, wanted = [], set()
    for name, number in known.items():
        filled = here[name].format(old=f"b'lib/{name}'", new=f"b'lib/{name}-new'")
        scripts.append(f"call({number}, {filled})")
        text, told = CONTENT.get(name, (here[name], "attributes"))
        act, _, path = told.partition(" ")
        path = path or (f"lib/{name}-new" if "{new}" in text else f"lib/{name}")
        if name not in ATTRIBUTES or means is Means.MOUNTS:
            wanted.add((act, path))
    files = tuple(f"lib/{name}" for name in known)
    assert watch(open_folder, user, means, scripts, files) == wanted


INNOCENT = {
    "read": "open('README.md').read(); os.listdir('lib')",
    "own": "open('own/x', 'w'); os.mkdir('own/d'); os.rename('own/x', 'own/d/x'); os.unlink('own/d/x')",
    "elsewhere": "open(os.environ['TMPDIR'] + '/x', 'w'); open('/dev/null', 'w')",
    "git": "write('.git/index.lock'); write('.git/config'); os.system('git add -A')",
    "a folder that is there": "call({mkdir}, -100, b'lib', 0o700); os.system('mkdir -p lib/deep own/a/b')",
    "what is not there": "call({unlink}, -100, b'lib/none', 0); os.system('rm -f lib/none')",
    "an empty name": "os.chdir('lib'); call({unlink}, -100, b'', 0)",
    "a folder that is not there": "write('nowhere/x')",
    "only if new": "call({openat}, -100, b'README.md', os.O_WRONLY | os.O_CREAT | os.O_EXCL)",
    "the mode it has": "os.system('chmod $(stat -c %a README.md) README.md')",
    "the owner it has": "os.chown('README.md', -1, -1)",
    "by handle": "os.open('README.md', os.O_PATH | os.O_RDWR)",
}


def test_what_changes_nothing_is_no_attempt(open_folder: Path, user: int | None) -> None:
    """Reading, own work, git's own files, and calls that could only have failed are not held against it."""
    known = numbers()
    calls = {"mkdir": known["mkdirat"], "unlink": known["unlinkat"], "openat": known["openat"]}
    scripts = [text.format(**calls) for text in INNOCENT.values()]
    assert watch(open_folder, user, Means.MOUNTS, scripts) == set()


def test_a_database_that_is_merely_read_was_opened(open_folder: Path) -> None:
    """Opening for reading and writing is told as just that."""
    script = "import sqlite3\ntry:\n    sqlite3.connect('lib/db').execute('select * from sqlite_master')\n"
    script += "except sqlite3.DatabaseError as error:\n    assert 'not a database' in str(error)"
    assert watch(open_folder, None, Means.MOUNTS, [script], ("lib/db",)) == {("open", "lib/db")}


WAYS = {
    "thread": "t = threading.Thread(target=write, args=['lib/XX']); t.start(); t.join()",
    "threads": "ts = [threading.Thread(target=write, args=[f'lib/{n}']) for n in range(20)]\n"
    "[t.start() for t in ts]; [t.join() for t in ts]",
    "grandchild": 'os.system(\'sh -c "sh -c \\\\"echo x > lib/XX\\\\""\')',
    "daemon": "r, w = os.pipe()\nif not os.fork():\n    os.setsid()\n    if not os.fork():\n"
    "        write('lib/XX'); os.write(w, b'.')\n    os._exit(0)\nos.read(r, 1)",
    "bytes": "write(b'lib/\\xff\\n x')",
    "folder": "write('XX', dir_fd=os.open('lib', os.O_RDONLY))",
    "moved": "os.chdir('own'); write('../lib/XX')",
    "absolute": "write(os.path.abspath('lib/XX'))",
    "dots": "write('own/../lib/./deep/../XX')",
    "long": "write('./' * 2000 + 'lib/XX')",
    "longer": "for n in range(20):\n    os.mkdir('own/' + 'd' * 200) if not n else os.mkdir('d' * 200)\n"
    "    os.chdir('own/' + 'd' * 200) if not n else os.chdir('d' * 200)\nwrite('../' * 21 + 'lib/XX')",
    "gone": "here = os.open('lib', os.O_RDONLY); os.mkdir('own/gone'); os.chdir('own/gone')\n"
    "os.rmdir('../gone'); write('nothing'); write('XX', dir_fd=here)",
    "link": "os.symlink('../lib', 'own/way'); write('own/way/XX')",
    "link to a file": "os.symlink('../lib/c.py', 'own/file'); write('own/file')",
    "link to nothing": "os.symlink('../lib/XX', 'own/none'); write('own/none')",
    "page end": "import mmap\nm = mmap.mmap(-1, 8192); m[4088:4096] = b'lib/XX\\0'\n"
    "libc.mprotect(ctypes.c_void_p((a := ctypes.addressof(ctypes.c_char.from_buffer(m))) + 4096), 4096, 0)\n"
    "call({openat}, -100, a + 4088, os.O_WRONLY | os.O_CREAT, 0o600)",
}
NAMED = {
    "threads": {("create", f"lib/{number}") for number in range(20)},
    "bytes": {("create", "lib/\udcff\n x")},
    "link to a file": {("write", "lib/c.py")},
}


def test_every_way_to_a_file_is_understood(open_folder: Path, user: int | None, means: Means) -> None:
    """Open cases 1 and 2: threads, descendants, odd names, links and folders that are gone."""
    number, scripts, wanted = numbers()["openat"], [], set()
    for place, (name, text) in enumerate(WAYS.items()):
        scripts.append(text.replace("XX", f"X{place:02}").replace("{openat}", str(number)))
        wanted |= NAMED.get(name, {("create", f"lib/X{place:02}")})
    assert watch(open_folder, user, means, scripts) == wanted


@pytest.mark.parametrize("notices", [5_000, pytest.param(100_000, marks=pytest.mark.chaos)])
def test_a_storm_is_survived_and_counted(open_folder: Path, notices: int) -> None:
    """The first names are kept, the others counted, and the session goes on to its end."""
    script = f"{PRELUDE}\nfor n in range({notices}):\n    write(f'lib/{{n}}')\nprint('through')"
    ended = play("witness", open_folder, None, means=Means.MOUNTS, scripts={"storm": script}, files=[])
    report = json.loads(ended["storm"][1])
    assert (ended["storm"][0], report["said"]) == (0, "through\n")
    assert [path for _, path in report["seen"]] == [f"lib/{number}" for number in range(MOST_NAMES)]
    assert report["unnamed"] == notices - MOST_NAMES


def test_a_machine_without_a_table_has_no_witness() -> None:
    """Numbers that are not known are not guessed."""
    assert syscall_filter.calls("riscv64") == {}
    assert syscall_filter.calls("aarch64").keys() & {56, 437}


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("attributes", [True, False])
def test_the_filter_picks_out_what_changes_files(machine: str, *, attributes: bool) -> None:
    """The program is run by hand: every call of the table is told of, everything else passes."""
    code = syscall_filter.program(machine, attributes=attributes)
    native = seccomp.NATIVE[machine]
    for number, call in syscall_filter.calls(machine).items():
        told = attributes or call[0] < syscall_filter.MODE
        for flags in (0, os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_PATH | os.O_RDWR):
            changing = bool(flags) and not flags & os.O_PATH
            expected = told and (changing or call[0] != syscall_filter.OPEN)
            assert _told(code, number, native, flags) is expected, number
            assert not _told(code, number, 0x40000003, flags), "another architecture passes"
        assert not _told(code, number | 0x40000000, native, os.O_WRONLY), "so does x32"
    assert not any(_told(code, number, native, 0) for number in (0, 1, 3, 59, 1000) if machine == "x86_64")


def _told(code: bytes, number: int, architecture: int, flags: int) -> bool:
    """Whether a filter reports a call of which all arguments are the flags."""
    return answer_of(code, number, architecture, [flags] * 6) == seccomp.REPORT


def test_a_pipe_is_written_to_not_the_tree(tmp_path: Path) -> None:
    """A named pipe in the tree may be used on a read-only file system too."""
    os.mkfifo(tmp_path / "pipe")
    assert effects(syscall_filter.OPEN, os.O_WRONLY, [(tmp_path / "pipe").stat()]) == ("",)
    assert effects(syscall_filter.OPEN, os.O_TMPFILE | os.O_RDWR, [tmp_path.stat()]) == ("open",)


async def test_the_machine_is_asked_by_a_real_attempt(means: Means) -> None:
    """Whoever can be a witness is found out by being one."""
    assert await trio.to_thread.run_sync(guard.witnesses, means)
