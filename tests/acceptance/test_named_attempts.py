"""What a sealed session reaches for in spite of its seal is named in its log and in the reason."""

import pytest

from tests.acceptance.people import USERS, somebody
from tests.isolation.guard.guard_scenes import can_mount

REACHES = """
cat ~/.pgpass; ls ~/.aws; cat ~/.kube/config/inner
$PYTHON -c '
import ctypes, socket
for address in (("127.0.0.1", 9), ("192.0.2.1", 80)):
    socket.socket().connect_ex(address)
own = socket.socket()
own.bind(("127.0.0.1", 0))
own.listen()
socket.create_connection(own.getsockname())
ctypes.CDLL(None).reboot(0)
'
kill -0 1; sleep 9 & kill $!
exit 1
"""


@pytest.mark.skipif(not can_mount(), reason="this machine cannot mount")
@pytest.mark.parametrize("user", USERS)
def test_what_a_session_reaches_for_is_named(user: str) -> None:
    """Also what fails or succeeds without a word; its own servers and processes are not named."""
    with somebody(user) as person:
        home = person.folder / "home"
        for name in (".pgpass", ".aws/credentials", ".kube/config"):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text("secret\n")
        person.hand_over(home)
        root = person.repository({"README.md": "hello\n"})
        (root / "autopilot-multi.toml").write_text("peer-abort = 1000\n")  # whatever else this machine does
        person.story(root, "a", REACHES.replace("$PYTHON", person.python))
        ran = person.run(root, "run", "--seal", "full", "--max-attempts", "1", "--json")
        reason = ran.story("a")["reason"]

    assert "it opened passwords of databases, which it sees empty: ~/.pgpass" in reason
    assert "it opened credentials of AWS, which it sees empty: ~/.aws" in reason
    assert "(~/.kube/config/inner)" in reason
    assert "it tried to reach hosts without its proxy: 127.0.0.1:9, 192.0.2.1:80;" in reason, (
        "not its own server"
    )
    assert reason.count(" (1)") == 1
    assert "calls that only the owner of the machine may make: reboot" in reason
