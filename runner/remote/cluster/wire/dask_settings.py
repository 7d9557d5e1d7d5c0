"""Dask without what it does for its own dashboard: it would look at its threads a hundred times a second."""

DASK_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.gil.enabled": False,
}


def set_up_dask() -> None:
    """Have Dask spend no more on itself than it must, in this process; before any part of it is made."""
    import dask.config

    dask.config.set(DASK_SETTINGS)
