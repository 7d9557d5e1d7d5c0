"""What has the name of a settings file without being one: refused, never waited for, never ignored."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.plan.settings_sources import Sources

NOBODY = 65534
OTHERS: dict[str, Callable[[Path], None]] = {
    "a folder": Path.mkdir,
    "a named pipe": os.mkfifo,
    "a broken link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a device": lambda path: path.symlink_to(os.devnull),
}


@pytest.fixture
def sources(tmp_path: Path) -> Sources:
    """Return empty sources."""
    return Sources(tmp_path)


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("file", ["autopilot-multi.toml", ".config/autopilot-multi.toml"])
def test_what_only_has_the_name_of_the_project_file_is_refused(
    sources: Sources, file: str, what: str
) -> None:
    """A run must not start without the settings that the user meant to give it."""
    (sources.top / file).parent.mkdir(exist_ok=True)
    OTHERS[what](sources.top / file)
    assert sources.error().message == f"{file} is {what}, not a settings file"


@pytest.mark.parametrize("what", OTHERS)
def test_what_only_has_the_name_of_the_users_file_is_refused(sources: Sources, what: str) -> None:
    """The same is true of the user's own file."""
    path = sources.home / ".config/autopilot-multi/config.toml"
    path.parent.mkdir(parents=True)
    OTHERS[what](path)
    assert sources.error().message == f"~/.config/autopilot-multi/config.toml is {what}, not a settings file"


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("file", ["AGENTS.md", "CLAUDE.md"])
def test_what_only_has_the_name_of_the_agents_file_is_noted(sources: Sources, file: str, what: str) -> None:
    """That name belongs to other programs: the run continues, with a note."""
    OTHERS[what](sources.top / file)
    assert sources.load().notes == (f"{file} is {what}; no settings are read from it",)


def test_an_agents_file_that_is_too_large_is_noted(sources: Sources) -> None:
    """A block in it would not be seen."""
    with (sources.top / "AGENTS.md").open("wb") as file:
        file.truncate(5 * 1024 * 1024)
    assert sources.load().notes == ("AGENTS.md is larger than 4 MB; no settings are read from it",)


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Become a user that permissions apply to, if we are not one."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def open_places() -> Iterator[Sources]:
    """Return sources that any user may enter; pytest's own folders are private."""
    with TemporaryDirectory(prefix="autopilot-settings-") as folder:
        Path(folder).chmod(0o755)
        yield Sources(Path(folder))


@pytest.mark.parametrize(
    "file", ["top/autopilot-multi.toml", "top/AGENTS.md", "home/.config/autopilot-multi/config.toml"]
)
@pytest.mark.parametrize("closed", ["the file", "its folder"])
def test_a_file_that_may_not_be_read_is_an_error(open_places: Sources, file: str, closed: str) -> None:
    """It may hold limits, so the run must not continue without it."""
    path = open_places.top.parent / file
    Sources.write(path, "autopilot:\n  max-stories: 1\n")
    shut = path if closed == "the file" else path.parent
    mode = shut.stat().st_mode
    shut.chmod(0)
    try:
        with ordinary_user():
            error = open_places.error()
    finally:
        shut.chmod(mode)
    first = "autopilot-multi.toml" if closed != "the file" and file.startswith("top") else path.name
    assert error.message.startswith("cannot read ")
    assert f"{first}: Permission denied" in error.message
    assert "permissions" in error.hint
