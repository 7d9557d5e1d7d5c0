"""The programs that hold the credentials of a service, and how one of them is run.

Credentials are theirs: this program stores no token, asks for none, and writes none on a command line. Each
gets the variables of the user's environment that are named here and no others, no terminal to ask at, a
bounded time and a bounded output. Everything that they print is cleaned of secrets before it is shown.
"""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from isolation.errors import CommandLimitError, KeeperError
from isolation.keeper.confined import Ended
from isolation.keeper.unconfined import run_bounded
from runner.core.text.redaction import Redactor
from runner.core.text.telling import telling_line
from runner.forge.errors import ForgeError, OutageError, ProgramMissingError

SECONDS = 60.0
"""How long one call may take."""
MOST_OUTPUT = 64 * 1024 * 1024
"""How much a call may print; a page of a hundred large issues has a tenth of it."""

_EVERY = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "TMPDIR",
    "TZ",
    "LANG",
    "LC_ALL",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_CACHE_HOME",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",  # the keyring that holds the token
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    *(
        name
        for each in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
        for name in (each, each.lower())
    ),
)


class Program(Struct, frozen=True, kw_only=True):
    """A program of a service: how to get it and to sign in, and what it needs of the environment."""

    name: str
    service: str
    install: str
    sign_in: str
    variables: tuple[str, ...] = ()
    fixed: Mapping[str, str] = {}

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the clean environment in which it runs."""
        kept = (*_EVERY, *self.variables)
        return {name: environ[name] for name in kept if name in environ} | dict(self.fixed)


_QUIET = {"NO_COLOR": "1", "PAGER": "cat", "TERM": "dumb"}

GH = Program(
    name="gh",
    service="GitHub",
    install="`apt install gh`, `brew install gh`, or https://cli.github.com",
    sign_in="gh auth login",
    variables=(
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "GH_ENTERPRISE_TOKEN",
        "GITHUB_ENTERPRISE_TOKEN",
        "GH_HOST",
        "GH_CONFIG_DIR",
    ),
    fixed=_QUIET | {"GH_PROMPT_DISABLED": "1", "GH_NO_UPDATE_NOTIFIER": "1", "GH_PAGER": "cat"},
)
GLAB = Program(
    name="glab",
    service="GitLab",
    install="`apt install glab`, `brew install glab`, or https://gitlab.com/gitlab-org/cli",
    sign_in="glab auth login",
    variables=(
        "GITLAB_TOKEN",
        "GITLAB_ACCESS_TOKEN",
        "OAUTH_TOKEN",
        "GITLAB_HOST",
        "GITLAB_URI",
        "GL_HOST",
        "GLAB_CONFIG_DIR",
        "CI_JOB_TOKEN",
        "CI_SERVER_HOST",
        "GLAB_ENABLE_CI_AUTOLOGIN",
    ),
    fixed=_QUIET | {"NO_PROMPT": "1", "GLAB_CHECK_UPDATE": "false", "GLAB_SEND_TELEMETRY": "false"},
)
AZ = Program(
    name="az",
    service="Azure DevOps",
    install="`pipx install azure-cli` (https://aka.ms/azure-cli), `az extension add --name azure-devops`",
    sign_in="az login",
    variables=(
        "AZURE_CONFIG_DIR",
        "AZURE_EXTENSION_DIR",
        "AZURE_DEVOPS_EXT_PAT",
        "AZURE_DEVOPS_CACHE_DIR",
        "REQUESTS_CA_BUNDLE",
    ),
    fixed=_QUIET
    | {
        "AZURE_CORE_NO_COLOR": "1",
        "AZURE_CORE_ONLY_SHOW_ERRORS": "1",
        "AZURE_CORE_COLLECT_TELEMETRY": "0",
        "AZURE_CORE_DISABLE_CONFIRM_PROMPT": "1",
    },
)


class Door(Struct, frozen=True, kw_only=True):
    """One program, the environment it comes from, and the folder where it runs."""

    program: Program
    environ: Mapping[str, str]
    cwd: Path = Path("/")

    def run(
        self,
        *arguments: str,
        asked: str,
        stdin: bytes = b"",
        seconds: float = SECONDS,
        extra: Mapping[str, str] | None = None,
    ) -> Ended:
        """Run the program; `asked` is what for, in the words of an error. Blocks.

        Raises ProgramMissingError without it, and OutageError if it hangs. How it ended is the caller's.
        """
        program = self.program
        found = shutil.which(program.name, path=self.environ.get("PATH", os.defpath))
        if found is None:
            raise ProgramMissingError(
                f"{asked}: `{program.name}` is not installed, and it holds the sign-in for {program.service}",
                hint=f"{program.install}; then sign in: `{program.sign_in}`.",
            )
        environment = program.environment(self.environ) | dict(extra or {})
        try:
            return run_bounded(
                (found, *arguments),
                env=environment,
                cwd=self.cwd,
                stdin=stdin,
                seconds=seconds,
                most=MOST_OUTPUT,
            )
        except CommandLimitError as error:
            raise OutageError(
                f"{asked}: {error.message}", hint=f"check that {program.service} answers, then try again."
            ) from error
        except KeeperError as error:
            raise ForgeError(f"{asked}: {error.message}", hint=error.hint) from error

    def words(self, ended: Ended) -> str:
        """Return what a failed call says about it: one line, safe for a terminal, without secrets."""
        text = ended.stderr.decode("utf-8", "replace").strip() or ended.stdout[-2000:].decode(
            "utf-8", "replace"
        )
        return telling_line(Redactor(self.environ).text(text)) or f"exit code {ended.returncode}"
