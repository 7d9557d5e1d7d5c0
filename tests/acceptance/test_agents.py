"""The real program with small fake agents on PATH that print what the real ones do."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import Ran, run, write_story
from tests.conftest import git
from tests.isolation.guard.guard_scenes import can_mount

KEY = "sk-ant-api03-not-a-real-key-0123456789"
PASSWORD = "correct horse battery staple"  # noqa: S105  not a real one

FAKE = """#!{python}
import json, os, pathlib, sys, time
home = pathlib.Path({home!r})
story = os.environ["AUTOPILOT_STORY_ID"]
calls = home / (story + ".calls")
with calls.open("a") as file:
    file.write(json.dumps(sys.argv[1:]) + "\\n")
number = len(calls.read_text().splitlines())
plan = json.loads((home / (story + ".json")).read_text())
act = plan[min(number, len(plan)) - 1]
(home / (story + ".prompt")).write_text(sys.stdin.read())
for name, text in act.get("files", {{}}).items():
    pathlib.Path(name).parent.mkdir(exist_ok=True)
    pathlib.Path(name).write_text(text)
flag = next((flag for flag in ("--session-id", "--resume") if flag in sys.argv), "")
session = sys.argv[sys.argv.index(flag) + 1] if flag else ""
for line in act.get("lines", []):
    text = line if isinstance(line, str) else json.dumps(line)
    print(text.replace("$SESSION", session), flush=True)
sys.stdout.buffer.write(bytes.fromhex(act.get("binary", "")))
sys.stdout.flush()
print(*(os.environ.get(name, "") for name in act.get("leak", [])), flush=True)
sys.exit(act.get("code", 0))
"""


class Actors:
    """Fake programs, and what each story's sessions do, call by call."""

    def __init__(self, folder: Path, repo: Path) -> None:
        self._folder = folder
        self.repo = repo
        (folder / "bin").mkdir(parents=True)

    def install(self, name: str) -> Path:
        """Put a program on PATH."""
        program = self._folder / "bin" / name
        program.write_text(FAKE.format(python=sys.executable, home=str(self._folder)))
        program.chmod(0o755)
        return program

    def story(self, story_id: str, *acts: dict[str, Any], body: str = "Do it.", **keys: object) -> None:
        """Write a story, and what its sessions do in turn; the last act is repeated."""
        (self._folder / f"{story_id}.json").write_text(json.dumps(acts))
        write_story(self.repo, story_id, body=body, **keys)

    def calls(self, story_id: str) -> list[list[str]]:
        """Return the arguments of each call."""
        lines = (self._folder / f"{story_id}.calls").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def prompt(self, story_id: str) -> str:
        """Return what the newest session read."""
        return (self._folder / f"{story_id}.prompt").read_text()

    def run(self, *arguments: str, **env: str) -> Ran:
        """Run the program with these agents alone."""
        path = f"{self._folder}/bin:/usr/bin:/bin"
        return run(self.repo, *arguments, "--json", env={"PATH": path, **env})

    def records(self) -> list[dict[str, Any]]:
        """Read the records of work sessions."""
        path = self.repo / ".orchestrator" / "metrics" / "sessions.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()]
        return [record for record in records if record["session_kind"] == "work"]


@pytest.fixture
def actors(tmp_path: Path, repo: Path) -> Actors:
    """Return a stage on which only fake agents are installed."""
    return Actors(tmp_path / "actors", repo)


def claude(**more: Any) -> list[dict[str, Any]]:
    """Return a stream as claude prints it: a tool, a message, the result."""
    result = {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "result": "All done.",
        "session_id": "$SESSION",
        "total_cost_usd": 0.25,
        "usage": {"input_tokens": 1000, "cache_read_input_tokens": 200, "output_tokens": 50},
    }
    tool = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "git status"}}
    return [
        {"type": "system", "subtype": "init", "session_id": "$SESSION"},
        {"type": "assistant", "message": {"content": [tool]}},
        {"type": "user", "message": {"content": [{"type": "tool_result", "tool_use_id": "t1"}]}},
        {**result, **more},
    ]


def trouble(words: str, status: int | None) -> dict[str, Any]:
    """Return an act that ends as claude does when its service fails."""
    more = {"is_error": True, "result": words, "api_error_status": status}
    return {"lines": claude(**more), "code": 1}


WELL = {"files": {"made.txt": "made"}, "lines": claude()}


def test_auto_takes_what_is_installed_and_says_so(actors: Actors) -> None:
    """The first known agent on PATH does the stories; the run names it."""
    actors.story("a", WELL)
    none = actors.run()
    assert none.code == 1
    assert "no agent is configured or installed" in none.document["error"]["message"]
    assert "claude, codex" in none.document["error"]["hint"]
    actors.install("qwen")
    actors.install("claude")
    ran = actors.run()
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err
    assert "agent auto: claude" in ran.err


def test_what_an_agent_tells_is_in_the_records(actors: Actors) -> None:
    """Tokens, cost, tools and conversation come from the stream; the last message is shown, not its JSON."""
    actors.install("claude")
    actors.story("a", WELL)
    ran = actors.run("--model=opus", "--cost-budget=5")
    assert ran.code == 0, ran.err
    (record,) = actors.records()
    assert (record["input_tokens"], record["output_tokens"], record["cost_usd"]) == (1200, 50, 0.25)
    assert (record["tool_uses"], record["cost_estimated"]) == (1, False)
    (arguments,) = actors.calls("a")
    assert arguments[arguments.index("--session-id") + 1] == record["conversation"]
    assert arguments[arguments.index("--model") + 1] == "opus"
    assert float(arguments[arguments.index("--max-budget-usd") + 1]) == 5
    assert arguments[arguments.index("--permission-mode") + 1] == "acceptEdits"


def test_a_claim_of_success_without_a_change_is_no_work(actors: Actors) -> None:
    """What an agent says of itself never makes a story done; tools that it was denied are named."""
    actors.install("claude")
    actors.story("a", {"lines": claude(permission_denials=[{"tool_name": "Bash"}])})
    ran = actors.run()
    assert (ran.code, ran.story("a")["status"]) == (3, "no_work")
    assert "was denied Bash" in ran.err


def test_what_aider_leaves_about_is_no_work(actors: Actors) -> None:
    """Its cache is ignored, so a session that did nothing else has not done the story."""
    actors.install("aider")
    lines = ["Nothing to do.", "Tokens: 1.0k sent, 10 received."]
    actors.story("a", {"files": {".aider.tags.cache.v4/cache.db": "x"}, "lines": lines})
    ran = actors.run()
    assert (ran.code, ran.story("a")["status"]) == (3, "no_work"), ran.err
    (record,) = actors.records()
    assert (record["input_tokens"], record["tool_uses"]) == (1000, None)


def test_an_error_of_aider_fails_its_story_though_it_ends_with_0(actors: Actors) -> None:
    """A refused key shows in its lines alone; leftover files in the worktree do not count."""
    actors.install("aider")
    words = "litellm.AuthenticationError: AuthenticationError: OpenAIException - no such key"
    actors.story("a", {"files": {"half.txt": "x"}, "lines": [words, "Check your API key."]})
    ran = actors.run()
    story = ran.story("a")
    assert (ran.code, story["status"], story["sessions"]) == (3, "failed", 1), ran.err
    assert "no such key" in story["reason"]


def test_an_end_without_a_last_word_is_a_failed_attempt(actors: Actors) -> None:
    """Exit code 0 alone proves nothing: the next attempt continues the same conversation."""
    actors.install("claude")
    actors.story("a", {"files": {"half.txt": "x"}, "lines": claude()[:2]}, WELL)
    ran = actors.run()
    assert (ran.code, ran.story("a")["attempt"]) == (0, 2), ran.err
    first, second = actors.calls("a")
    assert second[second.index("--resume") + 1] == first[first.index("--session-id") + 1]
    assert "without a final result" in ran.err


def test_a_service_that_fails_costs_no_attempt(actors: Actors) -> None:
    """Overload is waited out for as long as it says, even more often than there are attempts and sessions."""
    actors.install("claude")
    busy = trouble("API Error: 529 overloaded, retrying in 0.2 s", None)
    actors.story("a", *[busy] * 6, WELL)
    ran = actors.run("--max-sessions=2")
    assert (ran.code, ran.story("a")["status"], ran.story("a")["attempt"]) == (0, "done", 1), ran.err
    assert ran.err.count("does not count as an attempt") == 6
    assert len({tuple(call[call.index("--resume") :][:2]) for call in actors.calls("a")[1:]}) == 1


@pytest.mark.parametrize(
    ("words", "status"),
    [("Invalid API key · Please run /login", 401), ("model: no-such-model", 404), ("Not logged in", None)],
)
def test_a_permanent_error_fails_at_once_in_its_own_words(
    actors: Actors, words: str, status: int | None
) -> None:
    """One session, the agent's words as the reason, and what to do about it."""
    actors.install("claude")
    actors.story("a", trouble(words, status))
    ran = actors.run()
    story = ran.story("a")
    assert (ran.code, story["status"], story["sessions"]) == (3, "failed", 1), ran.err
    assert words.partition(" ·")[0] in story["reason"]
    assert "resume --retry-failed" in story["next"]
    actors.story("a", WELL)
    again = actors.run("resume", "--retry-failed")
    assert again.story("a")["status"] == "done", again.err


def test_a_refused_key_is_not_asked_ten_times(actors: Actors) -> None:
    """An agent that keeps trying a bad key is ended."""
    actors.install("claude")
    retry = {"type": "system", "subtype": "api_retry", "error_status": 401, "error": "authentication_failed"}
    lines = [claude()[0], {**retry, "attempt": 1}, {**retry, "attempt": 2}]
    program = actors.install("claude")
    program.write_text(program.read_text().replace("sys.exit(", "time.sleep(600)\nsys.exit("))
    actors.story("a", {"lines": lines})
    ran = actors.run()
    assert (ran.story("a")["status"], ran.story("a")["sessions"]) == ("failed", 1), ran.err
    assert "authentication_failed (status 401)" in ran.story("a")["reason"]


def test_a_lost_conversation_is_replaced(actors: Actors) -> None:
    """A conversation that no longer exists costs neither an attempt nor the story."""
    actors.install("claude")
    lost = {"lines": ["No conversation found with session ID: 123"], "code": 1}
    actors.story("a", {"lines": claude()[:1], "code": 3}, lost, WELL)
    ran = actors.run()
    assert (ran.code, ran.story("a")["attempt"]) == (0, 2), ran.err
    first, second, third = actors.calls("a")
    assert "--resume" in second
    assert "--session-id" in third
    assert first[first.index("--session-id") + 1] != third[third.index("--session-id") + 1]


def test_huge_binary_and_malformed_lines_break_nothing(actors: Actors) -> None:
    """What no parser can read is ignored; the story ends as its final result says."""
    actors.install("claude")
    noise = ["{", '{"type": "result"', "[1]", "x" * 5_000_000, '{"type": "assistant", "message": 7}', "null"]
    actors.story("a", {**WELL, "lines": [*noise, *claude()], "binary": "00ff80" * 1000})
    ran = actors.run()
    assert (ran.code, ran.story("a")["status"]) == (0, "done"), ran.err


def test_secrets_are_written_nowhere(actors: Actors) -> None:
    """What sessions print of keys and passwords is in no log, journal, record, report or narration."""
    actors.install("claude")
    leaks = {"lines": claude(is_error=True, result=f"bad: {KEY} and {PASSWORD}"), "code": 1}
    leaks |= {"leak": ["MY_API_KEY", "DB_PASSWORD", "MINE_TOKEN"], "files": {"made.txt": "x"}}
    report = '{"status": "failed", "notes": "it was $DB_PASSWORD"}'
    command = (
        f'echo $DB_PASSWORD; printf %s "$DB_PASSWORD"; cat > $AUTOPILOT_RESULT_FILE <<END\n{report}\nEND'
    )
    write_story(actors.repo, "b", command=command)
    actors.story("a", leaks)
    (actors.repo / "autopilot-multi.toml").write_text(
        '[agents.claude]\nenv = { MINE_TOKEN = "from-the-settings-file-1" }\n'
    )
    passed = {"AUTOPILOT_MULTI_PASS_ENV": "MY_API_KEY,DB_PASSWORD"}
    ran = actors.run("-v", MY_API_KEY=KEY, DB_PASSWORD=PASSWORD, **passed)
    kept = [actors.repo / ".git" / "autopilot", actors.repo / ".orchestrator"]
    texts = {str(path): path.read_bytes() for place in kept for path in place.rglob("*") if path.is_file()}
    texts |= {"stdout": ran.out.encode(), "stderr": ran.err.encode()}
    assert any(b"[redacted]" in text for text in texts.values())
    for secret in (KEY, PASSWORD, "from-the-settings-file-1"):
        assert [name for name, text in texts.items() if secret.encode() in text] == []
    resumed = actors.run("resume", "--retry-failed", MY_API_KEY=KEY, DB_PASSWORD=PASSWORD, **passed)
    assert "[redacted] [redacted] [redacted]" in run(actors.repo, "logs", "a").out, resumed.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is refused")
def test_claude_as_root_is_refused_before_it_starts(actors: Actors) -> None:
    """Bypassing permissions as root is explained with the choices there are, and nothing runs."""
    actors.install("claude")
    actors.story("a", WELL)
    settings = actors.repo / "autopilot-multi.toml"
    settings.write_text('[agents.claude]\npermissions = "bypass"\n')
    refused = actors.run()
    assert refused.code == 1
    assert "refuses" in refused.document["error"]["message"]
    assert "IS_SANDBOX=1" in refused.document["error"]["hint"]
    assert actors.run(IS_SANDBOX="1").code == 0
    assert "bypassPermissions" in actors.calls("a")[0]


def test_an_agent_of_ones_own_is_read_by_its_mapping(actors: Actors) -> None:
    """Keys named in the settings give tokens, cost, message and the conversation to resume."""
    program = actors.install("mine")
    (actors.repo / "autopilot-multi.toml").write_text(
        f'[agents.mine]\nargv = ["{program}", "new"]\nresume = ["{program}", "go-on", "{{session}}"]\n'
        '[agents.mine.events]\nsession = "talk.id"\nmessage = "say"\ninput-tokens = "in"\n'
        'output-tokens = "out"\ncost = "usd"\nusage = "sum"\n'
    )
    lines = [{"talk": {"id": "t-7"}, "in": 5, "out": 1, "usd": 0.5}, {"say": "well", "in": 5, "usd": 0.25}]
    actors.story("a", {"lines": lines, "code": 1}, {"lines": lines, "files": {"a.txt": "x"}})
    ran = actors.run()
    assert ran.code == 0, ran.err
    assert actors.calls("a") == [["new"], ["go-on", "t-7"]]
    record = actors.records()[0]
    assert (record["input_tokens"], record["output_tokens"], record["cost_usd"]) == (10, 1, 0.75)


def test_codex_commits_inside_its_sandbox_and_counts_its_thread_once(actors: Actors) -> None:
    """What a commit writes to is a writable root, and no more; a resumed thread's tokens count once."""
    actors.install("codex")
    thread = {"type": "thread.started", "thread_id": "th-1"}

    def ended(tokens: int) -> dict[str, Any]:
        return {"type": "turn.completed", "usage": {"input_tokens": tokens, "output_tokens": 10}}

    failed = {"type": "turn.failed", "error": {"message": "the plan makes no sense"}}
    first = {"lines": [thread, ended(1000), failed], "code": 1}
    second = {"lines": [thread, ended(2500)], "files": {"a.txt": "x"}}
    actors.story("a", first, second, agent="codex")
    ran = actors.run("--model=gpt-5")
    assert ran.code == 0, ran.err
    start, resumed = actors.calls("a")
    roots = json.loads(next(part for part in start if "writable_roots" in part).partition("=")[2])
    common = f"{actors.repo}.worktrees/.repository" if can_mount() else f"{actors.repo}/.git"
    assert {f"{common}/objects", f"{common}/refs/heads/autopilot", f"{common}/worktrees/a"} <= set(roots)
    assert common not in roots
    assert resumed[-3:] == ["resume", "th-1", "-"]
    assert "gpt-5" in resumed
    assert [record["input_tokens"] for record in actors.records()] == [1000, 1500]
    assert all(record["cost_estimated"] for record in actors.records())


def test_the_prompt_is_a_template_of_the_users(actors: Actors) -> None:
    """The user's template forms every prompt; `prompt` shows it, and a bad one is refused with its fault."""
    actors.install("claude")
    actors.story("a", WELL, verify=["true"], body="Say $5 and\n\n\n\nmore.")
    shown = actors.run("prompt", "a")
    assert "Your work counts when these commands pass here:\n- `true`" in shown.data["prompt"]
    assert "Say $5 and\n\n\n\nmore." in shown.data["prompt"]
    (actors.repo / "mine.md").write_text("Be brief. $$\n\n$owns\n\n$prompt\n")
    (actors.repo / "autopilot-multi.toml").write_text('prompt-template = "mine.md"\n')
    assert actors.run("prompt", "a").data["prompt"] == "Be brief. $\n\nSay $5 and\n\n\n\nmore.\n"
    assert actors.run().code == 0
    assert actors.prompt("a") == "Be brief. $\n\nSay $5 and\n\n\n\nmore.\n"
    (actors.repo / "mine.md").write_text("$promt")
    refused = actors.run("plan")
    assert (refused.code, "$promt" in refused.document["error"]["message"]) == (1, True)
    assert "did you mean 'prompt'?" in refused.document["error"]["hint"]
    missing = actors.run("prompt", "b")
    assert missing.code == 1


def test_the_worktree_is_clean_of_what_agents_are_told(actors: Actors) -> None:
    """Prompt and result files of a session are never committed."""
    actors.install("claude")
    actors.story("a", WELL)
    assert actors.run().code == 0
    assert git(actors.repo, "ls-tree", "-r", "--name-only", "autopilot/a").split() == [
        "README.md",
        "made.txt",
    ]
