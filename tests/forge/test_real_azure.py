"""Work items of Azure DevOps by the real `az` with its extension, against a scripted service over TLS.

The extension speaks to one host alone, so a proxy leads that name to the service on loopback.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.plan.stories.sources import load_stories
from tests.acceptance.program import Ran, run
from tests.forge.authority import AZURE, Authority
from tests.forge.azure_api import QUERY, TOKEN, AzureApi
from tests.forge.connect_proxy import leading_to
from tests.forge.programs import azure_folder
from tests.forge.scenes import well
from tests.forge.scripted_server import Fault, serving

pytestmark = pytest.mark.forge


@pytest.fixture
def azure(tmp_path: Path, repo: Path, authority: Authority) -> Iterator[tuple[AzureApi, Callable[..., Ran]]]:
    """Serve a scripted Azure DevOps; yield it, and the program where `az` finds it."""
    api, folder, settings = AzureApi(), azure_folder(), tmp_path / "azure"
    settings.joinpath("azuredevops").mkdir(parents=True)
    defaults = f"[defaults]\norganization = https://{AZURE}/acme\nproject = shop\n"
    settings.joinpath("azuredevops/config").write_text(defaults)
    with serving(api, authority) as host, leading_to(int(host.rpartition(":")[2])) as (proxy, hosts):
        env = dict(os.environ) | {
            "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "AZURE_CONFIG_DIR": str(settings),
            "AZURE_EXTENSION_DIR": str(folder / "extensions"),
            "AZURE_DEVOPS_EXT_PAT": TOKEN,
            "REQUESTS_CA_BUNDLE": str(authority.ca),
            **dict.fromkeys(("HTTPS_PROXY", "https_proxy"), proxy),
            **dict.fromkeys(("NO_PROXY", "no_proxy"), ""),
        }
        yield api, lambda *arguments: run(repo, *arguments, env=env, limit=180)
        assert f"{AZURE}:443" in hosts


@pytest.mark.parametrize("query", ["SELECT [System.Id] FROM WorkItems", QUERY], ids=["wiql", "path"])
def test_work_items_become_stories_with_their_links(
    repo: Path, azure: tuple[AzureApi, Callable[..., Ran]], query: str
) -> None:
    """210 of them in two batches, with predecessors and HTML as words; an outage is waited out."""
    api, program = azure
    for number in range(1, 211):
        html = "<p>Do <b>it</b><script>alert(1)</script></p>"
        fields = {"System.Description": html, "Microsoft.VSTS.Common.Priority": 1 + number % 4}
        api.add_item(number, f"Item {number}", *([number - 1] if number % 10 == 0 else []), **fields)
    api.faults.append(Fault(kind=503, when=lambda one: one.path.endswith("wiql") or "wiql/" in one.path))
    ran = well(program("import", f"ado:{query}"))
    assert "imported: 210 new" in ran.out
    stories = {str(story.id): story for story in load_stories((), top=repo, default="stories")}
    assert len(stories) == 210
    assert stories["ado-20"].depends_on == ("ado-19",)
    assert "Do it" in stories["ado-20"].prompt
    assert "alert" not in stories["ado-20"].prompt
    everything = b"".join(path.read_bytes() for path in repo.rglob("*") if path.is_file())
    assert TOKEN.encode() not in everything
    assert TOKEN not in ran.out + ran.err


def test_a_wrong_token_is_named(azure: tuple[AzureApi, Callable[..., Ran]]) -> None:
    """What `az` says about it, and what to check; nothing is written."""
    api, program = azure
    api.token = TOKEN[::-1]
    ran = well(program("import", "ado:SELECT [System.Id] FROM WorkItems"), 1)
    assert "cannot run the query" in ran.err
    assert "az login" in ran.err
    assert TOKEN not in ran.err
