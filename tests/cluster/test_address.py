"""How a cluster is named, and which names mean TLS."""

import json
from pathlib import Path

import pytest

from runner.core.errors import UsageError
from runner.remote.cluster.address import Where, parse


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8786", "tcp://127.0.0.1:8786"),
        ("localhost:8786", "tcp://localhost:8786"),
        ("[::1]:8786", "tcp://[::1]:8786"),
        ("head:8786", "tls://head:8786"),
        ("10.0.0.4:8786", "tls://10.0.0.4:8786"),
        ("tcp://head:8786", "tcp://head:8786"),
        ("tls://127.0.0.1:1", "tls://127.0.0.1:1"),
    ],
)
def test_only_loopback_goes_without_tls(text: str, address: str, tmp_path: Path) -> None:
    """An address without a protocol means TLS, except on loopback; one with a protocol is left alone."""
    assert parse(text, tmp_path) == Where(address=address)


def test_a_scheduler_file_names_its_address(tmp_path: Path) -> None:
    """The file that Dask writes is read, relative to the repository."""
    (tmp_path / "s.json").write_text(json.dumps({"address": "tls://10.1.2.3:8786"}))
    assert parse("s.json", tmp_path) == Where(address="tls://10.1.2.3:8786")
    assert parse("local:3", tmp_path) == Where(local=3)


@pytest.mark.parametrize(
    "text",
    ["local:0", "local:x", "head", "udp://head:1", "no/such/file.json", "no-file.json", "head:99999"],
)
def test_what_is_no_cluster_is_named(text: str, tmp_path: Path) -> None:
    """The error quotes what was written and says what could be."""
    with pytest.raises(UsageError) as caught:
        parse(text, tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[]", "it has no address"),
        (b'{"address": 5}', "it has no address"),
        (b'{"address": "tcp://head"}', "'tcp://head' is not the address"),
        (b'{"bad"', "delimiter"),
        (b"\xff\xfe\xfa", "decode"),
    ],
)
def test_a_file_that_is_no_scheduler_file_is_named(content: bytes, reason: str, tmp_path: Path) -> None:
    """Not every file has an address; the error says which one, and why."""
    (tmp_path / "s.json").write_bytes(content)
    with pytest.raises(UsageError, match=rf"s\.json is not a scheduler file: .*{reason}"):
        parse("s.json", tmp_path)
