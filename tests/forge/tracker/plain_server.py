"""A scripted tracker behind an MCP server without any package, which starts fast; and servers that misbehave.

The argument names what it does wrong: `dies`, `garbage`, `floods`, `endless`, `silent`.
"""

import json
import os
import sys
import time
from typing import Any

from scripted_tracker import RefusedError, answer, tools  # type: ignore[import-not-found]  # beside it


def send(message: dict[str, Any]) -> None:
    """Print one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def call(family: str, params: dict[str, Any]) -> dict[str, Any]:
    """Answer the call of a tool."""
    try:
        text, failed = answer(family, params["name"], params.get("arguments") or {}), False
    except RefusedError as error:
        text, failed = str(error), True
    return {"content": [{"type": "text", "text": text}], "isError": failed}


def misbehave(how: str) -> None:
    """Do what is wrong, once a request has come."""
    if how == "dies":
        sys.stderr.write(f"no route to {os.environ.get('TRACKER_TOKEN')}\n")
        sys.exit(3)
    while how == "garbage":
        sys.stdout.write("<html>not the protocol</html>\n")
        sys.stdout.flush()
    while how == "endless":
        sys.stdout.write("x" * 65536)
    while how == "floods":
        send({"method": "notifications/message", "params": {"level": "info", "data": "x" * 1000}})
    while how == "silent":
        time.sleep(60)


def main() -> None:
    """Serve one client until it closes the input."""
    family, wrong = os.environ["TRACKER_FAMILY"], sys.argv[1:]
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message:
            continue
        for how in wrong:
            misbehave(how)
        method, params = message["method"], message.get("params") or {}
        if method == "initialize":
            about = {"name": "scripted", "version": "1"}
            result: dict[str, Any] = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": about,
            }
        elif method == "tools/list":
            result = {"tools": tools(family)}
        else:
            result = call(family, params)
        send({"id": message["id"], "result": result})


main()
