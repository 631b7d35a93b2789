"""`Host`: the life of a scheduler: connect, lead, drain, stop. `parts` makes its parts.

The commands, the process of `berth scheduler` and tests make hosts. The cluster port is that of an embedded
cluster or of a real one; the host does not depend on which.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from berth_sdk.clocks import monotonic_s
from berth_sdk.pod import Pod

from berth_host.app.asked_host import AskedHost
from berth_host.app.host_options import HostOptions
from berth_host.app.parts import HostParts
from berth_host.attach.attachments import Condition
from berth_host.cluster.port import ClusterPort, WatchEvent
from berth_host.cluster.watching import ChangeFeed
from berth_host.config.configuration import LoadedConfiguration
from berth_host.cycle.collector import uncollected
from berth_host.endpoints.pages import ReportsShadow
from berth_host.errors.state import InvariantError
from berth_host.log import get_logger
from berth_host.metrics.host_readings import show_host
from berth_host.metrics.plugin_stats import PluginStats
from berth_host.model.internal_error import LoopErrors
from berth_host.questions.questions import A, Question

log = get_logger()
CATCH_UP_S = 5.0
"""Seconds (real time) that a host which stood by waits for the changes of before its term."""
STOP_S = 5.0
"""Seconds (real time) that `stop` waits for each of: Bindings under way, evictions, status writes."""


class Host(HostParts):
    """One scheduler, for one term as leader. After `start`, its own tasks schedule until `stop`.

    made -connect-> connected (the cache follows the cluster) -lead-> leading -drain-> draining -stop-> over
    leading -abandon (another process leads)-> over
    any -internal error-> failed (`wait_failed` returns the error, and the process ends)
    """

    shadow: ReportsShadow | None = None
    """The decisions of a shadow (`shadow.host`); None: the host schedules."""

    def __init__(
        self,
        configuration: LoadedConfiguration,
        cluster: ClusterPort,
        options: HostOptions | None = None,
    ) -> None:
        """Make the parts, without a call to the cluster. Raises PluginLoadError and DuplicatePluginError."""
        super().__init__(configuration, cluster, options or HostOptions())
        self._loop_errors = LoopErrors(self.internal_error)
        self.feed = ChangeFeed(self.handle_event)
        self.asked = AskedHost(self)
        self.loop_task: asyncio.Future[None] | None = None

    @property
    def adapter(self) -> ClusterPort:
        """The port that the host was given."""
        return self.cluster

    def successor(self, configuration: LoadedConfiguration) -> Host:
        """Return a host of the same kind on the same cluster, with another configuration."""
        return Host(configuration, self.adapter, self.options)

    async def connect(self, *, stands_by: bool = False) -> None:
        """Attach the plugins and follow the cluster, without scheduling. Enough for single attempts.

        `stands_by`: another host may lead with the same plugins, so `lead` attaches them.
        """
        await self.clients.reconcile()
        await self._attach(stands_by=stands_by)
        with uncollected():
            await self.watching.follow(self.feed.handle)
            await self.synchronise()

    async def adopt_cluster(self, feed: ChangeFeed, *, stands_by: bool = False) -> None:
        """Connect as `connect` does, without a list of the cluster: `feed` passes the changes of the host
        before.
        """
        self.feed = feed
        self.watching.take_over()
        await self._attach(stands_by=stands_by)
        await self.synchronise()

    async def _attach(self, *, stands_by: bool) -> None:
        show_host(self.metrics, self)
        self._loop_errors.listen()
        if self.attachments.attached_places and self.options.way_back:
            await self.handle_server.start()
        await self.attachments.start(stands_by=stands_by)

    def handle_event(self, event: WatchEvent) -> None:
        """Handle one change of the cluster. An InvariantError ends the host."""
        try:
            self.handle_change(event)
        except InvariantError as err:
            self.internal_error.fail(err)

    async def synchronise(self) -> None:
        """Update the snapshot and the served plugins' copies of it, with more time than a call has."""
        await self.state.refresh()
        await self.attachments.synchronise()

    async def lead(self, *, stood_by: bool = False) -> None:
        """Begin to schedule, in a new epoch: copies and reservations of earlier terms are invalid.

        `stood_by`: another host led until now, so what it wrote last must be known first; see
        `ClusterPort.catch_up`. Raises PluginLoadError if a served plugin does not accept its arguments.
        """
        if stood_by:
            await self._catch_up()
        self.snapshot.begin_epoch()
        await self.attachments.begin_term()
        self.attachments.check_arguments()
        await self.synchronise()
        self.begin_scheduling()

    async def _catch_up(self) -> None:
        began_s = monotonic_s()
        behind = await self.cluster.catch_up(CATCH_UP_S)
        took_ms = round(1000 * (monotonic_s() - began_s), 1)
        if behind:
            log.warning("cluster.behind", resources=list(behind), duration_ms=took_ms)
        else:
            log.info("cluster.caught_up", duration_ms=took_ms)

    def begin_scheduling(self) -> None:
        """Begin to schedule in the epoch that the host was made with. For a host that has not stood by."""
        self.collector.start(self.cache.node_count + self.cache.pod_count)
        self.queue.start()
        nominated = self._nominated_pods()
        self._begin_to_act(nominated)
        self.holds.resume(nominated, self.preempting.is_preempting)
        self.loop_task = asyncio.ensure_future(self.scheduler.run())
        self.loop_task.add_done_callback(self._loop_ended)
        log.info("host.started", profiles=list(self.scheduler.profiles), nodes=self.cache.node_count)

    def _begin_to_act(self, nominated: Sequence[Pod]) -> None:
        """Let the parts beside the loop begin. `nominated`: the pending pods with a nominated node."""
        self.rivals.begin()
        self.handlers.begin()
        self.coscheduling.begin()
        self.repair.begin()
        self.evictions.resume(nominated)

    async def start(self) -> None:
        """Connect and begin to schedule. Raises PluginLoadError as `lead` does."""
        await self.connect()
        self.attachments.check_arguments()
        self.begin_scheduling()

    async def drain(self, timeout_s: float) -> bool:
        """Pop no further pod, and wait until the open cycles end, for `timeout_s` (real time) at most.

        The scheduling cycle and binding cycles in PreBind or Bind run to their end. Pods that wait at Permit
        are requeued. Evictions and status writes are finished. Returns False if the time was over first; see
        `stop`.
        """
        ends_s = monotonic_s() + timeout_s
        self.scheduler.stop_popping()
        if self.loop_task is not None:
            if not self.scheduler.is_busy:
                self.loop_task.cancel()
            await asyncio.wait({self.loop_task}, timeout=timeout_s)
        await self.repair.stop()
        is_over = await self.binding.drain(ends_s - monotonic_s())
        is_over = await self.evictions.finish(ends_s - monotonic_s()) and is_over
        is_over = await self.status.flush(ends_s - monotonic_s()) and is_over
        is_over = await self.group_status.flush(ends_s - monotonic_s()) and is_over
        log.info("host.drained", in_time=is_over, binding=len(self.binding))
        return is_over and (self.loop_task is None or self.loop_task.done())

    @property
    def is_leading(self) -> bool:
        """True once the host has begun to schedule."""
        return self.loop_task is not None

    async def stop(self) -> None:
        """End the cycle, undo binding cycles, close attachments. Has no effect on a host that was not
        started.
        """
        await self.retire()
        await self.cluster.stop()
        log.info("host.stopped", bound=self.binding.bound_count)

    async def abandon(self) -> None:
        """Write nothing to the cluster from now on, as another process leads, and end the open cycles."""
        self.cluster.cut()
        await self.retire(0.0)
        await self.cluster.stop()
        log.info("host.stopped", bound=self.binding.bound_count)

    async def retire(self, patience_s: float | None = None) -> None:
        """Stop as `stop` does, but leave the cluster port open for the next host.

        `patience_s`: see STOP_S, which None means.
        """
        if patience_s is None:
            patience_s = STOP_S
        if self.loop_task is not None:
            self.scheduler.stop()
            self.loop_task.cancel()
            await asyncio.wait({self.loop_task})
        self._stop_queueing()
        self.holds.stop()
        await self.repair.stop()
        await self.coscheduling.stop()
        self.collector.stop()
        await self.binding.stop(patience_s)
        if self.binding.ends is not None:
            await self.binding.ends.stop(patience_s)
        await self.evictions.finish(patience_s)
        await self.status.flush(patience_s)
        await self.group_status.flush(patience_s)
        await self.attachments.stop()
        await self.handle_server.stop()
        await self.clients.close()
        await self.extenders.close()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)
        self._loop_errors.stop()

    def _stop_queueing(self) -> None:
        """Stop what brings pods to the loop."""
        self.queue.stop()
        self.wiring.stop()

    async def ask(self, question: Question[A]) -> A:
        """Return the answer to a question, which changes nothing. Raises QuestionError.

        Waits for the end of the scheduling cycle under way; the next one waits for the answer.
        """
        return await question.answer(self.asked)

    def _loop_ended(self, task: asyncio.Future[None]) -> None:
        if not task.cancelled():
            if (err := task.exception()) is not None:
                self.internal_error.fail(err)
        elif not self.scheduler.is_stopping:
            # Without this, the host would look healthy and schedule nothing.
            self.internal_error.fail(InvariantError("the scheduling loop was cancelled, and not by the host"))

    async def wait_failed(self) -> BaseException:
        """Wait for the error that ends the host, and return it."""
        return await self.internal_error.wait()

    def check(self) -> None:
        """Raise the error that ended the host, if any."""
        if self.internal_error.error is not None:
            raise self.internal_error.error

    @property
    def changes(self) -> int:
        """The number of changes that may help a pod that ended in an error: binds, evictions, attachments."""
        evicted = self.evictions.victim_count + self.repair.evicted_count
        return self.binding.bound_count + evicted + self.attachments.recoveries

    def plugin_stats(self) -> dict[str, PluginStats]:
        """Return the cost of each plugin and of each HTTP extender, by name."""
        return {**self.clients.stats, **self.extenders.stats}

    def conditions(self) -> list[Condition]:
        """Return the state of every place of served plugins."""
        return self.attachments.attached_places.conditions()

    def reservations(self) -> dict[str, int]:
        """Return by plugin: the number of live reservations and of pending Unreserves."""
        return self.attachments.reservations()

    def unreserve_ages(self) -> dict[str, float]:
        """Return by plugin: the age in seconds of the oldest pending Unreserve."""
        return self.attachments.unreserve_ages()

    def post_bind_ages(self) -> dict[str, float]:
        """Return by plugin: the age in seconds of the oldest held PostBind, or end of a bound pod's cycle."""
        return {} if self.binding.ends is None else self.binding.ends.oldest_s()

    def post_binds_dropped(self) -> dict[str, int]:
        """Return by plugin: the number of these that were dropped."""
        return {} if self.binding.ends is None else dict(self.binding.ends.dropped)

    def drifts(self) -> dict[str, int]:
        """Return by plugin: how often an instance dropped its copy of the state."""
        return self.attachments.drifts()

    def absent_plugins(self) -> list[str]:
        """Return the names of the required plugins that cannot be called, sorted."""
        return self.clients.absent(self.attachments.attached_places.plugins)

    def _nominated_pods(self) -> list[Pod]:
        """Return the pending pods of this host's profiles that have a nominated node."""
        ours = self.scheduler.profiles
        return [
            pod
            for pod in self.objects.pods()
            if pod.nominated_node and not pod.node_name and pod.scheduler_name in ours
        ]
