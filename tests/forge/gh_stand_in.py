"""A stand-in for `gh` and `glab`, for machines without them: `api` as the program calls it, over plain HTTP.

It reads the host and the token from their variables, and prints and exits as `gh api --include` does.
"""

import http.client
import os
import sys

NOT_SIGNED_IN = 4
GLAB = os.environ.get("STAND_IN") == "glab"
HOST, TOKEN = ("GITLAB_HOST", "GITLAB_TOKEN") if GLAB else ("GH_HOST", "GH_ENTERPRISE_TOKEN")


def main() -> int:
    """Send one request and print its answer."""
    words = sys.argv[1:]
    if words[:2] != ["api", "--include"]:
        sys.stderr.write(f"unknown command: {words}\n")
        return 1
    method, headers, path, given = "GET", {}, "", b""
    rest = iter(words[2:])
    for word in rest:
        if word == "--method":
            method = next(rest)
        elif word in {"-H", "--header"}:
            name, _, value = next(rest).partition(":")
            headers[name] = value.strip()
        elif word == "--input" and next(rest) == "-":
            given = sys.stdin.buffer.read()
        else:
            path = word
    token = os.environ.get(TOKEN)
    if not token:
        sys.stderr.write("To get started with GitHub CLI, please run:  gh auth login\n")
        return NOT_SIGNED_IN
    headers["Authorization"] = f"token {token}"
    url = "/api/graphql" if path == "graphql" else f"/api/{'v4' if GLAB else 'v3'}/{path}"
    connection = http.client.HTTPConnection(os.environ[HOST], timeout=30)
    try:
        connection.request(method, url, given or None, headers)
        answer = connection.getresponse()
        head = f"HTTP/1.1 {answer.status} {answer.reason}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in answer.getheaders())
        sys.stdout.buffer.write(head.encode() + b"\r\n")
        sys.stdout.buffer.write(answer.read())
    except (OSError, http.client.HTTPException) as error:
        sys.stderr.write(f'{method} "{url}": {error!r}\n')
        return 1
    if answer.status >= http.client.BAD_REQUEST:
        sys.stderr.write(f"gh: {answer.reason} (HTTP {answer.status})\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
