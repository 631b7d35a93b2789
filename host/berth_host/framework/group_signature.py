"""The signature of a group for a plugin: groups with equal signatures get equal answers about placements.

Used by `group_points` for PlacementGenerate and PlacementScore of plugins that declare what their answers
follow from (`depends_on`). It has what the plugin may read of the group, and its signature of each member.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import Final

from berth_sdk.extension_points import DependsOn, ExtensionPoint
from berth_sdk.pod_group import PodGroup
from berth_sdk.signature import wishes

from berth_host.attempt.call_record import CycleRecord
from berth_host.attempt.group_cycle import GroupCycle
from berth_host.rpc.client import PluginClient

OF_ROWS: Final = frozenset({DependsOn.NODE, DependsOn.ROW, DependsOn.NODES})
"""The dependences (`depends_on`) with which an answer about a placement is kept."""
OF_NODES: Final = frozenset({DependsOn.NODE, DependsOn.NODES})
"""The dependences of answers that stay right until a Node object changes."""
_IN_CYCLES: Final = frozenset(ExtensionPoint) - {
    ExtensionPoint.PRE_ENQUEUE,
    ExtensionPoint.QUEUE_SORT,
}
"""The points whose calls belong to a cycle, and may read its state."""


def _keeps_to_itself(client: PluginClient) -> bool:
    """Return True if no other call of the plugin can read what it wrote at the point in question: it is in
    process, where `writes` tells, or has that point alone.
    """
    return not client.is_served or len(_IN_CYCLES.intersection(client.points)) == 1


def writes(record: CycleRecord, plugin: str) -> int:
    """Return the number of writes to the plugin's state of a record."""
    part = record.parts.get(plugin)
    return 0 if part is None or part.state is None else part.state.writes


def group_signature(client: PluginClient, cycle: GroupCycle, of: Collection[DependsOn]) -> Hashable | None:
    """Return the plugin's signature of the cycle's group, with the plugin's instance and the versions of its
    objects. `of`: the parts of the cluster that the answers may follow from.

    None: the answers are not kept. The plugin declares something else, is failing or is another instance than
    the active one; or the group has members on nodes, child groups or claims.
    """
    follows, view = client.follows, cycle.group
    if follows is None or client.descriptor.depends_on not in of or client.is_failing:
        return None
    if not _keeps_to_itself(client):
        return None
    if view.scheduled or view.children or view.group.claims or not client.is_asked_in(cycle):
        return None
    sign, nodes = follows.sign, cycle.nodes
    try:
        pods = tuple([wishes(pod) if sign is None else sign(pod, nodes) for pod in view.pods])
        signature = follows, follows.versions(), _facts(view.group), pods
        hash(signature)
    except Exception:  # noqa: BLE001 (a class of the plugin's own that cannot sign: it is asked)
        return None
    return signature


def _facts(group: PodGroup) -> Hashable:
    """Return what a plugin may go by of the group's object: all but its identity, its age and its status."""
    spec = None if group.object is None else repr(group.object.parsed.get("spec"))
    return (
        group.kind,
        group.namespace,
        _items(group.labels),
        _items(group.annotations),
        group.is_gang,
        group.min_count,
        group.priority,
        group.preemption_policy,
        group.disrupts_all,
        group.disrupts_single,
        group.workload_name,
        group.topology_key,
        group.parent_key,
        None if group.min_resources is None else _items(group.min_resources),
        group.wait_s,
        spec,
    )


def _items(some: Mapping[str, object]) -> Hashable:
    return tuple(sorted(some.items()))
