"""What a shard must not tell: the values of secret variables."""

import json

from runner.core.secrets import Veil

SECRET = 'hunter2-"quoted"\\end'  # noqa: S105  made up


def test_the_values_of_secret_variables_are_hidden_in_every_form() -> None:
    """As text, as bytes, in JSON values, and where a log holds JSON itself."""
    veil = Veil({"MY_API_TOKEN": SECRET, "PLAIN": "nothing to hide here"})
    log = f"a {SECRET} b {json.dumps({'t': SECRET})} nothing to hide here"
    assert veil.text(log) == 'a *** b {"t": "***"} nothing to hide here'
    assert veil.data(log.encode()) == veil.text(log).encode()
    assert veil.json({"k": [SECRET, 1, None], "n": (SECRET,)}) == {"k": ["***", 1, None], "n": ["***"]}


def test_each_line_of_a_long_secret_is_hidden() -> None:
    """A private key is often printed line by line."""
    veil = Veil({"DEPLOY_PRIVATE_KEY": "-----BEGIN-----\nabcdefghijkl\n-----END-----\n"})
    assert veil.text("key: abcdefghijkl!") == "key: ***!"


def test_short_values_and_paths_stay() -> None:
    """Hiding `true`, or the path of a file, would garble a log and protect nothing."""
    veil = Veil({"USE_TOKEN": "true", "GOOGLE_APPLICATION_CREDENTIALS": "/etc/keys/ci.json"})
    assert veil.text("true /etc/keys/ci.json") == "true /etc/keys/ci.json"
    assert Veil({}).data(b"anything") == b"anything"
