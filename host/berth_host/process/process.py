"""`SchedulerProcess`: a host on a real cluster, from the first connection to the release of the Lease.

    connecting -informers synced-> standing by -Lease acquired-> leading -TERM-> draining -> left, exit 0
    any -TERM-> left, exit 0        leading -Lease lost or host failed-> no further write, exit 1
    any after connecting -HUP-> the same state with another host, if the new configuration is valid
    any -USR2-> the same state; the log gets the content of cache and queue

`berth scheduler` runs it. The start has kube-scheduler's order. The process releases the Lease last, after
all cycles have ended. Source: `cmd/kube-scheduler/app/server.go` (Run), v1.36.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from berth_kube.access import check_lists, contact, forbidden, refusal, rights
from berth_kube.client import KubeClient
from berth_kube.cluster import KubeCluster
from berth_kube.connection import Connection
from berth_kube.informer import Keeps
from berth_kube.lease import ElectorOptions, LeaderElector
from berth_kube.lease_client import KubeLeases
from berth_sdk import chance

from berth_host.app import Host, HostOptions
from berth_host.app.reload import reload
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.decoding.types_v1 import Extender
from berth_host.config.errors import ConfigurationError
from berth_host.config.rendering import completed_document
from berth_host.endpoints.options import ServingOptions
from berth_host.endpoints.secure_port import Endpoints, make_endpoints
from berth_host.errors import HostError
from berth_host.errors.cluster import ForbiddenError, InvalidError, UnauthorizedError
from berth_host.errors.plugins import PluginLoadError
from berth_host.listening.descriptors import raise_descriptor_limit
from berth_host.log import get_logger
from berth_host.log.secrets import masked_object
from berth_host.metrics import families
from berth_host.process.cache_debugger import dump
from berth_host.process.cluster_metrics import show_cluster
from berth_host.process.late_reviewer import LateReviewer
from berth_host.process.lease_settings import check_settings
from berth_host.process.signals import Signals
from berth_host.shadow.host import ShadowHost
from berth_host.shadow.record import ShadowRecord

log = get_logger()
T = TypeVar("T")

DRAIN_S: Final = 18.0
"""Seconds that open cycles get to end after a signal to stop. Up to 15 s for writes, 30 s for plugins and 5 s
for `close` of in-process plugins follow, each only if some are still open. The manifests in `deploy/`
therefore give the pod 70 s.
"""
_NEEDS_RESTART: Final = (
    ("clientConnection", "client_connection"),
    ("leaderElection", "leader_election"),
    ("enableProfiling", "enable_profiling"),
    ("enableContentionProfiling", "enable_contention_profiling"),
    ("delayCacheUntilActive", "delay_cache_until_active"),
)
"""Fields that a running process cannot change: as a file spells them, and as attributes."""


class ProcessError(HostError):
    """An error that ends `berth scheduler` with exit code 1.

    The text is one line: the reason, and the cure if there is one.
    """


class LeadershipLostError(ProcessError):
    """Another replica leads, or may lead. The process has written nothing since it lost the Lease."""


class HostFailedError(ProcessError):
    """The host stopped after an internal error, as its state may be wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """The settings of a process.

    `load`: reads the configuration again at HUP; raises ConfigurationError and PluginLoadError.
    `master`: a URL that takes precedence over the kubeconfig's. `default_kubeconfig`: the path to use if no
    other setting names a cluster. `shadow`: gets the decisions of a host that writes nothing; None: the host
    schedules. `host_name`: named in the Lease and in events; "" for this machine's name.
    """

    configuration: LoadedConfiguration
    load: Callable[[], LoadedConfiguration]
    master: str = ""
    default_kubeconfig: str = ""
    user_agent: str = "berth"
    serving: ServingOptions = field(default_factory=ServingOptions)
    authentication_kubeconfig: str = ""
    authorization_kubeconfig: str = ""
    flags: tuple[tuple[str, str], ...] = ()
    options: HostOptions = field(default_factory=HostOptions)
    shadow: ShadowRecord | None = None
    host_name: str = ""


class _StoppingError(Exception):
    """A signal asked the process to stop. Ends the work under way; the exit code is 0."""


class SchedulerProcess:
    """The life of `berth scheduler`; `run` is called once.

    The endpoints read the attributes configuration, host, elector (None: no election), is_connected,
    is_leading and is_stopping.
    """

    def __init__(self, settings: ProcessSettings, signals: Signals | None = None) -> None:
        """`signals`: what the process hears; None: the signals of the operating system."""
        self._settings = settings
        self.configuration = settings.configuration
        self.identity = f"{settings.host_name or socket.gethostname()}_{chance.new_uid()}"
        self.signals = signals if signals is not None else Signals()
        self.host: Host | None = None
        self.elector: LeaderElector | None = None
        self.is_connected = False
        self.is_leading = False
        self._renewing: asyncio.Task[None] | None = None
        self._endpoints: Endpoints | None = None

    @property
    def is_stopping(self) -> bool:
        """True after a signal asked the process to stop."""
        return self.signals.stopping.is_set()

    async def run(self) -> None:
        """Schedule until a signal asks the process to stop.

        Raises ProcessError, AccessError, ClientConfigError, EndpointError, PluginLoadError and
        DuplicatePluginError: exit code 1 each, with their text.
        """
        raise_descriptor_limit()
        with self.signals.heard():
            async with AsyncExitStack() as closing:
                dumping = asyncio.ensure_future(self._dump_when_told())
                closing.callback(dumping.cancel)
                try:
                    client = await self._before_end(self._opened(closing))
                except _StoppingError:
                    log.info("process.stopped")
                    return
                try:
                    await self._started(client)
                except _StoppingError:
                    await self._leave()
                except LeadershipLostError:
                    await self._host.abandon()
                    raise
                except BaseException:
                    await self._leave_at_once()
                    raise

    # --- start ---------------------------------------------------------------------------------

    async def _opened(self, closing: AsyncExitStack) -> KubeClient:
        """Make all parts and open the connections; `closing` closes them in reverse order."""
        log.info(
            "configuration.loaded",
            configuration=masked_object(completed_document(self.configuration)),
            berth=masked_object(self.configuration.berth.to_json()),
        )
        options = self._settings.options
        client = await KubeClient.open(self._connection(), options.metrics.rest_client)
        closing.push_async_callback(client.close)
        keeps = _kept_for(self.configuration.scheduler.extenders)
        cluster = KubeCluster(client, options.clock, host_name=self._settings.host_name, keeps=keeps)
        record = self._settings.shadow
        if record is None:
            self.host = Host(self.configuration, cluster, options)
        else:
            self.host = ShadowHost(self.configuration, cluster, record, options)
        closing.push_async_callback(self._close_plugins)  # where the process ends before the host starts
        if self.configuration.scheduler.leader_election.leader_elect:
            elector = await self._prepare_election(closing)
            cluster.lease_has_run_out = lambda: elector.has_run_out
        show_cluster(options.metrics, cluster)
        await self._listen(client, closing)
        return client

    async def _listen(self, client: KubeClient, closing: AsyncExitStack) -> None:
        """Start the secure port, whose users the API server of `client` reviews."""
        settings = self._settings
        reviewer = LateReviewer(client, settings.authentication_kubeconfig, settings.authorization_kubeconfig)
        closing.push_async_callback(reviewer.close)
        endpoints = self._endpoints = make_endpoints(self, settings, reviewer=reviewer)
        if endpoints.listens:
            await reviewer.open()
        closing.push_async_callback(endpoints.stop)
        await endpoints.start()

    async def _close_plugins(self) -> None:
        """Close the plugins of a host that was made. Has no effect on one that has stopped."""
        await self._host.clients.close()

    async def _prepare_election(self, closing: AsyncExitStack) -> LeaderElector:
        settings = self.configuration.scheduler.leader_election
        clock, metrics = self._settings.options.clock, self._settings.options.metrics
        try:
            check_settings(settings)
        except ValueError as err:
            raise ProcessError(f"leaderElection: {err}") from err
        # A client of its own, so that a renewal never waits behind bindings.
        client = await KubeClient.open(self._connection(), metrics.rest_client)
        leases = KubeLeases(client, settings, self.configuration.profiles[0].scheduler_name, clock)
        closing.push_async_callback(leases.close)
        slow_paths = itertools.count(1)
        name = (settings.resource_name,)

        def read_again() -> None:
            count = next(slow_paths)
            metrics.read(families.SLOW_PATH, lambda: [(name, count)])

        options = ElectorOptions(clock=clock, on_leading=self._set_leading, on_slow_path=read_again)
        self.elector = LeaderElector(leases, self.identity, settings, options)
        return self.elector

    async def _before_end(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` before there is a host.

        Raises _StoppingError if a signal asks the process to stop first, and the errors of `work`.
        """
        working = asyncio.ensure_future(work)
        stopping = asyncio.ensure_future(self.signals.stopping.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                raise _StoppingError
            return working.result()
        finally:
            stopping.cancel()
            if not working.done():
                working.cancel()
                await asyncio.wait({working})

    def _connection(self) -> Connection:
        given, master = self.configuration.scheduler.client_connection, self._settings.master
        return Connection(
            kubeconfig=given.kubeconfig or ("" if master else self._settings.default_kubeconfig),
            master=master,
            qps=given.qps,
            burst=given.burst,
            user_agent=self._settings.user_agent,
            accept_content_types=given.accept_content_types,
            content_type=given.content_type,
        )

    async def _started(self, client: KubeClient) -> None:
        """Connect, lead, and schedule. Raises _StoppingError after a signal to stop."""
        is_delayed = self.configuration.scheduler.delay_cache_until_active and self.elector is not None
        await self._unless_ended(self._met(client))
        if not is_delayed:
            await self._unless_ended(self._connected())
        if self.elector is not None:
            await self._unless_ended(self._acquired(client, self.elector))
        if is_delayed:
            await self._unless_ended(self._connected())
        self._set_leading(True)
        stood_by = self.elector is not None and not is_delayed
        await self._unless_ended(self._host.lead(stood_by=stood_by), may_reload=False)
        await self._unless_ended(asyncio.Event().wait())

    async def _met(self, client: KubeClient) -> None:
        version = await contact(client, self._settings.options.clock)
        log.info("cluster.contacted", host=client.host, version=version)
        needed = self._host.watching.needed
        writes = self._settings.shadow is None
        await check_lists(client, needed, list(rights(needed, self._lease_ref(), writes=writes)))

    async def _connected(self) -> None:
        await self._host.connect(stands_by=True)
        self.is_connected = True

    async def _acquired(self, client: KubeClient, elector: LeaderElector) -> None:
        try:
            await elector.acquire()
        except ForbiddenError as err:
            wanted = list(rights(self._host.watching.needed, self._lease_ref()))
            raise await forbidden(client, err, wanted) from err
        except UnauthorizedError as err:
            raise refusal(err, client.host) from err
        except InvalidError as err:
            raise ProcessError(
                f"the API server does not take the Lease {'/'.join(self._lease_ref() or ())}: {err};"
                " correct --leader-elect-lease-duration, --leader-elect-resource-name and"
                " --leader-elect-resource-namespace, or leaderElection in the configuration"
            ) from err
        self._renewing = asyncio.ensure_future(elector.renew())

    def _lease_ref(self) -> tuple[str, str] | None:
        settings = self.configuration.scheduler.leader_election
        return (settings.resource_namespace, settings.resource_name) if settings.leader_elect else None

    @property
    def _host(self) -> Host:
        assert self.host is not None
        return self.host

    def _set_leading(self, leads: bool) -> None:
        self.is_leading = leads
        if not leads:
            # In the same step of the loop, so that open cycles cannot write in between.
            self._host.cluster.cut()

    # --- while it runs ---------------------------------------------------------------------------

    async def _unless_ended(self, work: Coroutine[Any, Any, object], *, may_reload: bool = True) -> None:
        """Do `work` unless the process has to stop first. Meanwhile HUP reloads, once the host is connected.

        Raises the errors of `work`, _StoppingError, LeadershipLostError and HostFailedError.
        """
        working = asyncio.ensure_future(work)
        try:
            while not await self._waited(working, may_reload=may_reload):
                await self._reload()
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait({working})
        working.result()

    async def _waited(self, working: asyncio.Future[object], *, may_reload: bool) -> bool:
        """Wait for the end of the work. False: a HUP asks for a reload first."""
        stopping = asyncio.ensure_future(self.signals.stopping.wait())
        failing = asyncio.ensure_future(self._host.wait_failed())
        reloading = asyncio.ensure_future(self.signals.reloading.wait())
        waiting: set[asyncio.Future[Any]] = {working, stopping, failing}
        if may_reload and self.is_connected:
            waiting.add(reloading)
        if self._renewing is not None:
            waiting.add(self._renewing)
        try:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (stopping, failing, reloading):
                task.cancel()
        if failing in done:
            raise _host_failed(failing.result())
        if self._renewing in done:
            raise self._leadership_lost()
        if stopping in done:
            raise _StoppingError
        return working in done

    async def _reload(self) -> None:
        """Load the configuration and use it. One that is invalid changes nothing; the log has the reason."""
        self.signals.reloading.clear()
        if self._endpoints is not None:
            # Certificates and CAs, too, are those of now after a reload.
            await self._endpoints.server.renew()
        try:
            # In a thread: loading may ask the cluster for a Policy, and the Lease needs renewals meanwhile.
            configuration = await asyncio.to_thread(self._settings.load)
        except (ConfigurationError, PluginLoadError) as err:
            log.error("configuration.refused", error=str(err))
            return
        fixed = needs_restart(self.configuration, configuration)
        if fixed:
            reason = f"{', '.join(fixed)} cannot change while berth runs: restart it"
            log.error("configuration.refused", error=reason)
            return
        try:
            self.host = await self._unless_lost(reload(self._host, configuration))
        except LeadershipLostError:
            raise
        except Exception as err:
            log.error("configuration.refused", error=str(err) or type(err).__name__, exc_info=True)
            return
        self.configuration = configuration
        log.info(
            "configuration.loaded",
            configuration=masked_object(completed_document(configuration)),
            berth=masked_object(configuration.berth.to_json()),
        )

    async def _dump_when_told(self) -> None:
        """Write cache and queue to the log at every USR2, until cancelled."""
        while True:
            await self.signals.dumping.wait()
            self.signals.dumping.clear()
            if self.host is None:
                continue
            try:
                await dump(self.host)
            except Exception as err:
                # A dump that fails must end neither the scheduler nor this task.
                log.error("task.failed", work="dump", exc_info=err)

    # --- end -------------------------------------------------------------------------------------

    async def _leave(self) -> None:
        """End the open cycles, then release the Lease. Raises LeadershipLostError if it was lost before."""
        if self.is_leading:
            try:
                await self._unless_lost(self._host.drain(DRAIN_S))
            except LeadershipLostError:
                await self._host.abandon()
                raise
        await self._host.stop()
        await self._give_up_lease()
        log.info("process.stopped")

    async def _unless_lost(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work`, also after a signal to stop. Cancel `work` if the Lease is lost first.

        Raises LeadershipLostError, and the errors of `work`.
        """
        working = asyncio.ensure_future(work)
        try:
            if self._renewing is not None:
                await asyncio.wait({working, self._renewing}, return_when=asyncio.FIRST_COMPLETED)
                if self._renewing.done() and not working.done():
                    raise self._leadership_lost()
            return await working
        finally:
            if not working.done():
                working.cancel()
                await asyncio.wait({working})

    async def _leave_at_once(self) -> None:
        """Write nothing more to the cluster, and release the Lease so that another replica can lead."""
        await self._host.abandon()
        await self._give_up_lease()

    async def _give_up_lease(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.wait({self._renewing})
        if self.elector is not None:
            await self.elector.release()

    def _leadership_lost(self) -> LeadershipLostError:
        settings = self.configuration.scheduler.leader_election
        holder = self.elector.holder if self.elector is not None else ""
        lease = f"{settings.resource_namespace}/{settings.resource_name}"
        if holder not in ("", self.identity):
            return LeadershipLostError(f"leaderelection lost: {holder} holds the Lease {lease}")
        return LeadershipLostError(
            f"leaderelection lost: the Lease {lease} could not be renewed for {settings.renew_deadline_s:g} s"
        )


def needs_restart(old: LoadedConfiguration, new: LoadedConfiguration) -> list[str]:
    """Return the fields that differ and need a restart, as a file spells them."""
    changed = [
        name
        for name, attribute in _NEEDS_RESTART
        if getattr(old.scheduler, attribute) != getattr(new.scheduler, attribute)
    ]
    if _kept_for(old.scheduler.extenders) != _kept_for(new.scheduler.extenders):
        # The watches have dropped what they did not have to keep.
        changed.append("extenders (the first one, or the first without nodeCacheCapable)")
    return changed


def _kept_for(extenders: Sequence[Extender]) -> dict[str, Keeps]:
    """Return what the watches of pods and nodes keep because extenders get it: whole objects, but for the
    managedFields of pods, as from kube-scheduler.
    """
    if not extenders:
        return {}
    gets_nodes = any(
        not one.node_cache_capable and (one.filter_verb or one.prioritize_verb) for one in extenders
    )
    return {
        "pods": Keeps(last_applied=True),
        "nodes": Keeps(last_applied=True, managed_fields=gets_nodes),
    }


def _host_failed(error: BaseException) -> HostFailedError:
    failure = HostFailedError(
        f"the host stopped after an internal error: {error}; please report it with the log"
    )
    failure.__cause__ = error
    return failure
