"""Settings: which place decides, and that every value knows its origin."""

from pathlib import Path

import pytest
from msgspec.structs import fields

from runner.core.agent_settings import AgentSettings, Price
from runner.core.errors import SettingsError
from runner.core.model import ContinuePolicy
from runner.core.settings import SETTINGS, Settings
from runner.core.tier_settings import TierSettings
from tests.plan.settings_sources import Sources

OWN = frozenset(key for key, declared in SETTINGS.items() if declared.setting.own)
"""What only the user may say, not a file of the repository."""


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Return empty sources."""
    return Sources(tmp_path)


def test_nothing_set_gives_the_defaults(sources: Sources) -> None:
    """Every key is there, from the defaults."""
    loaded = sources.load()
    assert loaded.settings == Settings()
    assert loaded.origins == dict.fromkeys(SETTINGS, "default")
    assert loaded.notes == ()


def test_each_place_gives_way_to_the_one_before(sources: Sources) -> None:
    """Flags, environment, project, Session Config, user, defaults: in this order."""
    seen = []
    sources.user("max-stories = 5\nmodel = 'u'")
    seen.append((sources.load().settings.max_stories, sources.load().origins["max-stories"]))
    sources.block("max-stories: 6")
    seen.append((sources.load().settings.max_stories, sources.load().origins["max-stories"]))
    sources.project("max-stories = 7")
    seen.append((sources.load().settings.max_stories, sources.load().origins["max-stories"]))
    sources.environ["AUTOPILOT_MULTI_MAX_STORIES"] = "8"
    seen.append((sources.load().settings.max_stories, sources.load().origins["max-stories"]))
    flagged = sources.load(max_stories="9")
    seen.append((flagged.settings.max_stories, flagged.origins["max-stories"]))
    assert seen == [
        (5, "~/.config/autopilot-multi/config.toml"),
        (6, "AGENTS.md"),
        (7, "autopilot-multi.toml"),
        (8, "environment AUTOPILOT_MULTI_MAX_STORIES"),
        (9, "flag --max-stories"),
    ]
    assert (flagged.settings.model, flagged.origins["model"]) == (
        "u",
        "~/.config/autopilot-multi/config.toml",
    )


def test_every_key_of_a_file_arrives(sources: Sources) -> None:
    """What the settings know, a file can set."""
    sources.project(
        'stories = "backlog"\nagent = ["claude", "codex"]\non-limit = "wait"\nmodel = "opus"\n'
        'verify = ["make test"]\nmax-stories = 4\n'
        "escalate = ['codex', ':opus']\nprompt-template = 'p.md'\n"
        "best-of = 3\nbest-of-when = 'always'\nreview = 'codex'\n"
        "verify-minutes = 5\nports = 2\nstory-minutes = 9\nmax-attempts = 2\n"
        "verify-in = 'clean'\nverify-keeps = ['**/built/**']\nbase-check = 'warn'\nsquash = true\n"
        "max-sessions = 6\nmax-hours = 2.5\ninactivity-timeout = 100\nstall-seconds = 90\n"
        "stuck-minutes = 0.5\n"
        "confidence-threshold = 0.5\ntoken-budget = 1000\ncost-budget = 3\nstory-token-budget = 9\n"
        "story-cost-budget = 2\nsession-tokens = 5\nsession-cost = 0.5\npeer-abort = 3\nselector = 'pick'\n"
        "allow-unpriced = true\n"
        "bg-isolation = 'none'\nguard = false\nways-out = 'warn'\n"
        "base = 'main'\nbase-follow = true\n"
        "continue = 'always'\ngrace-seconds = 1\nlog-cap-mb = 2\nagents-per-wave = 3\n"
        "persistence = false\nsecret-variables = ['LOGIN']\n"
        "keep-runs-days = 5\nkeep-runs-mb = 50\n"
        "seal = 'writes'\nseal-hides = '~/x'\nseal-shows = ['~/.npmrc']\npass-env = 'NPM_TOKEN'\n"
        "seal-network = ['@npm', '*.example.org:8443']\n"
        "worktree-root = '../w'\npool = 2\nprepare = 'pool'\n"
        "symlink-directories = ['node_modules']\ndialect = 'rich'\n"
        "sparse-paths = 'src'\nsparse = 'owns'\n"
        "docs-folder = '_docs'\nland-verify = 'make all'\nland = true\nland-onto = 'release'\n"
        "land-style = 'rebase'\nland-message = '{id}'\nland-hold = 2.5\n"
        "cross-boundaries = true\ndecide-default = 'recommended'\nnotify = 'say hello'\n"
        "otel-endpoint = 'http://x:4318'\nspiral-limit = 9\nworkspace = 'overlay'\n"
        "draft-mr = 'on-green'\nforge = 'gitlab'\ndraft-remote = 'up'\ndraft-onto = 'main'\n"
        "draft-template = 'draft.md'\nreport-url = 'https://x/r'\nreview-rounds = 5\nreview-authors = 'me'\n"
        "cluster = 'local:2'\ncluster-env = 'A'\ncluster-certificates = 'c'\ncluster-timeout = 60\n"
        "notify-on = ['ended']\nnotify-desktop = true\nnotify-urls = ['ntfy://x']\nbell = false\n"
        "tracker = 'jira'\ntracker-auth = 'true'\ntracker-server = 'x'\ntracker-project = 'P'\n"
        "window = 'fixed'\nmemory-per-story-gb = 1.5\n"
        "deconflict-paths = ['packages/{id}/**', 'a=x,y']\nenforce = 'detect'\nshared-writable = ['x/**']\n"
        "[context]\ncaution-tools = 40\nlarge-kb = 2.5\n"
        "[hooks]\nafter_create = 'a'\nbefore-run = 'b'\n"
        "[agents.mine]\nargv = ['./agent', '{id}']\nresume = ['./agent', '-c']\nenv = {KEY = 'x'}\n"
        "[agents.spoken]\nacp = ['a', '--acp']\n"
        "[agents.claude]\npermissions = 'bypass'\nargs = ['--bare']\n"
        "[agents.lines]\nargv = ['l']\n[agents.lines.events]\ninput-tokens = 'u.in'\nusage = 'sum'\n"
        "[prices.big]\ninput = 1\noutput = 2\n[repos]\nweb = '../web'\n"
        "[tiers.warn]\nmemory-gb = 5\npeers = 5\n"
    )
    loaded = sources.load()
    settings = loaded.settings
    assert all(
        getattr(settings, name) != getattr(Settings(), name)
        for name in (
            "continue_",
            "hooks",
            "tiers",
            *(key.replace("-", "_") for key in SETTINGS if key not in {"continue", *OWN}),
        )
    )
    assert settings.continue_ is ContinuePolicy.ALWAYS
    assert (settings.hooks.after_create, settings.hooks.before_run) == ("a", "b")
    spoken = AgentSettings(acp=("a", "--acp"))
    mine = AgentSettings(argv=("./agent", "{id}"), resume=("./agent", "-c"), env={"KEY": "x"})
    claude = AgentSettings(args=("--bare",), permissions="bypass")
    lines = AgentSettings(argv=("l",), events={"input-tokens": "u.in", "usage": "sum"})
    assert settings.agents == {"mine": mine, "spoken": spoken, "claude": claude, "lines": lines}
    assert settings.agent == "claude,codex"
    assert settings.prices == {"big": Price(input=1, output=2)}
    assert (settings.tiers.warn.memory_gb, settings.tiers.warn.peers, settings.tiers.warn.swap_gb) == (
        5,
        5,
        2,
    )
    written = {key: origin for key, origin in loaded.origins.items() if key not in OWN}
    assert set(written.values()) == {"autopilot-multi.toml"}
    assert {"hooks.after_create", "agents.mine", "tiers.warn.peers"} <= set(loaded.origins)


def test_every_cell_of_the_tiers_can_be_set(sources: Sources) -> None:
    """Each threshold of each tier, and the caps of those that hold back, arrive where they belong."""
    cells = [
        (tier, item.name)
        for tier in ("green", "warn", "degraded")
        for item in fields(getattr(TierSettings(), tier))
    ]
    # The same numbers in every row contradict nothing.
    numbers = {name: 1 + number for number, name in enumerate(sorted({name for _, name in cells}))}
    sources.project(
        "".join(f"tiers.{tier}.{name.replace('_', '-')} = {numbers[name]}\n" for tier, name in cells)
    )
    loaded = sources.load()
    for tier, name in cells:
        assert getattr(getattr(loaded.settings.tiers, tier), name) == numbers[name]
        assert loaded.origins[f"tiers.{tier}.{name.replace('_', '-')}"] == "autopilot-multi.toml"


def test_tables_are_joined_entry_by_entry(sources: Sources) -> None:
    """A project's agent does not hide the user's other one."""
    sources.user("[agents.mine]\nargv = ['u']\n[agents.other]\nargv = ['o']\n[hooks]\nafter_run = 'u'")
    sources.project("[agents.mine]\nargv = ['p']\n[hooks]\nbefore_run = 'p'")
    loaded = sources.load()
    assert {name: agent.argv for name, agent in loaded.settings.agents.items()} == {
        "mine": ("p",),
        "other": ("o",),
    }
    assert (loaded.settings.hooks.before_run, loaded.settings.hooks.after_run) == ("p", "u")
    assert loaded.origins["agents.other"] == "~/.config/autopilot-multi/config.toml"
    assert loaded.origins["agents"] == "autopilot-multi.toml"


def test_a_clamp_is_noted_only_where_it_decides(sources: Sources) -> None:
    """A value that another place overrides makes no noise."""
    sources.project("max-stories = 99\nmax-sessions = 99")
    sources.environ["AUTOPILOT_MULTI_LOG_CAP_MB"] = "0"
    assert sources.load(max_stories="2").notes == (
        "AUTOPILOT_MULTI_LOG_CAP_MB 0 is below 1 MB; using 1 MB",
        "autopilot-multi.toml: max-sessions 99 is above 50; using 50",
    )


def test_a_file_is_checked_even_where_a_flag_decides(sources: Sources) -> None:
    """A broken file is found today, not when the flag is left out."""
    sources.project('max-stories = "many"')
    assert "'many'" in sources.error(max_stories="3").message


def test_two_project_files_are_refused(sources: Sources) -> None:
    """Which of them counts is never guessed."""
    sources.project("", "autopilot-multi.toml")
    sources.project("", ".config/autopilot-multi.toml")
    message = sources.error().message
    assert "autopilot-multi.toml and .config/autopilot-multi.toml" in message


def test_the_project_file_may_be_in_the_config_folder(sources: Sources) -> None:
    """The origin names the file that was read."""
    sources.project("max-stories = 9", ".config/autopilot-multi.toml")
    assert sources.load().origins["max-stories"] == ".config/autopilot-multi.toml"


def test_lists_in_the_environment(sources: Sources) -> None:
    """Commands and specs are on lines of their own, folders between commas."""
    sources.environ["AUTOPILOT_MULTI_VERIFY"] = "make a, b\n\n make c \n"
    sources.environ["AUTOPILOT_MULTI_SYMLINK_DIRECTORIES"] = "node_modules, .venv"
    sources.environ["AUTOPILOT_MULTI_DECONFLICT_PATHS"] = "a=x,y\npackages/{id}/**"
    settings = sources.load().settings
    assert settings.verify == ("make a, b", "make c")
    assert settings.deconflict_paths == ("a=x,y", "packages/{id}/**")
    assert settings.symlink_directories == ("node_modules", ".venv")


def test_the_environment_can_set_every_plain_key(sources: Sources) -> None:
    """`continue` has no underscore there, and numbers are numbers."""
    sources.environ |= {"AUTOPILOT_MULTI_CONTINUE": "never", "AUTOPILOT_MULTI_MAX_HOURS": " 1.5 "}
    loaded = sources.load()
    assert loaded.settings.continue_ is ContinuePolicy.NEVER
    assert loaded.settings.max_hours == 1.5


def test_a_wrong_variable_is_named(sources: Sources) -> None:
    """A settings error names the variable."""
    sources.environ["AUTOPILOT_MULTI_MAX_STORIES"] = "x"
    error = sources.error()
    assert isinstance(error, SettingsError)
    assert error.message.startswith("AUTOPILOT_MULTI_MAX_STORIES must be a whole number")


def test_an_unknown_variable_is_noted_and_an_empty_one_ignored(sources: Sources) -> None:
    """A typo is reported, but not its value, which may be a secret."""
    sources.environ |= {"AUTOPILOT_MULTI_MAX_STORYS": "hunter2", "AUTOPILOT_MULTI_AGENT": "", "OTHER": "x"}
    loaded = sources.load()
    (note,) = loaded.notes
    assert note.startswith("the environment variable AUTOPILOT_MULTI_MAX_STORYS is unknown")
    assert note.endswith("did you mean 'AUTOPILOT_MULTI_MAX_STORIES'?")
    assert "hunter2" not in note
    assert loaded.settings == Settings()


def test_keys_of_other_programs_in_the_block_are_noted(sources: Sources) -> None:
    """The block is shared: an unknown key is not an error there; a wrong value of ours is."""
    sources.block("peer-patience: 3", "max_stories: 2", "max-sessions: 4", "token-budget: off")
    loaded = sources.load()
    assert loaded.settings.max_sessions == 4
    assert loaded.origins["token-budget"] == "AGENTS.md"
    first, second = loaded.notes
    assert first.startswith("AGENTS.md: the key 'peer-patience' of the 'autopilot:' block is unknown here")
    assert second.endswith("has no effect; did you mean 'max-stories'?")
    sources.block("max-stories: seven")
    error = sources.error()
    assert error.message == "AGENTS.md: max-stories must be a whole number from 1 to 50, not 'seven'"
    assert "max-stories: 3" in error.hint


@pytest.mark.parametrize("folder", ["", "relative/config"])
def test_the_users_folder_follows_xdg(sources: Sources, folder: str) -> None:
    """An absolute XDG_CONFIG_HOME decides; a relative or empty one is ignored, as its specification says."""
    sources.user("max-stories = 5")
    sources.environ["XDG_CONFIG_HOME"] = folder
    assert sources.load().settings.max_stories == 5
    elsewhere = sources.top.parent / "xdg"
    sources.write(elsewhere / "autopilot-multi/config.toml", "max-stories = 6")
    sources.environ["XDG_CONFIG_HOME"] = str(elsewhere)
    loaded = sources.load()
    assert loaded.settings.max_stories == 6
    assert loaded.origins["max-stories"] == str(elsewhere / "autopilot-multi/config.toml")


def test_without_a_home_there_are_no_user_settings(sources: Sources) -> None:
    """A bare environment is enough to run."""
    sources.user("max-stories = 5")
    sources.environ.clear()
    assert sources.load().settings.max_stories == 3


def test_a_file_that_is_not_text_is_named(sources: Sources) -> None:
    """Bytes that are not UTF-8 are an error that names the file."""
    (sources.top / "autopilot-multi.toml").write_bytes(b"agent = '\xff'")
    assert sources.error().message.startswith("autopilot-multi.toml: not valid TOML")
