"""Which repository on which forge a remote or a setting names."""

import pytest

from runner.core.errors import SettingsError
from runner.forge.address import Address, address_of

HOSTS = {"GH_HOST": "git.acme.dev", "GITLAB_HOST": "https://lab.acme.dev"}


@pytest.mark.parametrize(
    ("url", "kind", "name", "host"),
    [
        ("https://github.com/acme/shop.git", "github", "acme/shop", ""),
        ("https://token@github.com/acme/shop", "github", "acme/shop", ""),
        ("git@github.com:acme/shop.git", "github", "acme/shop", ""),
        ("ssh://git@git.acme.dev/acme/shop", "github", "acme/shop", "git.acme.dev"),
        ("https://gitlab.com/acme/team/shop.git", "gitlab", "acme/team/shop", ""),
        ("git@lab.acme.dev:acme/shop.git", "gitlab", "acme/shop", "lab.acme.dev"),
        ("https://gitlab.acme.dev/acme/shop/", "gitlab", "acme/shop", "gitlab.acme.dev"),
    ],
)
def test_the_address_of_a_remote(url: str, kind: str, name: str, host: str) -> None:
    """Credentials in it do not matter, and are nowhere in the result."""
    assert address_of("", url, HOSTS, remote="origin") == Address(kind=kind, name=name, host=host)


@pytest.mark.parametrize(
    "url", ["", "/srv/git/shop.git", "https://example.org/acme/shop", "file:///srv/shop"]
)
def test_what_is_on_no_forge_says_what_to_set(url: str) -> None:
    """The error names the remote, and the settings."""
    with pytest.raises(SettingsError, match="origin") as caught:
        address_of("", url, HOSTS, remote="origin")
    assert "draft-remote" in caught.value.hint


def test_the_setting_comes_first() -> None:
    """One that names nothing is refused."""
    named = address_of("gitlab:acme/team/shop", "git@github.com:acme/shop.git", {}, remote="origin")
    assert named == Address(kind="gitlab", name="acme/team/shop")
    for wrong in ("github:acme", "github:acme/team/shop", "acme/shop", "github:acme/shop?x=1", "svn:a/b"):
        with pytest.raises(SettingsError, match="names no repository"):
            address_of(wrong, "", {}, remote="origin")
