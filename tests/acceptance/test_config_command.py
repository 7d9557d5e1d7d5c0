"""`config`: every setting with its value and its origin."""

from pathlib import Path

import pytest

from tests.acceptance.written_runs import autopilot, document


def test_every_setting_has_value_and_origin(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """File, environment and default are told apart."""
    (repo / "autopilot-multi.toml").write_text(
        'max-stories = 7\nverify = ["make test"]\n[tiers.warn]\nmemory-gb = 5\n'
        '[agents.mine]\nargv = ["./agent"]\n[hooks]\nafter_create = "npm ci"\n'
    )
    monkeypatch.setenv("AUTOPILOT_MULTI_MAX_HOURS", "2")
    settings = document(repo, "config")["data"]["settings"]
    assert settings["max-stories"]["value"] == 7
    assert "autopilot-multi.toml" in settings["max-stories"]["origin"]
    assert settings["max-hours"]["value"] == 2
    assert "AUTOPILOT_MULTI_MAX_HOURS" in settings["max-hours"]["origin"]
    assert settings["continue"] == {"value": "dependencies-successful", "origin": "default"}
    assert "autopilot-multi.toml" in settings["tiers.warn.memory-gb"]["origin"]
    assert settings["tiers.warn.swap-gb"] == {"value": 2, "origin": "default"}
    assert settings["agents.mine.argv"]["value"] == ["./agent"]
    assert "autopilot-multi.toml" in settings["agents.mine.argv"]["origin"]
    assert "autopilot-multi.toml" in settings["hooks.after_create"]["origin"]
    assert settings["hooks.before_run"]["origin"] == "default"


def test_table_is_aligned_and_plain(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """People get three columns, one line a setting."""
    monkeypatch.delenv("AUTOPILOT_MULTI_TRUST")
    shown = autopilot(repo, "config")
    assert (shown.returncode, shown.stderr) == (0, "")
    head, *rows = shown.stdout.splitlines()
    assert head.split() == ["SETTING", "VALUE", "FROM"]
    assert {row[head.index("FROM") :] for row in rows} == {"default"}
    assert any(row.split()[:2] == ["max-stories", "3"] for row in rows)


def test_clamped_value_is_said(repo: Path) -> None:
    """A value out of range is shown as it will be used, and the clamp is told."""
    (repo / "autopilot-multi.toml").write_text("max-stories = 99\n")
    shown = autopilot(repo, "config")
    assert "50" in next(line for line in shown.stdout.splitlines() if line.startswith("max-stories"))
    assert "max-stories" in shown.stderr


def test_unusable_settings_are_one_error(repo: Path) -> None:
    """An unknown key is an error in both forms, with the nearest name."""
    (repo / "autopilot-multi.toml").write_text("max-storys = 3\n")
    assert "max-stories" in autopilot(repo, "config").stderr
    assert document(repo, "config")["error"]["code"] == "settings"


def test_named_settings_only(repo: Path) -> None:
    """One value stands alone, for scripts; several are a table; a wrong key gets the nearest."""
    (repo / "autopilot-multi.toml").write_text("max-stories = 7\n[tiers.warn]\nmemory-gb = 5\n")
    assert autopilot(repo, "config", "max-stories").stdout == "7\n"
    assert autopilot(repo, "config", "max_hours").stdout == "4\n"
    alone = document(repo, "config", "max-stories")["data"]["settings"]
    assert alone == {"max-stories": {"value": 7, "origin": "autopilot-multi.toml"}}
    tiers = autopilot(repo, "config", "tiers.warn", "agent").stdout.splitlines()
    assert tiers[1].split() == ["tiers.warn.memory-gb", "5", "autopilot-multi.toml"]
    assert tiers[-1].split() == ["agent", "auto", "default"]
    wrong = autopilot(repo, "config", "max-storys")
    assert wrong.stderr == "error: unknown setting 'max-storys'\nhint: did you mean 'max-stories'?\n"


def test_changed_settings_only(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs from its default, with its source; a default that is written down does not differ."""
    monkeypatch.delenv("AUTOPILOT_MULTI_TRUST")
    assert autopilot(repo, "config", "--changed").stderr == "every setting has its default value\n"
    (repo / "autopilot-multi.toml").write_text("max-stories = 3\n[tiers.warn]\nmemory-gb = 5\n")
    monkeypatch.setenv("AUTOPILOT_MULTI_MAX_HOURS", "2")
    assert document(repo, "config", "--changed")["data"]["settings"] == {
        "max-hours": {"value": 2, "origin": "environment AUTOPILOT_MULTI_MAX_HOURS"},
        "tiers.warn.memory-gb": {"value": 5, "origin": "autopilot-multi.toml"},
    }
