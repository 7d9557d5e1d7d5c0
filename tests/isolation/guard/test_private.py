"""Where private things are looked for, and what counts as private."""

import os
from pathlib import Path

import pytest

from isolation.guard.private import LatestLook, Look, Store, expand


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a home whose name would mean something else in a pattern."""
    home = tmp_path / "home[1]"
    home.mkdir()
    return home


def found(home: Path, store: Store, **environ: str) -> dict[str, bool]:
    """Return the places of a kind by their names in the home, and whether each is a folder.

    What the home of whoever runs the tests has is left out.
    """
    look = Look({"HOME": str(home), **environ})
    own = ((place, is_folder) for _, place, is_folder in look.places([store]) if home.parent.name in place)
    return {os.path.relpath(place, home): is_folder for place, is_folder in own}


def test_a_star_means_names_and_no_hidden_ones(home: Path) -> None:
    """In any part of a path, also twice; what begins with a dot is meant only by a dot."""
    for name in (".a_history", ".a_histories", "x/1/key", "x/2/key", "x/.3/key", "x/4/other"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    (home / "x" / "2" / "key").unlink()
    (home / "x" / "2" / "key").mkdir()
    assert found(home, Store(what="", paths=("~/.*_history",))) == {".a_history": False}
    assert found(home, Store(what="", paths=("~/x/*/k*y",))) == {"x/1/key": False, "x/2/key": True}
    assert found(home, Store(what="", paths=("~/x/[2-9]*/k?y",))) == {}
    assert found(home, Store(what="", paths=("~/x/[2-9]*/k?*",))) == {"x/2/key": True}
    assert found(home, Store(what="", paths=("~/none/*", "~/.a_history/*"))) == {}


def test_links_are_followed_to_what_is_there(home: Path, tmp_path: Path) -> None:
    """A link at the place, or above it, leads to the real one; one that leads nowhere is nothing."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "key").touch()
    (home / "folder").symlink_to(tmp_path / "real")
    (home / "key").symlink_to("folder/key")
    (home / "nowhere").symlink_to("gone")
    store = Store(what="", paths=("~/folder", "~/folder/key", "~/folder/../key", "~/key", "~/nowhere"))
    assert found(home, store) == {"../real": True, "../real/key": False}
    through = Store(what="", paths=("~/key",))
    assert Look({"HOME": str(home / "folder")}).places([through]) == [
        (through, str(tmp_path / "real" / "key"), False)
    ]


def test_a_variable_moves_a_folder_or_names_places(home: Path, tmp_path: Path) -> None:
    """Both the usual place and the other one count; several are separated by colons."""
    for name in ("home[1]/.config/gh", "moved/gh", "one", "two"):
        (tmp_path / name).mkdir(parents=True)
    store = Store(what="", paths=("~/.config/gh",), variables=("KEYS",))
    places = found(
        home, store, XDG_CONFIG_HOME=f"{tmp_path}/moved/", KEYS=f"{tmp_path}/one:two:{tmp_path}/two"
    )
    assert places == {".config/gh": True, "../moved/gh": True, "../one": True, "../two": True}
    assert expand("~/x", {"HOME": "/h/"})[0] == "/h/x"


def test_only_a_file_without_secrets_is_not_private(home: Path) -> None:
    """What is no file, or cannot be read as one, counts as private; nobody waits for a FIFO."""
    store = Store(what="", paths=("~/*",), holds="(?i)token")
    (home / "plain").write_text("index = https://example.org")
    (home / "secret").write_text("a = 1\nTOKEN = 2")
    (home / "folder").mkdir()
    os.mkfifo(home / "fifo")
    assert found(home, store) == {"secret": False, "folder": True, "fifo": False}


def test_a_look_counts_for_a_second_and_for_what_was_asked(home: Path) -> None:
    """What appears or goes away later is seen by the next look; another question gets its own look."""
    now = 5.0
    latest = LatestLook(lambda: now)
    stores, environ = [Store(what="", paths=("~/.keys",))], {"HOME": str(home)}
    assert latest.places(stores, environ) == []
    (home / ".keys").touch()
    found = [(stores[0], str(home / ".keys"), False)]
    now += 0.9
    assert latest.places(stores, environ) == []
    assert latest.places(list(stores), {"HOME": str(home), "KEYS": ""}) == found
    (home / ".keys").unlink()
    assert latest.places([*stores, Store(what="more")], environ) == []
    (home / ".keys").touch()
    now += 1
    assert latest.places(stores, environ) == found
    (home / ".keys").unlink()
    now += 1
    assert latest.places(stores, environ) == []
