"""Targets for what a repository's files and variables say: stories, settings, flows, claims, prompts."""

from collections.abc import Iterable

from msgspec.structs import asdict

from isolation.claims import globs
from isolation.claims.disjoint import Proof
from isolation.errors import ClaimError
from runner.cli.completion import candidates
from runner.core.errors import BacklogError, RunnerError, SettingsError
from runner.core.model import Story
from runner.core.settings import SETTINGS
from runner.flows.catalog import FlowError, check_flow, load_flow_file
from runner.plan.settings import project
from runner.plan.settings.agents_md import load_block, load_common_keys
from runner.plan.settings.load import load_settings
from runner.plan.settings.prompt_template import load_template
from runner.plan.stories.entry import stories_of
from runner.plan.stories.files import list_entries, markdown_entry, read_text
from tests.fuzz.numbers import require_amounts
from tests.fuzz.registry import folder, target, text_of, written


@target(BacklogError)
def story_markdown(data: bytes) -> None:
    path = written(data, "stories/one.md")
    _sound(stories_of([markdown_entry(path, "one.md", read_text(path, "one.md"))]))


def _listed(data: bytes, name: str) -> None:
    path = written(data, f"stories/{name}")
    _sound(stories_of(list_entries(path, name, read_text(path, name), required=True)))


def _sound(stories: Iterable[Story]) -> None:
    for one in stories:
        require_amounts((one.estimate, one.story_minutes, one.verify_minutes, one.max_attempts))


@target(BacklogError)
def story_yaml(data: bytes) -> None:
    _listed(data, "list.yaml")


@target(BacklogError)
def story_toml(data: bytes) -> None:
    _listed(data, "list.toml")


@target(BacklogError)
def story_json(data: bytes) -> None:
    _listed(data, "list.json")


@target(SettingsError)
def settings_toml(data: bytes) -> None:
    written(data, "settings/autopilot-multi.toml")
    read = load_settings(top=folder() / "settings", flags={}, environ={}).settings
    require_amounts([value for value in asdict(read).values() if isinstance(value, int | float)])


@target(SettingsError)
def settings_agents_md(data: bytes) -> None:
    top = written(data, "agents/AGENTS.md").parent
    load_block(top)
    load_common_keys(top)
    load_settings(top=top, flags={}, environ={})


@target(RunnerError)
def settings_environment(data: bytes) -> None:
    """Lines of `key=value`, taken as environment variables and as flags."""
    pairs = [line.partition("=")[::2] for line in text_of(data).split("\n")]
    top = folder()
    load_settings(
        top=top, flags={}, environ={f"AUTOPILOT_MULTI_{key.upper()}": value for key, value in pairs}
    )
    known = {key: value for key, value in pairs if key in SETTINGS and not SETTINGS[key].is_table}
    load_settings(top=top, flags=known, environ={})


@target()
def project_files(data: bytes) -> None:
    """The files of a project in which a test command is looked for."""
    for name in ("Makefile", "pyproject.toml", "package.json", "tox.ini", "setup.cfg"):
        written(data, f"project/{name}")
    project.find_test_commands(folder() / "project", lambda _: False)


@target(FlowError)
def flow(data: bytes) -> None:
    path = written(data, "flows/mine.toml")
    check_flow(path)
    load_flow_file(path)


@target(SettingsError)
def prompt_template(data: bytes) -> None:
    load_template(written(data, "template.md"))


@target(ClaimError)
def claims(data: bytes) -> None:
    """Lines of globs; the last one is a path that is asked about."""
    *lines, path = text_of(data).split("\n")
    claim, other = globs.compile(lines), globs.compile([path])
    claim.owns(path)
    Proof(steps=2000).overlap(claim, other)


@target()
def completion(data: bytes) -> None:
    """What tab completion reads must never be waited for."""
    text = text_of(data)
    for pattern in (candidates._ID, candidates._TITLE, candidates._LISTED, candidates._STORIES):
        pattern.search(text)
    candidates._FENCE.match(text[: candidates._HEAD])
    candidates._REMOTE.findall(text)
