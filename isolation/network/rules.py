"""Which hosts a session may reach: entries, what they permit, and which addresses a name may lead to.

An entry is `host`, `host:port`, `*.host`, an address, or a range of addresses such as `10.0.0.0/8`; an IPv6
address with a port is in brackets. Without a port it is for HTTP and HTTPS.

Invariants:

- `*.host` is for every name below `host`, not for `host` itself.
- A name leads to a loopback, link-local or metadata address only if an entry names that address; to another
  private address only if an entry has exactly this name, or names the address.
"""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

WEB_PORTS = (80, 443)
LOCAL_NAME = "localhost"
LONGEST_NAME = 253
MOST_PORT = 65535

_METADATA = frozenset(
    map(ip_address, ("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "168.63.129.16", "192.0.0.192"))
)
"""Where clouds hand out a machine's credentials; some of these addresses look public."""
_TRANSLATED = ip_network("64:ff9b::/96")
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


class Entry:
    """One entry: a name (with `wild`: all names below it) or a network, and the port; None for the web's."""

    def __init__(self, name: str, network: Network | None, port: int | None, *, wild: bool = False) -> None:
        self.name = name
        self.network = network
        self.port = port
        self.wild = wild

    def takes(self, port: int) -> bool:
        """Whether a port is one of this entry's."""
        return port == self.port if self.port is not None else port in WEB_PORTS

    @property
    def local(self) -> bool:
        """Whether it names something on the machine's own loopback."""
        return self.name == LOCAL_NAME or bool(self.network and self.network.is_loopback)


def read_entry(text: str) -> Entry:
    """Read an entry; raises ValueError that says what is wrong with it."""
    host, port = _split(text.strip().lower())
    network = _network(host)
    if network is None:
        wild = host.startswith("*.")
        name = host[2:] if wild else host
        if not is_name(name):
            raise ValueError(f"{text!r} is neither a host, host:port, *.host, an address nor a range of them")
        entry = Entry(name.rstrip("."), None, port, wild=wild)
    else:
        entry = Entry("", network, port)
    if entry.local and port is None:
        raise ValueError(f"{text!r} is this machine itself, so it needs a port, such as {LOCAL_NAME}:5432")
    return entry


def is_name(text: str) -> bool:
    """Whether a text can be the name of a host."""
    return 0 < len(text) <= LONGEST_NAME and set(text) <= _LETTERS and text.strip(".") != ""


def _split(text: str) -> tuple[str, int | None]:
    """Split an entry into host and port."""
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        mark, port = rest[:1], rest[1:]
    elif text.count(":") > 1:  # an IPv6 address without brackets
        return text, None
    else:
        host, mark, port = text.partition(":")
    if not mark and not port:
        return host, None
    if mark != ":" or not port.isascii() or not port.isdigit() or not 0 < int(port) <= MOST_PORT:
        raise ValueError(f"{text!r} has no valid port: a number from 1 to {MOST_PORT}")
    return host, int(port)


def _network(host: str) -> Network | None:
    try:
        return ip_network(host, strict=False)
    except ValueError:
        return None


class Rules:
    """What a list of entries permits."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._entries = [read_entry(text) for text in entries]

    def permitting(self, host: str, port: int) -> Entry | None:
        """Return the entry that permits a host, most exact first; None if none does."""
        address = _address(host)
        name = host.lower().rstrip(".")
        fitting = [entry for entry in self._entries if entry.takes(port)]
        if address is not None:
            return next((entry for entry in fitting if _covers(entry, address)), None)
        if not is_name(name):
            return None
        exact = (entry for entry in fitting if entry.name == name and not entry.wild)
        below = (entry for entry in fitting if entry.wild and name.endswith(f".{entry.name}"))
        return next(exact, None) or next(below, None)

    def may_lead_to(self, found: str, port: int, entry: Entry) -> bool:
        """Whether a name that `entry` permits may stand for this address."""
        address = _address(found)
        if address is None:
            return False
        if any(each.takes(port) and _covers(each, address) for each in self._entries):
            return True
        if entry.name == LOCAL_NAME:
            return address.is_loopback
        if address in _METADATA or address.is_multicast:
            return False
        if address.is_global:
            return True
        nowhere = address.is_loopback or address.is_link_local or address.is_unspecified
        return not nowhere and not address.is_reserved and not entry.wild


def local_ports(entries: Iterable[str]) -> dict[int, str]:
    """Return the ports on loopback that entries name, each with the host."""
    found: dict[int, str] = {}
    for entry in map(read_entry, entries):
        if entry.local and entry.port is not None:
            host = str(entry.network.network_address) if entry.network else LOCAL_NAME
            found.setdefault(entry.port, host)
    return found


def _covers(entry: Entry, address: Address) -> bool:
    network = entry.network
    return network is not None and network.version == address.version and address in network


def _address(text: str) -> Address | None:
    """Read an address; one that only wraps an IPv4 address is that address."""
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        wrapped = address.ipv4_mapped or address.sixtofour
        if wrapped is None and address in _TRANSLATED:
            wrapped = IPv4Address(int(address) & 0xFFFFFFFF)
        return wrapped or address
    return address
