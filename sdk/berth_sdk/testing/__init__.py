"""Tools for a plugin's own tests: readable pods, nodes and tables, and a test host in the same process.

    from berth_sdk.testing import PluginHost, make_node, make_pod

    host = PluginHost(AvoidSpot, nodes=[make_node("n1", labels={"pool": "spot"}), make_node("n2")])
    assert host.attempt(make_pod("web")).filter()["n2"].is_success

The rest of the SDK imports nothing from this package.
"""

from berth_sdk.testing.attempt import Attempt
from berth_sdk.testing.builders import make_node, make_pod, make_table, node_object, pod_object
from berth_sdk.testing.group_attempt import GroupAttempt, PlacementTrial
from berth_sdk.testing.handle import RecordedEvent, RecordedRequeue, RecordingHandle
from berth_sdk.testing.host import PluginHost
from berth_sdk.testing.reads import check_reads

__all__ = [
    "Attempt",
    "GroupAttempt",
    "PlacementTrial",
    "PluginHost",
    "RecordedEvent",
    "RecordedRequeue",
    "RecordingHandle",
    "check_reads",
    "make_node",
    "make_pod",
    "make_table",
    "node_object",
    "pod_object",
]
