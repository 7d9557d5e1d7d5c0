"""What stands in a settings file's place and is none: named, never waited for, never taken for nothing."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.plan.settings_places import Places

NOBODY = 65534
OTHERS: dict[str, Callable[[Path], None]] = {
    "a folder": Path.mkdir,
    "a named pipe": os.mkfifo,
    "a broken link": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a device": lambda path: path.symlink_to(os.devnull),
}


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """Give empty places."""
    return Places(tmp_path)


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("file", ["autopilot-multi.toml", ".config/autopilot-multi.toml"])
def test_what_only_has_the_name_of_the_project_file_is_refused(places: Places, file: str, what: str) -> None:
    """A run without the settings that somebody meant to give it must not begin."""
    (places.top / file).parent.mkdir(exist_ok=True)
    OTHERS[what](places.top / file)
    assert places.complaint().message == f"{file} is {what}, not a settings file"


@pytest.mark.parametrize("what", OTHERS)
def test_what_only_has_the_name_of_the_users_file_is_refused(places: Places, what: str) -> None:
    """The same holds for a person's own file."""
    path = places.home / ".config/autopilot-multi/config.toml"
    path.parent.mkdir(parents=True)
    OTHERS[what](path)
    assert (
        places.complaint().message == f"~/.config/autopilot-multi/config.toml is {what}, not a settings file"
    )


@pytest.mark.parametrize("what", OTHERS)
@pytest.mark.parametrize("file", ["AGENTS.md", "CLAUDE.md"])
def test_what_only_has_the_name_of_the_agents_file_is_noted(places: Places, file: str, what: str) -> None:
    """That name belongs to other programs: the run goes on, and a person is told."""
    OTHERS[what](places.top / file)
    assert places.load().notes == (f"{file} is {what}; no settings are read from it",)


def test_an_agents_file_that_is_too_large_is_noted(places: Places) -> None:
    """A block in it would not be seen."""
    with (places.top / "AGENTS.md").open("wb") as file:
        file.truncate(5 * 1024 * 1024)
    assert places.load().notes == ("AGENTS.md is larger than 4 MB; no settings are read from it",)


@contextmanager
def ordinary_user() -> Iterator[None]:
    """Be somebody whom permissions bind, if we are not."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


@pytest.fixture
def open_places() -> Iterator[Places]:
    """Give places that any user may enter; pytest's own folders are private."""
    with TemporaryDirectory(prefix="autopilot-settings-") as folder:
        Path(folder).chmod(0o755)
        yield Places(Path(folder))


@pytest.mark.parametrize(
    "file", ["top/autopilot-multi.toml", "top/AGENTS.md", "home/.config/autopilot-multi/config.toml"]
)
@pytest.mark.parametrize("closed", ["the file", "its folder"])
def test_a_file_that_may_not_be_read_is_an_error(open_places: Places, file: str, closed: str) -> None:
    """Limits may stand in it, so that going on without it is no way out."""
    path = open_places.top.parent / file
    Places.write(path, "autopilot:\n  max-stories: 1\n")
    shut = path if closed == "the file" else path.parent
    mode = shut.stat().st_mode
    shut.chmod(0)
    try:
        with ordinary_user():
            error = open_places.complaint()
    finally:
        shut.chmod(mode)
    first = "autopilot-multi.toml" if closed != "the file" and file.startswith("top") else path.name
    assert error.message.startswith("cannot read ")
    assert f"{first}: Permission denied" in error.message
    assert "permissions" in error.hint
