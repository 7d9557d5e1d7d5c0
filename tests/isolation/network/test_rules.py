"""Which hosts and addresses a list of entries permits."""

import pytest

from isolation.network.presets import PRESETS, expanded
from isolation.network.rules import Rules, local_ports, read_entry

RULES = Rules(
    (
        "api.example.org",
        "*.cdn.example.org",
        "git.example.org:22",
        "10.1.0.0/16",
        "[fd00::5]:8080",
        "intranet",
    )
)


@pytest.mark.parametrize(
    ("host", "port", "permitted"),
    [
        ("api.example.org", 443, True),
        ("API.Example.org.", 443, True),
        ("api.example.org", 80, True),
        ("api.example.org", 22, False),
        ("git.example.org", 22, True),
        ("git.example.org", 443, False),
        ("a.cdn.example.org", 443, True),
        ("a.b.cdn.example.org", 443, True),
        ("cdn.example.org", 443, False),
        ("evilcdn.example.org", 443, False),
        ("api.example.org.evil.test", 443, False),
        ("evil.test", 443, False),
        ("10.1.2.3", 443, True),
        ("::ffff:10.1.2.3", 443, True),
        ("10.2.0.1", 443, False),
        ("fd00::5", 8080, True),
        ("fd00::5", 443, False),
        ("api.example.org\0.evil.test", 443, False),
        ("", 443, False),
        ("0x7f000001", 443, False),
    ],
)
def test_a_host_is_permitted_by_an_entry_or_not_at_all(host: str, port: int, permitted: bool) -> None:  # noqa: FBT001
    """Names are compared whole, and each entry has its ports."""
    assert (RULES.permitting(host, port) is not None) is permitted


@pytest.mark.parametrize(
    ("address", "exact", "wild"),
    [
        ("93.184.216.34", True, True),
        ("10.9.0.1", True, False),
        ("192.168.1.1", True, False),
        ("100.64.0.1", True, False),
        ("fd12::1", True, False),
        ("10.1.0.9", True, True),
        ("127.0.0.1", False, False),
        ("::1", False, False),
        ("0.0.0.0", False, False),  # noqa: S104
        ("169.254.169.254", False, False),
        ("169.254.1.1", False, False),
        ("fe80::1%eth0", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("2002:7f00:1::", False, False),
        ("168.63.129.16", False, False),
        ("100.100.100.200", False, False),
        ("fd00:ec2::254", False, False),
        ("224.0.0.1", False, False),
        ("no address", False, False),
    ],
)
def test_a_name_leads_to_a_private_address_only_by_an_exact_entry(
    address: str,
    exact: bool,  # noqa: FBT001
    wild: bool,  # noqa: FBT001
) -> None:
    """Whoever owns a domain below a permitted one must not lead a session into the user's own network."""
    for host, expected in (("intranet", exact), ("x.cdn.example.org", wild)):
        entry = RULES.permitting(host, 443)
        assert entry is not None
        assert RULES.may_lead_to(address, 443, entry) is expected


@pytest.mark.parametrize(
    "text",
    ["", "https://a.org", "a.org/x", "a b", "a.org:0", "a.org:x", "*", "*.", "localhost", "127.0.0.1", "ä"],
)
def test_what_is_no_entry_is_refused(text: str) -> None:
    """Loopback without a port would be all of this machine."""
    with pytest.raises(ValueError, match=r"is neither|no valid port|needs a port"):
        read_entry(text)


def test_loopback_by_its_ports_and_presets_by_their_hosts() -> None:
    """Each port has one host to lead to."""
    assert local_ports(("localhost:5432", "127.0.0.1:80", "[::1]:9", "a.org:7")) == {
        5432: "localhost",
        80: "127.0.0.1",
        9: "::1",
    }
    assert all(read_entry(host) for host in expanded(PRESETS))
    assert expanded(("@pypi", "a.org"))[-1] == "a.org"
