"""The settings about a cluster: where it is, what travels to it, and when a worker counts as lost."""

from typing import Annotated

from runner.core.declaration import Bounds, Setting
from runner.core.setting_groups.land_settings import LandSettings

_PAGE = "See [clusters](../how-to/run-on-a-cluster.md)."


class ClusterSettings(LandSettings, frozen=True, kw_only=True):
    """The fourth part of `Settings`, after those about notifications."""

    cluster: Annotated[
        str,
        Setting(
            asks=True,
            help="run stories on the workers of a Dask cluster: local:N, its address, or its scheduler file",
            details="Needs the extra `cluster`. `max-stories` then holds for each worker. With `local:N`, N "
            f"workers are started on this machine for the run. {_PAGE}",
            flag="--cluster WHERE",
            example="tls://scheduler.example.org:8786",
            empty="this machine alone",
        ),
    ] = ""
    cluster_env: Annotated[
        tuple[str, ...],
        Setting(
            asks=True,
            help="variables of this machine that sessions on workers get",
            details=f"Nothing else of the environment travels, keys and tokens included. {_PAGE}",
            expects="the name of a variable or a list of names",
            example="ANTHROPIC_API_KEY",
            separator=",",
        ),
    ] = ()
    cluster_certificates: Annotated[
        str,
        Setting(
            help="the folder with the certificates that `cluster init` made",
            details=f"Used for every address that does not begin with `tcp://`, except on loopback. {_PAGE}",
            example="~/.config/autopilot-multi/cluster",
            empty="~/.config/autopilot-multi/cluster",
        ),
    ] = ""
    cluster_timeout: Annotated[
        float,
        Setting(
            help="after how many seconds of silence a worker counts as lost and its stories start elsewhere",
            details=_PAGE,
            bounds=Bounds(low=1, high=3600),
        ),
    ] = 30.0
