"""Which conversations are resumed and which begin again, with agents that fail as the real ones do."""

import json

import pytest

from tests.acceptance.test_agents import WELL, Actors, actors, claude, trouble

__all__ = ["actors"]
REFUSED = {"is_error": True, "stop_reason": "refusal", "result": "API Error: it can't help with this."}


@pytest.mark.parametrize(
    "dead",
    [
        {"lines": claude(**REFUSED), "code": 1},
        trouble("Request too large (max 32MB). Try with a smaller file.", 413),
        trouble("API Error: 400 prompt is too long: 210000 tokens > 200000 maximum", 400),
    ],
    ids=["refusal", "413", "full"],
)
def test_a_dead_conversation_is_not_resumed(actors: Actors, dead: dict[str, object]) -> None:
    """The next attempt starts a new one, and its prompt says what was done."""
    actors.install("claude")
    actors.story("a", {**dead, "files": {"half.txt": "x"}}, WELL)
    ran = actors.run()
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    first, second = actors.calls("a")
    assert "--resume" not in second
    assert first[first.index("--session-id") + 1] != second[second.index("--session-id") + 1]
    prompt = actors.prompt("a")
    assert "This is a new conversation." in prompt
    assert "- Attempt 1 by claude failed after 1 tool uses: " in prompt
    assert '{"type"' not in prompt, "the agent's words, not its events"


def test_after_two_failures_a_conversation_begins_again(actors: Actors) -> None:
    """One more try in the same conversation helps often, a third one does not; commits so far are named."""
    actors.install("claude")
    wrong = {"lines": claude(), "files": {"wrong.txt": "x"}}
    right = {"lines": claude(), "files": {"right.txt": "x"}}
    actors.story("a", wrong, {**wrong, "files": {"wrong.txt": "y"}}, right)
    verify = "--verify=cat wrong.txt; test -f right.txt"
    ran = actors.run(verify, "--no-base-check")
    assert (ran.code, ran.story("a")["attempt"]) == (0, 3), ran.err
    calls = actors.calls("a")
    assert ["--resume" in call for call in calls] == [False, True, False]
    assert "changes of `wrong.txt`" in actors.prompt("a")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ({"error": {"message": "no such model", "type": "invalid_request_error", "code": None}}, "failed"),
        ({"type": "error", "status": 400, "error": {"message": "bad field", "type": "x"}}, "failed"),
        ("Quota exceeded. Check your plan and billing details.", "failed"),
        ("unexpected status 429 Too Many Requests: insufficient_quota", "failed"),
    ],
)
def test_what_no_retry_can_change_is_one_session_with_codex(
    actors: Actors, words: object, status: str
) -> None:
    """An unknown model, a bad request and a used-up quota neither burn attempts nor are waited for."""
    actors.install("codex")
    message = words if isinstance(words, str) else json.dumps(words)
    failed = {"type": "turn.failed", "error": {"message": message}}
    actors.story("a", {"lines": [failed], "code": 1}, agent="codex")
    ran = actors.run()
    story = ran.story("a")
    assert (story["status"], story["sessions"]) == (status, 1), ran.err
    assert '{"' not in story["reason"]


def test_a_network_that_answers_by_itself_costs_no_attempt(actors: Actors) -> None:
    """A page instead of an answer, as from a network that wants a sign-in, is waited out."""
    actors.install("claude")
    words = "API Error: API returned an empty or malformed response (HTTP 200), retrying in 0.1 s"
    actors.story("a", *[trouble(words, None)] * 5, WELL)
    ran = actors.run()
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err


def test_a_question_in_plain_words_becomes_a_decision(actors: Actors) -> None:
    """An agent that asks instead of working is not lost as no work; with a change, the work counts."""
    actors.install("claude")
    words = "I found two schemas.\n\nShould I keep the old table?"
    said = {"type": "assistant", "message": {"content": [{"type": "text", "text": words}]}}
    lines = [*claude()[:-1], said, claude(result=words)[-1]]
    actors.story("a", {"lines": lines}, WELL)
    actors.story("b", {"lines": lines, "files": {"b.txt": "x"}})
    denied = {"tool_name": "Bash", "tool_input": {"command": "npm install left-pad"}}
    actors.story("c", {"lines": claude(permission_denials=[denied])})
    ran = actors.run()
    assert [ran.story(name)["status"] for name in "abc"] == ["parked", "done", "no_work"], ran.err
    assert "Should I keep the old table?" in ran.story("a")["reason"]
    assert "was denied Bash: npm install left-pad; to allow a command" in ran.err
    shown = actors.run("decide", "a", "A")
    assert shown.code == 0, shown.err
    again = actors.run("resume")
    assert again.story("a")["status"] == "done", again.err
    assert "I found two schemas." in json.dumps(ran.data) or "two schemas" in actors.prompt("a")
