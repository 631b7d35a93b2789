"""`Host`: queue, cache, cycle, plugins and one cluster, put together and run on one asyncio loop.

Made by the CLI (`berth simulate`), by `berth_host.run`, and by tests; the cluster port decides whether it
is an embedded cluster or a real one, and nothing here knows which.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from berth_sdk.pod import Pod
from berth_sdk.runtime.descriptor import Descriptor

from berth_host.app.accidents import LoopErrors
from berth_host.app.attachments import HostAttachments
from berth_host.app.backend import Backend
from berth_host.app.clients import Clients, ClientSeams, make_clients, plugins_by_point
from berth_host.app.collector import Collector
from berth_host.app.facts import SnapshotFacts
from berth_host.app.feed import Feed
from berth_host.app.handle_server import handle_server
from berth_host.app.measuring import AttemptMetrics, HandlerMetrics, QueueMetrics
from berth_host.app.open_calls import OpenCalls, PodsAndEvictions
from berth_host.app.options import HostOptions
from berth_host.app.queue_wiring import QueueWiring, queue_config
from berth_host.app.readings import show_host
from berth_host.app.registry import ClassRegistry
from berth_host.app.running_attempts import RunningAttempts
from berth_host.app.settle import Progress, Settling
from berth_host.app.watched import BUDGETS, resources_of, watched_resources
from berth_host.cache.cache import Cache
from berth_host.cache.generations import Generations
from berth_host.cache.objects import ObjectStores
from berth_host.cache.snapshot import Snapshot
from berth_host.cluster.handlers import EventHandlers, Handled
from berth_host.cluster.port import ClusterPort, WatchEvent
from berth_host.config.configuration import LoadedConfiguration, ResolvedProfile
from berth_host.errors.cluster import UnavailableError
from berth_host.errors.state import InvariantError
from berth_host.explain.diagnosis import Diagnoses
from berth_host.framework.binding import PreBindRunner
from berth_host.framework.device_wait import DeviceWaits
from berth_host.framework.framework import Framework
from berth_host.framework.measured import MeasuredFramework
from berth_host.framework.recall.recall import Recall
from berth_host.framework.waiting_pods import WaitingPods
from berth_host.handle.in_process import InProcessHandle
from berth_host.log import get_logger
from berth_host.metrics.plugin_stats import PluginStats
from berth_host.metrics.plugin_work import CLAIMS
from berth_host.model.clock import ManualClock
from berth_host.model.fate import Fate
from berth_host.queue.scheduling_queue import SchedulingQueue
from berth_host.queue.seams import QueueSeams, QueueSort
from berth_host.scheduler.algorithm import Algorithm
from berth_host.scheduler.binding_cycle import BindingCycle
from berth_host.scheduler.evictions import Evictions, EvictionSeams
from berth_host.scheduler.failure import FailureHandler
from berth_host.scheduler.patches import PatchRunner
from berth_host.scheduler.pod_status import PodStatusWriter
from berth_host.scheduler.preempting import Preempting
from berth_host.scheduler.preemption.evaluator import Evaluator
from berth_host.scheduler.readback import ReadBack
from berth_host.scheduler.schedule_one import Profile, Scheduler
from berth_host.scheduler.victim_calls import VictimCalls

log = get_logger()
STOP_S = 5.0
"""How long `stop` waits for each of: Bindings on their way, evictions, status writes. Real time."""
WATCH_S = 10.0
"""How long what a new plugin needs may take to be listed, real time."""


class Host:
    """One scheduler, for one term as leader. `start`, then it runs by itself; `stop` undoes what it can.

    made -connect-> connected (the cache follows the cluster) -lead-> leading -drain-> draining -stop-> over
    leading -abandon (somebody else leads)-> over
    any -an invariant broke-> failed (`wait_failed`): the process says so and ends
    """

    def __init__(
        self,
        configuration: LoadedConfiguration,
        cluster: ClusterPort,
        options: HostOptions | None = None,
    ) -> None:
        """Raises PluginLoadError and DuplicatePluginError."""
        self.configuration = configuration
        self.cluster = cluster
        self.options = options or HostOptions()
        self.clock = self.options.clock
        self.fate = Fate()
        self._loop_errors = LoopErrors(self.fate)
        generations = Generations()
        self.objects = ObjectStores(generations)
        self.cache = Cache(generations)
        self.snapshot = Snapshot(self.objects)
        self.waiting_pods = WaitingPods(self.clock)
        self.preempting = Preempting(self.objects)
        self.metrics = self.options.metrics
        attempts = AttemptMetrics(self.metrics, self.clock.now_s, self.options.on_attempt)
        self.diagnoses = Diagnoses(self.options.diagnoses_kept, attempts.ended, self.clock.now_s)
        self._queue_metrics = QueueMetrics(self.metrics, self.options.queue_observer)
        self.backend = Backend(self)
        self.open_calls = OpenCalls(self)
        self.handle_server = handle_server(self)
        self.attachments = HostAttachments(configuration, self, self.handle_server)
        self.clients = self._make_clients()
        self.needed_resources = watched_resources(configuration, self.clients)
        """What the cluster is asked to hand over; more when a plugin attaches that needs more."""
        self.feed = Feed(self.handle_event)
        self.is_connected = False
        """Whether the cluster's watches are followed."""
        self.patches = PatchRunner(cluster, self.clock, self.objects, self.metrics.plugin_work.created)
        self.status = PodStatusWriter(cluster, self.clock)
        self.wiring = QueueWiring(self.clock, self.refresh_snapshot)
        self.queue, frameworks = self._make_queue_and_frameworks()
        self.wiring.connect(self.queue)
        self.failures = FailureHandler(self.queue, self.objects, self._forget, self.status)
        self.binding = BindingCycle(
            self.queue,
            self.cache,
            cluster,
            self.failures,
            self.status,
            self.diagnoses,
            ReadBack(cluster, self.clock),
            self.fate,
        )
        self.evictions = Evictions(VictimCalls(cluster, self.clock), self.status, self._eviction_seams())
        self.evaluator = Evaluator(
            self.options.chooser, self.objects.of_resource(BUDGETS), PodsAndEvictions(self)
        )
        self.scheduler = Scheduler(
            {name: self._profile(name, framework) for name, framework in frameworks.items()},
            self.queue,
            self.cache,
            self.snapshot,
            self.binding,
            self.evictions,
            self.clock,
        )
        self.handlers = EventHandlers(
            Handled(
                stores=self.objects,
                cache=self.cache,
                queue=self.queue,
                attempts=RunningAttempts(self.waiting_pods, self.scheduler, self.binding),
                report=cluster.create_event,
            ),
            frameworks.keys(),
        )
        self._handle = HandlerMetrics(self.metrics, self._queue_metrics, self.handlers.handle).handle
        self.collector = Collector(lambda: self.queue.scheduling_cycle)
        self.loop_task: asyncio.Future[None] | None = None

    # --- life ----------------------------------------------------------------------------------

    async def connect(self, *, stands_by: bool = False) -> None:
        """Attach plugins and take the cluster over, without scheduling: enough for single attempts.

        `stands_by`: another host may lead and be served by the same plugins, so they are attached by `lead`.
        """
        await self.clients.reconcile()
        await self._attach(stands_by=stands_by)
        self.is_connected = True
        await self.cluster.start(self.feed.handle, self.needed_resources)
        await self.synchronise()

    async def adopt_cluster(self, feed: Feed, *, stands_by: bool = False) -> None:
        """As `connect`, for a host that knows the cluster already, and is told of changes by `feed`."""
        self.feed = feed
        self.is_connected = True
        await self._attach(stands_by=stands_by)
        await self.synchronise()

    async def _attach(self, *, stands_by: bool) -> None:
        show_host(self.metrics, self)
        self._loop_errors.listen()
        if self.attachments.attached_places.places:
            await self.handle_server.start()
        await self.attachments.start(stands_by=stands_by)

    def handle_event(self, event: WatchEvent) -> None:
        """Take one change of the cluster over."""
        try:
            self._handle(event)
        except InvariantError as err:
            self.fate.fail(err)

    async def declare(self, descriptors: Iterable[Descriptor]) -> None:
        """Have the cluster hand over what these plugins, which are about to be attached, need as well.

        Raises ClusterError.
        """
        new = frozenset[str]().union(*map(resources_of, descriptors)) - self.needed_resources
        if new and self.is_connected:
            await self.watch(new)
        self.needed_resources |= new

    async def watch(self, resources: Collection[str]) -> None:
        """Have a cluster that is followed already hand these over as well.

        Raises UnavailableError when that takes longer than WATCH_S: whoever needs them must not wait for a
        right that nobody grants. The cluster goes on trying, so asking again later may help.
        """
        try:
            async with asyncio.timeout(WATCH_S):
                await self.cluster.watch(resources)
        except TimeoutError as err:
            raise UnavailableError(
                ", ".join(sorted(resources)),
                "",
                f"not listed within {WATCH_S:g} s; the log says why (watch.failed): mostly it is a role that"
                " lacks list and watch",
            ) from err

    async def synchronise(self) -> None:
        """Bring the snapshot and the plugins' copies of it up to date, with more time than a call has."""
        await self.refresh_snapshot()
        await self.attachments.synchronise()

    async def lead(self) -> None:
        """Begin to schedule, in a term of its own: plugins' copies and reservations of others are over."""
        self.snapshot.begin_epoch()
        await self.attachments.begin_term()
        await self.synchronise()
        self.begin_scheduling()

    def begin_scheduling(self) -> None:
        """As `lead`, in the epoch that the host was made with: for one that has not stood by."""
        self.collector.start(self.cache.node_count + self.cache.pod_count)
        self.queue.start()
        self.evictions.resume(self._nominated_pods())
        self.loop_task = asyncio.ensure_future(self.scheduler.run())
        self.loop_task.add_done_callback(self._loop_ended)
        log.info("host.started", profiles=list(self.scheduler.profiles), nodes=self.cache.node_count)

    async def start(self) -> None:
        """Connect, and begin to schedule."""
        await self.connect()
        self.begin_scheduling()

    async def drain(self, timeout_s: float) -> bool:
        """Schedule no further pod, and let what is under way end, for `timeout_s` (real time) at most.

        The cycle and binding cycles in PreBind or Bind run to their end; pods that wait on Permit are sent
        back; evictions and status writes are finished. False: the time was over first; see `stop`.
        """
        ends_s = time.monotonic() + timeout_s
        self.scheduler.stop_popping()
        if self.loop_task is not None:
            if self.scheduler.in_cycle is None:
                self.loop_task.cancel()
            await asyncio.wait({self.loop_task}, timeout=timeout_s)
        is_over = await self.binding.drain(ends_s - time.monotonic())
        is_over = await self.evictions.finish(ends_s - time.monotonic()) and is_over
        is_over = await self.status.flush(ends_s - time.monotonic()) and is_over
        log.info("host.drained", in_time=is_over, binding=len(self.binding))
        return is_over and (self.loop_task is None or self.loop_task.done())

    @property
    def is_leading(self) -> bool:
        """Whether `lead` was called."""
        return self.loop_task is not None

    async def stop(self) -> None:
        """End the cycle, undo binding cycles, let plugins go. Harmless when it was never started."""
        await self.retire()
        await self.cluster.stop()
        log.info("host.stopped", bound=self.binding.bound_count)

    async def abandon(self) -> None:
        """Somebody else leads: send nothing any more, from this call on, and end what is under way."""
        self.cluster.cut()
        await self.retire(0.0)
        await self.cluster.stop()
        log.info("host.stopped", bound=self.binding.bound_count)

    async def retire(self, patience_s: float | None = None) -> None:
        """As `stop`, and leave the cluster to whoever follows it now. `patience_s` None: STOP_S."""
        if patience_s is None:
            patience_s = STOP_S
        if self.loop_task is not None:
            self.scheduler.stop()
            self.loop_task.cancel()
            await asyncio.wait({self.loop_task})
        self.queue.stop()
        self.collector.stop()
        await self.binding.stop(patience_s)
        await self.evictions.finish(patience_s)
        await self.status.flush(patience_s)
        await self.attachments.stop()
        await self.handle_server.stop()
        self.clients.close()
        self._loop_errors.stop()

    def _loop_ended(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled():
            if (err := task.exception()) is not None:
                self.fate.fail(err)
        elif not self.scheduler.is_stopping:
            # It would look well, and schedule nothing any more.
            self.fate.fail(InvariantError("the scheduling loop was cancelled, and not by the host"))

    async def wait_failed(self) -> BaseException:
        """What broke the host, as soon as something does: the process cannot go on."""
        return await self.fate.wait()

    def check(self) -> None:
        """Raise what broke the host, if anything did."""
        if self.fate.error is not None:
            raise self.fate.error

    @property
    def changes(self) -> int:
        """Counts what may help a pod that ended in an error: binds, evictions, attachments."""
        return self.binding.bound_count + self.evictions.victim_count + self.attachments.recoveries

    async def run_until_settled(self, progress: Callable[[Progress], None] | None = None) -> None:
        """Run until nothing moves; for a host on a ManualClock, whose time this moves."""
        if not isinstance(self.clock, ManualClock):
            raise TypeError("only a host on a ManualClock can be settled: its time must be ours to move")
        await Settling(self, self.clock, progress).run()

    def plugin_stats(self) -> dict[str, PluginStats]:
        """What each plugin cost, by name."""
        return self.clients.stats

    # --- assembly ------------------------------------------------------------------------------

    def _make_clients(self) -> Clients:
        return make_clients(
            self.configuration,
            ClientSeams(
                registry=ClassRegistry(self.options.plugins),
                objects=self.objects,
                facts=SnapshotFacts(self.snapshot),
                handle=lambda name: InProcessHandle(name, self.backend),
                route=self.attachments.route,
            ),
        )

    def _make_queue_and_frameworks(self) -> tuple[SchedulingQueue, dict[str, Framework]]:
        waits = DeviceWaits(
            self.metrics.plugin_work, self.objects.of_resource(CLAIMS), self.clock.monotonic_s
        )
        pre_bind = PreBindRunner(self.patches, self.clock, waits.watched)
        queue_profiles = {}
        frameworks: dict[str, Framework] = {}
        sort = None
        for profile in self.configuration.profiles:
            name = profile.scheduler_name
            clients = self.clients.by_profile[name]
            points = plugins_by_point(profile, clients)
            sort = sort or self.wiring.sort(points)
            queue_profiles[name] = self.wiring.profile(profile, clients, points)
            answers = Recall(points) if self.options.recall else None
            frameworks[name] = MeasuredFramework(
                name, points, self.waiting_pods, pre_bind, self.metrics, answers
            )
        seams = QueueSeams(
            pods=self.objects,
            profiles=queue_profiles,
            sort=sort or QueueSort(),
            observer=self._queue_metrics,
            evicting=self.preempting,
        )
        config = replace(
            queue_config(self.configuration.scheduler, self.options.max_in_pool_s),
            ask_every_plugin=self.options.ask_every_plugin,
        )
        return SchedulingQueue(config, self.clock, seams), frameworks

    def _profile(self, name: str, framework: Framework) -> Profile:
        profile = self.configuration.profile(name)
        percentage = self._percentage(profile)
        return Profile(
            framework,
            Algorithm(framework, self.options.chooser, percentage),
            self.configuration.berth.cycle_budget_s,
        )

    def _percentage(self, profile: ResolvedProfile | None) -> int:
        if profile is not None and profile.percentage_of_nodes_to_score is not None:
            return profile.percentage_of_nodes_to_score
        return self.configuration.scheduler.percentage_of_nodes_to_score

    def _eviction_seams(self) -> EvictionSeams:
        return EvictionSeams(
            cache=self.cache,
            pods=self.objects,
            queue=self.queue,
            waiting_pods=self.waiting_pods,
            preempting=self.preempting,
            preempt_binding=self.binding.preempt_pod,
            patches=self.patches,
            fate=self.fate,
            metrics=self.metrics.preemption,
        )

    def _nominated_pods(self) -> list[Pod]:
        """Our pending pods with a nomination."""
        ours = self.scheduler.profiles
        return [
            pod
            for pod in self.objects.pods()
            if pod.nominated_node and not pod.node_name and pod.scheduler_name in ours
        ]

    async def refresh_snapshot(self) -> None:
        """Bring the snapshot up to date, now or when the cycle that holds it is over."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def refresh() -> None:
            self.snapshot.update(self.cache)
            if not done.done():  # the one who waited may have gone
                done.set_result(None)

        self.snapshot.when_released(refresh)
        await done

    def _forget(self, assumed: Pod) -> None:
        if self.cache.is_assumed(assumed.uid):
            self.cache.forget(assumed)
