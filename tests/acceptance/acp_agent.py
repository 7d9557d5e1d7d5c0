"""A small agent that speaks the Agent Client Protocol, for tests: it does what the word in its argument says.

It keeps its conversations in a file below its home, so that another process can load them, and it writes what
it was told into `seen.jsonl` there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HOME = Path(os.environ["ACP_HOME"])
PLAN = sys.argv[1]


def send(**message: object) -> None:
    """Write one message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def update(session: str, what: str, /, **fields: object) -> None:
    """Report to the client what happens."""
    send(method="session/update", params={"sessionId": session, "update": {"sessionUpdate": what, **fields}})


def read() -> dict[str, Any]:
    """Read one message; the end of the input is the end."""
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    found: dict[str, Any] = json.loads(line)
    return found


def permitted(session: str, number: int, kind: str, command: str) -> bool:
    """Ask whether a tool may be used."""
    call = {
        "toolCallId": f"t{number}",
        "title": f"use {kind}",
        "kind": kind,
        "rawInput": {"command": command},
    }
    options = [
        {"optionId": f"id-{kind}", "name": kind, "kind": kind} for kind in ("allow_always", "allow_once")
    ]
    options += [{"optionId": "id-no", "name": "no", "kind": "reject_once"}]
    send(
        id=f"p{number}",
        method="session/request_permission",
        params={"sessionId": session, "toolCall": call, "options": options},
    )
    answer = read()["result"]["outcome"]
    assert answer["optionId"] in {"id-allow_once", "id-no"}, answer
    return bool(answer["optionId"] == "id-allow_once")


def text(words: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": words}


def work(session: str, turns: list[str]) -> dict[str, Any]:  # noqa: C901  one branch per plan
    """Do one prompt, and return what answers it."""
    update(session, "agent_thought_chunk", content=text("hm"))
    if PLAN == "refuses":
        return {"result": {"stopReason": "refusal"}}
    if PLAN == "limited":
        return {
            "error": {"code": -32603, "message": "Internal error", "data": {"details": "429: rate limit"}}
        }
    if PLAN == "sleeps":
        update(session, "tool_call", toolCallId="t0", title="sleep", kind="execute", status="in_progress")
        if "NAP" in os.environ:
            subprocess.Popen(["setsid", "sleep", os.environ["NAP"]])
        while True:
            if read().get("method") == "session/cancel":
                (HOME / "cancelled").touch()
                sys.exit(0)
    for number, (kind, command) in enumerate(
        (("edit", ""), ("execute", "test -f a.txt"), ("execute", "rm -rf /x"))
    ):
        update(
            session, "tool_call", toolCallId=f"t{number}", title=f"use {kind}", kind=kind, status="pending"
        )
        if permitted(session, number, kind, command):
            if kind == "edit" and (len(turns) > 1 or PLAN != "second"):
                Path("a.txt").write_text("made")
            update(
                session,
                "tool_call_update",
                toolCallId=f"t{number}",
                status="completed",
                content=[{"type": "content", "content": text("fine")}],
            )
        else:
            update(session, "tool_call_update", toolCallId=f"t{number}", status="failed")
    send(id="fs", method="fs/read_text_file", params={"sessionId": session, "path": "/etc/passwd"})
    assert read()["error"]["code"] == -32601
    for words in ("All ", "done."):
        update(session, "agent_message_chunk", content=text(words))
    update(session, "usage_update", used=5, size=10, cost={"amount": 0.25 * len(turns), "currency": "USD"})
    usage = {"inputTokens": 100, "outputTokens": 7, "cachedReadTokens": 20, "totalTokens": 127}
    return {"result": {"stopReason": "max_tokens" if PLAN == "full" else "end_turn", "usage": usage}}


def main() -> None:
    """Answer until the input ends."""
    sessions: dict[str, list[str]] = {}
    while True:
        message = read()
        method, params = message.get("method"), message.get("params", {})
        with (HOME / "seen.jsonl").open("a") as seen:
            seen.write(json.dumps({"method": method, "params": params}) + "\n")
        answer: dict[str, Any] = {"result": {}}
        match method:
            case "initialize":
                if PLAN == "dies":
                    sys.exit("invalid api key: abc")
                answer = {
                    "result": {
                        "protocolVersion": 1,
                        "agentCapabilities": {"loadSession": PLAN != "forgets"},
                        "authMethods": [{"id": "x", "name": "Log in"}],
                    }
                }
            case "session/new":
                if PLAN == "signed-out":
                    answer = {"error": {"code": -32000, "message": "Authentication required"}}
                else:
                    name = f"s{os.getpid()}"
                    sessions[name] = []
                    models = {"currentModelId": "m", "availableModels": [{"modelId": "m", "name": "m"}]}
                    answer = {"result": {"sessionId": name, "models": models}}
            case "session/load":
                name = params["sessionId"]
                kept = HOME / name
                if not kept.exists():
                    answer = {"error": {"code": -32002, "message": "Resource not found"}}
                else:
                    sessions[name] = json.loads(kept.read_text())
                    update(name, "agent_message_chunk", content=text("an old message?"))
                    update(
                        name,
                        "usage_update",
                        used=5,
                        size=10,
                        cost={"amount": 0.25 * len(sessions[name]), "currency": "USD"},
                    )
            case "session/prompt":
                name = params["sessionId"]
                sessions[name].append(params["prompt"][0]["text"])
                (HOME / name).write_text(json.dumps(sessions[name]))
                answer = work(name, sessions[name])
            case _:
                pass
        if "id" in message:
            send(id=message["id"], **answer)


main()
