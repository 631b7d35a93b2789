"""`HostParts`: makes every part of a host, and hands each part the others that it needs. `Host` runs the
parts.

The order: cache and cluster -> handles and attachments -> plugins -> queue, frameworks and cycles. So each
part gets complete parts. Only handles and attachments also need parts that are made of the plugins; they read
these through `LateParts`.

Source of the profiles: kube-scheduler `pkg/scheduler/profile/profile.go` (NewMap), v1.36.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from berth_sdk.gang_policy import GangPolicy, judge_of
from berth_sdk.pod_group import PodGroup
from berth_sdk.runtime.descriptor import Descriptor
from berth_sdk.spec_reads import ALL_OF_SPEC, SpecReads
from berth_sdk.wire.traces import is_off_in_environment

from berth_host.app.host_options import HostOptions
from berth_host.attach.events import AttachmentEvents, WriteEvent
from berth_host.attach.host_attachments import HostAttachments, HostSeams
from berth_host.cache.cache import Cache
from berth_host.cache.generations import Generations
from berth_host.cache.objects import ObjectStores
from berth_host.cache.pod_groups import PodGroups
from berth_host.cache.snapshot import Snapshot
from berth_host.cache.snapshot_state import SnapshotState
from berth_host.cluster.coscheduling import PodGroupStatuses
from berth_host.cluster.handlers import EventHandlers, Handled, HandlerMetrics
from berth_host.cluster.port import ClusterPort, EventRecord, WatchEvent
from berth_host.cluster.rivals import Rivals
from berth_host.cluster.watching import (
    BUDGETS,
    GROUP_POLICY,
    Watching,
    group_gates,
    judges_coscheduling,
    watched_resources,
)
from berth_host.config.configuration import LoadedConfiguration
from berth_host.cycle.bound_ends import BoundEnds, EndSeams
from berth_host.cycle.claim_users import ClaimUsers
from berth_host.cycle.collector import Collector
from berth_host.cycle.loop import Scheduler
from berth_host.cycle.observer import AttemptObserver
from berth_host.cycle.patches import PatchRunner
from berth_host.cycle.pod_status import PodStatusWriter, cut_note
from berth_host.cycle.readback import ReadBack
from berth_host.cycle.repeating import RepeatingBinder
from berth_host.cycle.running_attempts import CyclesUnderWay, RunningAttempts
from berth_host.cycle.schedule_one import (
    Algorithm,
    BindingCycle,
    FailureHandler,
    PodCycles,
    PodSteps,
    Profile,
)
from berth_host.explain.diagnosis import Diagnoses
from berth_host.explain.group_record import GroupRecords
from berth_host.extenders.extenders import Extenders
from berth_host.framework.binding import DeviceWaits, PreBindRunner
from berth_host.framework.framework import Framework
from berth_host.framework.kept.keep_answers import KeepAnswers
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.groups.gang_holds import GangHolds, PoliciesOf
from berth_host.groups.group_repair import GroupRepair, RepairSeams
from berth_host.groups.group_rules import rules_of
from berth_host.groups.group_status import GroupStatusWriter
from berth_host.groups.schedule_group import GroupScheduler
from berth_host.handle.calls import HandleSeams
from berth_host.handle.host_backend import Backend, BackendSeams, LateParts, OpenCalls
from berth_host.handle.in_process import InProcessHandle
from berth_host.handle.server import handle_server
from berth_host.metrics import families
from berth_host.metrics.plugin_work import CLAIMS
from berth_host.model.internal_error import InternalError
from berth_host.model.resources import COMPOSITE_POD_GROUPS, POD_GROUPS
from berth_host.observers.attempt_metrics import AttemptMetrics
from berth_host.observers.attempt_traces import AttemptTraces
from berth_host.observers.on_attempt import OnAttempt
from berth_host.observers.several import observing
from berth_host.plugins.clients import ClientSeams, PointPlugins, make_clients, plugins_by_profile
from berth_host.plugins.registry import ClassRegistry
from berth_host.preemption.evaluator import Evaluator
from berth_host.preemption.evicting_pods import Preempting
from berth_host.preemption.evictions import Evictions, EvictionSeams
from berth_host.preemption.group_evaluator import GroupEvaluator
from berth_host.preemption.victim_calls import VictimCalls
from berth_host.queue.interfaces import QueueConfig, QueueObserver, QueueSeams
from berth_host.queue.plugin_calls import QueueClient
from berth_host.queue.reports import PRE_QUEUEING_HINTS, QueueMetrics, SortReports
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.queue.traced_client import TracedClient
from berth_host.queue.wiring import QueueWiring
from berth_host.rpc.client import PluginClient
from berth_host.tracing.tracing import Tracing


class HostParts:
    """The parts of one host, by name. Each knows only the parts that it is given here."""

    def __init__(
        self, configuration: LoadedConfiguration, cluster: ClusterPort, options: HostOptions
    ) -> None:
        """Make all parts. Raises PluginLoadError and DuplicatePluginError."""
        self.configuration = configuration
        self.cluster = cluster
        self.options = options
        self.clock = options.clock
        self.metrics = options.metrics
        self.metrics.expose(configuration.gates.is_enabled, configuration.emulation.metrics)
        self.internal_error = InternalError()
        self.extenders = Extenders(configuration.scheduler.extenders)
        self._know_the_cluster()
        later = LateParts()
        self.tracing = self._make_tracing()
        try:
            self._make_from_plugins(later)
        except BaseException:
            if self.tracing is not None:
                self.tracing.close()
            raise

    def _make_from_plugins(self, later: LateParts) -> None:
        """Make the plugins, and the parts that call them."""
        self._open_to_plugins(later)
        self._make_plugins(later)
        try:
            self._make_cycles(later)
        except BaseException:
            self.clients.close_unused()
            raise

    def _make_tracing(self) -> Tracing | None:
        """Make the traces of attempts; None if they are off."""
        settings = self.configuration.berth.tracing
        self.metrics.has_exemplars = False
        if settings is None or is_off_in_environment():
            return None
        tracing = Tracing(settings.endpoint or "", settings.sampling_rate_per_million, self.metrics.note_call)
        self.metrics.has_exemplars = True
        self.metrics.read(families.TRACE_SPANS, tracing.counts)
        return tracing

    def _know_the_cluster(self) -> None:
        """Make the cache of the cluster, and the parts that write to the cluster."""
        generations = Generations()
        self.objects = ObjectStores(generations)
        composite = COMPOSITE_POD_GROUPS in group_gates(self.configuration)
        groups = PodGroups(generations, composite=composite)
        groups.judges_trees = self.configuration.emulation.rules.judges_group_trees
        self.cache = Cache(generations, groups)
        self.snapshot = Snapshot(self.objects)
        self.state = SnapshotState(self.snapshot, self.cache)
        self.waiting_pods = WaitingPods(self.clock, self.configuration.berth.may_end_waits)
        self.preempting = Preempting(self.objects, self.configuration.emulation.rules)
        self.watching = Watching(self.cluster)
        self.status = self._make_status()
        self.group_status = self._make_group_status()
        self.coscheduling = PodGroupStatuses(
            self.cluster, self.clock, self.configuration.profiles[0].scheduler_name
        )
        self.patches = PatchRunner(self.cluster, self.clock, self.objects, self.metrics.plugin_work.created)

    def _make_status(self) -> PodStatusWriter:
        return PodStatusWriter(self.cluster, self.clock)

    def _make_group_status(self) -> GroupStatusWriter:
        rules = self.configuration.emulation.rules
        return GroupStatusWriter(self.cluster, self.clock, rules)

    def _open_to_plugins(self, later: LateParts) -> None:
        """Make handles and attachments, which exist before any plugin."""
        self.evaluator = Evaluator(
            self.options.chooser,
            self.objects.of_resource(BUDGETS),
            self.preempting,
            self.extenders,
            self.snapshot if POD_GROUPS in group_gates(self.configuration) else None,
            rules=self.configuration.emulation.rules,
        )
        self.open_calls = OpenCalls(self.evaluator, self.snapshot, later, self.metrics.preemption)
        self.backend = Backend(
            BackendSeams(
                objects=self.objects,
                cache=self.cache,
                snapshot=self.snapshot,
                waiting_pods=self.waiting_pods,
                status=self.status,
                open_calls=self.open_calls,
                later=later,
            )
        )
        self.handle_server = handle_server(
            self.configuration.berth,
            self.options.own_address,
            HandleSeams(
                backend=self.backend,
                state=self.state,
                filters=self.open_calls,
                descriptor_of=self.backend.served_descriptor,
            ),
            self.metrics.connections,
        )
        self.wiring = QueueWiring(
            self.clock,
            self.state.refresh,
            self.configuration.emulation,
            has_extenders=bool(self.configuration.scheduler.extenders),
            traced=self._traced_client,
        )
        self.cycles = CyclesUnderWay(self.waiting_pods, later)
        self.attachments = HostAttachments(
            self.configuration,
            HostSeams(
                state=self.state,
                cycles=self.cycles,
                internal_error=self.internal_error,
                declare=self._declare,
                grants=self.handle_server if self.options.way_back else None,
                events=AttachmentEvents(self._writer_of_own_events()),
                recovered=self.wiring.plugin_attached,
                post_bound=lambda plugin, pod: self.binding.requeue_if_gone(plugin, pod),  # noqa: PLW0108 (made later)
                stats=lambda: later.clients.stats,
            ),
        )
        if self.attachments.attached_places:
            self.snapshot.confirmed_generation = self.attachments.attached_places.confirmed_generation

    def _writer_of_own_events(self) -> WriteEvent | None:
        own_pod, reporter = self.options.own_pod, self.configuration.profiles[0].scheduler_name
        if own_pod is None:
            return None

        def write(*, type: str, reason: str, action: str, note: str) -> None:
            self.cluster.create_event(
                EventRecord(
                    regarding=own_pod, type=type, reason=reason, action=action, note=note, reporter=reporter
                )
            )

        return write

    def _make_plugins(self, later: LateParts) -> None:
        """Make the plugins of every profile, in-process and served."""
        self.clients = later.clients = make_clients(
            self.configuration,
            ClientSeams(
                registry=ClassRegistry(self.options.plugins),
                objects=self.objects,
                facts=self.snapshot,
                handle=lambda name: InProcessHandle(name, self.backend),
                route=self.attachments.route,
            ),
        )
        self.watching.need(watched_resources(self.configuration, self.clients.by_profile))

    def _plugins_by_profile(self) -> dict[str, PointPlugins]:
        """Return the plugins by schedulerName and point."""
        return plugins_by_profile(self.configuration, self.clients)

    async def _declare(self, descriptors: Sequence[Descriptor]) -> None:
        """Prepare for served plugins that are about to be attached: watch what they need, and schedule
        coscheduling's PodGroups if one of the plugins judges these. Raises ClusterError.
        """
        if any(map(judges_coscheduling, descriptors)):
            self.handlers.schedule_coscheduling()
        await self.watching.declare(descriptors)

    def _make_cycles(self, later: LateParts) -> None:
        """Make the queue, the frameworks, and the cycles that run pods through both."""
        plugins = self._plugins_by_profile()
        rules = self.configuration.emulation.rules
        reports = SortReports(self.status.event)
        counted = self.configuration.gates.is_enabled(PRE_QUEUEING_HINTS)
        told = QueueMetrics(
            self.metrics, self.options.queue_observer, reports, rules, counts_narrowing=counted
        )
        self.queue = later.queue = self._make_queue(plugins, told)
        self.wiring.connect(self.queue)
        self.failures = FailureHandler(self.queue, self.objects, self.cache.forget_if_assumed, self.status)
        self.observer = observing(self._make_observers())
        self.diagnoses = Diagnoses(self.options.diagnoses_kept, self.clock.now_s)
        self.group_records = GroupRecords(self.clock.now_s)
        self.binding = later.binding = self._make_binding()
        calls = VictimCalls(self.cluster, self.clock)
        self.evictions = self._make_evictions(calls)
        self.repair = self._make_repair(calls)
        self.holds = self._make_holds()
        frameworks = self._make_frameworks(plugins)
        self.scheduler = later.scheduler = self._make_scheduler(self._make_profiles(frameworks))
        self.rivals = Rivals(self.clock, self._write_event)
        plugins_of_all = [one for by_name in self.clients.by_profile.values() for one in by_name.values()]
        self.handlers = EventHandlers(
            self._make_handled(),
            frameworks.keys(),
            groups=POD_GROUPS in group_gates(self.configuration),
            reads=self._spec_reads(plugins_of_all),
        )
        if any(judges_coscheduling(one.descriptor) for one in plugins_of_all):
            self.handlers.schedule_coscheduling()
        apply = self._make_apply(frameworks.keys())
        self.handle_change = HandlerMetrics(self.metrics, told.labels, apply, rules).handle
        """Handles one change of the cluster; raises InvariantError."""
        self.collector = Collector(lambda: self.queue.scheduling_cycle)

    def _spec_reads(self, clients: Iterable[PluginClient]) -> SpecReads:
        """Return the fields of a pod's spec by which the plugins tell pods apart. A served plugin may declare
        others when it is attached, and extenders get the whole pod.
        """
        if self.configuration.scheduler.extenders:
            return ALL_OF_SPEC
        return SpecReads.of(None if one.is_served else one.descriptor.needs for one in clients)

    def _traced_client(self, client: QueueClient) -> QueueClient:
        """Return the client for the queue; one that makes spans if tracing is on."""
        return client if self.tracing is None else TracedClient(client, self.tracing.live)

    def _make_observers(self) -> list[AttemptObserver]:
        """Make the observers of attempts."""
        made: list[AttemptObserver] = [AttemptMetrics(self.metrics, self.clock.now_s)]
        if self.options.on_attempt is not None:
            made.append(OnAttempt(self.options.on_attempt))
        if self.tracing is not None:
            made.append(AttemptTraces(self.tracing))
        return [*made, *self.options.observers]

    def _make_handled(self) -> Handled:
        """Return what the handlers of the cluster's changes act on."""
        return Handled(
            stores=self.objects,
            cache=self.cache,
            queue=self.queue,
            attempts=RunningAttempts(self.waiting_pods, self.scheduler, self.binding),
            report=self._write_event,
            refused_pod=self.status.refused,
            rules=self.configuration.emulation.rules,
            coscheduling=self.coscheduling,
            holds=self.holds,
            rivals=self.rivals,
            ends=self.binding.ends,
        )

    def _make_apply(self, names: Collection[str]) -> Callable[[WatchEvent], None]:
        """Return what applies one change of the cluster. `names`: the schedulerNames of this host."""
        return self.handlers.handle

    def _make_binding(self) -> BindingCycle:
        return BindingCycle(
            *self._binding_parts(),
            binds_for_extenders=self.options.binds_for_extenders,
            looks_before_binding=self.configuration.emulation.rules.looks_before_binding,
            claim_users=ClaimUsers(self.cluster, self.objects.of_resource(CLAIMS)),
            ends=self._make_ends(),
        )

    def _make_ends(self) -> BoundEnds:
        return BoundEnds(
            EndSeams(
                stores=self.objects,
                snapshot=self.snapshot,
                cluster=self.cluster,
                clock=self.clock,
                internal_error=self.internal_error,
                watched=lambda: self.watching.needed,
                list_again=self._list_again,
            )
        )

    def _list_again(self, plugin: str) -> None:
        """Send the list of its live reservations to a plugin, in the background."""
        if not self.attachments.list_again(plugin):
            self.clients.list_again(plugin, self.cycles)

    def _binding_parts(self) -> tuple[Any, ...]:
        retries = self.configuration.emulation.rules.retries_bind
        return (
            self.queue,
            self.cache,
            RepeatingBinder(self.cluster) if retries else self.cluster,
            self.failures,
            self.status,
            self.diagnoses,
            ReadBack(self.cluster, self.clock),
            self.internal_error,
            self.extenders,
            self.observer,
        )

    def _write_event(self, event: EventRecord) -> None:
        """Write an event in the background."""
        self.cluster.create_event(event)

    def _make_queue(self, plugins: Mapping[str, PointPlugins], told: QueueObserver) -> SchedulingQueue:
        seams = QueueSeams(
            pods=self.objects,
            profiles=self.wiring.profiles(self.configuration.profiles, self.clients.by_profile, plugins),
            sort=self.wiring.sort(plugins),
            observer=told,
            evicting=self.preempting,
            rules=self.configuration.emulation.rules,
        )
        given = self.configuration.scheduler
        limits = QueueConfig(
            pod_initial_backoff_s=given.pod_initial_backoff_s,
            pod_max_backoff_s=given.pod_max_backoff_s,
            pod_max_in_unschedulable_pods_s=self.options.max_in_pool_s,
            ask_every_plugin=self.options.ask_every_plugin,
            rules=self.configuration.emulation.rules,
        )
        return SchedulingQueue(limits, self.clock, seams)

    def _make_frameworks(self, plugins: Mapping[str, PointPlugins]) -> dict[str, Framework]:
        work = self.metrics.plugin_work
        waits = DeviceWaits(work, self.objects.of_resource(CLAIMS), self.clock.monotonic_s)
        pre_bind = PreBindRunner(self.patches, self.clock, waits.watched)
        return {
            name: Framework(
                name,
                points,
                self.waiting_pods,
                pre_bind,
                KeepAnswers(points) if self.options.keep_answers else None,
                self.metrics,
            )
            for name, points in plugins.items()
        }

    def _make_profiles(self, frameworks: Mapping[str, Framework]) -> dict[str, Profile]:
        made: dict[str, Profile] = {}
        for profile in self.configuration.profiles:
            framework = frameworks[profile.scheduler_name]
            percentage = profile.percentage_of_nodes_to_score
            if percentage is None:
                percentage = self.configuration.scheduler.percentage_of_nodes_to_score
            placements = profile.percentage_of_placements_to_score
            if placements is None:
                placements = self.configuration.scheduler.percentage_of_placements_to_score or 0
            made[profile.scheduler_name] = Profile(
                framework,
                Algorithm(framework, self.options.chooser, percentage, self.extenders, self.observer),
                self.configuration.berth.cycle_budget_s,
                placements,
            )
        return made

    def _make_scheduler(self, profiles: dict[str, Profile]) -> Scheduler:
        """Make the loop, and the cycles of single pods and of groups that it runs."""
        steps = PodSteps(self.queue, self.cache, self.snapshot, self.binding, self.clock, self.observer)
        pods = PodCycles(profiles, steps, self.queue, self.cache, self.snapshot, self.binding, self.evictions)
        rules = self.configuration.emulation.rules
        group_policy = self.configuration.gates.values.get(GROUP_POLICY, False)
        evaluator = GroupEvaluator(
            self.objects.of_resource(BUDGETS),
            self.preempting,
            self.metrics.preemption,
            group_policy=group_policy,
            rules=rules,
        )
        groups = GroupScheduler(
            profiles,
            steps,
            self.queue,
            self.cache,
            self.snapshot,
            self.binding,
            self.evictions,
            self.group_status,
            evaluator,
            self.metrics.groups,
            self.group_records,
            self.holds,
            rules_of(rules, group_policy=group_policy),
        )
        return Scheduler(self.queue, self.snapshot, steps, pods, groups)

    def _make_holds(self) -> GangHolds:
        holds = GangHolds(
            self.queue,
            self.snapshot,
            self.cache.groups,
            self.objects,
            self.status,
            self.clock,
            gang_policies(self.configuration),
            self.repair.is_refilling,
            self.metrics.groups,
            self._report_of_group,
        )
        self.metrics.read(
            families.GANG_HELD_PLACES,
            lambda: [((), 0 if holds.current is None else len(holds.current.nodes))],
        )
        return holds

    def _report_of_group(self, group: PodGroup, reporter: str, type: str, reason: str, note: str) -> None:
        """Write an Event about a group. `reporter`: the schedulerName of the group's members."""
        self._write_event(
            EventRecord(
                regarding=group.ref,
                regarding_kind=group.api_kind,
                type=type,
                reason=reason,
                action="Scheduling",
                note=cut_note(note),
                reporter=reporter,
            )
        )

    def _make_evictions(self, calls: VictimCalls) -> Evictions:
        return Evictions(calls, self.status, self._eviction_seams())

    def _eviction_seams(self) -> EvictionSeams:
        return EvictionSeams(
            cache=self.cache,
            pods=self.objects,
            queue=self.queue,
            waiting_pods=self.waiting_pods,
            preempting=self.preempting,
            preempt_binding=self.binding.preempt_pod,
            cycle_ended=self.binding.ended,
            internal_error=self.internal_error,
            metrics=self.metrics.preemption,
            rules=self.configuration.emulation.rules,
        )

    def _make_repair(self, calls: VictimCalls) -> GroupRepair:
        def undo(uid: str, plugin: str, reason: str) -> bool:
            return self.waiting_pods.preempt(uid, plugin, reason) or self.binding.preempt_pod(uid, reason)

        seams = RepairSeams(
            groups=self.cache.groups,
            policies={one.scheduler_name: one.gang_policy for one in self.configuration.profiles},
            calls=calls,
            cluster=self.cluster,
            undo=undo,
            status=self.status,
            report=self._report_of_group,
            clock=self.clock,
            internal_error=self.internal_error,
        )
        repair = GroupRepair(seams)
        self.cache.groups.on_change = repair.changed
        return repair


def gang_policies(configuration: LoadedConfiguration) -> PoliciesOf:
    """Return the function that finds the settings of a group of pods."""
    known = {one.scheduler_name: (one.plugin_names, one.gang_policy) for one in configuration.profiles}

    def policy_of(profile: str, root: PodGroup) -> GangPolicy | None:
        plugins, policy = known.get(profile, ((), GangPolicy()))
        return policy.for_group(root)[0] if judge_of(root) in plugins else None

    return policy_of
