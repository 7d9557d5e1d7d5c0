"""The snippets of the how-to, as they stand there: Dask's own cluster, Slurm, Kubernetes."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import LIMIT, commit_stories, run, wait_until, write_story, writes
from tests.cluster.machines import events, trees
from tests.conftest import git

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/run-on-a-cluster.md"


def _snippet(word: str) -> str:
    """Return the block of Python on the page that holds a word."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (found,) = (block for block in blocks if word in block)
    return str(found)


@pytest.mark.slow
def test_a_cluster_of_dask_that_python_starts_works(repo: Path, tmp_path: Path) -> None:
    """`LocalCluster` with the preload, started as on the page, carries stories on both of its workers."""
    for name in ("a", "b"):
        write_story(repo, name, command=f"sleep 1; {writes(name)}", verify=f"test -f {name}")
    commit_stories(repo)
    script = tmp_path / "start.py"
    script.write_text(_snippet("LocalCluster"))
    said = tmp_path / "said"
    with said.open("wb") as out:
        starter = subprocess.Popen(
            [sys.executable, "-u", str(script)],
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=out,
            cwd=ROOT,
            env={**os.environ, "HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "share")},
            start_new_session=True,
        )
    try:
        wait_until(lambda: re.search(r"tcp://127\S+", said.read_text()), what="it says where it is", limit=90)
        address = re.findall(r"tcp://127\S+", said.read_text())[0]
        ran = run(repo, "--cluster", address, limit=120)
        assert ran.code == 0, ran.err
    finally:
        starter.communicate(b"\n", LIMIT)
    assert set(trees(repo)) == {"autopilot/a", "autopilot/b"}
    placed = {each["data"]["worker"] for each in events(repo) if each["kind"] == "StoryPlaced"}
    assert placed == {"0", "1"}
    assert git(repo, "show", "autopilot/a:a") == "made\n"


def _needs(name: str) -> Any:
    return pytest.importorskip(name, reason=f"{name} is not installed")


@pytest.mark.slow
def test_the_job_of_slurm_has_preload_variables_and_certificates(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What dask-jobqueue would submit starts our worker, with the run's certificates, in the job's folder."""
    _needs("dask_jobqueue")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert run(repo, "cluster", "init", "--certificates", str(tmp_path / "autopilot-multi/cluster")).code == 0
    made: dict[str, Any] = {}
    exec(_snippet("SLURMCluster").partition("cluster.scale")[0], made)  # noqa: S102  it is our own page
    try:
        script = made["cluster"].job_script()
        assert made["cluster"].scheduler_address.startswith("tls://")
    finally:
        made["cluster"].close()
    assert "export AUTOPILOT_MULTI_WORKER_SLOTS=4 AUTOPILOT_MULTI_WORKER_FOLDER=$TMPDIR" in script
    assert re.search(r"dask_worker tls://\S+ .*--preload runner\.remote\.cluster\.worker\.preload", script)
    assert "--no-nanny" in script
    assert f"--tls-cert {tmp_path}/autopilot-multi/cluster/cluster.pem" in script
    assert importlib.import_module("runner.remote.cluster.worker.preload").dask_setup


@pytest.mark.slow
def test_the_pods_of_kubernetes_have_preload_and_variables() -> None:
    """The specification that the page makes starts our worker in every pod."""
    _needs("dask_kubernetes.operator")
    made: dict[str, Any] = {}
    exec(_snippet("KubeCluster").partition("cluster = ")[0], made)  # noqa: S102  it is our own page
    (container,) = made["spec"]["spec"]["worker"]["spec"]["containers"]
    words = " ".join(container["args"])
    assert words.startswith(("dask-worker", "dask worker"))
    assert "--preload runner.remote.cluster.worker.preload --no-nanny" in words
    assert {"name": "AUTOPILOT_MULTI_WORKER_SLOTS", "value": "2"} in container["env"]
    assert made["spec"]["spec"]["worker"]["replicas"] == 8
