"""The columnar snapshot that plugins read: nodes, the pods on them, and other objects.

`NodeTable` and `PodTable` are read-only views of columns. The host, or the synchronised copy of a served
plugin, updates the columns between cycles. Rows are selections; columns are numpy arrays.
"""

from berth_sdk.tables.dictionary import Dictionary
from berth_sdk.tables.node_columns import NodeColumns, NodeUsage
from berth_sdk.tables.node_table import NodeTable
from berth_sdk.tables.node_view import NodeView
from berth_sdk.tables.object_store import ObjectStore, StoredObject
from berth_sdk.tables.pod_changes import PodChanges
from berth_sdk.tables.pod_counts import KindTally, PodCounts, PodsWith, Tally, changed_by
from berth_sdk.tables.pod_table import PodTable
from berth_sdk.tables.pod_volumes import PodVolumes
from berth_sdk.tables.slot_follower import Moved, SlotFollower
from berth_sdk.tables.state_version import StateVersion

__all__ = [
    "Dictionary",
    "KindTally",
    "Moved",
    "NodeColumns",
    "NodeTable",
    "NodeUsage",
    "NodeView",
    "ObjectStore",
    "PodChanges",
    "PodCounts",
    "PodTable",
    "PodVolumes",
    "PodsWith",
    "SlotFollower",
    "StateVersion",
    "StoredObject",
    "Tally",
    "changed_by",
]
