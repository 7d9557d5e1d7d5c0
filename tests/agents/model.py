"""A model that follows a script, on loopback: what real agent programs talk to in these tests.

The script stands in the prompt, as one line: `PLAY {"id": "a", "acts": […], "faults": […]}`. Each act is one
reply: `{"write": ["a.txt", "text"]}`, `{"sh": "command"}` or `{"say": "words"}`; after the last one the model
says that it is done. Which act is next is told by the tool results since the last script, so that a resumed
conversation needs no memory here. A fault takes the place of a reply:
`{"at": 0, "status": 529, "times": 2, "after": 5}` (`after`: the header retry-after; `at` may be "*"), or
`{"at": 0, "stall": 60}`. Only how often a fault was met is remembered, under the script's id.

Spoken are Anthropic's messages and OpenAI's responses, streamed.
"""

import json
import re
import select
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_PLAY = re.compile(r"^PLAY (\{.*\})\s*$", re.MULTILINE)
_SHELLS = ("Bash", "exec_command", "shell_command", "shell")
_ERRORS = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
Action = dict[str, Any]


@dataclass
class Scene:
    """What the model was asked so far, one entry a request of a script."""

    asked: list[dict[str, Any]] = field(default_factory=list)
    met: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def requests_of(self, script_id: str) -> list[dict[str, Any]]:
        """Give the requests of one script."""
        with self.lock:
            return [entry for entry in self.asked if entry["id"] == script_id]


@contextmanager
def scripted_model() -> Iterator[tuple[str, Scene]]:
    """Serve on loopback while the block runs; gives its address and what it was asked."""
    scene = Scene()
    handler = type("BoundHandler", (_Handler,), {"scene": scene})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", scene
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients are killed in these tests."""


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return _plain(content.get("text") or content.get("content") or content.get("output") or "")
    return "\n".join(_plain(part) for part in content or ())


def _turns(body: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """Give what the user and the tools said, in order: whether it is a tool's result, and its text."""
    for message in body.get("messages") or ():
        if message.get("role") == "user":
            content = message["content"]
            for block in content if isinstance(content, list) else [content]:
                yield isinstance(block, dict) and block.get("type") == "tool_result", _plain(block)
    for item in body.get("input") or ():
        if str(item.get("type", "")).endswith("_output"):
            yield True, _plain(item.get("output"))
        elif item.get("role") == "user":
            yield False, _plain(item.get("content"))


def _script(body: dict[str, Any]) -> tuple[dict[str, Any] | None, int, str]:
    """Find the newest script, how far it has been played, and the newest result."""
    script, step, newest = None, 0, ""
    for is_result, words in _turns(body):
        found = None if is_result else _PLAY.findall(words)
        if found:
            script, step, newest = json.loads(found[-1]), 0, ""
        elif is_result:
            step, newest = step + 1, words
    return script, step, newest


def _action(script: dict[str, Any], step: int, tools: list[str]) -> Action:
    acts = script.get("acts", [])
    act = acts[step] if step < len(acts) else {"say": "All done."}
    if "say" in act:
        return {"text": act["say"]}
    if "write" in act:
        name, words = str(act["write"][0]), str(act["write"][1])
        if "Write" in tools:
            return {"tool": "Write", "input": {"file_path": name, "content": words}}
        act = {"sh": f"printf '%s' '{words}' > {name}"}
    shell = next(name for name in _SHELLS if name in tools)
    key = "cmd" if shell == "exec_command" else "command"
    command = ["bash", "-c", act["sh"]] if shell == "shell" else act["sh"]
    return {"tool": shell, "input": {key: command}}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    scene: Scene

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""

    def do_HEAD(self) -> None:
        self._json({})

    def do_GET(self) -> None:
        self._json({"object": "list", "data": []})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = self.path.split("?")[0]
        if not path.endswith(("/messages", "/responses")) or not raw.startswith(b"{"):
            self._json({"input_tokens": 1})
            return
        body = json.loads(raw)
        script, step, newest = _script(body)
        scripts = sum(1 for _, words in _turns(body) if _PLAY.search(words))
        tools = [tool.get("name") or tool.get("type", "") for tool in body.get("tools") or ()]
        if script is None or not tools:  # a side request, such as one for a title
            self._reply(path, body, {"text": "ok"})
            return
        fault = self._fault(script, step)
        with self.scene.lock:
            entry = {"id": script["id"], "step": step, "fault": fault, "last": newest, "scripts": scripts}
            self.scene.asked.append(entry)
        if fault and "status" in fault:
            status = fault["status"]
            error = {"type": _ERRORS.get(status, "api_error"), "message": f"scripted {status}"}
            headers = {"retry-after": str(fault["after"])} if "after" in fault else {}
            self._json({"type": "error", "error": error}, status, headers)
            return
        self._reply(path, body, _action(script, step, tools), stall=(fault or {}).get("stall", 0))

    def _fault(self, script: dict[str, Any], step: int) -> dict[str, Any] | None:
        for number, fault in enumerate(script.get("faults", ())):
            key = f"{script['id']}/{number}"
            with self.scene.lock:
                if fault["at"] in {"*", step} and self.scene.met[key] < fault.get("times", 1):
                    self.scene.met[key] += 1
                    return dict(fault)
        return None

    def _json(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        sent = {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}
        for name, text in sent.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _reply(self, path: str, body: dict[str, Any], action: Action, *, stall: float = 0) -> None:
        messages = path.endswith("/messages")
        whole, events = (_as_messages if messages else _as_responses)(str(body.get("model")), action)
        if not body.get("stream"):
            self._json(whole)
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for number, (name, event) in enumerate(events):
            if stall and number == 1 and select.select([self.connection], [], [], stall)[0]:
                self.close_connection = True  # the client has hung up
                return
            data = f"event: {name}\ndata: {json.dumps({'type': name, **event})}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")


Reply = tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]


def _as_messages(model: str, action: Action) -> Reply:
    usage = {"input_tokens": 1000, "output_tokens": 10}
    if "text" in action:
        empty: dict[str, Any] = {"type": "text", "text": ""}
        full = {"type": "text", "text": action["text"]}
        delta, stop = {"type": "text_delta", "text": action["text"]}, "end_turn"
    else:
        name = f"toolu_{uuid.uuid4().hex}"
        empty = {"type": "tool_use", "id": name, "name": action["tool"], "input": {}}
        full = {**empty, "input": action["input"]}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(action["input"])}
        stop = "tool_use"
    message: dict[str, Any] = {
        "id": f"msg_{uuid.uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": model,
    }
    ended = {"stop_reason": stop, "stop_sequence": None}
    begun: dict[str, Any] = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    events: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": {**begun, "usage": {**usage, "output_tokens": 1}}}),
        ("content_block_start", {"index": 0, "content_block": empty}),
        ("content_block_delta", {"index": 0, "delta": delta}),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": ended, "usage": usage}),
        ("message_stop", {}),
    ]
    return {**message, **ended, "content": [full], "usage": usage}, events


def _as_responses(model: str, action: Action) -> Reply:
    name = uuid.uuid4().hex
    usage = {
        "input_tokens": 1000,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 1010,
    }
    item: dict[str, Any]
    if "text" in action:
        content = [{"type": "output_text", "text": action["text"], "annotations": []}]
        item = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed"}
        item["content"] = content
    else:
        arguments = json.dumps(action["input"])
        item = {"type": "function_call", "id": f"fc_{name}", "call_id": f"call_{name}"}
        item |= {"name": action["tool"], "arguments": arguments}
    whole: dict[str, Any] = {
        "id": f"resp_{name}",
        "object": "response",
        "model": model,
        "status": "completed",
    }
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    whole |= {"output": [item], "usage": usage}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun, "sequence_number": 0}),
        ("response.output_item.added", {"output_index": 0, "item": item, "sequence_number": 1}),
        ("response.output_item.done", {"output_index": 0, "item": item, "sequence_number": 2}),
        ("response.completed", {"response": whole, "sequence_number": 3}),
    ]
    return whole, events
