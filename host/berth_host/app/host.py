"""`Host`: the life of a scheduler: it connects, leads, drains, stops. Its parts are put together by `parts`.

Made by the CLI (`berth simulate`), by `berth_host.run`, and by tests; the cluster port decides whether it
is an embedded cluster or a real one, and nothing here knows which.
"""

from __future__ import annotations

import asyncio
import time

from berth_sdk.pod import Pod

from berth_host.app.options import HostOptions
from berth_host.app.parts import HostParts
from berth_host.attach.attachments import Condition
from berth_host.cluster.port import ClusterPort, WatchEvent
from berth_host.cluster.watching import ChangeFeed
from berth_host.config.configuration import LoadedConfiguration
from berth_host.errors.state import InvariantError
from berth_host.log import get_logger
from berth_host.metrics.host_readings import show_host
from berth_host.metrics.plugin_stats import PluginStats
from berth_host.model.fate import LoopErrors

log = get_logger()
STOP_S = 5.0
"""How long `stop` waits for each of: Bindings on their way, evictions, status writes. Real time."""


class Host(HostParts):
    """One scheduler, for one term as leader. `start`, then it runs by itself; `stop` undoes what it can.

    made -connect-> connected (the cache follows the cluster) -lead-> leading -drain-> draining -stop-> over
    leading -abandon (another process leads)-> over
    any -an invariant broke-> failed (`wait_failed`): the process says so and ends
    """

    def __init__(
        self,
        configuration: LoadedConfiguration,
        cluster: ClusterPort,
        options: HostOptions | None = None,
    ) -> None:
        """Raises PluginLoadError and DuplicatePluginError."""
        super().__init__(configuration, cluster, options or HostOptions())
        self._loop_errors = LoopErrors(self.fate)
        self.feed = ChangeFeed(self.handle_event)
        self.loop_task: asyncio.Future[None] | None = None

    async def connect(self, *, stands_by: bool = False) -> None:
        """Attach plugins and take the cluster over, without scheduling: enough for single attempts.

        `stands_by`: another host may lead and be served by the same plugins, so they are attached by `lead`.
        """
        await self.clients.reconcile()
        await self._attach(stands_by=stands_by)
        await self.watching.follow(self.feed.handle)
        await self.synchronise()

    async def adopt_cluster(self, feed: ChangeFeed, *, stands_by: bool = False) -> None:
        """As `connect`, for a host that knows the cluster already, and is told of changes by `feed`."""
        self.feed = feed
        self.watching.take_over()
        await self._attach(stands_by=stands_by)
        await self.synchronise()

    async def _attach(self, *, stands_by: bool) -> None:
        show_host(self.metrics, self)
        self._loop_errors.listen()
        if self.attachments.attached_places:
            await self.handle_server.start()
        await self.attachments.start(stands_by=stands_by)

    def handle_event(self, event: WatchEvent) -> None:
        """Take one change of the cluster over."""
        try:
            self.handle_change(event)
        except InvariantError as err:
            self.fate.fail(err)

    async def synchronise(self) -> None:
        """Bring the snapshot and the plugins' copies of it up to date, with more time than a call has."""
        await self.state.refresh()
        await self.attachments.synchronise()

    async def lead(self) -> None:
        """Begin to schedule, in a term of its own: plugins' copies and reservations of others are over.

        Raises PluginLoadError for a plugin in another process that does not accept its arguments.
        """
        self.snapshot.begin_epoch()
        await self.attachments.begin_term()
        self.attachments.check_arguments()
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
        """Connect, and begin to schedule. Raises PluginLoadError as `lead` does."""
        await self.connect()
        self.attachments.check_arguments()
        self.begin_scheduling()

    async def drain(self, timeout_s: float) -> bool:
        """Schedule no further pod, and let cycles under way end, for `timeout_s` (real time) at most.

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
        """Another process leads: send nothing from this call on, and end the cycles under way."""
        self.cluster.cut()
        await self.retire(0.0)
        await self.cluster.stop()
        log.info("host.stopped", bound=self.binding.bound_count)

    async def retire(self, patience_s: float | None = None) -> None:
        """As `stop`, and leave the cluster to the host that follows. `patience_s` None: STOP_S."""
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
        """The error that broke the host, as soon as there is one: the process cannot go on."""
        return await self.fate.wait()

    def check(self) -> None:
        """Raise the error that broke the host, if any."""
        if self.fate.error is not None:
            raise self.fate.error

    @property
    def changes(self) -> int:
        """Counts the changes that may help a pod that ended in an error: binds, evictions, attachments."""
        return self.binding.bound_count + self.evictions.victim_count + self.attachments.recoveries

    def plugin_stats(self) -> dict[str, PluginStats]:
        """The cost of each plugin, by name."""
        return self.clients.stats

    def conditions(self) -> list[Condition]:
        """Every place of plugins elsewhere, and how it stands."""
        return self.attachments.attached_places.conditions()

    def reservations(self) -> dict[str, int]:
        """Reservations of plugins elsewhere that are alive or not given back yet, by plugin."""
        return self.attachments.reservations()

    def unreserve_ages(self) -> dict[str, float]:
        """For how many seconds the oldest reservation of each has not been given back, by plugin."""
        return self.attachments.unreserve_ages()

    def drifts(self) -> dict[str, int]:
        """How often instances dropped their copies of the state, by plugin."""
        return self.attachments.drifts()

    def absent_plugins(self) -> list[str]:
        """Required plugins that cannot be asked, by name in order."""
        return self.clients.absent(self.attachments.attached_places.plugins)

    def _nominated_pods(self) -> list[Pod]:
        """Our pending pods with a nomination."""
        ours = self.scheduler.profiles
        return [
            pod
            for pod in self.objects.pods()
            if pod.nominated_node and not pod.node_name and pod.scheduler_name in ours
        ]
