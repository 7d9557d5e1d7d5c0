"""How agents try again by themselves, and what is tried again for them."""

import json
from pathlib import Path

import pytest

from runner.agents.listener import OutputListener
from runner.core.limits.agent_output import Fault
from tests.agents.test_streams import JOB, agent


def test_qwen_does_not_retry_for_long_unless_somebody_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets a file of defaults, below all settings of its user; one that is there already counts."""
    monkeypatch.delenv("QWEN_CODE_SYSTEM_DEFAULTS_PATH", raising=False)
    monkeypatch.setenv("QWEN_CODE_SYSTEM_SETTINGS_PATH", str(tmp_path / "settings.json"))
    launch = agent("qwen").launch(JOB)
    ((name, data),) = launch.files.items()
    assert launch.env["QWEN_CODE_SYSTEM_DEFAULTS_PATH"] == str(JOB.prompt.with_name(name))
    assert json.loads(data) == {"model": {"generationConfig": {"maxRetries": 0}}}
    own = agent("qwen", env={"QWEN_CODE_SYSTEM_DEFAULTS_PATH": "/mine.json"}).launch(JOB)
    assert (own.env, own.files) == ({"QWEN_CODE_SYSTEM_DEFAULTS_PATH": "/mine.json"}, {})
    (tmp_path / "system-defaults.json").write_text("{}")
    assert (agent("qwen").launch(JOB).env, agent("qwen").launch(JOB).files) == ({}, {})


def test_a_first_start_of_opencode_beside_others_is_repeated() -> None:
    """One of them finds a table that another has just made; that is no failure of the story."""
    hearing = OutputListener(agent("opencode"))
    hearing.feed(b"Error: Unexpected error\n\nFailed query: \n    CREATE TABLE `workspace` (\n", 0.0)
    verdict = hearing.verdict(1, "params: ", 0.0)
    assert verdict is not None
    assert (verdict.ok, verdict.fault) == (False, Fault.TRANSIENT)
