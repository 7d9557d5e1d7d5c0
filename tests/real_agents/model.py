"""A model that follows a script, on loopback: what real agent programs talk to in these tests.

The script stands in the prompt, as one line: `PLAY {"id": "a", "acts": […], "faults": […]}`. Each act is one
reply: `{"write": ["a.txt", "text"]}`, `{"sh": "command"}`, `{"say": "words"}` or `{"refuse": "words"}`.
`patch` is as `write`, but never by a shell. `"background": true` beside `sh` leaves the command running
(claude). `{"helper": […]}` gives acts to a helper agent, for which codex does not wait. With
`"cached": 800` so many input tokens of each reply come from a cache, and with `"uses": [2000, 50]` each
reply has that many tokens, input and output. After the last act the model says that it is done. With
`"told": ["words", […]]` it does those acts instead when the words stand in the prompt. Which act is next is
told by the tool results since the last script, so that a resumed conversation needs no memory here. A
program without tools (aider) gets the first act, if the script says `"toolless": true`.

With `"literal": true` it has no acts of its own: it does exactly and only what the prompt says, which is to
write the files that the step names, to save a sub-step, and to write the result. In the step `asks` it asks
the user first, and in the step `fails` it does nothing until the user has decided to retry. In the step
`crowded` it calls tools without end, and saves a sub-step in between, until the prompt says that the context
was full.

A fault takes the place of a reply: `{"at": 0, "status": 529, "times": 2, "after": 5}` (`after`: the header
retry-after; `at` may be "*"), `{"at": 0, "stall": 60}`, or `{"at": 0, "page": "<html>"}` for a network that
answers by itself. `words` are the message of a status, `body` is all that comes with it. `{"at": 0, "drop":
true}` hangs up in the middle of the reply, `"garbage": true` sends nonsense there, and `"error":
"overloaded_error"` an error of that kind. One with `headers` alone sends them along. Only how often a fault
was met is remembered, under the id of the script.
"""

import json
import re
import select
import shlex
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.real_agents import dialects
from tests.real_agents.dialects import Action, Request
from tests.real_agents.literal import literal_acts

_PLAY = re.compile(r"^PLAY (\{.*\})\s*$", re.MULTILINE)
_WORKSPACE = re.compile(r"(/\S+)/\.orchestrator/")
_SHELLS = {
    "Bash": "command",
    "exec_command": "cmd",
    "shell_command": "command",
    "shell": "command",
    "bash": "command",
    "run_shell_command": "command",
}
_GROUP = "multi_agent_v1"
_HELPERS: Mapping[str, Mapping[str, str]] = {
    "Task": {"description": "scripted", "subagent_type": "general-purpose"},
    "Agent": {"description": "scripted", "subagent_type": "general-purpose"},
    "task": {"description": "scripted", "subagent_type": "general"},
    "agent": {"description": "scripted", "subagent_type": "general-purpose"},
    _GROUP: {},
}
"""The tools that hand work to a helper agent, with what each needs besides the prompt."""
_WRITERS = {"Write": "file_path", "write_file": "file_path", "write": "filePath"}
_ERRORS = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}


@dataclass
class Scene:
    """What the model was asked so far, one entry a request of a script, and the tokens that it charged.

    `books` are the tokens of each script alone, with those of requests in its conversation that no longer
    quote it, as after a summary; `talks` says which script a conversation is about.
    """

    asked: list[dict[str, Any]] = field(default_factory=list)
    charged: Counter[str] = field(default_factory=Counter)
    books: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    met: Counter[str] = field(default_factory=Counter)
    talks: dict[str, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def requests_of(self, script_id: str) -> list[dict[str, Any]]:
        """Return the requests of one script."""
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


def _script(request: Request) -> tuple[dict[str, Any] | None, int, str]:
    """Find the newest script, how far it has been played, and the newest result."""
    script, step, newest = None, 0, ""
    for is_result, words in request.turns:
        found = None if is_result else _PLAY.findall(words)
        if found:
            script, step, newest = json.loads(found[-1]), 0, ""
            told = script.get("told")
            script |= {"acts": told[1]} if told and told[0] in _PLAY.sub("", words) else {}
            script |= {"acts": literal_acts(script, words)} if script.get("literal") else {}
        elif is_result:
            step, newest = step + 1, words
    # A program that writes its own commit message quotes the script in its request for one.
    return (None if "commit message" in request.system[:400] else script), step, newest


def _action(script: dict[str, Any], step: int, request: Request) -> Action:  # noqa: PLR0911  one per act
    acts = script.get("acts", [])
    act = acts[step] if step < len(acts) else {"say": "All done."}
    if "say" in act or "refuse" in act:
        return {"text": act.get("say") or act["refuse"], "refuses": "refuse" in act}
    if "patch" in act and "exec_command" in request.tools:  # codex takes such a command for a use of its tool
        name, words = map(str, act["patch"])
        lines = "\n".join(f"+{line}" for line in words.splitlines())
        patch = f"*** Begin Patch\n*** Add File: {name}\n{lines}\n*** End Patch"
        return {"tool": "exec_command", "input": {"cmd": f"apply_patch <<'EOF'\n{patch}\nEOF\n"}}
    if "write" in act or "patch" in act:
        name, words = map(str, act.get("write") or act["patch"])
        if not request.tools:
            return {"text": f"{name}\n```\n{words}\n```\n"}
        writer = next((tool for tool in _WRITERS if tool in request.tools), None)
        if writer:
            return {
                "tool": writer,
                "input": {_WRITERS[writer]: f"{_workspace(request)}/{name}", "content": words},
            }
        act = {"sh": f"mkdir -p $(dirname {name}) && printf '%s' {shlex.quote(words)} > {name}"}
    if "helper" in act:
        return _handed_over(script, act["helper"], request)
    shell = next((name for name in _SHELLS if name in request.tools), None)
    if shell is None:
        return {"text": f"No shell among {', '.join(request.tools)}."}
    command = ["bash", "-c", act["sh"]] if shell == "shell" else act["sh"]
    more: dict[str, Any] = {"description": "scripted"} if shell in {"bash", "run_shell_command"} else {}
    more |= {"is_background": False} if shell == "run_shell_command" else {}
    more |= {"run_in_background": True} if act.get("background") else {}
    return {"tool": shell, "input": {_SHELLS[shell]: command, **more}}


def _handed_over(script: dict[str, Any], acts: Any, request: Request) -> Action:
    """Return the use of a tool that gives acts to a helper agent."""
    helper = next(name for name in _HELPERS if name in request.tools)
    play = json.dumps({**script, "acts": acts, "told": None, "faults": []})
    words = f"Help.\n\nPLAY {play}"
    if helper == _GROUP:
        return {"tool": "spawn_agent", "of": helper, "input": {"message": words}}
    return {"tool": helper, "input": {**_HELPERS[helper], "prompt": words}}


def _workspace(request: Request) -> str:
    """Find the folder that the agent works in: the prompt names its result file, which lies there."""
    found = (_WORKSPACE.search(words) for is_result, words in request.turns if not is_result)
    return next(match[1] for match in found if match)


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
        request = dialects.read(self.path.split("?")[0], json.loads(raw)) if raw.startswith(b"{") else None
        if request is None:
            self._json({"input_tokens": 1, "totalTokens": 1})
            return
        script, step, newest = _script(request)
        if script is None or not (request.tools or script.get("toolless")):
            with self.scene.lock:
                about = script["id"] if script else self.scene.talks.get(request.talk, "")
                self.scene.books[about]["aside"] += 1
            self._reply(request, {"text": "ok"}, about)  # a side request, such as one for a title
            return
        prompts = [words for _, words in request.turns if _PLAY.search(words)]
        fault = self._fault(script, step)
        action = {**_action(script, step, request), "cached": script.get("cached", 0)}
        action["uses"] = script.get("uses")
        entry = {"id": script["id"], "step": step, "fault": fault, "last": newest, "scripts": len(prompts)}
        entry |= {"prompt": _PLAY.sub("", prompts[-1]), "model": request.model}
        entry["says"] = action.get("text")
        with self.scene.lock:
            self.scene.asked.append(entry)
            if request.talk:
                self.scene.talks[request.talk] = script["id"]
        if fault and "page" in fault:
            self._send(fault["page"].encode(), "text/html", 200, {})
            return
        if fault and "status" in fault:
            status = fault["status"]
            headers = {"retry-after": str(fault["after"])} if "after" in fault else {}
            kind = _ERRORS.get(status, "api_error")
            body = fault.get("body") or dialects.failure(status, kind, fault.get("words", ""))
            self._json(body, status, {**headers, **fault.get("headers", {})})
            return
        self._reply(request, action, script["id"], fault)

    def _fault(self, script: dict[str, Any], step: int) -> dict[str, Any] | None:
        for number, fault in enumerate(script.get("faults", ())):
            key = f"{script['id']}/{number}"
            with self.scene.lock:
                if fault["at"] in {"*", step} and self.scene.met[key] < fault.get("times", 1):
                    self.scene.met[key] += 1
                    return dict(fault)
        return None

    def _json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        self._send(json.dumps(value).encode(), "application/json", status, headers or {})

    def _send(self, data: bytes, kind: str, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        sent = {"content-type": kind, "content-length": str(len(data)), **headers}
        for name, text in sent.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _reply(
        self, request: Request, action: Action, about: str, fault: Mapping[str, Any] | None = None
    ) -> None:
        fault = fault or {}
        whole, events = request.render(request.model, action)
        if not request.streamed:
            if not self._hung_up(fault.get("stall", 0)):
                self._charge(about, action)
                self._json(whole, headers=fault.get("headers", {}))
            return
        self.send_response(200)
        sent = {"content-type": "text/event-stream", "transfer-encoding": "chunked"}
        for name, text in {**sent, **fault.get("headers", {})}.items():
            self.send_header(name, text)
        self.end_headers()
        for number, (name, event) in enumerate(events):
            if number == min(1, len(events) - 1) and not self._goes_on(about, fault):
                return
            if number == len(events) - 1:
                self._charge(about, action)
            self._event(name, event if isinstance(event, str) else json.dumps(event))
        self.wfile.write(b"0\r\n\r\n")

    def _charge(self, about: str, action: Action) -> None:
        """Enter a reply that is delivered whole into the books."""
        given, made = dialects.uses(action)
        with self.scene.lock:
            for book in (self.scene.charged, self.scene.books[about]):
                book.update(input=given, output=made, cached=action.get("cached", 0), replies=1)

    def _event(self, name: str, words: str) -> None:
        told = f"event: {name}\n" if name else ""
        data = f"{told}data: {words}\n\n".encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _goes_on(self, about: str, fault: Mapping[str, Any]) -> bool:
        """Do what a fault says for the middle of a stream; tell whether the stream continues."""
        if fault.get("garbage"):
            self._event("nonsense", "{]")
        if fault.get("error"):
            error = dialects.failure(529, fault["error"])
            self._event("error", json.dumps(error))
        if fault.get("drop") or fault.get("garbage") or fault.get("error"):
            with self.scene.lock:
                self.scene.books[about]["begun"] += 1
            self.close_connection = True
            return False
        return not self._hung_up(fault.get("stall", 0))

    def _hung_up(self, stall: float) -> bool:
        """Keep silent for a while; tell whether the client has lost its patience."""
        if stall and select.select([self.connection], [], [], stall)[0]:
            self.close_connection = True
        return self.close_connection and bool(stall)
