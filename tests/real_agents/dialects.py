"""The four protocols that agent programs speak to a model: requests read, replies written.

Anthropic's messages, OpenAI's responses and chat completions, Gemini's content. Each is told by its path.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

INPUT, OUTPUT = 1000, 10
"""The tokens that every reply says to have used."""

Action = dict[str, Any]
"""What the model does: `{"text": words}`, or `{"tool": name, "input": arguments}`.

`of` is the group that a tool belongs to. `uses` are its tokens, input and output, and `cached` is how many of
the input came from a cache.
"""
Event = tuple[str, Any]
"""A name, empty where the protocol has none, and what is sent under it."""
Reply = tuple[dict[str, Any], list[Event]]
"""The whole reply, and the same as a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What an agent asks: `turns` are what users and tools said, with whether it is a tool's result.

    `talk` is the conversation that it belongs to, where the program names one.
    """

    model: str
    streamed: bool
    turns: tuple[tuple[bool, str], ...]
    tools: tuple[str, ...]
    system: str
    render: Callable[[str, Action], Reply]
    talk: str = ""


def read(path: str, body: dict[str, Any]) -> Request | None:
    """Read a request; None for paths that are no conversation, such as a count of tokens."""
    if path.endswith(("/messages", "/responses", "/chat/completions")):
        name = path.rpartition("/")[2]
        turns, render = _SPOKEN[name]
        model, streamed = str(body.get("model")), bool(body.get("stream"))
    elif path.endswith("enerateContent"):
        turns, render = _gemini_turns, _as_gemini
        model, _, verb = path.rpartition("/")[2].partition(":")
        streamed = verb.startswith("stream")
    else:
        return None
    system = body.get("system") or body.get("instructions") or body.get("systemInstruction") or ""
    told = [message for message in body.get("messages") or () if message.get("role") == "system"]
    return Request(
        model=model,
        streamed=streamed,
        turns=tuple(turns(body)),
        tools=tuple(_tools(body)),
        system=_plain(system) + _plain([message.get("content") for message in told]),
        render=render,
        talk=str((body.get("metadata") or {}).get("user_id") or body.get("prompt_cache_key") or ""),
    )


def uses(action: Action) -> tuple[int, int]:
    """Return the tokens that a reply says to have used, input and output."""
    given, made = action.get("uses") or (INPUT, OUTPUT)
    return int(given), int(made)


def failure(status: int, kind: str, words: str = "") -> dict[str, Any]:
    """Return the body of an error that all four understand."""
    error = {"type": kind, "message": words or f"scripted {status}", "code": status, "status": kind.upper()}
    return {"type": "error", "error": error}


def _tools(body: dict[str, Any]) -> Iterator[str]:
    for tool in body.get("tools") or ():
        yield from (each["name"] for each in tool.get("functionDeclarations") or ())
        yield tool.get("name") or tool.get("function", {}).get("name") or tool.get("type", "")


def _plain(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        inner = ("text", "content", "output", "parts")
        return _plain(next((content[key] for key in inner if content.get(key)), ""))
    return "\n".join(_plain(part) for part in content or ())


def _messages_turns(body: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    for message in body.get("messages") or ():
        if message.get("role") == "user":
            content = message["content"]
            for block in content if isinstance(content, list) else [content]:
                yield isinstance(block, dict) and block.get("type") == "tool_result", _plain(block)


def _responses_turns(body: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    for item in body.get("input") or ():
        if str(item.get("type", "")).endswith("_output"):
            yield True, _plain(item.get("output"))
        elif item.get("role") == "user":
            yield False, _plain(item.get("content"))


def _chat_turns(body: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    for message in body.get("messages") or ():
        if message.get("role") in {"user", "tool"}:
            yield message["role"] == "tool", _plain(message.get("content"))


def _gemini_turns(body: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    for message in body.get("contents") or ():
        for part in message.get("parts") or () if message.get("role") != "model" else ():
            answer = part.get("functionResponse")
            yield answer is not None, _plain(answer.get("response") if answer else part)


def _as_messages(model: str, action: Action) -> Reply:
    cached, (given, made) = action.get("cached", 0), uses(action)
    usage = {"input_tokens": given - cached, "cache_read_input_tokens": cached, "output_tokens": made}
    if "text" in action:
        empty: dict[str, Any] = {"type": "text", "text": ""}
        full = {"type": "text", "text": action["text"]}
        delta = {"type": "text_delta", "text": action["text"]}
        stop = "refusal" if action.get("refuses") else "end_turn"
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
    return {**message, **ended, "content": [full], "usage": usage}, _typed(events)


def _as_responses(model: str, action: Action) -> Reply:
    given, made = uses(action)
    name = uuid.uuid4().hex
    usage = {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": action.get("cached", 0)},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": given + made,
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
        item |= {"namespace": action["of"]} if "of" in action else {}
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
    return whole, _typed(events)


def _as_chat(model: str, action: Action) -> Reply:
    given, made = uses(action)
    name = uuid.uuid4().hex
    usage: dict[str, Any] = {"prompt_tokens": given, "completion_tokens": made}
    usage |= {"total_tokens": given + made}
    usage |= {"prompt_tokens_details": {"cached_tokens": action.get("cached", 0)}}
    message: dict[str, Any] = {"role": "assistant", "content": action.get("text")}
    if "tool" in action:
        called = {"name": action["tool"], "arguments": json.dumps(action["input"])}
        message["tool_calls"] = [{"index": 0, "id": f"call_{name}", "type": "function", "function": called}]
    stop = "tool_calls" if "tool" in action else "stop"
    about: dict[str, Any] = {"id": f"chatcmpl-{name}", "created": 1_790_000_000, "model": model}
    chunk = {**about, "object": "chat.completion.chunk"}
    events: list[Event] = [
        ("", {**chunk, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}),
        ("", {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": stop}]}),
        ("", {**chunk, "choices": [], "usage": usage}),
        ("", "[DONE]"),
    ]
    choice = {"index": 0, "message": message, "finish_reason": stop}
    return {**about, "object": "chat.completion", "choices": [choice], "usage": usage}, events


def _as_gemini(model: str, action: Action) -> Reply:
    given, made = uses(action)
    called = {"name": action.get("tool"), "args": action.get("input")}
    part = {"text": action["text"]} if "text" in action else {"functionCall": called}
    usage = {
        "promptTokenCount": given,
        "cachedContentTokenCount": action.get("cached", 0),
        "candidatesTokenCount": made,
        "totalTokenCount": given + made,
    }
    said = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    whole = {"candidates": [said], "modelVersion": model, "usageMetadata": usage}
    return whole, [("", whole)]


def _typed(events: list[tuple[str, dict[str, Any]]]) -> list[Event]:
    """Repeat each event's name in what is sent, as these two protocols do."""
    return [(name, {"type": name, **event}) for name, event in events]


_Turns = Callable[[dict[str, Any]], Iterator[tuple[bool, str]]]
_SPOKEN: Mapping[str, tuple[_Turns, Callable[[str, Action], Reply]]] = {
    "messages": (_messages_turns, _as_messages),
    "responses": (_responses_turns, _as_responses),
    "completions": (_chat_turns, _as_chat),
}
