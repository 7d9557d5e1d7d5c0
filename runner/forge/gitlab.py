"""GitLab: by the program `glab`, which holds the sign-in; where it is not installed, by a token variable."""

import shutil
import time
from collections.abc import Callable, Mapping

from runner.core.text.redaction import Redactor
from runner.forge.answers import Answer, read_answer
from runner.forge.curl import open_rest
from runner.forge.errors import ProgramMissingError
from runner.forge.programs import GLAB, Door
from runner.forge.rest import NoAnswerError, Rest, quiet

GITLAB = "gitlab.com"
_TOKENS = ("GITLAB_TOKEN", "GITLAB_ACCESS_TOKEN", "OAUTH_TOKEN")
_JOB_TOKEN = "CI_JOB_TOKEN"  # noqa: S105  the name of a variable


def open_gitlab(
    environ: Mapping[str, str],
    *,
    host: str = "",
    pause: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = quiet,
) -> Rest:
    """Return the door to GitLab at `host` (default: GITLAB_HOST, else gitlab.com)."""
    if shutil.which(GLAB.name, path=environ.get("PATH")):
        return _by_program(environ, host=host, pause=pause, say=say)
    headers = [f"Authorization: Bearer {environ[name]}" for name in _TOKENS if environ.get(name)]
    headers += [f"JOB-TOKEN: {environ[_JOB_TOKEN]}"] if not headers and environ.get(_JOB_TOKEN) else []
    if not headers:
        raise ProgramMissingError(
            "`glab` is not installed, and it holds the sign-in for GitLab",
            hint=f"{GLAB.install}; then `{GLAB.sign_in}`. In CI, set GITLAB_TOKEN instead.",
        )
    named = host or environ.get("GITLAB_HOST") or environ.get("GITLAB_URI") or GITLAB
    site = named if "://" in named else f"https://{named}"
    sign_in = "set a valid GITLAB_TOKEN"
    base = f"{site.rstrip('/')}/api/v4"
    return open_rest(
        environ, service="GitLab", base=base, sign_in=sign_in, headers=headers[:1], pause=pause, say=say
    )


def _by_program(
    environ: Mapping[str, str], *, host: str, pause: Callable[[float], None], say: Callable[[str], None]
) -> Rest:
    door = Door(program=GLAB, environ=environ)
    named = {"GITLAB_HOST": host} if host else {}

    def send(method: str, path: str, body: bytes, *, asked: str) -> Answer:
        given = ("--header", "Content-Type: application/json", "--input", "-") if body else ()
        ended = door.run(
            *("api", "--include", "--method", method, *given, path.lstrip("/")),
            asked=f"cannot {asked}",
            stdin=body,
            extra=named,
        )
        answer = read_answer(ended.stdout)
        if answer is None or (ended.returncode != 0 and answer.ok and not answer.is_whole):
            raise NoAnswerError(door.words(ended))
        return answer

    sign_in = f"`{GLAB.sign_in}`"
    return Rest(
        service="GitLab", sign_in=sign_in, send=send, pause=pause, say=say, redactor=Redactor(environ)
    )
