"""`unplaced_members`: the members that a host counts as placed in their group, and that are on no node."""

from __future__ import annotations

from berth_host.app import Host
from berth_sdk.pod import Pod


def unplaced_members(host: Host) -> list[str]:
    """Return the members that count as placed, and that the host's cache has on no node."""
    groups = host.cache.groups
    states = [groups.state(key) for key in groups.group_keys()]
    return [
        pod.key
        for state in states
        if state is not None
        for pod in state.scheduled
        if not _is_on_node(host, pod)
    ]


def _is_on_node(host: Host, pod: Pod) -> bool:
    found = host.cache.get_pod(pod.uid)
    return found is not None and bool(found.node_name)
