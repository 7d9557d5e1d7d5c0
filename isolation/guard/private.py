"""What is private to a user on most machines: one list of the places that sessions do not see when sealed.

A path begins with `~`, which is every folder that is the user's home, or is absolute; it may hold `*`. Where
a variable moves a folder or a file, its value is a place too.
"""

import glob
import os
import pwd
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from msgspec import Struct

_MOST_READ = 1 << 20
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


def find_places(store: Store, environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the places of a kind that exist now, without symbolic links."""
    named = [path for text in store.paths for path in expand(text, environ)]
    named += [
        part
        for name in store.variables
        for part in environ.get(name, "").split(os.pathsep)
        if part.startswith("/")
    ]
    for path in named:
        for found in glob.glob(path) if "*" in path else (path,):  # noqa: PTH207  of an absolute path
            if not os.path.lexists(found):  # most do not exist, and this is the cheapest question
                continue
            real = os.path.realpath(found)
            if store.usable and not os.access(real, os.R_OK):
                continue
            if os.path.lexists(real) and (not store.holds or _holds(real, store.holds)):
                yield Path(real)


def expand(path: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Yield where a path is that may begin with `~`: in each home, and where a variable moved it to."""
    if not path.startswith("~/"):
        yield path
        return
    inside = path.removeprefix("~/")
    for home in homes(environ):
        yield f"{home}/{inside}"
    for folder, variable in _MOVED.items():
        if inside.startswith(f"{folder}/") and environ.get(variable, "").startswith("/"):
            yield f"{environ[variable].rstrip('/')}/{inside.removeprefix(f'{folder}/')}"


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


def _holds(path: str, pattern: str) -> bool:
    """Whether a file matches; one that cannot be read as a file counts as private."""
    try:
        with Path(path).open("rb") as file:
            return re.search(pattern, file.read(_MOST_READ).decode("utf-8", "replace")) is not None
    except OSError:
        return True
