"""`ShadowHost`: a host that decides beside the real scheduler, and writes nothing.

It is made of a host's parts, with others in place of those that act: `parts` leaves out what writes,
`observer` notes the decisions, `following` compares them with what the real scheduler does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from berth_sdk.pod import Pod

from berth_host.app.host import Host
from berth_host.app.host_options import HostOptions
from berth_host.attach.events import WriteEvent
from berth_host.cluster.handlers import Handled
from berth_host.cluster.port import ClusterPort, EventRecord, WatchEvent
from berth_host.config.configuration import LoadedConfiguration
from berth_host.cycle.observer import AttemptObserver
from berth_host.cycle.pod_status import PodStatusWriter
from berth_host.cycle.schedule_one import BindingCycle
from berth_host.groups.group_status import GroupStatusWriter
from berth_host.plugins.clients import PointPlugins
from berth_host.preemption.evictions import Evictions
from berth_host.preemption.victim_calls import VictimCalls
from berth_host.shadow.following import ShadowFollower
from berth_host.shadow.observer import ShadowObserver
from berth_host.shadow.parts import (
    Deciding,
    ImaginedEvictions,
    SilentGroupStatus,
    SilentStatus,
    deciding_plugins,
)
from berth_host.shadow.read_only import ReadOnlyCluster
from berth_host.shadow.record import ShadowRecord
from berth_host.tracing.tracing import Tracing


class ShadowHost(Host):
    """A host whose decisions `record` gets. Its parts have a cluster port that refuses writes."""

    follower: ShadowFollower

    def __init__(
        self,
        configuration: LoadedConfiguration,
        cluster: ClusterPort,
        record: ShadowRecord,
        options: HostOptions | None = None,
    ) -> None:
        """Make the parts, as `Host` does. `record`: outlives a reload."""
        self.record = self.shadow = record
        self._below = cluster
        super().__init__(configuration, ReadOnlyCluster(cluster), options)

    @property
    def adapter(self) -> ClusterPort:
        """The port that the host was given. The parts get one that refuses writes."""
        return self._below

    def successor(self, configuration: LoadedConfiguration) -> ShadowHost:
        """Return a shadow on the same cluster with the same record."""
        return ShadowHost(configuration, self.adapter, self.record, self.options)

    # --- the life ------------------------------------------------------------------------------

    def _begin_to_act(self, nominated: Sequence[Pod]) -> None:
        self.follower.begin()

    def _stop_queueing(self) -> None:
        super()._stop_queueing()
        self.follower.stop()

    # --- the parts that differ -----------------------------------------------------------------

    def _make_tracing(self) -> Tracing | None:
        self.metrics.has_exemplars = False
        return None

    def _make_status(self) -> PodStatusWriter:
        return SilentStatus(self.cluster, self.clock)

    def _make_group_status(self) -> GroupStatusWriter:
        return SilentGroupStatus(self.cluster, self.clock)

    def _writer_of_own_events(self) -> WriteEvent | None:
        return None

    def _write_event(self, event: EventRecord) -> None:
        """Do nothing."""

    def _plugins_by_profile(self) -> dict[str, PointPlugins]:
        return deciding_plugins(super()._plugins_by_profile())

    def _make_observers(self) -> list[AttemptObserver]:
        return [*super()._make_observers(), ShadowObserver(self.record, self.snapshot, self._decided)]

    def _decided(self, uid: str) -> None:
        """Let the follower, which is made last, apply what it held back for a pod."""
        self.follower.decided(uid)

    def _make_binding(self) -> BindingCycle:
        return Deciding(*self._binding_parts(), passed_over=self._decided)

    def _make_evictions(self, calls: VictimCalls) -> Evictions:
        return ImaginedEvictions(calls, self.status, self._eviction_seams(), self.record)

    def _make_handled(self) -> Handled:
        return replace(super()._make_handled(), coscheduling=None)

    def _make_apply(self, names: Collection[str]) -> Callable[[WatchEvent], None]:
        self.follower = ShadowFollower(
            self.record,
            super()._make_apply(names),
            self.objects,
            self.cache,
            self.queue,
            self.failures,
            names,
        )
        return self.follower.handle
