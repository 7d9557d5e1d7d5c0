"""Speaks the Agent Client Protocol with one agent, for one prompt: the program that an ACP session runs.

It runs inside the session, below its keeper: it starts the agent, gives it the prompt from standard input,
answers its questions about permissions, and prints what happens as JSON lines, which `agent.py` reads:

    session   id, resumable, agent
    progress  text                     the newest line while the agent writes a message or thinks
    message   text                     a whole message
    tool      id, title, kind, input, paths
    ended     id, failed, output
    denied    what
    usage     input, output, cached, cost
    result    ok, stop, message, code, denied

It runs by its path with nothing but the standard library, so that nothing in the workspace can take the
place of a module. It offers the agent neither files nor terminals, so the agent uses its own tools, which the
guard of the session confines.
"""

import contextlib
import json
import os
import re
import signal
import subprocess  # the agent is a child of this program, which itself runs below a keeper
import sys
import threading
import time
from collections import Counter, deque
from typing import IO, Any, NoReturn

from isolation.patterns import pattern

PROTOCOL = 1
VIA = "acp"
"""Marks the events of this program, whatever the agent is called."""
HANDSHAKE_SECONDS = 120
CANCEL_SECONDS = 2
EXIT_SECONDS = 3.0
AUTH_REQUIRED, NOT_FOUND, NO_METHOD = -32000, -32002, -32601
_HARMLESS = frozenset({"read", "edit", "delete", "move", "search", "think"})
_GIT = pattern(r"git (?:add|commit|status|diff|log|show|rm|mv|restore)(?: [^;&|<>`$\n]*)?")
_MOST_OUTPUT = 200_000
_SHOWN = 200


class RpcError(Exception):
    """An error that the agent answered with."""

    def __init__(self, error: Any) -> None:
        error = error if isinstance(error, dict) else {}
        self.code = error.get("code") if isinstance(error.get("code"), int) else None
        data = error.get("data")
        details = data.get("details") or data.get("message") if isinstance(data, dict) else data
        words = [str(error.get("message") or "the agent reported an error")]
        words += [details] if isinstance(details, str) and details not in words[0] else []
        super().__init__(": ".join(words))


class GoneError(Exception):
    """The agent has closed its output."""


class StopError(Exception):
    """The session is to end."""


class Orders:
    """What the session may do, as its adapter says: one JSON object, the first argument."""

    def __init__(self, text: str) -> None:
        given = json.loads(text)
        self.resume: str = given.get("resume", "")
        self.model: str = given.get("model", "")
        self.bypass: bool = given.get("bypass", False)
        self.commands = frozenset(given.get("commands", ()))
        self.prefixes: tuple[str, ...] = tuple(given.get("prefixes", ()))

    def allows(self, kind: str, command: str) -> bool:
        """Whether the agent may use a tool of this kind, or run a command, without a user to ask."""
        if self.bypass or kind in _HARMLESS:
            return True
        simple = not re.search(r"[;&|<>`$\n]", command)
        own = simple and any(command.startswith(f"{prefix} ") for prefix in self.prefixes)
        parts = [part.strip() for part in command.split("&&")]
        git = bool(command) and all(_GIT.fullmatch(part) for part in parts)
        return kind == "execute" and (command in self.commands or own or git)


def tell(event: str, /, **fields: Any) -> None:
    """Print one event, whole."""
    os.write(1, json.dumps({"via": VIA, "type": event, **fields}).encode() + b"\n")


def _note(text: str) -> None:
    """Print plain text for the log of the session."""
    os.write(2, text.encode())


class Dialog:
    """The two-way stream with the agent; requests of the agent are answered while it is awaited."""

    def __init__(self, agent: "subprocess.Popen[bytes]", orders: Orders) -> None:
        assert agent.stdin is not None  # noqa: S101  both are pipes
        assert agent.stdout is not None  # noqa: S101
        self._to: IO[bytes] = agent.stdin
        self._from: IO[bytes] = agent.stdout
        self._orders = orders
        self._last = 0
        self._tools: dict[str, dict[str, Any]] = {}
        self._open: set[str] = set()
        self._said: list[str] = []
        self._shown_at = 0.0
        self.listening = False
        self.denied: list[str] = []
        self.cost: float | None = None
        self.cost_before: float | None = None
        self.used: Counter[str] = Counter()

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Send a request and return its result; what comes meanwhile is handled."""
        self._last += 1
        wanted = self._last
        self._send({"id": wanted, "method": method, "params": params})
        while True:
            message = self._next()
            if "method" in message:
                self._take(message)
            elif message.get("id") == wanted:
                if message.get("error") is not None:
                    raise RpcError(message["error"])
                result = message.get("result")
                return result if isinstance(result, dict) else {}

    def notify(self, method: str, **params: Any) -> None:
        """Send a notification, which has no answer."""
        self._send({"method": method, "params": params})

    def flush(self) -> None:
        """Print the message that the agent has written so far."""
        said, self._said = "".join(self._said).strip(), []
        if said:
            tell("message", text=said)

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._to.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            self._to.flush()
        except OSError as error:
            raise GoneError from error

    def _next(self) -> dict[str, Any]:
        while True:
            line = self._from.readline()
            if not line:
                raise GoneError
            try:
                found = json.loads(line)
            except ValueError:
                found = None
            if isinstance(found, dict):
                return found
            # Some agents print notes among their messages.
            _note(line.decode("utf-8", "replace").lstrip("{"))

    def _take(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params")
        params = params if isinstance(params, dict) else {}
        if "id" not in message:
            if method == "session/update":
                self._update(params.get("update"))
        elif method == "session/request_permission":
            self._send({"id": message["id"], "result": {"outcome": self._permit(params)}})
        else:
            error = {"code": NO_METHOD, "message": f"method not found: {method}"}
            self._send({"id": message["id"], "error": error})

    def _update(self, update: Any) -> None:
        """Print what an update says; while a conversation is loaded, they only repeat it."""
        kind = update.get("sessionUpdate") if isinstance(update, dict) else None
        if kind == "usage_update" and isinstance(update.get("cost"), dict):
            # Some agents name the cost of the whole conversation, and do so as soon as it is loaded.
            self.cost = _amount(update["cost"].get("amount"))
            self.cost_before = self.cost_before if self.listening else self.cost
        if not self.listening:
            return
        more = update.get("_meta") if isinstance(update, dict) else None
        self.used.update(_counts(more.get("usage") if isinstance(more, dict) else None))
        if kind in {"agent_message_chunk", "agent_thought_chunk"}:
            self._chunk(update.get("content"), said=kind == "agent_message_chunk")
        elif kind in {"tool_call", "tool_call_update"}:
            self._tool(update)
        elif kind == "plan":
            entries = [one for one in update.get("entries") or () if isinstance(one, dict)]
            current = next((one for one in entries if one.get("status") == "in_progress"), None)
            if current:
                tell("progress", text=str(current.get("content", ""))[:_SHOWN])

    def _chunk(self, content: Any, *, said: bool) -> None:
        words = content.get("text") if isinstance(content, dict) else None
        if said and isinstance(words, str):
            self._said.append(words)
        # A sign of life now and then; each word in a line of its own would be too much.
        if time.monotonic() - self._shown_at >= 1:
            self._shown_at = time.monotonic()
            lines = "".join(self._said)[-4096:].strip().splitlines()
            tell("progress", text=lines[-1][:_SHOWN] if lines else "")

    def _tool(self, update: dict[str, Any]) -> None:
        name = str(update.get("toolCallId", ""))
        known = self._tools.setdefault(name, {})
        known.update({key: value for key, value in update.items() if value is not None})
        status, shown = known.get("status"), f"{known.get('title')} {_command(known)}"
        if name not in self._open and status not in {"completed", "failed"}:
            self.flush()
            self._open.add(name)
            self._begin(name, known)
        elif name in self._open and known.get("shown") != shown and status not in {"completed", "failed"}:
            self._begin(name, known)  # many agents say what a tool does only once it has begun
        known["shown"] = shown
        if status in {"completed", "failed"}:
            self.flush()
            self._open.discard(name)
            tell("ended", id=name, failed=status == "failed", output=_output(known), **_shown(known))
            self._tools.pop(name)

    def _begin(self, name: str, known: dict[str, Any]) -> None:
        tell("tool", id=name, **_shown(known))

    def _permit(self, params: dict[str, Any]) -> dict[str, Any]:
        """Answer a question about a permission as the settings say, since no user can be asked."""
        call = params.get("toolCall")
        call = call if isinstance(call, dict) else {}
        name = str(call.get("toolCallId", ""))
        # Some agents name the command only here.
        known = self._tools.setdefault(name, {}) if name in self._open else {}
        known.update(_given(call))
        command = _command(known)
        allowed = self._orders.allows(str(known.get("kind") or "other"), command)
        options = [one for one in params.get("options") or () if isinstance(one, dict)]
        # Once only: an answer for always may be written to the user's own configuration.
        wanted = ("allow_once", "allow_always") if allowed else ("reject_once", "reject_always")
        if not allowed:
            what = command or str(known.get("title") or known.get("kind") or "a tool")
            self.denied.append(" ".join(what.split())[:_SHOWN])
            tell("denied", what=self.denied[-1])
        for kind in wanted:
            for option in options:
                if option.get("kind") == kind:
                    return {"outcome": "selected", "optionId": option.get("optionId")}
        return {"outcome": "cancelled"}


def _amount(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and value >= 0 else None


def _counts(used: Any) -> dict[str, int]:
    """Return the counts of tokens in a report of usage."""
    found = used.items() if isinstance(used, dict) else ()
    return {key: value for key, value in found if isinstance(value, int) and value >= 0}


def _given(call: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in call.items() if value is not None}


def _command(known: dict[str, Any]) -> str:
    given = known.get("rawInput")
    if not isinstance(given, dict):
        return ""
    command = given.get("command") or given.get("cmd")
    if isinstance(command, list):
        command = (
            command[-1] if command and command[0] in {"bash", "sh", "zsh"} else " ".join(map(str, command))
        )
    return command.strip() if isinstance(command, str) else ""


def _shown(known: dict[str, Any]) -> dict[str, Any]:
    places = [one for one in known.get("locations") or () if isinstance(one, dict)]
    paths = [one["path"] for one in places if isinstance(one.get("path"), str)]
    title = " ".join(str(known.get("title") or "").split())[:_SHOWN]
    return {
        "title": title,
        "kind": str(known.get("kind") or "other"),
        "input": {"command": _command(known)},
        "paths": paths,
    }


def _output(known: dict[str, Any]) -> str:
    """Return the text of a tool's result."""
    parts = [one.get("content") for one in known.get("content") or () if isinstance(one, dict)]
    texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
    return "\n".join(texts)[:_MOST_OUTPUT]


class Session:
    """One prompt, from the handshake to the result."""

    def __init__(self, agent: "subprocess.Popen[bytes]", orders: Orders) -> None:
        self._orders = orders
        self._agent = agent
        self._dialog = Dialog(agent, orders)
        self._id = ""

    def run(self, prompt: str) -> bool:
        """Carry the prompt out; return whether the agent says that it is done."""
        signal.alarm(HANDSHAKE_SECONDS)
        can = self._greet()
        self._open(can)
        self._choose_model()
        signal.alarm(0)
        dialog = self._dialog
        dialog.listening = True
        ended = dialog.ask("session/prompt", sessionId=self._id, prompt=[{"type": "text", "text": prompt}])
        dialog.flush()
        self._tell_usage(ended)
        stop = str(ended.get("stopReason", ""))
        ok = stop == "end_turn"
        tell("result", ok=ok, stop=stop, denied=dialog.denied)
        return ok

    def cancel(self) -> None:
        """Ask the agent to leave its turn, and wait a moment for that."""
        if self._id:
            self._dialog.notify("session/cancel", sessionId=self._id)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._agent.wait(CANCEL_SECONDS)

    def _greet(self) -> dict[str, Any]:
        nothing = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
        about = {"name": "autopilot-multi", "title": "autopilot-multi", "version": "1"}
        answer = self._dialog.ask(
            "initialize", protocolVersion=PROTOCOL, clientCapabilities=nothing, clientInfo=about
        )
        self._ways = [
            str(one.get("name") or one.get("id"))
            for one in answer.get("authMethods") or ()
            if isinstance(one, dict)
        ]
        if answer.get("protocolVersion") != PROTOCOL:
            raise RpcError({"message": f"it speaks version {answer.get('protocolVersion')} of the protocol"})
        self._name = answer.get("agentInfo")
        can = answer.get("agentCapabilities")
        return can if isinstance(can, dict) else {}

    def _open(self, can: dict[str, Any]) -> None:
        """Begin a conversation, or load the one to resume."""
        loads = can.get("loadSession") is True
        more = can.get("sessionCapabilities")
        resumes = isinstance(more, dict) and more.get("resume") is not None
        where: dict[str, Any] = {"cwd": os.getcwd(), "mcpServers": []}  # noqa: PTH109  no library here
        wanted = self._orders.resume
        if wanted and not (loads or resumes):
            raise RpcError({"code": NOT_FOUND, "message": "session not found: it cannot resume any"})
        try:
            if wanted:
                # Loading repeats the whole conversation, but some agents say only then what it has cost.
                method = "session/load" if loads else "session/resume"
                self._opened = self._dialog.ask(method, sessionId=wanted, **where)
            else:
                self._opened = self._dialog.ask("session/new", **where)
        except RpcError as error:
            if error.code == AUTH_REQUIRED and self._ways:
                words = f"{error} (sign in first, with one of: {', '.join(self._ways)})"
                raise RpcError({"code": AUTH_REQUIRED, "message": words}) from error
            if wanted and error.code in {NOT_FOUND, -32602, -32603}:
                raise RpcError({"code": NOT_FOUND, "message": f"session not found: {error}"}) from error
            raise
        self._id = wanted or str(self._opened.get("sessionId", ""))
        tell("session", id=self._id, resumable=loads or resumes, agent=self._name)

    def _choose_model(self) -> None:
        """Ask for the model of the settings, in whichever way the agent offers models."""
        model = self._orders.model
        if not model:
            return
        options = [one for one in self._opened.get("configOptions") or () if isinstance(one, dict)]
        choice = next((one for one in options if "model" in {one.get("category"), one.get("id")}), None)
        offered = self._opened.get("models")
        if choice is not None:
            self._dialog.ask(
                "session/set_config_option", sessionId=self._id, configId=choice.get("id"), value=model
            )
        elif isinstance(offered, dict):
            self._dialog.ask("session/set_model", sessionId=self._id, modelId=model)
        else:
            _note(f"the agent offers no choice of models, so it was not asked to use {model}\n")

    def _tell_usage(self, ended: dict[str, Any]) -> None:
        dialog = self._dialog
        # Some agents report the tokens of each reply beside its words, and none at the end.
        counts = _counts(ended.get("usage")) or dict(dialog.used)
        cost = dialog.cost
        if cost is not None and self._orders.resume:
            # Agents differ in whether it includes earlier sessions; without a cost to begin with, who knows.
            before = dialog.cost_before
            cost = None if before is None else round(max(0.0, cost - before), 9)
        if not counts and cost is None:
            return
        read, cached = counts.get("inputTokens", 0), counts.get("cachedReadTokens", 0)
        tell(
            "usage",
            input=read + cached + counts.get("cachedWriteTokens", 0) if counts else None,
            output=counts.get("outputTokens"),
            cached=cached if counts else None,
            cost=cost,
        )


def _passed_on(stream: IO[bytes], newest: "deque[str]") -> None:
    """Copy what the agent writes to its standard error, and remember its newest lines."""
    for line in stream:
        text = line.decode("utf-8", "replace")
        newest.append(text.strip())
        _note(text)


def _stop(*_: object) -> NoReturn:
    raise StopError


def _late(*_: object) -> NoReturn:
    raise TimeoutError


def main() -> int:
    """Run the session; the exit code says whether the agent was done."""
    orders, command = Orders(sys.argv[1]), sys.argv[2:]
    prompt = sys.stdin.buffer.read().decode("utf-8", "replace")
    newest: deque[str] = deque(maxlen=20)
    try:
        pipe = subprocess.PIPE
        agent = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)  # noqa: S603  the user's own
    except OSError as error:
        tell("result", ok=False, message=f"cannot start {command[0]}: {error.strerror}")
        return 1
    assert agent.stderr is not None  # noqa: S101  a pipe
    reader = threading.Thread(target=_passed_on, args=(agent.stderr, newest), daemon=True)
    reader.start()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGALRM, _late)
    session = Session(agent, orders)
    ok = False
    try:
        ok = session.run(prompt)
    except RpcError as error:
        tell("result", ok=False, message=str(error), code=error.code)
    except GoneError:
        agent.wait()
        reader.join(1)
        words = next((line for line in reversed(newest) if line), "")
        tell("result", ok=False, message=f"{command[0]} exited with code {agent.returncode}: {words}")
    except TimeoutError:
        words = f"{command[0]} did not begin a session in {HANDSHAKE_SECONDS} s: does it speak the protocol?"
        tell("result", ok=False, message=words)
    except StopError:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        with contextlib.suppress(GoneError, StopError):
            session.cancel()
        return 143
    finally:
        signal.alarm(0)
        _end(agent)
    return 0 if ok else 1


def _end(agent: "subprocess.Popen[bytes]") -> None:
    """Let the agent end by itself, then end it; the keeper ends what it has started."""
    with contextlib.suppress(OSError, StopError):
        if agent.stdin is not None:
            agent.stdin.close()
    for end in (agent.terminate, agent.kill):
        with contextlib.suppress(subprocess.TimeoutExpired, StopError):
            agent.wait(EXIT_SECONDS)
            return
        end()


if __name__ == "__main__":
    sys.exit(main())
