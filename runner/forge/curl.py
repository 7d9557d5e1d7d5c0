"""The thin door to a service that has no program of its own here: `curl`, with everything on standard input.

The address, the headers and the body are a configuration that curl reads from standard input, so that no
token is on a command line. Nothing is followed to another address. Credentials are those of `~/.netrc`, or
of the variables that the user has set for this service.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from runner.core.text.redaction import Redactor
from runner.forge.answers import Answer, read_answer
from runner.forge.errors import ForgeError
from runner.forge.programs import SECONDS, Door, Program
from runner.forge.rest import NoAnswerError, Rest

_LOCAL = ("http://localhost:", "http://127.0.0.1:")


def open_rest(
    environ: Mapping[str, str],
    *,
    service: str,
    base: str,
    sign_in: str,
    headers: Sequence[str] = (),
    user: str = "",
    pause: Callable[[float], None] = time.sleep,
    say: Callable[[str], None],
) -> Rest:
    """Return the door to the service at `base`; `headers` and `user` (`name:token`) are its credentials."""
    if not base.startswith(("https://", *_LOCAL)) or any(character in base for character in ' "\\\n?#'):
        raise ForgeError(f"{service}: the address {base!r} is not one that begins with https://")
    program = Program(
        name="curl",
        service=service,
        install="`apt install curl` or `brew install curl`",
        sign_in="~/.netrc",
        variables=("CURL_CA_BUNDLE",),
    )
    door = Door(program=program, environ=environ)
    secrets = [user, user.partition(":")[2], *(each.partition(":")[2].split(" ")[-1] for each in headers)]

    def send(method: str, path: str, body: bytes, *, asked: str) -> Answer:
        lines = [
            f"url = {_quoted(base.rstrip('/') + '/' + path.lstrip('/'))}",
            f"request = {_quoted(method)}",
            *("silent", "show-error", "include", "suppress-connect-headers", "netrc-optional", "globoff"),
            f"max-time = {SECONDS - 5:.0f}",
            *(f"header = {_quoted(each)}" for each in ("Accept: application/json", "Expect:", *headers)),
            *((f"user = {_quoted(user)}",) if user else ()),
        ]
        if body:
            lines += ['header = "Content-Type: application/json"', f"data-raw = {_quoted(body.decode())}"]
        given = "\n".join(lines).encode()
        # `-q` first: what is in ~/.curlrc is for people.
        ended = door.run("-q", "--config", "-", asked=f"cannot {asked}", stdin=given)
        answer = read_answer(ended.stdout) if ended.returncode == 0 else None
        if answer is None:
            raise NoAnswerError(door.words(ended))
        return answer

    redactor = Redactor(environ, also=[each for each in secrets if each])
    return Rest(service=service, sign_in=sign_in, send=send, pause=pause, say=say, redactor=redactor)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
