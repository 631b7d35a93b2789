"""`berth query`: run the simulation, and answer `berth.query.v1` about it until Ctrl-C."""

from __future__ import annotations

import sys
from typing import Any, Final

import click
from berth_host.cli import plugin_output
from berth_host.cli.input_errors import fail, reported
from berth_host.endpoints.query_server import QueryServer
from berth_host.errors.endpoints import EndpointError
from berth_host.process import event_loop

from berth_sim.commands.simulate import input_options, prepared
from berth_sim.commands.ui import Simulated, serve

DEFAULT_PORT: Final = 8611
ADDRESS: Final = "127.0.0.1"


@click.command()
@input_options
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port of the service on 127.0.0.1; 0: any free one.",
)
def query(port: int, **options: Any) -> None:
    """Place the pods of manifests, as berth simulate does, and answer questions of programs (gRPC).

    Serves berth.query.v1.QueryService without TLS, and prints its address, until Ctrl-C. Every user of this
    machine can ask it.
    """
    output = sys.stdout
    with reported():
        # A question brings its own pods.
        ready = prepared({**options, "needs_pods": False})
        with plugin_output.on_standard_error():
            try:
                event_loop.run(serve(ready, port, lambda text: click.echo(text, file=output), _Queries))
            except EndpointError as err:
                fail(f"error: {err}")


class _Queries:
    """The query service of the simulation."""

    def __init__(self, process: Simulated) -> None:
        def make() -> Any:
            from berth_host.endpoints.query_service import OpenGate, QueryService

            return QueryService(process, OpenGate())

        self._server = QueryServer(make)

    async def start(self, port: int) -> str:
        await self._server.start(ADDRESS, port)
        return f"serving berth.query.v1 at {ADDRESS}:{self._server.port} (Ctrl-C ends it)"

    async def stop(self) -> None:
        await self._server.stop()
