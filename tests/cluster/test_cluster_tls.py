"""Certificates: a cluster that uses them refuses every machine that has none of its own."""

import stat
from pathlib import Path

import pytest

from tests.acceptance.program import commit_stories, run, write_story, writes
from tests.cluster.machines import Machines, trees


def _certificates(repo: Path, folder: Path) -> Path:
    assert run(repo, "cluster", "init", "--certificates", str(folder)).code == 0
    return folder


def _tls(folder: Path) -> tuple[str, ...]:
    files = ("--tls-ca-file", "ca.pem"), ("--tls-cert", "cluster.pem"), ("--tls-key", "cluster-key.pem")
    return ("--protocol", "tls", *(word for flag, name in files for word in (flag, str(folder / name))))


def test_cluster_init_writes_files_for_this_user_alone(repo: Path, tmp_path: Path) -> None:
    """The key is readable by its owner only, and a second call replaces nothing."""
    folder = _certificates(repo, tmp_path / "certificates")
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["ca.pem", "cluster-key.pem", "cluster.pem"]
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in folder.iterdir())
    before = (folder / "cluster-key.pem").read_bytes()
    again = run(repo, "cluster", "init", "--certificates", str(folder))
    assert again.code == 1
    assert "exists already" in again.err
    assert (folder / "cluster-key.pem").read_bytes() == before


def test_an_address_that_is_not_loopback_needs_certificates(repo: Path) -> None:
    """Without a protocol an address means TLS; without certificates the error says how to make them."""
    write_story(repo, "a", command=writes("a"))
    ran = run(repo, "--cluster", "scheduler.example.org:8786")
    assert ran.code == 2
    assert "there is no certificate for the cluster" in ran.err
    assert "cluster init" in ran.err


def test_certificates_that_cannot_be_used_are_named(repo: Path, tmp_path: Path) -> None:
    """A file that was damaged on the way is found by the coordinator and the worker, before anything else."""
    folder = _certificates(repo, tmp_path / "certificates")
    (folder / "ca.pem").write_text("no certificate\n")
    write_story(repo, "a", command=writes("a"))
    env = {"AUTOPILOT_MULTI_CLUSTER_CERTIFICATES": str(folder)}
    for ran in (
        run(repo, "--cluster", "tls://127.0.0.1:1", env=env),
        run(repo, "worker", "tls://127.0.0.1:1", "--certificates", str(folder)),
    ):
        assert ran.code == 2
        assert f"the certificates in {folder} cannot be used" in ran.err


@pytest.mark.slow
def test_a_cluster_refuses_who_has_no_certificate_of_it(repo: Path, tmp_path: Path) -> None:
    """A worker and a coordinator with the certificate work; with another authority's, both are refused."""
    own = _certificates(repo, tmp_path / "own")
    other = _certificates(repo, tmp_path / "other")
    write_story(repo, "a", command=writes("a"), verify="test -f a")
    commit_stories(repo)
    (tmp_path / "cluster").mkdir()
    cluster = Machines(tmp_path / "cluster", _tls(own))
    try:
        assert cluster.address.startswith("tls://")
        cluster.start("one", "--certificates", str(own))
        refused = run(repo, "worker", str(cluster.file), "--certificates", str(other), limit=120)
        assert refused.code == 2
        assert "TLS certificate does not match" in refused.err
        env = {"AUTOPILOT_MULTI_CLUSTER_CERTIFICATES": str(other)}
        stranger = run(repo, "--cluster", str(cluster.file), env=env)
        assert stranger.code == 2
        assert "cannot connect to the cluster" in stranger.err
        env = {"AUTOPILOT_MULTI_CLUSTER_CERTIFICATES": str(own)}
        ran = run(repo, "--cluster", str(cluster.file), "--again", env=env)
        assert ran.code == 0, ran.err
        assert set(trees(repo)) == {"autopilot/a"}
    finally:
        cluster.close()
