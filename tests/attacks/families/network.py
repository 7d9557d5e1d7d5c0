"""The network: every way out but the one through the program's own list."""

from tests.attacks.attack import FULL, Attack, heard, worked

_PYTHON = "$PYTHON -c \"import socket,os; N='{name}'.encode(); {do}\""
_STREAM = "s=socket.create_connection(({host}, {port}), 3); s.sendall(N + bytes([10]))"
_TCP, _TCP6, _UDP, _UDP6 = (f"int(os.environ[{name!r}])" for name in ("TCP", "TCP6", "UDP", "UDP6"))
_HEARD = {
    "tcp": _STREAM.format(host="'127.0.0.1'", port=_TCP),
    "tcp-name": _STREAM.format(host="'localhost'", port=_TCP),
    "tcp-zero": _STREAM.format(host="'0.0.0.0'", port=_TCP),
    "tcp-decimal": _STREAM.format(host="'2130706433'", port=_TCP),
    "tcp-other-loopback": _STREAM.format(host="'127.1.2.3'", port=_TCP),
    "tcp-mapped": f"s=socket.socket(socket.AF_INET6); s.connect(('::ffff:127.0.0.1', {_TCP})); s.sendall(N + bytes([10]))",
    "tcp6": _STREAM.format(host="'::1'", port=_TCP6),
    "tcp-nonblocking": f"import select; s=socket.socket(); s.setblocking(False); s.connect_ex(('127.0.0.1', {_TCP})); select.select([], [s], [], 3); s.sendall(N + bytes([10]))",
    "tcp-fast-open": f"s=socket.socket(); s.sendto(N + bytes([10]), 0x20000000, ('127.0.0.1', {_TCP}))",
    "udp": f"socket.socket(type=2).sendto(N, ('127.0.0.1', {_UDP}))",
    "udp-connected": f"s=socket.socket(type=2); s.connect(('127.0.0.1', {_UDP})); s.send(N)",
    "udp6": f"socket.socket(socket.AF_INET6, 2).sendto(N, ('::1', {_UDP6}))",
    "udp-broadcast": f"s=socket.socket(type=2); s.setsockopt(1, 6, 1); s.sendto(N, ('127.255.255.255', {_UDP}))",
    "abstract": "s=socket.socket(socket.AF_UNIX); s.connect(bytes(1) + os.environ['ABSTRACT'].encode()); s.sendall(N + bytes([10]))",
    "abstract-datagram": "socket.socket(socket.AF_UNIX, 2).sendto(N, bytes(1) + os.environ['ABSTRACT'].encode() + b'-d')",
    "child": f"import subprocess,sys; subprocess.run([sys.executable, '-c', 'import socket,sys; s=socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(sys.argv[3].encode() + bytes([10]))', '127.0.0.1', str({_TCP}), N.decode()])",
}
_SHELL = {
    "curl": 'curl -s -m 3 --noproxy "*" "http://127.0.0.1:$TCP/{name}"',
    "curl-proxy": 'curl -s -m 3 "http://127.0.0.1:$TCP/{name}"',
    "curl-proxy-name": 'curl -s -m 3 "http://localhost:$TCP/{name}"',
    "curl-connect": 'curl -s -m 3 -p "http://127.0.0.1:$TCP/{name}"',
    "curl-redirected": 'curl -s -m 3 -H "Host: api.anthropic.com" "http://127.0.0.1:$TCP/{name}"',
    "curl-resolved": 'curl -s -m 3 --resolve "api.anthropic.com:$TCP:127.0.0.1" "http://api.anthropic.com:$TCP/{name}"',
    "bash": "bash -c 'echo {name} > /dev/tcp/127.0.0.1/'$TCP",
    "git": 'GIT_ALLOW_PROTOCOL=http git ls-remote "http://127.0.0.1:$TCP/{name}"',
    "namespace": "unshare -rn bash -c 'echo {name} > /dev/tcp/127.0.0.1/'$TCP",
}
_ON_TCP, _ON_UDP = "127.0.0.1:$TCP", "127.0.0.1:$UDP"
_TARGETS = {
    "tcp-zero": "0.0.0.0:$TCP",
    "tcp-other-loopback": "127.1.2.3:$TCP",
    "tcp-mapped": "::ffff:127.0.0.1:$TCP",
    "tcp6": "[::1]:$TCP6",
    "udp": _ON_UDP,
    "udp-connected": _ON_UDP,
    "udp6": "[::1]:$UDP6",
    "udp-broadcast": "127.255.255.255:$UDP",
    "abstract": "@$ABSTRACT",
    "abstract-datagram": "@$ABSTRACT-d",
    "curl-resolved": "api.anthropic.com:$TCP",
    "metadata": "169.254.169.254:80",
    "metadata6": "[fd00:ec2::254]:80",
    "packet": "socket",
    "raw": "socket",
    "listen": "socket",
    "dns": ":53",
}
"""By what the program can name each; it is the usual server for all others."""
_TRIED = {
    "metadata": _STREAM.format(host="'169.254.169.254'", port="80"),
    "metadata6": _STREAM.format(host="'fd00:ec2::254'", port="80"),
    "packet": "socket.socket(socket.AF_PACKET, 3, 768)",
    "raw": "socket.socket(socket.AF_INET, 3, 1).sendto(bytes(64), ('127.0.0.1', 0))",
    "listen": "s=socket.socket(); s.bind(('0.0.0.0', 0)); s.listen(); s.settimeout(5); open(os.environ['LOOT'] + '/listening', 'w').write(str(s.getsockname()[1])); s.accept()",
    "dns": "socket.getaddrinfo('example.org', 80)",
}


def attacks() -> list[Attack]:
    """Return the attacks of this family."""
    found = [
        Attack(
            name=f"net-{name}",
            family="network",
            script=_PYTHON.format(name=f"net-{name}", do=do),
            seal=FULL,
            proof=heard(),
            target=_TARGETS.get(name, _ON_TCP),
        )
        for name, do in _HEARD.items()
    ]
    found += [
        Attack(
            name=f"net-{name}",
            family="network",
            script=script.format(name=f"net-{name}"),
            seal=FULL,
            proof=heard(),
            target=_TARGETS.get(name, _ON_TCP),
        )
        for name, script in _SHELL.items()
    ]
    found += [
        Attack(
            name=f"net-{name}",
            family="network",
            script=_PYTHON.format(name=f"net-{name}", do=do),
            seal=FULL,
            proof=worked(),
            target=_TARGETS.get(name, _ON_TCP),
            silent="it listens in a network of its own, in which nobody calls" if name == "listen" else "",
        )
        for name, do in _TRIED.items()
    ]
    return found
