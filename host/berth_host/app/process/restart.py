"""Settings that a new configuration may not change in a running process, by name. Used at HUP."""

from __future__ import annotations

from berth_host.config.configuration import LoadedConfiguration

_NEEDS_RESTART = (
    ("clientConnection", "client_connection"),
    ("leaderElection", "leader_election"),
    ("enableProfiling", "enable_profiling"),
    ("enableContentionProfiling", "enable_contention_profiling"),
    ("delayCacheUntilActive", "delay_cache_until_active"),
)


def needs_restart(old: LoadedConfiguration, new: LoadedConfiguration) -> list[str]:
    """The fields that differ and cannot be taken over, as a file spells them."""
    return [
        name
        for name, attribute in _NEEDS_RESTART
        if getattr(old.scheduler, attribute) != getattr(new.scheduler, attribute)
    ]
