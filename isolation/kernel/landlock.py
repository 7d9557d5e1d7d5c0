"""Landlock: a process gives up the right to write to some folders, for itself and all that it will start.

Standard library only: a keeper's child calls this between fork and exec. Landlock can permit but not
prohibit. So every folder is permitted except the closed ones and those above them: in `/`, `/home` and
`/home/me` above a closed `/home/me/app`, what exists already stays usable, but no name can be created,
removed or replaced.

Landlock does not see changes of mode, owner, times or extended attributes.
"""

# Without pathlib: paths are bytes here, and the fork server must start fast.
# ruff: noqa: PTH118, PTH120, PTH208

import ctypes
import os
import stat
import struct
from collections.abc import Iterator, Sequence

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1
_NO_NEW_PRIVILEGES = 38

_WRITE_FILE = 1 << 1
_NAMES = sum(1 << bit for bit in range(4, 13))
"""Creating and removing names of every kind."""
_REFER = 1 << 13
_TRUNCATE = 1 << 14
_SOCKETS, _SIGNALS = 1 << 0, 1 << 1
"""Keep abstract sockets, and signals, within the domain."""
_REFER_SINCE, _TRUNCATE_SINCE, _SCOPES_SINCE = 2, 3, 6

LIBC = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    result: int = LIBC.syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "landlock")
    return result


def forbid_new_privileges() -> None:
    """Forbid, for good, that set-user-id programs add privileges."""
    if LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "no_new_privs", "landlock")


def restrict(closed: Sequence[bytes], open_within: Sequence[bytes]) -> None:
    """Close paths to this process, except for the folders inside them that stay open."""
    version = _version()
    for_files = _WRITE_FILE | (_TRUNCATE if version >= _TRUNCATE_SINCE else 0)
    handled = for_files | _NAMES | (_REFER if version >= _REFER_SINCE else 0)
    rules = _call(_CREATE_RULESET, struct.pack("=Q", handled), ctypes.c_size_t(8), 0)
    for path in (*_around(closed), *open_within):
        _allow(rules, path, for_files=for_files, for_folders=handled)
    _enter(rules)


def enter_domain(*, sockets: bool = False) -> bool:
    """Enter a domain of its own that closes no file; false where the kernel has none of this kind.

    Its members can trace and signal each other, and nothing outside. They can still mount, which they could
    not in a domain that closes files. With `sockets`, abstract sockets outside are closed as well.
    """
    scopes = _SIGNALS | (_SOCKETS if sockets else 0)
    try:
        if _version() < _SCOPES_SINCE:
            return False
    except OSError:
        return False
    _enter(_call(_CREATE_RULESET, struct.pack("=QQQ", 0, 0, scopes), ctypes.c_size_t(24), 0))
    return True


def _version() -> int:
    return _call(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)


def _enter(rules: int) -> None:
    forbid_new_privileges()
    _call(_RESTRICT_SELF, rules, 0)
    os.close(rules)


def _allow(rules: int, path: bytes, *, for_files: int, for_folders: int) -> None:
    try:
        # Not through a link: it may lead into what is closed. An open target has a rule of its own.
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # it is gone, or this user may not open it anyway
    try:
        rights = for_folders if stat.S_ISDIR(os.fstat(descriptor).st_mode) else for_files
        _call(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)


def _around(closed: Sequence[bytes]) -> Iterator[bytes]:
    """Yield what lies beside the closed paths, and beside the folders above them."""
    closed_paths = set(closed)
    above = {folder for path in closed for folder in _folders_above(path)} - closed_paths
    for folder in above:
        if closed_paths.intersection(_folders_above(folder)):
            continue  # inside a closed path only named folders are open
        try:
            names = os.listdir(folder)
        except OSError:
            continue
        paths = (os.path.join(folder, name) for name in names)
        yield from (path for path in paths if path not in closed_paths and path not in above)


def _folders_above(path: bytes) -> list[bytes]:
    found = []
    while path != b"/":
        path = os.path.dirname(path)
        found.append(path)
    return found
