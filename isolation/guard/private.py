"""What is private to a user on most machines: one list of the places that sessions do not see when sealed.

A path begins with `~`, which is every folder that is the user's home, or is absolute; it may hold `*`. Where
a variable moves a folder or a file, its value is a place too.
"""

# Without pathlib: there are some hundred places, and a session waits until all were looked at.
# ruff: noqa: PTH208

import fnmatch
import os
import pwd
import re
import stat
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache

from msgspec import Struct

_MOST_READ = 1 << 20
_FRESH_SECONDS = 1.0
_ASKS_OF_LINKS = os.access in os.supports_follow_symlinks
_MOVED = {".config": "XDG_CONFIG_HOME", ".local/share": "XDG_DATA_HOME", ".cache": "XDG_CACHE_HOME"}


class Store(Struct, frozen=True, kw_only=True):
    """One kind of private things: its places, and what tells that a program misses it.

    `variables` are those that hold a place, or several with colons between. The names in `shows`, inside a
    folder, are not private. With `holds` a file is private only if its text matches. `signs` is a pattern of
    what programs print without it. With `usable` a place counts only if this user may open it.
    """

    what: str
    paths: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    shows: tuple[str, ...] = ()
    holds: str = ""
    signs: str = ""
    usable: bool = False


STORES = (
    Store(
        what="SSH keys",
        paths=("~/.ssh",),
        # Servers are still recognized, though no key opens them.
        shows=("known_hosts", "known_hosts2", "config"),
        signs=r"Permission denied \(publickey|Could not read from remote repository",
    ),
    Store(
        what="the SSH agent",
        paths=("/tmp/ssh-*", "~/.ssh-agent*", "~/.1password", "/run/user/*/openssh_agent"),  # noqa: S108
        variables=("SSH_AUTH_SOCK",),
    ),
    Store(
        what="GnuPG keys",
        paths=("~/.gnupg", "/run/user/*/gnupg"),
        variables=("GNUPGHOME",),
        signs=r"gpg failed to sign|gpg: .*No secret key",
    ),
    Store(
        what="the desktop's keys and services",
        paths=(
            "~/.local/share/keyrings",
            "~/.local/share/kwalletd",
            *(f"/run/user/*/{name}" for name in ("keyring", "gcr", "p11-kit", "bus", "systemd", "kwallet*")),
        ),
    ),
    Store(
        what="passwords",
        paths=("~/.password-store", "~/.config/op", "~/.config/Bitwarden*", "~/.config/keepassxc"),
        variables=("PASSWORD_STORE_DIR",),
    ),
    Store(
        what="credentials of AWS",
        paths=("~/.aws",),
        variables=("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
        signs=r"Unable to locate credentials|NoCredentialsError",
    ),
    Store(what="credentials of Azure", paths=("~/.azure",), variables=("AZURE_CONFIG_DIR",)),
    Store(
        what="credentials of Google Cloud",
        paths=("~/.config/gcloud", "~/.boto"),
        variables=("CLOUDSDK_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS"),
        signs=r"default credentials were not found|DefaultCredentialsError",
    ),
    Store(
        what="credentials of cloud services",
        paths=(
            "~/.config/doctl",
            "~/.config/hcloud",
            "~/.config/rclone",
            "~/.config/sops",
            "~/.config/age",
            "~/.fly/config.yml",
            "~/.s3cfg",
            "~/.oci",
            "~/.vault-token",
            "~/.terraform.d/credentials.tfrc.json",
            "~/.terraformrc",
            "~/.netlify",
            "~/.config/configstore",
            "~/.databrickscfg",
            "~/.kaggle",
            "~/.huggingface/token",
            "~/.cache/huggingface/token",
        ),
    ),
    Store(what="access to Kubernetes", paths=("~/.kube",), variables=("KUBECONFIG",)),
    Store(
        what="sign-ins of Docker",
        paths=("~/.docker/config.json", "~/.config/containers/auth.json", "/run/user/*/containers/auth.json"),
        variables=("REGISTRY_AUTH_FILE",),
        holds=r'"auths?"\s*:\s*[{"]\s*[^}\s]|identitytoken',
        signs=r"unauthorized: authentication required|pull access denied",
    ),
    Store(
        what="passwords for git",
        paths=("~/.git-credentials", "~/.config/git/credentials", "~/.cache/git/credential"),
        signs=r"could not read (?:Username|Password) for|Authentication failed for",
    ),
    Store(what="passwords of ~/.netrc", paths=("~/.netrc", "~/_netrc"), variables=("NETRC",)),
    Store(
        what="sign-ins of forges",
        paths=("~/.config/gh", "~/.config/glab-cli", "~/.config/hub", "~/.config/tea"),
        variables=("GH_CONFIG_DIR", "GLAB_CONFIG_DIR"),
        signs=r"gh auth login|glab auth login",
    ),
    Store(
        what="tokens of npm",
        paths=("~/.npmrc", "~/.yarnrc", "~/.yarnrc.yml"),
        variables=("NPM_CONFIG_USERCONFIG", "npm_config_userconfig"),
        holds=r"(?i)_auth|_password|authToken|authIdent",
        signs=r"\bE401\b|\bENEEDAUTH\b",
    ),
    Store(
        what="tokens of Python indexes",
        paths=(
            "~/.pypirc",
            "~/.config/pip/*",
            "~/.pip/pip.conf",
            "~/.config/uv/*",
            "~/.config/pypoetry/auth.toml",
        ),
        variables=("PIP_CONFIG_FILE",),
        # A plain address of an index is no secret, and an installation needs it.
        holds=r"(?i)://[^\s/@:]+:[^\s/@]+@|password|token",
        signs=r"401 Error, Credentials not correct|403 Client Error: Forbidden for url",
    ),
    Store(
        what="tokens of package registries",
        paths=(
            "~/.cargo/credentials*",
            "~/.gem/credentials",
            "~/.composer/auth.json",
            "~/.config/composer/auth.json",
            "~/.nuget/NuGet/NuGet.Config",
        ),
    ),
    Store(
        what="passwords of Maven and Gradle",
        paths=("~/.m2/settings.xml", "~/.m2/settings-security.xml", "~/.gradle/gradle.properties"),
        holds=r"(?i)password|token|secret",
    ),
    Store(what="passwords of databases", paths=("~/.pgpass", "~/.my.cnf", "~/.mylogin.cnf", "~/.mongorc.js")),
    Store(
        what="profiles of browsers and mail",
        paths=(
            "~/.mozilla",
            "~/.thunderbird",
            *(f"~/.config/{name}" for name in ("google-chrome*", "chromium", "BraveSoftware", "vivaldi")),
            *(f"~/.config/{name}" for name in ("microsoft-edge*", "opera", "Slack", "Signal", "discord")),
            *(f"~/snap/{name}" for name in ("firefox", "chromium", "thunderbird")),
            "~/.var/app",
        ),
    ),
    Store(
        what="histories",
        paths=("~/.*_history", "~/.histfile", "~/.local/share/fish/fish_history", "~/.lesshst", "~/.viminfo"),
        variables=("HISTFILE",),
    ),
    Store(
        what="disks and the machine's memory",
        paths=(
            *(f"/dev/{name}*" for name in ("sd", "hd", "vd", "xvd", "nvme", "mmcblk", "md", "dm-", "loop")),
            *("/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/proc/kcore", "/proc/kmsg"),
        ),
        usable=True,
    ),
    Store(
        what="your own settings and agreements",
        paths=("~/.local/share/autopilot-multi", "~/.config/autopilot-multi"),
    ),
)


class Look:
    """One look at the machine for private things; what it learns about a folder holds for all places in it.

    A session waits for it, so paths are texts here, and a folder is read once.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._where = _where(environ)
        self._names: dict[str, list[str]] = {}
        self._real: dict[str, str] = {}

    def places(self, stores: Iterable[Store]) -> list[tuple[Store, str, bool]]:
        """Return the places that exist now, without symbolic links, and whether each is a folder."""
        return [(store, *found) for store in stores for found in self._places(store)]

    def _places(self, store: Store) -> Iterator[tuple[str, bool]]:
        named = [*_expanded(store.paths, self._where)]
        for name in store.variables:
            if value := self._environ.get(name):
                named += [part for part in value.split(os.pathsep) if part.startswith("/")]
        for path in named:
            for found in self._matching(path) if "*" in path else _existing(path):
                try:
                    mode = os.lstat(found).st_mode
                    real = self._real_path(found, mode)
                    if stat.S_ISLNK(mode):
                        mode = os.lstat(real).st_mode
                except OSError:
                    continue
                if store.usable and not os.access(real, os.R_OK):
                    continue
                if not store.holds or _holds(real, mode, store.holds):
                    yield real, stat.S_ISDIR(mode)

    def _real_path(self, path: str, mode: int) -> str:
        """Return a path without symbolic links; `mode` is that of what is there."""
        above, _, name = path.rpartition("/")
        if stat.S_ISLNK(mode) or name in {"", ".", ".."} or not path.startswith("/"):
            return os.path.realpath(path)
        return f"{self._real_folder(above)}/{name}"

    def _real_folder(self, path: str) -> str:
        """Return a folder's path without symbolic links, and without the slash of the root."""
        if path and path not in self._real:
            self._real[path] = self._real_path(path, os.lstat(path).st_mode).rstrip("/")
        return self._real[path] if path else ""

    def _matching(self, path: str) -> list[str]:
        """Return what a path with `*` can mean; only the parts with `*` in them are patterns, as in a shell.

        So a home whose name holds `[` is found. Names that begin with a dot are not meant by a `*` alone.
        """
        found = [""]
        for part in path.split("/")[1:]:
            if "*" not in part:
                found = [f"{folder}/{part}" for folder in found]
                continue
            found = [f"{folder}/{name}" for folder in found for name in self._fitting(folder, part)]
        return found

    def _fitting(self, folder: str, part: str) -> list[str]:
        """Return the names in a folder that one part of a path with `*` can mean."""
        if folder not in self._names:
            try:
                self._names[folder] = sorted(os.listdir(folder or "/"))
            except OSError:
                self._names[folder] = []
        names = self._names[folder]
        start = re.split(r"[*?[]", part, maxsplit=1)[0]
        if start:
            # Of a long list, such as that of devices, only the names that begin so are looked at.
            names = names[bisect_left(names, start) : bisect_left(names, f"{start}\U0010ffff")]
        else:
            names = [name for name in names if not name.startswith(".")]
        fits = _pattern(part).match
        return names if part == f"{start}*" else [name for name in names if fits(name)]


class LatestLook:
    """What was found at the private places, for all sessions of a run that start within a second.

    A place that the user makes in that second shows in them, as it does in a session that has begun before.
    One that is gone needs nothing in its stead.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._until = 0.0
        self._asked: tuple[Sequence[Store], Mapping[str, str]] = ((), {})
        self._found: list[tuple[Store, str, bool]] = []

    def places(self, stores: Sequence[Store], environ: Mapping[str, str]) -> list[tuple[Store, str, bool]]:
        """Return the places that exist now, or did up to a second ago, as a look finds them. Blocks."""
        with self._lock:
            if (now := self._clock()) >= self._until or self._asked != (stores, environ):
                self._found = Look(environ).places(stores)
                self._asked, self._until = (stores, environ), now + _FRESH_SECONDS
            return self._found


_Where = tuple[tuple[str, ...], tuple[tuple[str, str], ...]]
"""The user's homes, and the folders inside a home that variables moved, each with its new place."""


def _where(environ: Mapping[str, str]) -> _Where:
    moved = ((folder, environ.get(variable, "").rstrip("/")) for folder, variable in _MOVED.items())
    return tuple(homes(environ)), tuple(each for each in moved if each[1].startswith("/"))


@lru_cache(maxsize=512)
def _expanded(paths: tuple[str, ...], where: _Where) -> tuple[str, ...]:
    homes, moved = where
    found: list[str] = []
    for path in paths:
        if not path.startswith("~/"):
            found.append(path)
            continue
        inside = path.removeprefix("~/")
        found += [f"{home}/{inside}" for home in homes]
        found += [f"{new}/{inside[len(old) + 1 :]}" for old, new in moved if inside.startswith(f"{old}/")]
    return tuple(found)


@lru_cache(maxsize=512)
def _pattern(part: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(part))


def expand(path: str, environ: Mapping[str, str]) -> Sequence[str]:
    """Return where a path is that may begin with `~`: in each home, and where a variable moved it to."""
    return _expanded((path,), _where(environ))


def homes(environ: Mapping[str, str]) -> Iterable[str]:
    """Return the user's home: what the environment says, and what the system says."""
    return dict.fromkeys(
        each.rstrip("/") for each in (environ.get("HOME", ""), _home()) if each.startswith("/")
    )


@cache
def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def _existing(path: str) -> tuple[str, ...]:
    """Return the path if something is there; most are not there, and this is the cheapest question."""
    there = os.access(path, os.F_OK, follow_symlinks=False) if _ASKS_OF_LINKS else os.path.lexists(path)
    return (path,) if there else ()


def _holds(path: str, mode: int, pattern: str) -> bool:
    """Whether a file matches; what is no file, such as a FIFO, or cannot be read counts as private."""
    if not stat.S_ISREG(mode):
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            text = os.read(descriptor, _MOST_READ)
        finally:
            os.close(descriptor)
    except OSError:
        return True
    return re.search(pattern, text.decode("utf-8", "replace")) is not None
