"""What plugins in the host said about a pod, kept for the next pod that is equal to it.

Plugins that judge node by node (`DependsOn.NODE`, ROW, NODES) are asked about the rows that moved since the
last equal pod, and about no others; their verdicts are kept merged (`SharedVerdicts`), their scores summed up
(`SharedScores`). What their PreFilter and PreScore answered, and wrote to the cycle's state, is taken over
until a Node changes. A plugin with `skip_is_lasting` that skipped a pod is left out for all
equal ones.
Called by `Framework`. A plugin in a process of its own keeps its answers there (`berth_sdk._shared_columns`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from typing import Final

from berth_sdk._shared_columns import pod_key
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, ExtensionPoint, ScoreNormalization
from berth_sdk.needs import NeedKind
from berth_sdk.results import PreFilterResult
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from berth_sdk.tables.node_columns import NodeColumns

from berth_host.framework.cycle import Cycle
from berth_host.framework.shared_scores import SharedScores
from berth_host.framework.shared_verdicts import SharedVerdicts
from berth_host.rpc.client import PluginClient

MAX_SIGNATURES: Final = 64
_BY_ROW: Final = (DependsOn.NODE, DependsOn.ROW, DependsOn.NODES)
_SHARED_POINTS: Final = frozenset(
    {
        ExtensionPoint.PRE_ENQUEUE,
        ExtensionPoint.QUEUE_SORT,
        ExtensionPoint.PRE_FILTER,
        ExtensionPoint.FILTER,
        ExtensionPoint.PRE_SCORE,
        ExtensionPoint.SCORE,
    }
)


def shares_by_row(client: PluginClient) -> bool:
    """Whether the plugin's answers to the four points that look at nodes may be kept here: it lives in the
    host, is asked about every pod, judges node by node, and has no later point that needs the cycle's state.
    """
    descriptor = client.descriptor
    return (
        client.local is not None
        and client.settings.scope is None
        and descriptor.depends_on in _BY_ROW
        and descriptor.normalization is not ScoreNormalization.RPC
        and not descriptor.reads_shared
        and _SHARED_POINTS.issuperset(descriptor.points)
    )


class KnownPods:
    """What is known of pods of one signature, as of the snapshot that the current cycle looks at."""

    def __init__(self, nodes: NodeTable) -> None:
        self.pre_filters: dict[str, PreFilterResult] = {}
        self.pre_scores: dict[str, Status] = {}
        self.states: dict[str, CycleState] = {}
        self.verdicts = SharedVerdicts()
        self.scores = SharedScores()
        columns = nodes._columns
        self._moved = columns.moved.position
        self._node_moved = columns.node_moved.position

    def catch_up(self, columns: NodeColumns) -> None:
        """Forget the rows that moved since the last time."""
        moved = columns.moved.since(self._moved)
        node_moved = columns.node_moved.since(self._node_moved)
        self._moved, self._node_moved = columns.moved.position, columns.node_moved.position
        if moved is None or node_moved is None:
            self.verdicts.clear()
            self.scores.clear()
        elif moved or node_moved:
            self.verdicts.forget(moved, node_moved)
            self.scores.forget(moved, node_moved)
        if node_moved is None or node_moved:
            # PreFilter and PreScore are handed all nodes, and may read what stands in the Node objects.
            self.pre_filters.clear()
            self.pre_scores.clear()
            self.states.clear()

    def keep_pre_score(self, client: PluginClient, cycle: Cycle, status: Status) -> None:
        """What `client` answered, if it holds for equal pods."""
        if client.is_failing or status.code not in (Code.SUCCESS, Code.SKIP):
            return
        if self.keep_state(client.name, cycle):
            self.pre_scores[client.name] = status

    def keep_state(self, plugin: str, cycle: Cycle) -> bool:
        """Keep what the plugin wrote. False: it told others, or the host, of this very pod."""
        state = cycle.context.state(plugin)
        if state.is_private:
            self.states[plugin] = state
            return True
        return False


class EqualPods:
    """Known pods by signature, for one table of nodes at a time; the ones used least recently are dropped."""

    def __init__(self, clients: Iterable[PluginClient], *, max_signatures: int = MAX_SIGNATURES) -> None:
        clients = tuple(clients)
        self.by_row = frozenset(client.name for client in clients if shares_by_row(client))
        """The plugins that share verdicts and scores."""
        self.lasting = frozenset(
            client.name
            for client in clients
            if client.descriptor.skip_is_lasting
            and client.local is not None
            and client.settings.scope is None
        )
        """The plugins whose SKIP at PreFilter holds for equal pods, to the end of the cycle."""
        # Objects that such plugins read are watched as well: what changes in them is not known row by row.
        self._readers = [
            client.local.object_versions
            for client in clients
            if client.local is not None
            and (client.name in self.by_row or client.name in self.lasting)
            and any(need.kind is NeedKind.OBJECT for need in client.descriptor.state_needs)
        ]
        self._max = max_signatures
        self._known: OrderedDict[bytes, KnownPods] = OrderedDict()
        self._table: NodeColumns | None = None
        self._versions: tuple[Hashable, ...] = ()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, cycle: Cycle) -> KnownPods | None:
        """What is known of pods like the cycle's; None: nothing can be kept for such a cycle."""
        nodes = cycle.nodes
        if not (self.by_row or self.lasting) or not nodes.is_whole or not nodes.is_snapshot:
            return None
        columns = nodes._columns
        versions = tuple([read() for read in self._readers])
        if self._table is not columns or self._versions != versions:
            # Another table's slots are other nodes; an object that changed does not tell whom it concerns.
            self._known.clear()
            self._table, self._versions = columns, versions
        key = pod_key(cycle.pod)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = KnownPods(nodes)
            if len(self._known) > self._max:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
            known.catch_up(columns)
        cycle.context.inherited = known.states
        return known

    def keep_pre_filter(
        self, known: KnownPods, client: PluginClient, cycle: Cycle, answer: PreFilterResult
    ) -> None:
        """Keep what `client` answered, if it holds for equal pods."""
        if client.is_failing or answer.eligible is not None or answer.eager_filter is not None:
            return
        code = answer.status.code
        if client.name in self.by_row:
            if code in (Code.SKIP, Code.SUCCESS) and known.keep_state(client.name, cycle):
                known.pre_filters[client.name] = answer
        elif code is Code.SKIP and client.name in self.lasting:
            known.pre_filters[client.name] = answer
