"""Which hosts each agent reaches in a sealed network, from what moves its endpoint."""

from pathlib import Path

import pytest

from runner.agents.catalog import KNOWN, reachable_by
from runner.agents.command import CommandAgent, TemplateAgent
from runner.core.agent_settings import AgentSettings


@pytest.mark.parametrize(
    ("name", "environ", "arguments", "expected"),
    [
        ("claude", {}, (), ("api.anthropic.com",)),
        ("claude", {"ANTHROPIC_BASE_URL": "http://127.0.0.1:4000/v1"}, (), ("127.0.0.1:4000",)),
        ("claude", {"ANTHROPIC_BASE_URL": "https://[fd00::1]/x"}, (), ("[fd00::1]:443",)),
        ("claude", {"ANTHROPIC_BASE_URL": "no address"}, (), ("api.anthropic.com",)),
        (
            "claude",
            {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_REGION": "eu-west-1"},
            (),
            ("bedrock-runtime.eu-west-1.amazonaws.com",),
        ),
        ("claude", {"CLAUDE_CODE_USE_VERTEX": "1"}, (), ("aiplatform.googleapis.com",)),
        ("codex", {}, ("-c", 'model_providers.x={base_url="http://me:81/v1"}'), ("me:81", "api.openai.com")),
        ("opencode", {"OPENCODE_CONFIG_CONTENT": '{"baseURL": "http://a.org"}'}, (), ("a.org:80",)),
        ("gemini", {"GOOGLE_GEMINI_BASE_URL": "https://proxy.example"}, (), ("proxy.example:443",)),
    ],
)
def test_the_endpoint_is_found_where_the_user_has_moved_it(
    name: str, environ: dict[str, str], arguments: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    """A variable or an argument moves it, and what cannot be read as an address moves nothing."""
    found = KNOWN[name].endpoint.entries(environ, arguments)
    assert found[: len(expected)] == expected
    assert ("api.anthropic.com" in found) == (name == "opencode" or expected[0] == "api.anthropic.com")


def test_an_agent_has_what_its_settings_say(tmp_path: Path) -> None:
    """Its own variables and files of the user's count; a plain command reaches nothing by itself."""
    settings = tmp_path / ".codex" / "config.toml"
    settings.parent.mkdir()
    settings.write_text('[model_providers.own]\nbase_url = "https://own.example/v1"\n')
    environ = {"HOME": str(tmp_path)}
    own = AgentSettings(argv=("npx", "claude"), env={"ANTHROPIC_BASE_URL": "http://own.example"})
    assert reachable_by(TemplateAgent("mine", own), environ).entries == ("own.example:80",)
    assert "own.example:443" in reachable_by(KNOWN["codex"](AgentSettings()), environ).entries
    assert reachable_by(CommandAgent(), environ).entries == ()
