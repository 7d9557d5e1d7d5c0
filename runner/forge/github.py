"""GitHub, by the program `gh`, which holds the sign-in: `gh api`, with JSON in and out.

A body goes in by standard input: a command line would show it to everybody on the machine.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from runner.core.text.redaction import Redactor
from runner.forge.answers import Answer, read_answer
from runner.forge.errors import RefusedError, SignInError
from runner.forge.programs import GH, Door
from runner.forge.rest import NoAnswerError, Rest, quiet

GITHUB = "github.com"
_NOT_SIGNED_IN = 4
"""The exit code of `gh` without a sign-in for the host."""
_VERSION = "X-GitHub-Api-Version: 2022-11-28"
_JSON = "Accept: application/vnd.github+json"


def open_github(
    environ: Mapping[str, str],
    *,
    host: str = "",
    cwd: Path = Path("/"),
    pause: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = quiet,
) -> Rest:
    """Return the door to GitHub, or to a GitHub Enterprise at `host` (default: GH_HOST, else github.com)."""
    door = Door(program=GH, environ=environ, cwd=cwd)
    named = {"GH_HOST": host} if host else {}

    def send(method: str, path: str, body: bytes, *, asked: str) -> Answer:
        given = ("--input", "-") if body else ()
        ended = door.run(
            *("api", "--include", "--method", method, "-H", _JSON, "-H", _VERSION, *given, path.lstrip("/")),
            asked=f"cannot {asked}",
            stdin=body,
            extra=named,
        )
        answer = read_answer(ended.stdout)
        if ended.returncode == _NOT_SIGNED_IN:
            raise SignInError(
                f"cannot {asked}: `gh` has no sign-in for {host or environ.get('GH_HOST') or GITHUB}",
                hint=f"sign in: `{GH.sign_in}`; in CI, set GH_TOKEN.",
            )
        # It fails after a success that was cut off, but also after a whole answer of a query with errors.
        if answer is None or (ended.returncode != 0 and answer.ok and not answer.is_whole):
            raise NoAnswerError(door.words(ended))
        return answer

    return Rest(
        service="GitHub",
        sign_in=f"`{GH.sign_in}`",
        send=send,
        pause=pause,
        say=say,
        redactor=Redactor(environ),
    )


def graphql(
    github: Rest, query: str, variables: Mapping[str, Any], *, asked: str, repeatable: bool = True
) -> Any:
    """Return the data of a GraphQL query; raises RefusedError if it has errors."""
    body = {"query": query, "variables": dict(variables)}
    answer = github.request("POST", "graphql", body, asked=asked, repeatable=repeatable)
    value = github.value(answer, asked=asked)
    if not isinstance(value, dict) or value.get("errors") or not isinstance(value.get("data"), dict):
        raise RefusedError(
            f"cannot {asked}: GitHub: {answer.reason or 'no data in its answer'}",
            status=answer.status,
            words=answer.reason,
        )
    return value["data"]
