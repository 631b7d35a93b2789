"""The secure port of a process: the server with all its pages.

Made by the process, and by tests with an embedded cluster. `Endpoints.server` accepts further routes.
Source: kube-scheduler `cmd/kube-scheduler/app/server.go` (Run, newEndpointsHandler), v1.36.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from berth_sdk.clocks import wall_s

from berth_host import log
from berth_host.attach.state import State
from berth_host.config.configuration import LoadedConfiguration
from berth_host.config.rendering import completed_document
from berth_host.endpoints.access import Reviewer
from berth_host.endpoints.debugging import PREFIX, Flagz, Profiling, Statusz, verbosity
from berth_host.endpoints.health import PING, Check
from berth_host.endpoints.options import ServingOptions
from berth_host.endpoints.pages import PREFIX as ANSWERS
from berth_host.endpoints.pages import Answers, HostOnPages
from berth_host.endpoints.query_server import QueryServer
from berth_host.endpoints.request_response import Answer, Request, as_json, text
from berth_host.endpoints.server import EndpointServer
from berth_host.endpoints.ui import PATH as UI_PATH
from berth_host.endpoints.ui import PREFIX as UI
from berth_host.endpoints.ui import Ui
from berth_host.log.secrets import masked_object
from berth_host.metrics import families
from berth_host.metrics.exposition import CONTENT_TYPE, OPEN_METRICS, Exposition, wants_open_metrics
from berth_host.metrics.pod_resources import pod_resources_text
from berth_host.metrics.scheduler_metrics import SchedulerMetrics

if TYPE_CHECKING:
    from berth_host.endpoints.query_service import QueryService

NOT_SYNCED: Final = "handlers are not fully synchronized"


class ServedHost(HostOnPages, Protocol):
    """The parts of the host that the pages show."""

    def absent_plugins(self) -> Sequence[str]:
        """Return the required plugins that cannot be called."""
        ...


class OptionsOfHosts(Protocol):
    """The options of the process's hosts that the pages show."""

    @property
    def metrics(self) -> SchedulerMetrics:
        """The registry that every host of the process reports to."""
        ...


class Election(Protocol):
    """The leader election (`berth_kube.lease.LeaderElector`)."""

    def complaint(self) -> str:
        """Return the problem with the renewal of the Lease; "" if there is none."""
        ...


class Observed(Protocol):
    """The parts of the process that the pages show. The attributes may change at any time."""

    @property
    def configuration(self) -> LoadedConfiguration:
        """The configuration that the process runs with."""
        ...

    @property
    def host(self) -> ServedHost | None:
        """The host that schedules or stands by; None while the process starts."""
        ...

    @property
    def elector(self) -> Election | None:
        """The leader election; None if there is none, and this replica leads from the start."""
        ...

    @property
    def is_connected(self) -> bool:
        """True once the host has listed the cluster's objects."""
        ...

    @property
    def is_leading(self) -> bool:
        """True while this replica schedules pods."""
        ...

    @property
    def is_stopping(self) -> bool:
        """True after a signal asked the process to stop."""
        ...


class Settings(Protocol):
    """The settings of the process (`process.process.ProcessSettings`)."""

    @property
    def serving(self) -> ServingOptions:
        """The flags of the port."""
        ...

    @property
    def flags(self) -> Iterable[tuple[str, str]]:
        """Names and values for `/flagz`."""
        ...

    @property
    def options(self) -> OptionsOfHosts:
        """The options of the process's hosts."""
        ...


class Endpoints:
    """The server, and the query service beside it."""

    def __init__(self, server: EndpointServer, query: QueryServer) -> None:
        self.server = server
        self.query = query

    @property
    def listens(self) -> bool:
        """True if the server or the query service has a port."""
        return bool(self.server.options.port or self.server.options.query_port)

    async def start(self, listening: socket.socket | None = None) -> None:
        """Listen on `listening`, or on the port of the options; do nothing if that port is 0. Start the query
        service, if it has a port.

        Raises EndpointError.
        """
        options = self.server.options
        await self.server.start(listening)
        if options.query_port:
            address = options.query_address or options.bind_address
            await self.query.start(address, options.query_port, self.server.certificate())

    async def stop(self) -> None:
        """Stop both servers. Has no effect without `start`."""
        await self.query.stop()
        await self.server.stop()


def make_endpoints(process: Observed, settings: Settings, *, reviewer: Reviewer | None = None) -> Endpoints:
    """Make the server with all pages.

    `reviewer`: reviews users; None: no user is known, and only the health pages can be read. Raises
    EndpointError for options that contradict each other.
    """
    metrics = settings.options.metrics
    server = EndpointServer(settings.serving, reviewer, metrics.connections)
    _add_checks(server, process)
    _add_pages(server, process, metrics, dict(settings.flags))
    server.add_route(ANSWERS, Answers(process).answer)
    if settings.serving.ui:
        ui = Ui()
        server.add_page(UI_PATH, ui.answer, listed=True)
        server.add_route(UI, ui.answer)
    if process.configuration.scheduler.enable_profiling:
        server.add_route(PREFIX, Profiling().answer)
        server.add_page("/debug/flags/v", verbosity(lambda value: log.change_level(log.level_of(value))))
    if process.elector is not None:
        name = process.configuration.scheduler.leader_election.resource_name
        metrics.read(families.MASTER_STATUS, lambda: [((name,), int(process.is_leading))])
    return Endpoints(server, QueryServer(lambda: _queries(process, server), metrics=metrics.connections))


def _queries(process: Observed, server: EndpointServer) -> QueryService:
    # Here, as it brings gRPC.
    from berth_host.endpoints.query_service import QueryService, ReviewingGate

    return QueryService(process, ReviewingGate(server.authentication, server.authorization))


def _add_checks(server: EndpointServer, process: Observed) -> None:
    """Add the checks in kube-scheduler's order, and berth's own check of served plugins, if there are any."""
    leads = Check("leaderElection", lambda: process.elector.complaint() if process.elector else "")
    elects = process.elector is not None
    server.add_checks("healthz", [leads if elects else PING])
    server.add_checks("livez", [PING])
    server.add_checks("readyz", [leads] if elects else [])
    server.add_checks(
        "readyz",
        [
            Check("shutdown", lambda: "process is shutting down" if process.is_stopping else ""),
            Check("sched-handler-sync", lambda: "" if process.is_connected else NOT_SYNCED),
        ],
    )
    attached = Check(
        "plugins",
        lambda: _unusable_plugins(process),
        remark=lambda: _absent_plugins(process),
        # A reload may add the first served plugin, or remove the last one.
        applies=lambda: any(plugin.in_process is None for plugin in process.configuration.berth.plugins),
    )
    server.add_checks("readyz", [attached])


def _absent_plugins(process: Observed) -> str:
    """Return the required plugins that are not attached, as a remark; "" if all are.

    The replica stays ready. Another replica would lack them too, and pods outside their scope are scheduled.
    """
    absent = () if process.host is None else process.host.absent_plugins()
    return f"required plugins are not attached: {', '.join(absent)}" if absent else ""


def _unusable_plugins(process: Observed) -> str:
    """Return the plugins that contradict the configuration and so cannot be used; "" for none."""
    host = process.host
    conditions = [] if host is None else host.attachments.attached_places.conditions()
    faults = [
        f"plugin {name} {reason}" for condition in conditions for name, reason in condition.unusable.items()
    ]
    faults += [
        f"plugin {', '.join(condition.plugins)} is refused: {condition.reason}"
        for condition in conditions
        if condition.state is State.REJECTED
    ]
    faults += [condition.reason for condition in conditions if condition.state is State.QUARANTINED]
    return "; ".join(faults)


def _add_pages(
    server: EndpointServer, process: Observed, metrics: SchedulerMetrics, flags: Mapping[str, str]
) -> None:
    shown = Exposition(lambda: metrics.sources)
    slis = Exposition(lambda: server.health_metrics.sources, process=False)

    def emulated() -> str:
        return process.configuration.emulation.version

    async def configz(request: Request) -> Answer:
        masked = masked_object(completed_document(process.configuration))
        return as_json({"componentconfig": masked}, sniff=False)

    async def all_metrics(request: Request) -> Answer:
        if request.method == "DELETE":
            metrics.clear()
            return text("metrics reset\n", sniff=True)
        # Without exemplars the format that kube-scheduler has says the same.
        if metrics.has_exemplars and wants_open_metrics(request.accept):
            return Answer(b"" if request.method == "HEAD" else await shown.open_metrics(), OPEN_METRICS)
        return await _metrics(request, shown.text)

    async def resources(request: Request) -> Answer:
        host = process.host
        if host is None or not process.is_leading:
            return Answer(b"", "")
        return await _metrics(request, lambda: pod_resources_text(list(host.objects.pods())))

    async def sli_metrics(request: Request) -> Answer:
        return await _metrics(request, slis.text)

    server.add_page("/configz", configz, listed=True)
    server.add_page("/metrics", all_metrics, listed=True)
    server.add_page("/metrics/resources", resources)
    server.add_page("/metrics/slis", sli_metrics)
    server.add_page("/statusz", Statusz(wall_s(), lambda: server.paths, emulated).answer)
    server.add_page("/flagz", Flagz(flags).answer, listed=True)


async def _metrics(request: Request, made: Callable[[], Awaitable[bytes]]) -> Answer:
    """Return the metrics as text; for HEAD an empty body, without reading the metrics."""
    return Answer(b"" if request.method == "HEAD" else await made(), CONTENT_TYPE)
