"""What plugins in the host said about a pod, kept for the next pod that is equal to it.

Plugins that judge node by node (`DependsOn.NODE`, ROW, NODES) are asked about the rows that moved since the
last equal pod, and about no others; their verdicts are kept merged (`SharedVerdicts`), their scores summed up
(`SharedScores`). What their PreFilter and PreScore answered, and wrote to the cycle's state, is taken over
until a Node changes. A SKIP of a plugin with `skip_version` or `skip_is_lasting` holds for equal pods until
that version changes, or for good.
Called by `Framework`. A plugin in a process of its own keeps its answers there (`berth_sdk._shared_columns`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from berth_sdk._shared_columns import pod_key
from berth_sdk.cycle_state import CycleState
from berth_sdk.extension_points import DependsOn, ExtensionPoint, Lasting, ScoreNormalization
from berth_sdk.needs import NeedKind
from berth_sdk.pod import Pod
from berth_sdk.results import PreFilterResult
from berth_sdk.signature import signature
from berth_sdk.status import Code, Status
from berth_sdk.tables import NodeTable
from berth_sdk.tables.node_columns import NodeColumns

from berth_host.framework.cycle import Cycle
from berth_host.framework.score_roles import ScoreRoles
from berth_host.framework.shared_nominated import SharedNominated
from berth_host.framework.shared_scores import SharedScores
from berth_host.framework.shared_verdicts import SharedVerdicts
from berth_host.rpc.client import PluginClient

MAX_SIGNATURES: Final = 64
SkipVersion: TypeAlias = Callable[[Pod, NodeTable], Hashable | None]
Filters: TypeAlias = tuple[PluginClient, ...]
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
        self.pre_filtered: tuple[tuple[PluginClient, ...], frozenset[str], frozenset[str]] | None = None
        """Once all of these have an answer that is kept: who skips Filter, and who the whole cycle."""
        self.pre_scores: dict[str, Status] = {}
        self.pre_scored: tuple[tuple[PluginClient, ...], frozenset[str]] | None = None
        """Once all of these have an answer that is kept: who skips Score."""
        self.roles: ScoreRoles | None = None
        self.states: dict[str, CycleState] = {}
        self.skip_versions: dict[str, Hashable] = {}
        """By plugin, in the current cycle; None: its SKIP holds for this pod alone."""
        self._compared: dict[str, SkipVersion] | None = None
        self.verdicts = SharedVerdicts()
        self.scores = SharedScores()
        self._crowded: SharedNominated | None = None
        columns = nodes._columns
        self._moved = columns.moved.position
        self._node_moved = columns.node_moved.position
        self._nodes_version = columns.nodes_version

    @property
    def crowded(self) -> SharedNominated:
        """The verdicts on nodes with the pods that are nominated to them; seldom are there any."""
        if self._crowded is None:
            self._crowded = SharedNominated()
        return self._crowded

    def catch_up(self, columns: NodeColumns) -> None:
        """Forget the rows that moved since the last time."""
        moved = columns.moved.since(self._moved)
        node_moved = columns.node_moved.since(self._node_moved)
        self._moved, self._node_moved = columns.moved.position, columns.node_moved.position
        shared: Sequence[SharedVerdicts | SharedScores] = (
            (self.verdicts, self.scores)
            if self._crowded is None
            else (self.verdicts, self._crowded, self.scores)
        )
        if moved is None or node_moved is None:
            for one in shared:
                one.clear()
        elif moved or node_moved:
            slots, node_slots = set(moved), set(node_moved)
            for one in shared:
                one.forget(slots, node_slots)
        if self._nodes_version != columns.nodes_version:
            self._nodes_version = columns.nodes_version
            for one in shared:
                one.forget_about_all_nodes()
            # PreFilter and PreScore are handed all nodes, and may read what stands in the Node objects.
            self.pre_filters.clear()
            self.pre_scores.clear()
            self.pre_filtered = self.pre_scored = None
            self.states.clear()

    def compare_skips(self, versions: Mapping[str, SkipVersion], pod: Pod, nodes: NodeTable) -> None:
        """Forget the SKIPs whose version is another one by now."""
        seen = self.skip_versions
        if self._compared is None:
            self._compared = dict(versions)
        for plugin, version_of in list(self._compared.items()):
            try:
                version = version_of(pod, nodes)
            except Exception:  # noqa: BLE001 (only a shortcut: asked in full, the plugin fails where it counts)
                version = None
            if version is None or seen.get(plugin) != version:
                if self.pre_filters.pop(plugin, None) is not None:
                    self.pre_filtered = None
                if self.pre_scores.pop(plugin, None) is not None:
                    self.pre_scored = None
                self.states.pop(plugin, None)
                seen[plugin] = version
            if version is Lasting.FOR_GOOD:
                del self._compared[plugin]

    def keep_pre_score(self, client: PluginClient, cycle: Cycle, status: Status, *, by_row: bool) -> None:
        """What `client` answered, if it holds for equal pods."""
        if client.is_failing:
            return
        self.pre_scored = None
        if by_row:
            if status.code in (Code.SUCCESS, Code.SKIP) and self.keep_state(client.name, cycle):
                self.pre_scores[client.name] = status
        elif status.code is Code.SKIP and self.skip_versions.get(client.name) is not None:
            self.pre_scores[client.name] = status

    def keep_state(self, plugin: str, cycle: Cycle) -> bool:
        """Keep what the plugin wrote. False: it told others, or the host, of this very pod."""
        state = cycle.context.state(plugin)
        if not state.is_private:
            return False
        # As it is now: what the plugin writes at later points follows from more than the pod's wishes.
        kept = self.states[plugin] = CycleState(state.cycle_id, plugin=plugin)
        kept.inherit(state)
        return True


class EqualPods:
    """Known pods by signature, for one table of nodes at a time; the ones used least recently are dropped."""

    def __init__(self, clients: Iterable[PluginClient], *, max_signatures: int = MAX_SIGNATURES) -> None:
        clients = tuple(clients)
        self.by_row = frozenset(client.name for client in clients if shares_by_row(client))
        """The plugins that share verdicts and scores."""
        here = [(one, one.local) for one in clients if one.local is not None and one.settings.scope is None]
        self.lasting = frozenset(client.name for client, _ in here if client.descriptor.skip_is_lasting)
        """The plugins whose SKIP at PreFilter holds to the end of the cycle."""
        self._skip_versions: dict[str, SkipVersion] = {
            client.name: runtime.skip_version
            for client, runtime in here
            if runtime.skip_version is not None and client.name not in self.by_row
        }
        self._skips_for_good = self.lasting - self._skip_versions.keys()
        # Who is promised a node is equal to who is not, where nobody who shares looks at that.
        self._by_wishes = all(
            client.descriptor.ignores_nomination
            for client, _ in here
            if client.name in self.by_row or client.name in self.lasting or client.name in self._skip_versions
        )
        # Objects that such plugins read are watched as well: what changes in them is not known row by row.
        self._readers = [
            runtime.object_versions
            for client, runtime in here
            if client.name in self.by_row
            and any(need.kind is NeedKind.OBJECT for need in client.descriptor.state_needs)
        ]
        self._split: tuple[Filters, Filters, Filters] = ((), (), ())
        self._max = max_signatures
        self._known: OrderedDict[bytes, KnownPods] = OrderedDict()
        self._table: NodeColumns | None = None
        self._versions: tuple[Hashable, ...] = ()

    def __len__(self) -> int:
        return len(self._known)

    def of(self, cycle: Cycle) -> KnownPods | None:
        """What is known of pods like the cycle's; None: nothing can be kept for such a cycle."""
        nodes = cycle.nodes
        if not (self.by_row or self.lasting or self._skip_versions):
            return None
        if not nodes.is_whole or not nodes.is_snapshot:
            return None
        columns = nodes._columns
        versions = tuple([read() for read in self._readers])
        if self._table is not columns or self._versions != versions:
            # Another table's slots are other nodes; an object that changed does not tell whom it concerns.
            self._known.clear()
            self._table, self._versions = columns, versions
        pod = cycle.pod
        key = signature(pod) if self._by_wishes and not pod.node_name else pod_key(pod)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = KnownPods(nodes)
            if len(self._known) > self._max:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(key)
            known.catch_up(columns)
        known.compare_skips(self._skip_versions, pod, nodes)
        cycle.context.inherited = known.states
        return known

    def split(self, clients: Filters) -> tuple[Filters, Filters]:
        """(those in front that share their verdicts, the rest). Behind one that does not share, no plugin
        may: it must not reject what another one rejects.
        """
        if self._split[0] is not clients:
            count = next((i for i, one in enumerate(clients) if one.name not in self.by_row), len(clients))
            self._split = clients, clients[:count], clients[count:]
        return self._split[1], self._split[2]

    def keep_pre_filter(
        self, known: KnownPods, client: PluginClient, cycle: Cycle, answer: PreFilterResult
    ) -> bool:
        """Keep what `client` answered, if it holds for equal pods; whether it does."""
        if client.is_failing or answer.eligible is not None or answer.eager_filter is not None:
            return False
        code, plugin = answer.status.code, client.name
        if plugin in self.by_row:
            holds = code is Code.SUCCESS or code is Code.SKIP
        else:
            holds = code is Code.SKIP and (
                plugin in self._skips_for_good or known.skip_versions.get(plugin) is not None
            )
        # A plugin that skipped may still be asked at PostFilter, and find there what it wrote.
        if not holds or not known.keep_state(plugin, cycle):
            return False
        known.pre_filters[plugin] = answer
        known.pre_filtered = None
        return True
